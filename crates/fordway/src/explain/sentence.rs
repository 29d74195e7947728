//! Steps of the core as sentences.

use fordway_xlat::addr::{Mapped, Via};
use fordway_xlat::dns::DnsAction;
use fordway_xlat::trace::{ChecksumStep, Step, Suppressed};
use fordway_xlat::{Direction, IcmpErrorKind};

/// A step as a sentence; `None` for steps that are shown otherwise.
///
/// `counted`: the translator counts as a hop in the packet's direction.
pub(crate) fn of(step: &Step, counted: bool) -> Option<String> {
    Some(match step {
        Step::Direction(Direction::V4ToV6) => "version 4: translate to IPv6".to_owned(),
        Step::Direction(Direction::V6ToV4) => "version 6: translate to IPv4".to_owned(),
        Step::Inner => "the packet inside the ICMP error:".to_owned(),
        Step::InnerEnd | Step::Verdict(_) => return None,
        Step::HeaderV4 { header, payload, protocol } => format!(
            "IPv4 header of {header} octets is sound; {payload} octets of {} behind it",
            super::dissect::protocol_name(*protocol)
        ),
        Step::HeaderV6 { header, payload, protocol } => format!(
            "IPv6 headers of {header} octets are sound; {payload} octets of {} behind them",
            super::dissect::protocol_name(*protocol)
        ),
        Step::OptionsIgnored(octets) => format!("{octets} octets of IPv4 options are left out"),
        Step::ExtensionsSkipped(octets) => {
            format!("{octets} octets of extension headers are left out")
        }
        Step::HopLimit(value) if counted => {
            format!("the hop limit becomes {value}")
        }
        Step::HopLimit(value) => format!("the hop limit stays {value}"),
        Step::SourceV4(from, to) => mapping("source", from, to),
        Step::SourceV6(from, to) => mapping("source", from, to),
        Step::DestinationV4(from, to) => mapping("destination", from, to),
        Step::DestinationV6(from, to) => mapping("destination", from, to),
        Step::Fragment { offset, more, identification } => format!(
            "a fragment: octets from {offset}, {}, identification {identification:#x}",
            if *more { "more follow" } else { "the last" }
        ),
        Step::DontFragment(true) => "Don't Fragment is set".to_owned(),
        Step::DontFragment(false) => "Don't Fragment is left clear".to_owned(),
        Step::Checksum(step) => checksum(*step).to_owned(),
        Step::Ports { from, to } => {
            format!("ports {} and {} become {} and {}", from.0, from.1, to.0, to.1)
        }
        Step::Identifier { from, to } => format!("the identifier becomes {to} from {from}"),
        Step::Bib { new } => format!("{} BIB entry", if *new { "a new" } else { "there is a" }),
        Step::Session { new } => format!("{} session", if *new { "a new" } else { "there is a" }),
        Step::TcpState { from, to } if from == to => format!("the TCP session stays {from}"),
        Step::TcpState { from, to } => format!("the TCP session goes from {from} to {to}"),
        Step::MssClamped { from, to } => format!("the TCP MSS is lowered from {from} to {to}"),
        Step::Icmp { from, to } => {
            format!("ICMP type {} code {} becomes type {} code {}", from.0, from.1, to.0, to.1)
        }
        Step::Mtu { from: 0, to } => {
            format!("the router gave no MTU; the plateaus of RFC 1191 give {to}")
        }
        Step::Mtu { from, to } => format!("the MTU in the error becomes {to} from {from}"),
        Step::Pointer { from, to } => format!("the pointer becomes {to} from {from}"),
        Step::Extension { original, extension } => format!(
            "ICMP extensions of {extension} octets are kept behind {original} octets of the packet"
        ),
        Step::Split(octets) => {
            format!("the packet is cut into fragments of at most {octets} octets")
        }
        Step::SegmentSize { from, to } => {
            format!("segments of the super-packet shrink from {from} to {to} octets")
        }
        Step::Alg { alg, octets: (from, to), seq } => format!(
            "the {alg} gateway: {from} octets are now {to}; sequence number {} -> {}",
            seq.0, seq.1
        ),
        Step::Hairpin => "the destination is an IPv6 host with a mapping: turn back".to_owned(),
        Step::HairpinPool4 => "the destination is the translator's own: turn back".to_owned(),
        Step::Binding { v4, port, local, remote } => {
            let port = port.map_or_else(String::new, |port| format!(" port {port}"));
            format!("{v4}{port} has a binding: its tunnel is between {local} and {remote}")
        }
        Step::Encapsulated { flow_label } => {
            format!("an IPv6 header is put in front, flow label {flow_label:#07x}")
        }
        Step::Decapsulated => "the IPv6 header is taken away".to_owned(),
        Step::Ecn(codepoint) => format!("the ECN field becomes {codepoint:#04b}"),
        Step::TunnelMtu(mtu) => format!("the MTU of the tunnel's path becomes {mtu} octets"),
        Step::Dns(action) => match action {
            DnsAction::Pass => "the DNS message stays as it is",
            DnsAction::Replace => "the DNS message is translated",
            DnsAction::Return => {
                "the DNS answer has no address: its server is asked for one of the other family"
            }
        }
        .to_owned(),
        Step::Error(kind, _) => format!("an ICMP error is due: {}", error(*kind)),
        Step::Suppressed(why) => format!("it is not sent: {}", suppressed(*why)),
    })
}

