//! IPv4 addresses that belong to one IPv6 host while they are bound: NAT-PT (RFC 2766).
//!
//! A binding lies in the BIB, with protocol 0 and ports 0, like a dynamic 1:1 mapping. What packets do is nevertheless
//! stateful: under a bound address each port gets a BIB entry of its own when it is first used, with the host's own
//! port number, and sessions as every BIB entry has. So the sweeper and the kernel programs treat them like any other.
//!
//! A binding lasts while there are BIB entries under its address, and for its lifetime without use after that. A
//! binding that a DNS query made and no packet has used lasts for a shorter time (RFC 2766 section 4.1).

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;

use ipnet::{Ipv4Net, Ipv6Net};

use crate::addr::classify;
use crate::nat64::Nat64;
use crate::nat64::packet::{Segment, Tuple};
use crate::nat64::policy::Purpose;
use crate::nat64::table::{
    Bib, BibError, Binding, FreeList, Kind, Protocol, Side, Trouble, View, bib_flags, one_less,
    state,
};
use crate::verdict::DropReason;

/// IPv4 addresses each of which belongs to one IPv6 host while it is bound: NAT-PT (RFC 2766).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// The addresses.
    pub pool: Vec<Ipv4Net>,
    /// Which IPv6 hosts; empty: all.
    pub clients: Vec<Ipv6Net>,
    /// Bound by the operator, of the pool or not.
    pub fixed: Vec<(Ipv4Addr, Ipv6Addr)>,
    /// Hosts also send from an address of their own (Basic-NAT-PT). Else what they begin goes by the pools of ports
    /// (NAPT-PT), and the addresses are for what IPv4 hosts begin.
    pub outgoing: bool,
    /// Which IPv4 hosts may begin; empty: all.
    pub initiators: Vec<Ipv4Net>,
    /// How long a binding that was asked for by name waits for its first session.
    pub hold: Duration,
}

impl Addresses {
    /// First and last of the addresses, those that the operator has bound last.
    pub fn ranges(&self) -> impl Iterator<Item = (Ipv4Addr, Ipv4Addr)> {
        let nets = self.pool.iter().map(|net| (net.network(), net.broadcast()));
        nets.chain(self.fixed.iter().map(|(addr, _)| (*addr, *addr)))
    }

    /// Whether only some IPv4 hosts may begin sessions.
    pub fn restrict_initiators(&self) -> bool {
        !self.initiators.is_empty()
    }

    /// [`Addresses::hold`].
    pub(crate) fn hold(&self) -> Duration {
        self.hold
    }

    /// Whether the address is one of these.
    #[must_use]
    pub fn contains(&self, addr: Ipv4Addr) -> bool {
        self.pool.iter().any(|net| net.contains(&addr))
            || self.fixed.iter().any(|(fixed, _)| *fixed == addr)
    }

    /// Whether the address may be bound to the host.
    #[must_use]
    pub fn fits(&self, addr: Ipv4Addr, host: Ipv6Addr) -> bool {
        let same = |(fixed_addr, fixed_host): &&(Ipv4Addr, Ipv6Addr)| {
            *fixed_addr == addr || *fixed_host == host
        };
        match self.fixed.iter().find(same) {
            Some(fixed) => *fixed == (addr, host),
            None => self.contains(addr) && self.takes(host),
        }
    }

    /// Whether a host may have an address.
    #[must_use]
    pub fn takes(&self, host: Ipv6Addr) -> bool {
        self.clients.is_empty() || self.clients.iter().any(|net| net.contains(&host))
    }

    /// Whether an IPv4 host may begin.
    #[must_use]
    pub fn may_begin(&self, remote: Ipv4Addr) -> bool {
        !self.restrict_initiators() || self.initiators.iter().any(|net| net.contains(&remote))
    }
}

/// A host's IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The address.
    pub addr: Ipv4Addr,
    /// The operator has bound it: it stays.
    pub is_fixed: bool,
}

