//! The core of Fordway: octets, tables and time in; octets and a verdict out.
//!
//! A [`Translator`] holds what an operator configured and never changes while packets flow, so any
//! number of threads may share one. What does change (the rate limiter of ICMP errors, the
//! generator of IPv4 identifications) lies in a [`State`] that each thread owns; the [`Identifications`] of packets that may
//! be fragmented are shared. A packet lies in a
//! [`Packet`]: a buffer with headroom, translated in place, together with the state of its checksum
//! and segmentation offloads, so that 64 KB super-packets pass whole.
//!
//! The way of a packet, one file per step:
//!
//! 1. [`translator`] looks at the IP version and picks the direction;
//! 2. `v4_to_v6` (RFC 7915 section 4.1) or `v6_to_v4` (section 5.1) checks and translates the header,
//!    asking a `mapper` for addresses: `stateless` answers by [`mapping`] (RFC 6052, RFC 7757, RFC 6791),
//!    [`nat64`] by its tables (RFC 6146), for which [`reassembly`] has made the packet whole;
//! 3. `transport` corrects checksums and clamps the TCP MSS (sections 4.5 and 5.5), or `icmp`
//!    translates ICMP and the packet inside an ICMP error (sections 4.2, 4.3, 5.2 and 5.3);
//! 4. `fragment` plans the pieces of a packet that does not fit (section 4.1);
//! 5. [`alg`] reads and changes what some applications say;
//! 6. `reply` builds an ICMP error in the place of a packet that can't go on (sections 4.4 and 5.4).
//!
//! No I/O, no clock, no randomness, no allocation per packet: time is an argument and effects are
//! returned.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod addr;
pub mod config;
pub mod counters;
mod fragment;
mod hash;
mod header;
mod icmp;
mod identification;
mod mapper;
pub mod mapping;
pub mod nat64;
mod offload;
pub mod packet;
mod passage;
pub mod reassembly;
mod reply;
mod state;
mod stateless;
pub mod steps;
mod stop;
mod syns;
pub mod trace;
pub mod translator;
mod transport;
pub mod tuple;
mod v4_to_v6;
mod v6_to_v4;
pub mod verdict;

pub use config::{Config, ConfigError, HopCount, IcmpErrors, TrafficClass, UdpChecksumZero};
pub use counters::{Counters, Direction};
pub use fragment::{Fragment, Fragments};
pub use identification::Identifications;
pub use nat64::alg;
pub use nat64::nat_pt::dns;
pub use offload::{ChecksumState, Gso, GsoKind, Offload};
pub use packet::{HEADROOM, Packet, TAILROOM};
pub use state::State;
pub use translator::Translator;
pub use verdict::{DropReason, IcmpError, IcmpErrorKind, Verdict};
