//! The pod's part: what is in its network namespace.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use fordway_bpf::{PodHook, PodPrograms};
use fordway_net::{Address, IpNet, Ipv4Net, NetNs, Netlink, NextHop, Route, RouteFilter};
use fordway_xlat::addr::Pool6;

use crate::node::Node;
use crate::{Code, Failure, Result, Steps};

/// Every pod's IPv4 address (RFC 7335).
pub(crate) const V4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 1);

/// An IPv4 address of `ipv4only.arpa` (RFC 7050): is there a way to it behind the prefix?
const PROBE: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 170);

/// Octets by which an IPv4 packet may grow: the longer header, and a Fragment Header.
const GROWTH: u32 = 28;

/// Octets of the IPv6 and the TCP header.
const TCP_V6: u32 = 60;

/// Error numbers of the kernel.
const ENOENT: i32 = 2;
const ESRCH: i32 = 3;
const EEXIST: i32 = 17;
const ENODEV: i32 = 19;
const EADDRNOTAVAIL: i32 = 99;

/// What a pod has to have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) interface: &'a str,
    pub(crate) key: u64,
    pub(crate) clat: Ipv6Addr,
    pub(crate) prefix: Pool6,
}

/// Opens a pod's namespace, which must not be the node's own.
pub(crate) fn open(path: &Path, node: &Node) -> Result<NetNs> {
    let name = path.display().to_string();
    let missing = |error: String| {
        Failure::new(Code::NoContainer, format!("there is no network namespace {name}"))
            .details(error)
    };
    let inode = path.metadata().map_err(|error| missing(error.to_string()))?.ino();
    if inode == node.inode {
        let what = format!("CNI_NETNS {name} is the node's own network namespace");
        return Err(Failure::new(Code::Environment, what));
    }
    NetNs::open(&name).map_err(|error| missing(error.to_string()))
}

/// Octets of the link-layer header of the pod's device.
pub(crate) fn link_layer_len(interface: &str) -> Result<u32> {
    Ok(fordway_bpf::link_layer_len(index(interface)?)?)
}

fn index(interface: &str) -> Result<u32> {
    Ok(Netlink::open()?.link(interface)?.index)
}

impl Wanted<'_> {
    /// Sets the pod up. What is there already stays.
    pub(crate) fn make(&self, programs: &PodPrograms, steps: &mut Steps) -> Result<()> {
        let mut netlink = Netlink::open()?;
        let route = self.route(&mut netlink)?;
        for address in self.addresses() {
            steps.next("an address of the pod")?;
            match netlink.add_address(&address) {
                Err(error) if error.errno() != Some(EEXIST) => return Err(error.into()),
                _ => {}
            }
        }
        steps.next("the programs")?;
        PodHook::new(index(self.interface)?, false).attach(self.key, programs)?;
        steps.next("the pod's route")?;
        if !self.own_routes(&mut netlink)?.iter().any(|own| own.same_effect(&route)) {
            // One of another plugin is not replaced.
            let is_ours = !self.own_routes(&mut netlink)?.is_empty();
            let made =
                if is_ours { netlink.replace_route(&route) } else { netlink.add_route(&route) };
            made?;
        }
        Ok(())
    }

    /// What is not as [`Wanted::make`] leaves it, as clauses.
    pub(crate) fn check(&self, programs: Option<&PodPrograms>) -> Result<Vec<String>> {
        let mut netlink = Netlink::open()?;
        let mut wrong = match programs {
            Some(programs) => {
                PodHook::new(index(self.interface)?, false).check(self.key, programs)?
            }
            None => vec!["the programs of the node's pods are not loaded".to_owned()],
        };
        let present = netlink.addresses(Some(self.interface))?;
        for address in self.addresses() {
            if !present.iter().any(|it| it.same_object(&address)) {
                wrong.push(format!("the pod lacks the address {address}"));
            }
        }
        let route = self.route(&mut netlink)?;
        if !self.own_routes(&mut netlink)?.iter().any(|own| own.same_effect(&route)) {
            wrong.push(format!("the pod lacks the route {route}"));
        }
        Ok(wrong)
    }

    /// The CLAT's IPv6 address is one of the device, so that the pod answers for it on the link. It is deprecated, so that
    /// no IPv6 application has it as its source; and unique, because the pod's own is.
    fn addresses(&self) -> [Address; 2] {
        let mut clat = Address::new(self.interface, IpNet::from(IpAddr::V6(self.clat)));
        clat.no_dad = true;
        clat.no_prefix_route = true;
        clat.deprecated = true;
        [clat, Address::new(self.interface, IpNet::from(IpAddr::V4(V4)))]
    }

    /// The IPv4 default route: by the router to the translation prefix, whose link-layer address frames have then.
    fn route(&self, netlink: &mut Netlink) -> Result<Route> {
        let prefix = self.prefix;
        let none = |why: String| {
            Failure::new(Code::NoRoute, format!("the pod has no route to {prefix}")).details(why)
        };
        let hop = netlink.next_hop(prefix.embed(PROBE).into())?;
        let NextHop { device, gateway, mtu, .. } = hop.ok_or_else(|| {
            none("the plugin before has to give it an IPv6 default route".to_owned())
        })?;
        if device != self.interface {
            return Err(none(format!("it leads out of {device}, not of {}", self.interface)));
        }
        let gateway = gateway.ok_or_else(|| {
            none("it names no router whose link-layer address IPv4 frames could carry".to_owned())
        })?;
        Ok(default_route(self.interface, gateway, mtu))
    }

    /// Default routes that this plugin has made.
    fn own_routes(&self, netlink: &mut Netlink) -> Result<Vec<Route>> {
        own_routes(netlink, self.interface)
    }
}