impl View<'_> {
    /// The host that an address is bound to, if it is one that hosts get for themselves.
    fn bound6(&self, addr: Ipv4Addr) -> Option<Ipv6Addr> {
        self.nat.owned.is_bindable(addr).then(|| self.dynamic6_known(addr)).flatten()
    }

    /// Whether an IPv4 host may begin a session. What comes from the translator's own addresses hairpins.
    pub(crate) fn may_begin(&self, remote: Ipv4Addr) -> Result<(), DropReason> {
        let addresses = self.nat.settings.addresses.as_ref();
        let is_own = || self.nat.owns_address(remote);
        match addresses.is_none_or(|addresses| addresses.may_begin(remote) || is_own()) {
            true => Ok(()),
            false => Err(DropReason::MayNotBegin),
        }
    }

    /// The BIB entry of a host that sends from an address of its own (Basic-NAT-PT), with the host's port; if the host
    /// has no address, it gets one. So too if an ALG wants the entry `at` an address that is the host's. `None`: the
    /// host's ports are those of a pool.
    pub(crate) fn bind_own(
        &self,
        tuple: &Tuple<Ipv6Addr>,
        previous: Option<&Bib>,
        at: Option<Ipv4Addr>,
    ) -> Option<Result<(), Trouble>> {
        let host = tuple.near.0;
        let own = at.filter(|at| self.bound6(*at) == Some(host)).map(Ok);
        let by_settings = || {
            let addresses = self.nat.settings.addresses.as_ref().filter(|it| it.outgoing)?;
            Some(match self.bib6((host, 0), 0) {
                Some((_, bib)) => Ok(bib.v4().0),
                None if !addresses.takes(host) => Err(DropReason::PoolExhausted),
                None => self.bind_dynamic4(&addresses.pool, host, 0),
            })
        };
        Some(match own.or_else(by_settings)? {
            Ok(addr) => self.bind_port(tuple, tuple.near, addr, previous, Side::V6),
            Err(reason) => Err(reason.into()),
        })
    }

    /// Makes the BIB entry for what an IPv4 host begins with a bound address. `false`: the address is not bound.
    pub(crate) fn bind_incoming(&self, tuple: &Tuple<Ipv4Addr>) -> Result<bool, Trouble> {
        let (addr, port) = tuple.near;
        let Some(host) = self.bound6(addr) else { return Ok(false) };
        if tuple.protocol == Protocol::Tcp && tuple.segment != Segment::Syn {
            return Err(DropReason::NoBib.into());
        }
        if self.nat.is_draining() {
            return Err(DropReason::Draining.into());
        }
        let protocol = tuple.protocol.number();
        let chain = self.bib6_chain((host, port), protocol).ok_or(DropReason::BibFull)?;
        let previous = match self.find6(&chain, (host, port), protocol).0 {
            Some((_, bib)) if bib.state() == state::HOLD_DOWN => Some(bib),
            Some((_, bib)) if bib.v4() == tuple.near => return Err(Trouble::Again),
            // A transport address has one BIB entry (RFC 6146 section 3.1).
            Some(_) => return Err(DropReason::PortInUse.into()),
            None => None,
        };
        // The last of the table is for what hosts in IPv6 begin, as of sessions.
        if !FreeList::of(&self.regions, Kind::Bib).has_reserve() {
            return Err(DropReason::BibFull.into());
        }
        self.bind_port(tuple, (host, port), addr, previous, Side::V4)?;
        Ok(true)
    }

    /// Binds a port of a host's address to the same port of the host, for the first packet from this side. The one of
    /// `previous` makes way.
    fn bind_port<A>(
        &self,
        tuple: &Tuple<A>,
        host: (Ipv6Addr, u16),
        addr: Ipv4Addr,
        previous: Option<&Bib>,
        side: Side,
    ) -> Result<(), Trouble> {
        // The address's own entry in hold-down makes way.
        let makes_way = |holder: &Bib| holder.change(state::HOLD_DOWN, state::DEAD);
        self.bind_by(tuple, host, previous, (side, Purpose::Counts), |new, _| {
            self.claim4(new, (addr, host.1), makes_way).map_err(|_| match side {
                Side::V6 => DropReason::PoolExhausted,
                Side::V4 => DropReason::PortInUse,
            })
        })?;
        self.use_bound(addr);
        Ok(())
    }

    /// Refreshes a binding: it no longer waits for its first session.
    fn use_bound(&self, addr: Ipv4Addr) {
        if let Some((_, bib)) = self.bib4((addr, 0), 0) {
            bib.flags.fetch_and(!bib_flags::HELD, Relaxed);
            self.used(bib);
        }
    }

    /// Whether addresses are bound.
    pub(crate) fn binds_addresses(&self) -> bool {
        self.nat.settings.addresses.is_some()
    }

    /// Refreshes the bound addresses of these BIB entries.
    pub(crate) fn keep_bound(&self, entries: Range<u32>) {
        for bib in entries.filter_map(|index| View::entry(self.regions.bibs, index)) {
            let addr = bib.v4().0;
            if bib.protocol.load(Relaxed) != 0
                && bib.state() == state::LIVE
                && self.nat.owned.is_bindable(addr)
                && let Some((_, own)) = self.bib4((addr, 0), 0)
            {
                self.used(own);
            }
        }
    }
}