fn mapping<A: std::fmt::Display, B: std::fmt::Display>(
    what: &str,
    from: &A,
    to: &Mapped<B>,
) -> String {
    let by = match to.via {
        Via::Eam(eam) => format!("the mapping {eam}"),
        Via::Pool6(pool6) => format!("the prefix {pool6}"),
        Via::IcmpSource => "the configured source of ICMP errors".to_owned(),
        Via::Bib => "the BIB".to_owned(),
        Via::Dynamic4 => "the dynamic mapping".to_owned(),
    };
    format!("{what} {from} becomes {} by {by}", to.addr)
}

fn checksum(step: ChecksumStep) -> &'static str {
    match step {
        ChecksumStep::Updated => "the transport checksum is updated incrementally (RFC 1624)",
        ChecksumStep::Partial => "the partial checksum stays partial",
        ChecksumStep::Computed => "the checksum is computed over the whole datagram",
        ChecksumStep::Untouched => "no checksum here covers the addresses",
    }
}

fn error(kind: IcmpErrorKind) -> String {
    match kind {
        IcmpErrorKind::TimeExceeded => "Time Exceeded".to_owned(),
        IcmpErrorKind::TooBig { mtu } => {
            format!("Fragmentation Needed or Packet Too Big, MTU {mtu}")
        }
        IcmpErrorKind::AdministrativelyProhibited => {
            "communication administratively prohibited".to_owned()
        }
        IcmpErrorKind::SourceRouteFailed => "Source Route Failed".to_owned(),
        IcmpErrorKind::ParameterProblem { pointer } => {
            format!("Parameter Problem, pointer {pointer}")
        }
        IcmpErrorKind::AddressUnreachable => "host or address unreachable".to_owned(),
        IcmpErrorKind::PortUnreachable => "port unreachable".to_owned(),
        IcmpErrorKind::SourcePolicy => "the source address failed a policy".to_owned(),
        IcmpErrorKind::ProtocolUnreachable => {
            "protocol unreachable (to IPv6: port unreachable)".to_owned()
        }
    }
}

fn suppressed(why: Suppressed) -> &'static str {
    match why {
        Suppressed::Forbidden => "never about such a packet",
        Suppressed::RateLimit => "the rate limit is reached",
        Suppressed::Off => "ICMP errors are switched off",
        Suppressed::NoSource => {
            "no source address is configured (icmp_source4, icmp_source6; a daemon takes the host's)"
        }
    }
}
