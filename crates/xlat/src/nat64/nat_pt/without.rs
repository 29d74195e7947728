//! NAT-PT left out (feature `nat-pt`): its settings have no values, so nothing asks for it, and its hooks do nothing.

use core::net::{Ipv4Addr, Ipv6Addr};
use core::ops::Range;
use core::time::Duration;

use crate::nat64::packet::Tuple;
use crate::nat64::table::{Bib, Trouble, View};
use crate::verdict::DropReason;

/// No addresses that hosts get for themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addresses {}

impl Addresses {
    /// None.
    pub fn ranges(&self) -> impl Iterator<Item = (Ipv4Addr, Ipv4Addr)> {
        core::iter::empty()
    }

    /// Of none.
    pub fn restrict_initiators(&self) -> bool {
        match *self {}
    }

    /// Of none.
    pub fn fits(&self, _addr: Ipv4Addr, _host: Ipv6Addr) -> bool {
        match *self {}
    }

    /// Of none.
    pub fn contains(&self, _addr: Ipv4Addr) -> bool {
        match *self {}
    }

    pub(crate) fn hold(&self) -> Duration {
        match *self {}
    }
}

impl View<'_> {
    #[inline]
    pub(crate) fn may_begin(&self, _remote: Ipv4Addr) -> Result<(), DropReason> {
        Ok(())
    }

    #[inline]
    pub(crate) fn bind_own(
        &self,
        _tuple: &Tuple<Ipv6Addr>,
        _previous: Option<&Bib>,
        _at: Option<Ipv4Addr>,
    ) -> Option<Result<(), Trouble>> {
        None
    }

    #[inline]
    pub(crate) fn bind_incoming(&self, _tuple: &Tuple<Ipv4Addr>) -> Result<bool, Trouble> {
        Ok(false)
    }

    pub(crate) fn binds_addresses(&self) -> bool {
        false
    }

    pub(crate) fn keep_bound(&self, _entries: Range<u32>) {}
}

/// No DNS messages in the path of packets.
pub mod dns {
    use core::time::Duration;

    use crate::config::Config;
    use crate::nat64::Nat64;
    use crate::packet::Packet;
    use crate::state::State;
    use crate::trace::Trace;
    use crate::verdict::Verdict;

    pub use crate::verdict::DnsAction;

    /// No DNS ALG.
    #[derive(Clone, Debug)]
    pub enum Dns {}

    pub(crate) enum Hook {}

    impl Hook {
        #[inline]
        pub(crate) fn of(
            _config: &Config,
            _nat64: &Nat64,
            _packet: &Packet<'_>,
            _now: Duration,
            _shard: usize,
        ) -> Option<Hook> {
            None
        }

        pub(crate) fn take(
            &self,
            _packet: &mut Packet<'_>,
            _state: &mut State,
            _trace: &mut impl Trace,
        ) -> Verdict {
            match *self {}
        }
    }
}
