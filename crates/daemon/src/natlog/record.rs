//! What is logged.

use std::net::Ipv4Addr;
use std::time::SystemTime;

use fordway_config::LogEvent;
use fordway_xlat::nat64::{Binding, PortBlock};
use ipnet::Ipv6Net;

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// When it happened.
    pub(crate) time: SystemTime,
    /// What happened.
    pub(crate) what: What,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A subscriber was given ports.
    BlockAssigned(Ipv6Net, PortBlock),
    /// It has given them back.
    BlockReleased(Ipv6Net, PortBlock),
    /// A BIB entry was made.
    BibCreated(Binding),
    /// A BIB entry is gone.
    BibRemoved(Binding),
    /// A session was made, with (Z,z).
    SessionCreated(Binding, (Ipv4Addr, u16)),
    /// A session is gone, with (Z,z), and packets and octets from IPv4 and from IPv6.
    SessionRemoved(Binding, (Ipv4Addr, u16), [(u64, u64); 2]),
}

/// The fields of a record.
pub(super) enum Fields<'a> {
    /// A subscriber's block of ports.
    Block(&'a Ipv6Net, &'a PortBlock),
    /// A binding; of a session with (Z,z), and at its end with what [`What::SessionRemoved`] counts.
    Binding(&'a Binding, Option<(Ipv4Addr, u16)>, Option<&'a [(u64, u64); 2]>),
}

impl What {
    pub(super) fn fields(&self) -> Fields<'_> {
        match self {
            What::BlockAssigned(subscriber, block) | What::BlockReleased(subscriber, block) => {
                Fields::Block(subscriber, block)
            }
            What::BibCreated(binding) | What::BibRemoved(binding) => {
                Fields::Binding(binding, None, None)
            }
            What::SessionCreated(binding, remote) => Fields::Binding(binding, Some(*remote), None),
            What::SessionRemoved(binding, remote, counts) => {
                Fields::Binding(binding, Some(*remote), Some(counts))
            }
        }
    }

    /// Which logs want it.
    pub(crate) fn event(&self) -> LogEvent {
        match self {
            What::BlockAssigned(..) | What::BlockReleased(..) => LogEvent::Blocks,
            What::BibCreated(_) | What::BibRemoved(_) => LogEvent::Bindings,
            What::SessionCreated(..) | What::SessionRemoved(..) => LogEvent::Sessions,
        }
    }

    /// Its name in JSON, and the MSGID of syslog.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            What::BlockAssigned(..) => "block_assigned",
            What::BlockReleased(..) => "block_released",
            What::BibCreated(_) => "bib_created",
            What::BibRemoved(_) => "bib_removed",
            What::SessionCreated(..) => "session_created",
            What::SessionRemoved(..) => "session_removed",
        }
    }

    /// natEvent (RFC 8158 section 4.1).
    pub(crate) fn nat_event(&self) -> u8 {
        match self {
            What::SessionCreated(..) => 6,
            What::SessionRemoved(..) => 7,
            What::BibCreated(_) => 10,
            What::BibRemoved(_) => 11,
            What::BlockAssigned(..) => 16,
            What::BlockReleased(..) => 17,
        }
    }
}

/// The protocol number of a binding, as in IPv4; 0: all protocols.
pub(crate) fn protocol(binding: &Binding) -> u8 {
    binding.protocol.map_or(0, fordway_xlat::nat64::Protocol::number)
}
