//! Which IPv6 address an automatic CLAT takes (RFC 6877 section 6.3): the configured one, or one of its own in
//! the uplink's /64.

use std::fmt;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use fordway_net::Ipv6Net;
use fordway_xlat::addr::classify::illegal_v6;

use super::decide::{Address, Hop, Settings};
use crate::plan::clat_address;

/// How many addresses are tried in one network (RFC 7217 section 6, `IDGEN_RETRIES`).
const TRIES: u8 = 3;

/// How long an address is avoided after a neighbour has claimed it.
const REMEMBERED: Duration = Duration::from_secs(600);

/// Why there is no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The uplink has no network to take one from.
    Network(String),
    /// It is the host's own.
    Own { v6: Ipv6Addr, device: String },
    /// Neighbours on the link use it, and the others that were tried.
    Taken(Ipv6Addr),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Network(uplink) => write!(
                f,
                "{uplink} has no global IPv6 address with a /64 to take the CLAT's address from; give v6 \
                 (--v6 ADDR) with one that is routed here"
            ),
            Missing::Own { v6, device } => {
                write!(f, "the CLAT's IPv6 address {v6} is the host's own, on {device}")
            }
            Missing::Taken(v6) => write!(f, "another host on the link has the address {v6}"),
        }
    }
}

/// Addresses that neighbours have claimed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken(Vec<(Ipv6Addr, Instant)>);

impl Taken {
    pub(crate) fn add(&mut self, v6: Ipv6Addr, now: Instant) {
        self.0.retain(|(known, _)| *known != v6);
        self.0.push((v6, now));
    }

    pub(super) fn forget(&mut self, now: Instant) {
        self.0.retain(|(_, since)| now.duration_since(*since) < REMEMBERED);
    }

    fn has(&self, v6: Ipv6Addr) -> bool {
        self.0.iter().any(|(known, _)| *known == v6)
    }
}

/// The address from which to reach `plat`, and whether neighbours on the link could have it. `before`: the one in use.
pub(crate) fn choose(
    settings: &Settings,
    (hop, plat): (&Hop, Ipv6Addr),
    addresses: &[Address],
    taken: &Taken,
    before: Option<Ipv6Addr>,
) -> Result<(Ipv6Addr, bool), Missing> {
    let uplink = &hop.device;
    // Without link-layer addresses there are no neighbours that ask.
    let neighbours = !uplink.hardware_address.is_empty();
    let here = || addresses.iter().filter(|address| address.device == uplink.name);
    let owner = |v6: Ipv6Addr| addresses.iter().find(|address| address.net.addr() == v6);
    if let Some(v6) = settings.v6 {
        if let Some(own) = owner(v6) {
            return Err(Missing::Own { v6, device: own.device.clone() });
        }
        if taken.has(v6) {
            return Err(Missing::Taken(v6));
        }
        let on_link =
            |address: &Address| address.net.prefix_len() < 128 && address.net.contains(&v6);
        return Ok((v6, neighbours && here().any(on_link)));
    }
    let nets: Vec<(Ipv6Net, bool)> = here()
        .filter(|address| {
            address.net.prefix_len() == 64 && illegal_v6(address.net.addr()).is_none()
        })
        .map(|address| (address.net.trunc(), address.deprecated))
        .collect();
    let free = |v6: Ipv6Addr| owner(v6).is_none() && !taken.has(v6);
    let net = network(&nets, (hop.source, plat), before.filter(|v6| free(*v6)))
        .ok_or_else(|| Missing::Network(uplink.name.clone()))?;
    if let Some(v6) = before.filter(|v6| net.contains(v6) && free(*v6)) {
        return Ok((v6, neighbours));
    }
    let candidate = |number| {
        clat_address::make(
            net.network(),
            &settings.name,
            &uplink.hardware_address,
            &settings.machine,
            number,
        )
    };
    match (0..=TRIES).map(candidate).find(|v6| free(*v6)) {
        Some(v6) => Ok((v6, neighbours)),
        None => Err(Missing::Taken(candidate(TRIES))),
    }
}

/// The network to take an address from: that of the address in use as long as it is preferred, else the one
/// that the kernel would choose its own source towards the PLAT from (RFC 6724), else any that is preferred. One whose
/// addresses are deprecated is better than none (RFC 4862 section 5.5.4).
fn network(
    nets: &[(Ipv6Net, bool)],
    (source, plat): (Option<Ipv6Addr>, Ipv6Addr),
    before: Option<Ipv6Addr>,
) -> Option<Ipv6Net> {
    let with = |v6: Option<Ipv6Addr>, deprecated: bool| {
        let v6 = v6?;
        // One network may have several addresses, some of them of the past.
        let preferred = |net: &Ipv6Net| nets.iter().any(|(it, old)| it == net && !old);
        let all = nets.iter().map(|(net, _)| net);
        all.into_iter().find(|net| net.contains(&v6) && preferred(net) != deprecated).copied()
    };
    let fits = |net: &Ipv6Net| clat_address::has_label_of(net.network(), plat);
    let preferred = || nets.iter().filter(|(_, deprecated)| !deprecated).map(|(net, _)| *net);
    let preferred = preferred().find(|net| fits(net)).or(preferred().next());
    let chosen = with(source, false);
    // A unique local address reaches no PLAT outside the site.
    let better = chosen.or(preferred).filter(|net| fits(net));
    let kept = with(before, false).filter(|kept| fits(kept) || better.is_none());
    kept.or(chosen).or(preferred).or(with(before, true)).or(nets.first().map(|(net, _)| *net))
}
