//! What the host looks like at one moment.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ipnet::IpNet;

use crate::link::LinkNames;
use crate::{
    Address, Error, Link, NeighbourProxy, Netlink, PROTOCOL, Result, Route, RouteFilter, Rule,
};

/// Interfaces, addresses, routes, rules and neighbour proxies of a network namespace: each kind is listed once, when
/// it is asked for first.
///
/// What is changed afterwards is not seen: a pass over many changes works on one view, the next pass on another.
#[derive(Debug)]
pub struct View<'a> {
    netlink: &'a mut Netlink,
    links: Option<HashMap<String, Link>>,
    addresses: Option<Vec<Address>>,
    by_address: HashMap<(String, IpNet), usize>,
    routes: HashMap<RouteFilter, Routes>,
    rules: Option<Vec<Rule>>,
    proxies: Option<Vec<NeighbourProxy>>,
    spent: Duration,
}

/// Routes by their place: destination, table, metric.
type Routes = HashMap<(IpNet, u32, u32), Vec<Route>>;

impl<'a> View<'a> {
    /// Looks at the network namespace of `netlink`.
    #[must_use]
    pub fn new(netlink: &'a mut Netlink) -> Self {
        Self {
            netlink,
            links: None,
            addresses: None,
            by_address: HashMap::new(),
            routes: HashMap::new(),
            rules: None,
            proxies: None,
            spent: Duration::ZERO,
        }
    }

    /// The time that listing has taken so far.
    #[must_use]
    pub fn spent(&self) -> Duration {
        self.spent
    }

    fn by_name(&mut self) -> Result<&HashMap<String, Link>> {
        let links = match self.links.take() {
            Some(links) => links,
            None => {
                let links = self.list(Netlink::links)?;
                links.into_iter().map(|it| (it.name.clone(), it)).collect()
            }
        };
        Ok(self.links.insert(links))
    }

    /// Lists what names interfaces.
    fn list_among<T>(
        &mut self,
        list: impl FnOnce(&mut Netlink, &LinkNames) -> Result<T>,
    ) -> Result<T> {
        let names = self.links()?.map(|link| (link.index, link.name.clone())).collect();
        self.list(|it| list(it, &names))
    }

    fn list<T>(&mut self, list: impl FnOnce(&mut Netlink) -> Result<T>) -> Result<T> {
        let began = Instant::now();
        let listed = list(self.netlink);
        self.spent += began.elapsed();
        listed
    }

    /// For what is not listed here.
    pub fn netlink(&mut self) -> &mut Netlink {
        self.netlink
    }

    /// The interface `name`, if it is there.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`], [`Error::Answer`].
    pub fn find_link(&mut self, name: &str) -> Result<Option<&Link>> {
        Ok(self.by_name()?.get(name))
    }

    /// All interfaces, in no order.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`], [`Error::Answer`].
    pub fn links(&mut self) -> Result<impl Iterator<Item = &Link>> {
        Ok(self.by_name()?.values())
    }

    /// The name of the interface of this index, if it is there.
    pub(super) fn link_name(&mut self, index: u32) -> Result<Option<&str>> {
        // Lists them.
        self.find_link("")?;
        let mut links = self.links.iter().flat_map(HashMap::values);
        Ok(links.find(|link| link.index == index).map(|link| link.name.as_str()))
    }

    /// The interface `name`.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`] if there is none; [`Error::Netlink`], [`Error::Answer`].
    pub fn link(&mut self, name: &str) -> Result<&Link> {
        let missing = || Error::NoDevice(name.to_owned());
        self.find_link(name)?.ok_or_else(missing)
    }

    /// The index of the interface `name`, for which nothing is listed.
    pub(super) fn link_index(&mut self, name: &str) -> Result<u32> {
        match &self.links {
            Some(_) => self.link(name).map(|link| link.index),
            None => self.netlink.link_index(name),
        }
    }

    /// The addresses of all interfaces.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`], [`Error::Answer`].
    pub fn addresses(&mut self) -> Result<&[Address]> {
        if self.addresses.is_none() {
            let all = self.list_among(|it, names| it.addresses_among(names, None))?;
            let places = all.iter().enumerate();
            self.by_address =
                places.map(|(at, it)| ((it.device.clone(), it.address), at)).collect();
            self.addresses = Some(all);
        }
        Ok(self.addresses.as_deref().unwrap_or_default())
    }

    pub(super) fn address(&mut self, wanted: &Address) -> Result<Option<&Address>> {
        self.addresses()?;
        let at = self.by_address.get(&(wanted.device.clone(), wanted.address));
        Ok(at.and_then(|at| self.addresses.as_ref()?.get(*at)))
    }

    /// Whether a route of ours is at the place of `wanted`, by whatever device.
    pub(super) fn has_own_route(&mut self, wanted: &Route) -> Result<bool> {
        let place = (wanted.destination, wanted.table, wanted.effective_metric());
        let ours = RouteFilter { protocol: Some(PROTOCOL), ..RouteFilter::default() };
        Ok(self.routes(ours)?.contains_key(&place))
    }

    /// The route at the place of `wanted`; among several the one that does the same, else the one that is ours.
    pub(super) fn route(&mut self, wanted: &Route) -> Result<Option<Route>> {
        // Other interfaces' routes at the same place make adding fail by themselves.
        let index = match &wanted.device {
            Some(device) => Some(self.link_index(device)?),
            None => None,
        };
        let place = (wanted.destination, wanted.table, wanted.effective_metric());
        // Ours are few beside a routing daemon's, and most of what is asked for is there.
        let ours = RouteFilter { protocol: Some(PROTOCOL), ..RouteFilter::default() };
        let there = RouteFilter { table: Some(wanted.table), protocol: None, index };
        let found = self.routes(ours)?.get(&place).into_iter().flatten();
        if let Some(same) = found.clone().find(|it| it.same_effect(wanted)) {
            return Ok(Some(same.clone()));
        }
        let found = self.routes(there)?.get(&place).into_iter().flatten();
        let rank = |it: &&Route| (!it.same_effect(wanted), it.protocol != PROTOCOL);
        Ok(found.min_by_key(rank).cloned())
    }

    fn routes(&mut self, filter: RouteFilter) -> Result<&Routes> {
        if !self.routes.contains_key(&filter) {
            let mut routes = Routes::new();
            for route in self.list_among(|it, names| it.routes_among(names, filter))? {
                let place = (route.destination, route.table, route.effective_metric());
                routes.entry(place).or_default().push(route);
            }
            self.routes.insert(filter, routes);
        }
        Ok(&self.routes[&filter])
    }

    pub(super) fn rules(&mut self) -> Result<&[Rule]> {
        if self.rules.is_none() {
            self.rules = Some(self.list(Netlink::rules)?);
        }
        Ok(self.rules.as_deref().unwrap_or_default())
    }

    pub(super) fn rule(&mut self, wanted: &Rule) -> Result<Option<&Rule>> {
        Ok(self.rules()?.iter().find(|it| it.same_object(wanted)))
    }

    pub(super) fn proxy(&mut self, wanted: &NeighbourProxy) -> Result<Option<&NeighbourProxy>> {
        if self.proxies.is_none() {
            self.proxies = Some(self.list_among(Netlink::neighbour_proxies_among)?);
        }
        let mut proxies = self.proxies.iter().flatten();
        Ok(proxies.find(|it| it.same_object(wanted)))
    }
}
