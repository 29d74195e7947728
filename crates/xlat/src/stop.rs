//! Why translation of a packet stopped, and whether its sender gets an ICMP error.

use crate::verdict::{DropReason, IcmpErrorKind};

/// Translation stopped. If `answer` is set the packet is as it came, or, hairpinned, as its first pass made
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Why.
    pub reason: DropReason,
    /// The ICMP error that is due; `None`: the packet is dropped silently.
    pub answer: Option<IcmpErrorKind>,
}

impl Stop {
    /// Without an answer.
    #[must_use]
    pub fn silent(reason: DropReason) -> Stop {
        Stop { reason, answer: None }
    }

    /// With an answer.
    #[must_use]
    pub fn answered(reason: DropReason, answer: IcmpErrorKind) -> Stop {
        Stop { reason, answer: Some(answer) }
    }

    /// Does not fit: `mtu` is the next hop's, in the packet's own family.
    #[must_use]
    pub fn too_big(mtu: usize) -> Stop {
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        Stop::answered(DropReason::TooBig, IcmpErrorKind::TooBig { mtu })
    }

    /// The packet is none of the translator's: stopped at its addresses, before anything was changed.
    pub(crate) fn is_foreign(&self) -> bool {
        matches!(
            self.reason,
            DropReason::BadVersion
                | DropReason::Martian
                | DropReason::Loopback
                | DropReason::LinkLocal
                | DropReason::Multicast
                | DropReason::Broadcast
                | DropReason::SelfAddressed
                | DropReason::NoMappingSource
                | DropReason::NoMappingDestination
        )
    }

    /// TTL or hop limit ran out.
    #[must_use]
    pub fn hop_limit() -> Stop {
        Stop::answered(DropReason::HopLimitExceeded, IcmpErrorKind::TimeExceeded)
    }
}

/// RFC 7915 sections 4.4 and 5.4: what is discarded for a reason that the RFC does not call silent
/// is answered by "administratively prohibited". Of stateful translation: RFC 6146 sections 3.4 and
/// 3.5; RFC 6888 REQ-11 for every resource that is used up. What comes unasked from IPv4 is not answered,
/// as the RFC allows: its source may be forged.
impl From<DropReason> for Stop {
    fn from(reason: DropReason) -> Stop {
        let answer = match reason {
            DropReason::NonGlobal
            | DropReason::NoMappingSource
            | DropReason::NoMappingDestination
            | DropReason::ReservedOctet
            | DropReason::UdpChecksumZero
            | DropReason::UdpChecksumZeroFragment
            | DropReason::Loop => Some(IcmpErrorKind::AdministrativelyProhibited),
            DropReason::PoolExhausted
            | DropReason::BibFull
            | DropReason::SessionsFull
            | DropReason::SubscribersFull
            | DropReason::PortQuota
            | DropReason::SessionQuota
            | DropReason::RateQuota
            | DropReason::Draining => Some(IcmpErrorKind::AddressUnreachable),
            DropReason::SynUnanswered => Some(IcmpErrorKind::PortUnreachable),
            DropReason::Transport => Some(IcmpErrorKind::ProtocolUnreachable),
            _ => None,
        };
        Stop { reason, answer }
    }
}
