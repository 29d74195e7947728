//! The state of one interface and its network.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use crate::ndp::{self, NdOption};
use fordway_xlat::addr::Pool6;
use ipnet::Ipv6Net;

use super::advertised::Advertised;
use super::lookup::Lookup;
use super::random::Random;
use super::report::{DeviceReport, RouterReport};
use super::solicit::Solicitor;
use super::{Advertisement, Link, Settings, Time};

/// How long advertised values are kept while the link is down, so that a cable that is plugged in again at once changes
/// nothing.
pub(super) const HOLD: Duration = Duration::from_secs(10);
/// How long values from before the link went down are kept after it has come up: three solicitations. Until then they
/// rank behind newer values.
pub(super) const PROBATION: Duration = Duration::from_secs(12);
/// How long a router may take to answer a solicitation: `MAX_RA_DELAY_TIME`, and the round trip.
const ROUTER_PATIENCE: Duration = Duration::from_secs(1);
/// How many routers of a link are reported.
const MOST_ROUTERS: usize = 16;
/// How many prefixes and resolvers of one advertisement are taken.
const MOST_OPTIONS: usize = 32;
/// The port of resolvers.
const DNS: u16 = 53;

/// One interface.
#[derive(Clone, Debug)]
pub(super) struct Interface {
    pub(super) link: Link,
    /// Its present life: a number that increases whenever it comes up.
    pub(super) life: u64,
    /// When it came up.
    up_since: Time,
    /// When it went down, if it is down.
    down_since: Option<Time>,
    /// When values of earlier lives are removed.
    probation: Option<Time>,
    pub(super) pref64: Advertised<Pool6>,
    pub(super) rdnss: Advertised<Ipv6Addr>,
    pub(super) solicitor: Solicitor,
    /// The questions to the resolvers that its routers name.
    pub(super) lookup: Lookup,
    routers: Vec<RouterReport>,
}

impl Interface {
    pub(super) fn new(link: Link) -> Self {
        Self {
            link,
            life: 0,
            up_since: Time::ZERO,
            down_since: None,
            probation: None,
            pref64: Advertised::default(),
            rdnss: Advertised::default(),
            solicitor: Solicitor::default(),
            lookup: Lookup::default(),
            routers: Vec::new(),
        }
    }

    /// It has come up, perhaps in another network.
    pub(super) fn came_up(
        &mut self,
        now: Time,
        life: u64,
        settings: &Settings,
        random: &mut Random,
    ) {
        (self.life, self.up_since, self.down_since) = (life, now, None);
        self.probation = Some(now + PROBATION);
        self.routers.clear();
        if settings.advertisements {
            let delay = random.up_to(settings.solicitation_delay);
            self.solicitor.start(now, delay, self.link.multicast);
        }
        self.lookup.restart(now);
    }

    /// It has gone down.
    pub(super) fn went_down(&mut self, now: Time) {
        self.down_since = Some(now);
        self.solicitor.stop();
    }

    /// Handles an advertisement.
    pub(super) fn heard(&mut self, router: Ipv6Addr, advertisement: &Advertisement, now: Time) {
        self.solicitor.heard(advertisement.default_router);
        for (pool6, lifetime) in &advertisement.pref64 {
            self.pref64.hear(router, *pool6, Some(*lifetime), now, self.life);
        }
        for (server, lifetime) in &advertisement.rdnss {
            self.rdnss.hear(router, *server, *lifetime, now, self.life);
        }
        self.update_servers(now);
        let report = RouterReport {
            router,
            heard: now,
            default_router: advertisement.default_router,
            pref64: held(&advertisement.pref64, Duration::is_zero),
            rdnss: held(&advertisement.rdnss, |lifetime| *lifetime == Some(Duration::ZERO)),
        };
        if let Some(known) = self.routers.iter_mut().find(|known| known.router == router) {
            *known = report;
        } else if self.routers.len() < MOST_ROUTERS {
            self.routers.push(report);
        }
    }

    fn update_servers(&mut self, now: Time) {
        let scope = self.link.device.index;
        let socket = |server: Ipv6Addr| {
            let scope = if server.is_unicast_link_local() { scope } else { 0 };
            SocketAddr::V6(SocketAddrV6::new(server, DNS, 0, scope))
        };
        let servers: Vec<_> =
            self.rdnss.values(self.life).iter().map(|held| socket(held.value)).collect();
        self.lookup.set_servers(&servers, now);
    }

