//! Dynamic 1:1 mappings of a stateless translator: an IPv6 host gets an IPv4 address on first use.
//!
//! They lie in the BIB, with protocol 0 and ports 0, and have no sessions: every packet of either side refreshes them.
//! An address is a keyed hash of the host's, so that a host often gets the same one again.

use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::Ordering::Relaxed;

use ipnet::Ipv4Net;

use crate::nat64::table::{Bib, View, state};
use crate::verdict::DropReason;

use super::Dynamic4;

/// Tries by hash before the pool is searched in order.
const TRIES: u32 = 32;

/// Addresses that one packet may have searched.
const SEARCHED: u64 = 65_536;

impl View<'_> {
    /// The IPv4 address of a host; a new one if it has none. `None`: the host is none of those that get one.
    pub(crate) fn dynamic4(
        &self,
        pool: &Dynamic4,
        host: Ipv6Addr,
    ) -> Option<Result<Ipv4Addr, DropReason>> {
        if let Some((_, bib)) = self.bib6((host, 0), 0) {
            self.used(bib);
            return Some(Ok(bib.v4().0));
        }
        let takes = pool.clients.is_empty() || pool.clients.iter().any(|net| net.contains(&host));
        takes.then(|| self.bind_dynamic4(&pool.pool, host, 0))
    }

    /// The host that has this IPv4 address.
    pub(crate) fn dynamic6(&self, addr: Ipv4Addr) -> Option<Ipv6Addr> {
        let (_, bib) = self.bib4((addr, 0), 0)?;
        self.used(bib);
        Some(bib.v6().0)
    }

    /// The IPv4 address of a host, not refreshed: for a packet inside an ICMP error.
    pub(crate) fn dynamic4_known(&self, host: Ipv6Addr) -> Option<Ipv4Addr> {
        self.bib6((host, 0), 0).map(|(_, bib)| bib.v4().0)
    }

    /// The host that has this IPv4 address, not refreshed: for a packet inside an ICMP error.
    pub(crate) fn dynamic6_known(&self, addr: Ipv4Addr) -> Option<Ipv6Addr> {
        self.bib4((addr, 0), 0).map(|(_, bib)| bib.v6().0)
    }

    pub(crate) fn used(&self, bib: &Bib) {
        if bib.since.load(Relaxed) != self.now {
            bib.since.store(self.now, Relaxed);
        }
    }

    /// A new 1:1 mapping with these flags.
    pub(crate) fn bind_dynamic4(
        &self,
        pool: &[Ipv4Net],
        host: Ipv6Addr,
        flags: u8,
    ) -> Result<Ipv4Addr, DropReason> {
        if self.nat.is_draining() {
            return Err(DropReason::Draining);
        }
        let new = self.new_bib((host, 0), 0, 0).ok_or(DropReason::BibFull)?;
        new.1.flags.store(flags, Relaxed);
        let number: u64 = pool.iter().map(|net| 1 << (32 - net.prefix_len())).sum();
        let first = self.nat.secret.v6(host, 0, 0);
        let take = |place: u64| {
            let addr = address(pool, place.checked_rem(number).unwrap_or(0));
            addr.is_some_and(|addr| self.claim4(new, (addr, 0), |_| false).is_ok())
        };
        let by_hash = || (0..TRIES).any(|attempt| take(self.nat.secret.again(first, attempt)));
        let in_order = || (0..number.min(SEARCHED)).any(|step| take(first.wrapping_add(step)));
        // A failed search is not repeated for every packet of every host.
        let search = self.nat.secret.v4(Ipv4Addr::UNSPECIFIED, 0, 0);
        let found = by_hash()
            || !self.nat.known_exhausted(search, self.now) && {
                let found = in_order();
                if !found {
                    self.nat.note_exhausted(search, self.now);
                }
                found
            };
        if !found {
            self.unclaim(new);
            return Err(DropReason::PoolExhausted);
        }
        if self.announce(new) {
            self.made.set(true);
            return Ok(new.1.v4().0);
        }
        new.1.change(state::LIVE, state::DEAD);
        self.dynamic4_known(host).ok_or(DropReason::Busy)
    }
}

/// The address of a place in the pool. Of prefixes up to /30, the first and the last are left out: as
/// network and broadcast address they would not work on a link.
fn address(pool: &[Ipv4Net], place: u64) -> Option<Ipv4Addr> {
    let mut first = 0;
    for net in pool {
        let size = 1_u64 << (32 - net.prefix_len());
        if place < first + size {
            let addr = Ipv4Addr::from_bits(net.network().to_bits() + (place - first) as u32);
            let edge = net.prefix_len() <= 30 && (addr == net.network() || addr == net.broadcast());
            return (!edge).then_some(addr);
        }
        first += size;
    }
    None
}
