//! Dynamic 1:1 mappings: where the stateless mapper finds and makes them.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::nat64::{Dynamic4, View};
use crate::verdict::DropReason;

/// IPv4 addresses that hosts without another mapping get on first use. The default methods have none.
pub(crate) trait Bindings {
    /// Whether there are any.
    const EXIST: bool = false;

    /// Whether an IPv4 address is of the pool.
    #[inline]
    fn contains(&self, _addr: Ipv4Addr) -> bool {
        false
    }

    /// The host of an IPv4 address; its lifetime starts anew.
    #[inline]
    fn refresh6(&self, _addr: Ipv4Addr) -> Option<Ipv6Addr> {
        None
    }

    /// The host of an IPv4 address; its lifetime goes on.
    #[inline]
    fn known6(&self, _addr: Ipv4Addr) -> Option<Ipv6Addr> {
        None
    }

    /// The IPv4 address of a host; its lifetime goes on.
    #[inline]
    fn known4(&self, _host: Ipv6Addr) -> Option<Ipv4Addr> {
        None
    }

    /// The IPv4 address of a host, bound if it has none. `None`: the host is none of those that get one.
    #[inline]
    fn bind4(&self, _host: Ipv6Addr) -> Option<Result<Ipv4Addr, DropReason>> {
        None
    }
}

impl Bindings for () {}

/// Dynamic mappings in the tables.
#[derive(Debug)]
pub(crate) struct Dynamic<'a> {
    pub(crate) view: View<'a>,
    pub(crate) pool: &'a Dynamic4,
}

impl Bindings for Dynamic<'_> {
    const EXIST: bool = true;

    fn contains(&self, addr: Ipv4Addr) -> bool {
        self.pool.contains(addr)
    }

    fn refresh6(&self, addr: Ipv4Addr) -> Option<Ipv6Addr> {
        self.view.dynamic6(addr)
    }

    fn known6(&self, addr: Ipv4Addr) -> Option<Ipv6Addr> {
        self.view.dynamic6_known(addr)
    }

    fn known4(&self, host: Ipv6Addr) -> Option<Ipv4Addr> {
        self.view.dynamic4_known(host)
    }

    fn bind4(&self, host: Ipv6Addr) -> Option<Result<Ipv4Addr, DropReason>> {
        self.view.dynamic4(self.pool, host)
    }
}

#[cfg(test)]
mod tests;