    /// Removes expired values. `asked`: its resolvers are needed.
    pub(super) fn expire(&mut self, now: Time, asked: bool) {
        self.pref64.expire(now);
        self.rdnss.expire(now);
        if self.down_since.is_some_and(|since| now >= since + HOLD) {
            self.pref64.clear();
            self.rdnss.clear();
            self.lookup.clear();
        }
        if self.probation.take_if(|until| now >= *until).is_some() {
            self.pref64.keep_life(self.life);
            self.rdnss.keep_life(self.life);
            self.lookup.keep_life(self.life);
        }
        self.update_servers(now);
        self.lookup.expire(now, asked);
    }

    /// Whether it has been down for longer than [`HOLD`].
    pub(super) fn is_gone(&self, now: Time) -> bool {
        self.down_since.is_some_and(|since| now >= since + HOLD)
    }

    /// Whether a router has answered, or none will.
    pub(super) fn is_silent(&self, now: Time, settings: &Settings) -> bool {
        !settings.advertisements || !self.routers.is_empty() || now >= self.patience(settings)
    }

    /// Whether an advertisement was received since it came up.
    pub(super) fn has_routers(&self) -> bool {
        !self.routers.is_empty()
    }

    /// Until when it waits for the first advertisement.
    pub(super) fn patience(&self, settings: &Settings) -> Time {
        self.up_since + settings.solicitation_delay + ROUTER_PATIENCE
    }

    /// When its state next changes without an event, its resolvers apart.
    pub(super) fn next(&self) -> Option<Time> {
        let old = self.pref64.has_older(self.life)
            || self.rdnss.has_older(self.life)
            || self.lookup.life().is_some_and(|life| life != self.life);
        let is_empty = self.pref64.is_empty() && self.rdnss.is_empty();
        let held = !is_empty || self.lookup.life().is_some();
        let times = [
            self.solicitor.next(),
            self.pref64.next(),
            self.rdnss.next(),
            self.down_since.filter(|_| held).map(|since| since + HOLD),
            self.probation.filter(|_| old),
        ];
        times.into_iter().flatten().min()
    }

    pub(super) fn report(&self, used: bool) -> DeviceReport {
        DeviceReport {
            device: self.link.device.clone(),
            up: self.link.up,
            addressed: self.link.addressed,
            default_route: self.link.default_route,
            used,
            solicitations: self.solicitor.count(),
            routers: self.routers.clone(),
            resolvers: self.lookup.reports(),
        }
    }
}

fn held<T: Copy, L>(options: &[(T, L)], is_withdrawn: impl Fn(&L) -> bool) -> Vec<T> {
    options.iter().filter(|(_, lifetime)| !is_withdrawn(lifetime)).map(|(one, _)| *one).collect()
}

impl Advertisement {
    /// Takes what matters out of a message. Prefixes that can't be translation prefixes, and addresses that no resolver
    /// can have, are passed over.
    #[must_use]
    pub fn read(header: &ndp::Advertisement, options: ndp::Options<'_>) -> Self {
        let mut advertisement =
            Self { default_router: header.router_lifetime != 0, ..Self::default() };
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        for option in options {
            match option {
                NdOption::Pref64(pref64) => {
                    let net = Ipv6Net::new(pref64.prefix(), pref64.prefix_len()).ok();
                    if let Some(pool6) = net.and_then(|net| Pool6::new(net).ok()) {
                        let lifetime = seconds(pref64.lifetime().seconds());
                        advertisement.pref64.push((pool6, lifetime));
                    }
                }
                NdOption::Rdnss(rdnss) => {
                    let lifetime =
                        (rdnss.lifetime != ndp::INFINITY).then(|| seconds(rdnss.lifetime));
                    let servers = rdnss.addresses().filter(|address| {
                        let address = IpAddr::V6(*address);
                        !address.is_multicast()
                            && !address.is_unspecified()
                            && !address.is_loopback()
                    });
                    advertisement.rdnss.extend(servers.map(|address| (address, lifetime)));
                }
                _ => {}
            }
        }
        advertisement.pref64.truncate(MOST_OPTIONS);
        advertisement.rdnss.truncate(MOST_OPTIONS);
        advertisement
    }
}
