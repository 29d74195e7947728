//! Packets from readable descriptions, sound or broken on purpose.

mod build;
mod spec;
mod transport;

pub use build::{BuildError, Built, Context, Fill, parse_hex, pattern};
pub use spec::{
    Dccp, Ext, ExtKind, Extension, Icmp, PacketSpec, Patch, Payload, Quote, Sum, SumWord, Tcp, Udp,
    UdpLite, V4, V6,
};
