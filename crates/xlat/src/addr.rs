//! Addresses of both families: explicit mappings ([`EamTable`], RFC 7757), translation prefixes ([`Pool6`], RFC 6052),
//! and what has come of the mapping of one ([`Mapped`], [`Unmapped`]). [`classify`] tells which addresses may not be
//! translated at all.

pub mod classify;
mod eam;
mod pool6;

pub use eam::{Eam, EamError, EamTable, Overlap};
pub use pool6::{Pool6, Pool6Error};

use crate::verdict::DropReason;

/// By which algorithm an address was mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// An explicit address mapping.
    Eam(Eam),
    /// A translation prefix.
    Pool6(Pool6),
    /// The configured source of ICMP errors (RFC 6791).
    IcmpSource,
    /// A BIB entry (RFC 6146).
    Bib,
    /// An address that an IPv6 host was given on first use.
    Dynamic4,
}

/// A mapped address and how it came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped<A> {
    /// The address in the other family.
    pub addr: A,
    /// The algorithm.
    pub via: Via,
}

/// Why an address has no counterpart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmapped {
    /// No mapping covers it.
    NoMapping,
    /// RFC 6052 section 3.1: the Well-Known Prefix with a non-global IPv4 address.
    NonGlobal,
    /// RFC 6052 section 2.2: bits 64 to 71 are not zero.
    ReservedOctet,
}

impl Unmapped {
    /// The drop reason when a source address is unmapped.
    pub fn as_source(self) -> DropReason {
        self.reason(DropReason::NoMappingSource)
    }

    /// The drop reason when a destination address is unmapped.
    pub fn as_destination(self) -> DropReason {
        self.reason(DropReason::NoMappingDestination)
    }

    fn reason(self, no_mapping: DropReason) -> DropReason {
        match self {
            Unmapped::NoMapping => no_mapping,
            Unmapped::NonGlobal => DropReason::NonGlobal,
            Unmapped::ReservedOctet => DropReason::ReservedOctet,
        }
    }
}
