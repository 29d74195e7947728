//! What the translator did to a packet, step by step, for `fordway explain`.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::addr::{Mapped, Via};
use crate::counters::Direction;
use crate::verdict::{DnsAction, DropReason, IcmpErrorKind, Verdict};

/// One step. Those between [`Step::Inner`] and [`Step::InnerEnd`] concern the packet inside an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The direction was chosen by the IP version.
    Direction(Direction),
    /// The packet inside an ICMP error follows.
    Inner,
    /// Back to the outer packet.
    InnerEnd,
    /// The IPv4 header is sound: its length, the payload's length, the protocol.
    HeaderV4 {
        /// Octets of the header with options.
        header: usize,
        /// Octets behind it.
        payload: usize,
        /// Protocol number.
        protocol: u8,
    },
    /// The IPv6 header is sound.
    HeaderV6 {
        /// Octets of the header and all extension headers.
        header: usize,
        /// Octets behind them.
        payload: usize,
        /// The transport's protocol number.
        protocol: u8,
    },
    /// IPv4 options were left out.
    OptionsIgnored(usize),
    /// IPv6 extension headers (other than the Fragment Header) were left out, in octets.
    ExtensionsSkipped(usize),
    /// The hop limit of the translated packet.
    HopLimit(u8),
    /// The source address was mapped from IPv4.
    SourceV4(Ipv4Addr, Mapped<Ipv6Addr>),
    /// The destination address was mapped from IPv4.
    DestinationV4(Ipv4Addr, Mapped<Ipv6Addr>),
    /// The source address was mapped from IPv6.
    SourceV6(Ipv6Addr, Mapped<Ipv4Addr>),
    /// The destination address was mapped from IPv6.
    DestinationV6(Ipv6Addr, Mapped<Ipv4Addr>),
    /// A fragment: offset in octets, more to come, identification.
    Fragment {
        /// Offset of the payload in the original packet, in octets.
        offset: usize,
        /// More fragments follow.
        more: bool,
        /// Identification.
        identification: u32,
    },
    /// DF in the IPv4 header made.
    DontFragment(bool),
    /// The transport checksum was updated (or left partial, or computed).
    Checksum(ChecksumStep),
    /// Source and destination port were written.
    Ports {
        /// The ports before.
        from: (u16, u16),
        /// The ports now.
        to: (u16, u16),
    },
    /// The identifier of an ICMP query was written.
    Identifier {
        /// The identifier before.
        from: u16,
        /// The identifier now.
        to: u16,
    },
    /// A BIB entry was found or made.
    Bib {
        /// It was made for this packet.
        new: bool,
    },
    /// A session was found or made.
    Session {
        /// It was made for this packet.
        new: bool,
    },
    /// The state of a TCP session, by the RFC's names.
    TcpState {
        /// Before the packet.
        from: &'static str,
        /// Now.
        to: &'static str,
    },
    /// The MSS option was lowered.
    MssClamped {
        /// The sender's value.
        from: u16,
        /// The value now.
        to: u16,
    },
    /// ICMP type and code were translated.
    Icmp {
        /// Type and code before.
        from: (u8, u8),
        /// Type and code now.
        to: (u8, u8),
    },
    /// The MTU of a Packet Too Big or Fragmentation Needed was translated.
    Mtu {
        /// The value before; 0 when the router gave none.
        from: u32,
        /// The value now.
        to: u32,
    },
    /// The pointer of a Parameter Problem was translated.
    Pointer {
        /// The value before.
        from: u32,
        /// The value now.
        to: u32,
    },
    /// RFC 4884 extensions kept, with the length field now (in units of the family).
    Extension {
        /// Octets of the original datagram field now.
        original: usize,
        /// Octets of the extension structure.
        extension: usize,
    },
    /// The packet will be fragmented so that each piece has at most so many octets.
    Split(usize),
    /// The super-packet's segment size was lowered.
    SegmentSize {
        /// Before.
        from: u16,
        /// Now.
        to: u16,
    },
    /// An ALG watches the connection, and has changed the packet.
    Alg {
        /// The ALG.
        alg: &'static str,
        /// Octets that the segment carries: before and now.
        octets: (usize, usize),
        /// The sequence number: before and now.
        seq: (u32, u32),
    },
    /// The packet hairpins: it becomes IPv6 again (RFC 7757 section 4).
    Hairpin,
    /// The packet hairpins: it becomes IPv6 again, because its destination is the translator's own (RFC 6146 section
    /// 3.8).
    HairpinPool4,
    /// The binding of a softwire was found: the IPv4 address's tunnel ends at these two, the gateway's first.
    Binding {
        /// The shared or whole IPv4 address.
        v4: Ipv4Addr,
        /// The port by which one of several was chosen.
        port: Option<u16>,
        /// The tunnel end point's address.
        local: Ipv6Addr,
        /// The client's address.
        remote: Ipv6Addr,
    },
    /// An IPv6 header was put in front.
    Encapsulated {
        /// Its Flow Label.
        flow_label: u32,
    },
    /// The IPv6 header was taken away.
    Decapsulated,
    /// The ECN field became this one.
    Ecn(u8),
    /// The MTU of a tunnel was lowered.
    TunnelMtu(u32),
    /// The DNS ALG has read the message.
    Dns(DnsAction),
    /// An ICMP error is due.
    Error(IcmpErrorKind, DropReason),
    /// It is not sent.
    Suppressed(Suppressed),
    /// The end.
    Verdict(Verdict),
}

