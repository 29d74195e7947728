//! Dynamic 1:1 mappings: where the stateless mapper finds and makes them.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::nat64::{Dynamic4, View};
use crate::verdict::DropReason;

/// IPv4 addresses that hosts without another mapping get on first use. `()`: there are none, and the compiler leaves
/// out what would ask for them.
pub(crate) trait Bindings {
    /// Whether there are any.
    const EXIST: bool;

    /// The tables and the pool.
    fn dynamic(&self) -> Option<&Dynamic<'_>>;

    /// Whether an IPv4 address is of the pool.
    #[inline]
    fn contains(&self, addr: Ipv4Addr) -> bool {
        self.dynamic().is_some_and(|it| it.pool.contains(addr))
    }

    /// The host of an IPv4 address; its lifetime starts anew.
    #[inline]
    fn refresh6(&self, addr: Ipv4Addr) -> Option<Ipv6Addr> {
        self.dynamic()?.view.dynamic6(addr)
    }

    /// The host of an IPv4 address; its lifetime goes on.
    #[inline]
    fn known6(&self, addr: Ipv4Addr) -> Option<Ipv6Addr> {
        self.dynamic()?.view.dynamic6_known(addr)
    }

    /// The IPv4 address of a host; its lifetime goes on.
    #[inline]
    fn known4(&self, host: Ipv6Addr) -> Option<Ipv4Addr> {
        self.dynamic()?.view.dynamic4_known(host)
    }

    /// The IPv4 address of a host, bound if it has none. `None`: the host is none of those that get one.
    #[inline]
    fn bind4(&self, host: Ipv6Addr) -> Option<Result<Ipv4Addr, DropReason>> {
        let Dynamic { view, pool } = self.dynamic()?;
        view.dynamic4(pool, host)
    }
}

impl Bindings for () {
    const EXIST: bool = false;

    #[inline]
    fn dynamic(&self) -> Option<&Dynamic<'_>> {
        None
    }
}

/// Dynamic mappings in the tables.
#[derive(Debug)]
pub(crate) struct Dynamic<'a> {
    pub(crate) view: View<'a>,
    pub(crate) pool: &'a Dynamic4,
}

impl Bindings for Dynamic<'_> {
    const EXIST: bool = true;

    #[inline]
    fn dynamic(&self) -> Option<&Dynamic<'_>> {
        Some(self)
    }
}

#[cfg(test)]
mod tests;