impl Nat64 {
    /// The IPv4 address of a host whose name was queried (RFC 2766 section 4.1); a new one if it has none. The binding
    /// is held for its first session for a while from now on.
    pub fn bind_by_name(
        &self,
        host: Ipv6Addr,
        now: Duration,
        shard: usize,
    ) -> Result<Bound, DropReason> {
        let Some(addresses) = &self.settings.addresses else {
            return Err(DropReason::PoolExhausted);
        };
        let view = self.view(now, shard);
        if let Some((_, bib)) = view.bib6((host, 0), 0) {
            view.used(bib);
            let is_fixed = bib.flags.load(Relaxed) & bib_flags::STATIC != 0;
            return Ok(Bound { addr: bib.v4().0, is_fixed });
        }
        // RFC 4966 section 2.8: no bindings of what can't be a host.
        if classify::illegal_v6(host).is_some() || !addresses.takes(host) {
            return Err(DropReason::NoMappingDestination);
        }
        let addr = view.bind_dynamic4(&addresses.pool, host, bib_flags::HELD)?;
        Ok(Bound { addr, is_fixed: false })
    }

    /// Whether a host has an address of its own.
    #[must_use]
    pub fn is_bound(&self, host: Ipv6Addr, now: Duration) -> bool {
        self.settings.addresses.is_some() && self.view(now, 0).bib6((host, 0), 0).is_some()
    }

    /// The host that an address is bound to, and whether the operator has bound it. Not refreshed.
    #[must_use]
    pub fn bound_host(&self, addr: Ipv4Addr, now: Duration) -> Option<(Ipv6Addr, bool)> {
        if !self.owned.is_bindable(addr) {
            return None;
        }
        let (_, bib) = self.view(now, 0).bib4((addr, 0), 0)?;
        Some((bib.v6().0, bib.flags.load(Relaxed) & bib_flags::STATIC != 0))
    }

    /// Makes the bindings of the settings that are not there yet, in the place of others. Gives those that could not be
    /// made.
    pub fn make_fixed_addresses(&self, now: Duration) -> Vec<(Binding, BibError)> {
        let _change = self.shared.begin_change();
        let view = self.view(now, 0);
        let fixed = self.settings.addresses.iter().flat_map(|addresses| &addresses.fixed);
        let mut failed = Vec::new();
        for &(addr, host) in fixed {
            let found = [view.bib4((addr, 0), 0), view.bib6((host, 0), 0)];
            let (same, others): (Vec<_>, Vec<_>) = found
                .into_iter()
                .flatten()
                .partition(|(_, bib)| bib.v4().0 == addr && bib.v6().0 == host);
            if let Some((_, bib)) = same.first() {
                bib.flags.fetch_or(bib_flags::STATIC, Relaxed);
                continue;
            }
            for (_, other) in others {
                self.unbind(other.v4().0, now);
            }
            let binding = Binding { protocol: None, v6: (host, 0), v4: (addr, 0) };
            match view.new_bib((host, 0), 0, 0) {
                None => failed.push((binding, BibError::Full)),
                Some(new) => {
                    new.1.flags.store(bib_flags::STATIC, Relaxed);
                    if let Err(error) = view.put(new, (addr, 0), |_| false) {
                        failed.push((binding, error));
                    }
                }
            }
        }
        failed
    }

    /// Ends the binding of an address, and every BIB entry under it. `false`: it is not bound.
    pub fn unbind(&self, addr: Ipv4Addr, now: Duration) -> bool {
        let _change = self.shared.begin_change();
        let view = self.view(now, 0);
        let Some((_, own)) = view.bib4((addr, 0), 0) else { return false };
        let ended = own.change(state::LIVE, state::DEAD);
        let bibs = view.regions.bibs.iter();
        let under = bibs.filter(|bib| bib.protocol.load(Relaxed) != 0 && bib.v4().0 == addr);
        for bib in under {
            if bib.change(state::LIVE, state::DEAD)
                && let Some(protocol) = Protocol::of(bib.protocol.load(Relaxed))
                && let Some(subscriber) = view.subscriber_of(bib)
            {
                one_less(&subscriber.ports[protocol.index()]);
            }
        }
        ended
    }
}