fn default_route(interface: &str, gateway: IpAddr, mtu6: u32) -> Route {
    let mut route = Route::new(IpNet::V4(Ipv4Net::default()), interface);
    route.gateway = Some(gateway);
    route.source = Some(IpAddr::V4(V4));
    // No fragment of the kernel becomes longer than the device allows when it is translated.
    route.mtu = Some(mtu6.saturating_sub(GROWTH));
    route.advmss = Some(mtu6.saturating_sub(TCP_V6));
    route
}

fn own_routes(netlink: &mut Netlink, interface: &str) -> Result<Vec<Route>> {
    let filter = RouteFilter { protocol: Some(fordway_net::PROTOCOL), ..RouteFilter::default() };
    let mut routes = netlink.routes(filter)?;
    let default = IpNet::V4(Ipv4Net::default());
    routes.retain(|it| it.destination == default && it.device.as_deref() == Some(interface));
    Ok(routes)
}

/// Takes everything away that a pod may have. `was_begun`: [`Wanted::make`] has been here. After an error all else is taken
/// away; the first error is returned. What can't be removed vanishes with the namespace.
pub(crate) fn clear(
    interface: &str,
    clat: Option<Ipv6Addr>,
    was_begun: bool,
    steps: &mut Steps,
) -> Result<()> {
    let mut netlink = Netlink::open()?;
    // The plugin before may have taken the interface away, and with it all that was on it.
    let Some(link) = netlink.find_link(interface)? else { return Ok(()) };
    let mut outcome = Outcome(Ok(()));
    steps.next("removing the pod's route")?;
    for route in outcome.of(own_routes(&mut netlink, interface)).unwrap_or_default() {
        outcome.of(unless_gone(netlink.delete_route(&route)));
    }
    steps.next("removing the programs")?;
    outcome.of(PodHook::new(link.index, false).detach(was_begun).map_err(Failure::from));
    steps.next("removing the pod's addresses")?;
    let is_ours = |it: &Address| {
        it.address.addr() == IpAddr::V4(V4) || clat.is_some_and(|clat| it.address.addr() == clat)
    };
    let addresses = netlink.addresses(Some(interface)).map_err(Failure::from);
    for address in outcome.of(addresses).unwrap_or_default().iter().filter(|it| is_ours(it)) {
        outcome.of(unless_gone(netlink.delete_address(address)));
    }
    outcome.0
}

/// The first error of several operations.
struct Outcome(Result<()>);

impl Outcome {
    fn of<T>(&mut self, done: Result<T>) -> Option<T> {
        done.map_err(|failure| {
            if self.0.is_ok() {
                self.0 = Err(failure);
            }
        })
        .ok()
    }
}

/// What is not there any more is removed.
fn unless_gone(removed: fordway_net::Result<()>) -> Result<()> {
    const GONE: [i32; 4] = [ENOENT, ESRCH, ENODEV, EADDRNOTAVAIL];
    match removed {
        Err(error) if error.errno().is_some_and(|number| GONE.contains(&number)) => Ok(()),
        removed => Ok(removed?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_told_and_the_rest_is_done() {
        let mut outcome = Outcome(Ok(()));
        let failure = |what: &str| Failure::new(Code::Io, what);
        assert_eq!(outcome.of(Ok(1)), Some(1));
        assert_eq!(outcome.of::<()>(Err(failure("first"))), None);
        assert_eq!(outcome.of(Ok(2)), Some(2));
        assert_eq!(outcome.of::<()>(Err(failure("second"))), None);
        assert_eq!(outcome.0, Err(failure("first")));
    }

    #[test]
    fn what_is_gone_is_no_error() {
        let refused = |number: i32| {
            unless_gone(Err(fordway_net::Error::Socket {
                operation: "test",
                source: std::io::Error::from_raw_os_error(number),
            }))
        };
        for number in [2, 3, 19, 99] {
            assert_eq!(refused(number), Ok(()));
        }
        assert_eq!(refused(1).unwrap_err().code, Code::Io);
    }
}