/// What happened to a transport checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumStep {
    /// Updated incrementally (RFC 1624).
    Updated,
    /// Partial before and after; only the pseudo-header sum changed.
    Partial,
    /// Computed over the whole datagram.
    Computed,
    /// The protocol has no checksum that covers addresses, or none in this piece.
    Untouched,
}

/// Why an ICMP error that was due is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suppressed {
    /// RFC 1122 section 3.2.2, RFC 4443 section 2.4 (e): never about this packet.
    Forbidden,
    /// The rate limit.
    RateLimit,
    /// Switched off.
    Off,
    /// No source address is configured.
    NoSource,
}

impl Step {
    /// The section that the step follows.
    pub fn section(&self) -> &'static str {
        match self {
            Step::Direction(Direction::V4ToV6) => "RFC 7915 section 4",
            Step::Direction(Direction::V6ToV4) => "RFC 7915 section 5",
            Step::Inner | Step::InnerEnd => "RFC 7915 sections 4.3 and 5.3",
            Step::HeaderV4 { .. } | Step::OptionsIgnored(_) => "RFC 7915 section 4.1",
            Step::HeaderV6 { .. } | Step::ExtensionsSkipped(_) => "RFC 7915 section 5.1",
            Step::HopLimit(_) => "RFC 7915 sections 4.1 and 5.1",
            Step::SourceV4(_, Mapped { via, .. }) | Step::DestinationV4(_, Mapped { via, .. }) => {
                via.section()
            }
            Step::SourceV6(_, Mapped { via, .. }) | Step::DestinationV6(_, Mapped { via, .. }) => {
                via.section()
            }
            Step::Fragment { .. } => "RFC 7915 sections 4.1 and 5.1.1",
            Step::DontFragment(_) => "RFC 7915 section 5.1",
            Step::Checksum(_) => "RFC 7915 sections 4.5 and 5.5",
            Step::Ports { .. } | Step::Identifier { .. } => "RFC 6146 section 3.7",
            Step::Bib { .. } | Step::Session { .. } => "RFC 6146 section 3.5",
            Step::TcpState { .. } => "RFC 6146 section 3.5.2.2",
            Step::MssClamped { .. } => "RFC 9293 section 3.7.1",
            Step::Icmp { .. } | Step::Mtu { .. } | Step::Pointer { .. } => {
                "RFC 7915 sections 4.2 and 5.2"
            }
            Step::Extension { .. } => "RFC 4884 section 5",
            Step::Split(_) | Step::SegmentSize { .. } => "RFC 7915 sections 4.1 and 5.1.1",
            Step::Alg { .. } => "RFC 6384 section 5",
            Step::Binding { .. } => "RFC 7596 section 6.2",
            Step::Encapsulated { .. } => "RFC 2473 section 3.1",
            Step::Decapsulated => "RFC 2473 section 3.3",
            Step::Ecn(_) => "RFC 6040 section 4.2",
            Step::TunnelMtu(_) => "RFC 2473 section 6.7",
            Step::Hairpin => "RFC 7757 section 4.2.2",
            Step::HairpinPool4 => "RFC 6146 section 3.8",
            Step::Dns(_) => "RFC 2766 section 4",
            Step::Suppressed(Suppressed::Forbidden) => {
                "RFC 1122 section 3.2.2 and RFC 4443 section 2.4"
            }
            Step::Error(..) | Step::Suppressed(_) => "RFC 7915 sections 4.4 and 5.4",
            Step::Verdict(_) => "",
        }
    }
}

impl Via {
    /// The section that describes the mapping.
    pub fn section(&self) -> &'static str {
        match self {
            Via::Eam(_) => "RFC 7757 section 3.3",
            Via::Pool6(_) => "RFC 6052 section 2.3",
            Via::IcmpSource => "RFC 6791 section 3",
            Via::Bib => "RFC 6146 section 3.6",
            Via::Dynamic4 => "RFC 7915 section 6",
        }
    }
}

/// Takes the steps of a translation. `()` takes none and costs nothing.
pub trait Trace {
    /// Takes one step.
    fn step(&mut self, step: Step);

    /// Whether steps are recorded. If not, what only a trace needs is not looked up.
    fn is_wanted(&self) -> bool {
        true
    }
}

impl Trace for () {
    #[inline(always)]
    fn step(&mut self, _step: Step) {}

    #[inline(always)]
    fn is_wanted(&self) -> bool {
        false
    }
}

impl Trace for alloc::vec::Vec<Step> {
    fn step(&mut self, step: Step) {
        self.push(step);
    }
}

#[cfg(test)]
mod tests;
