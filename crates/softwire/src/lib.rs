//! Softwires: IPv4 in IPv6 tunnels between one gateway and many clients (RFC 2473, RFC 7596).
//!
//! A [`Softwire`] is what runs on an interface that IPv4 packets and the tunnel's own IPv6 packets are routed
//! into. It has one of two [`Role`]s: the tunnel end point of many clients, or a client. Both know
//! [`Bindings`]: which IPv4 address, or which ports of one, belong to which IPv6 address. Packets,
//! verdicts, reasons and counters are those of the translators' core, `fordway_xlat`, so one engine runs both.
//!
//! The way of a packet, one file per step:
//!
//! 1. `softwire` looks at the IP version;
//! 2. an IPv4 packet goes into a tunnel (`encapsulate`): the binding of its destination, does it fit, a new
//!    header with a `flow` label; super-packets and packets that are too long leave in pieces
//!    ([`Packet::fragments`](fordway_xlat::Packet::fragments));
//! 3. an IPv6 packet comes out of one (`decapsulate`): do the tunnel and the binding of its source agree, `ecn`;
//! 4. or it is an ICMPv6 error from inside the tunnel (`relay`), which is told to the IPv4 sender.
//!
//! No I/O, no clock, no randomness, nothing allocated per packet: time is an argument and effects are returned.
#![forbid(unsafe_code)]

mod binding;
mod bindings;
mod decapsulate;
mod ecn;
mod encapsulate;
pub mod flow;
mod inner;
mod path;
mod port_set;
mod relay;
mod settings;
mod softwire;

pub use binding::Binding;
pub use bindings::{Address, BindingError, Bindings, Entry, Shared};
pub use path::{PATH_MTU_LIFETIME, PathMtu};
pub use port_set::{PortSet, PortSetError};
pub use settings::{Role, Settings, SettingsError};
pub use softwire::{Part, Softwire};

/// Octets that a tunnel adds: one IPv6 header (RFC 2473 section 3.1), and never an option.
pub const OVERHEAD: usize = fordway_wire::ipv6::HEADER_LEN;
