//! What is measured: quantities, and the loads that yield them.

mod words;

use serde::{Deserialize, Serialize};

use super::group::{By, Exchange, Fetch, Group, Load, Mixed, Transport, Way};

/// A measured quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// One TCP flow from the client to the server, Gbit/s of payload.
    TcpThroughputUp,
    /// One TCP flow from the server to the client, Gbit/s of payload.
    TcpThroughputDown,
    /// ICMP echo, ms; a deployment's value is the mean of the middle half of its replies.
    Rtt,
    /// Median round-trip time of datagrams at a steady rate, µs.
    LatencyP50,
    /// 99th percentile of the same.
    LatencyP99,
    /// 99.9th percentile of the same.
    #[serde(rename = "latency_p99_9")]
    LatencyP999,
    /// Small datagrams from the client that arrive, thousands per second.
    UdpRateUp,
    /// Small datagrams from the server that arrive, thousands per second.
    UdpRateDown,
    /// Small frames from the client's side that a gateway passes on, thousands per second.
    FrameRateUp,
    /// Small frames from the server's side that a gateway passes on, thousands per second.
    FrameRateDown,
    /// New UDP flows that arrive, thousands per second.
    NewUdpFlows,
    /// New TCP connections, thousands per second.
    NewTcpConnections,
    /// Sessions that were opened and still carry data, thousands.
    SessionsHeld,
    /// Memory that a translator takes for one of them, octets.
    MemoryPerSession,
    /// Exchanges of data with every session in turn, thousands per second.
    ExchangesHeld,
    /// One TCP flow from the client to the server beside the held sessions, Gbit/s of payload.
    TcpThroughputHeld,
    /// Processor time per payload carried by TCP up, ms per Gbit.
    CpuPerGbitUp,
    /// Processor time per payload carried by TCP down, ms per Gbit.
    CpuPerGbitDown,
    /// Processor time per small datagram that arrives, up, µs.
    CpuPerPacketUp,
    /// Processor time per small datagram that arrives, down, µs.
    CpuPerPacketDown,
    /// Processor cycles per small datagram that arrives, up.
    CyclesPerPacketUp,
    /// Processor cycles per small datagram that arrives, down.
    CyclesPerPacketDown,
    /// Questions per second of which none is lost (RFC 8219 section 9), thousands.
    DnsRate,
    /// Answers per second for names that nobody has asked for before, thousands.
    DnsFresh,
    /// Answers per second for names that are in the cache, thousands.
    DnsKnown,
    /// The same by `dnsperf`.
    DnsperfFresh,
    /// The same by `dnsperf`.
    DnsperfKnown,
    /// Processor time per answer for a new name, µs.
    CpuPerAnswerFresh,
    /// Processor time per answer for a known name, µs.
    CpuPerAnswerKnown,
    /// Name, connection, first octet; by a name that nobody has asked for before. ms.
    SessionFresh,
    /// The same by a name that the name server knows.
    SessionKnown,
    /// The same without a name.
    SessionLiteral,
    /// A page with all its objects, by a new name. ms.
    PageName,
    /// The same without a name.
    PageLiteral,
    /// Small objects by HTTP, thousand requests per second.
    HttpSmall,
    /// Large objects by HTTP, Gbit/s of content.
    HttpLarge,
    /// One long object, where there is a proxy through a tunnel, Gbit/s of content.
    HttpTunnel,
    /// Median round trip of small requests by HTTP over several connections, µs.
    HttpRttSmall,
    /// The same of requests with much content.
    HttpRttUp,
    /// The same of answers with much content.
    HttpRttDown,
    /// One TCP flow from the client beside datagrams of the same way, Gbit/s of payload.
    SimplexThroughput,
    /// One TCP flow from the client beside flows of both ways, Gbit/s of payload.
    DuplexThroughput,
    /// Time that `ab` takes for all its requests, s.
    AbTotalTime,
    /// Octets that `ab` received, heads included.
    AbBytes,
    /// Requests after which the connection was kept.
    AbKeepalive,
    /// Requests per second by `ab`.
    AbRequestsPerS,
    /// Time per request by `ab`, across all concurrent requests, ms.
    AbTimePerRequest,
    /// What `ab` receives, KiB/s (it writes Kbytes/sec, and counts in 1024 octets).
    AbTransferRate,
    /// First packet of a connection into the box in the middle, to the first out of it, µs.
    Initiation,
    /// From the start of the translator's process to the first translated reply, ms.
    StartTime,
    /// The correctness gate; not a number.
    Gate,
}

use Way::{Down, Up};

impl Metric {
    /// Every metric.
    pub const ALL: [Self; 51] = [
        Self::TcpThroughputUp,
        Self::TcpThroughputDown,
        Self::Rtt,
        Self::LatencyP50,
        Self::LatencyP99,
        Self::LatencyP999,
        Self::UdpRateUp,
        Self::UdpRateDown,
        Self::FrameRateUp,
        Self::FrameRateDown,
        Self::NewUdpFlows,
        Self::NewTcpConnections,
        Self::SessionsHeld,
        Self::MemoryPerSession,
        Self::ExchangesHeld,
        Self::TcpThroughputHeld,
        Self::CpuPerGbitUp,
        Self::CpuPerGbitDown,
        Self::CpuPerPacketUp,
        Self::CpuPerPacketDown,
        Self::CyclesPerPacketUp,
        Self::CyclesPerPacketDown,
        Self::DnsRate,
        Self::DnsFresh,
        Self::DnsKnown,
        Self::DnsperfFresh,
        Self::DnsperfKnown,
        Self::CpuPerAnswerFresh,
        Self::CpuPerAnswerKnown,
        Self::SessionFresh,
        Self::SessionKnown,
        Self::SessionLiteral,
        Self::PageName,
        Self::PageLiteral,
        Self::HttpSmall,
        Self::HttpLarge,
        Self::HttpTunnel,
        Self::HttpRttSmall,
        Self::HttpRttUp,
        Self::HttpRttDown,
        Self::SimplexThroughput,
        Self::DuplexThroughput,
        Self::AbTotalTime,
        Self::AbBytes,
        Self::AbKeepalive,
        Self::AbRequestsPerS,
        Self::AbTimePerRequest,
        Self::AbTransferRate,
        Self::Initiation,
        Self::StartTime,
        Self::Gate,
    ];

    /// What has to run to get it; nothing for the gate, which is no measurement.
    pub fn load(self) -> Option<Load> {
        Some(match self {
            Self::TcpThroughputUp | Self::CpuPerGbitUp => Load::Flow(Up),
            Self::TcpThroughputDown | Self::CpuPerGbitDown => Load::Flow(Down),
            Self::Rtt => Load::Ping,
            Self::LatencyP50 | Self::LatencyP99 | Self::LatencyP999 => Load::Probe,
            Self::UdpRateUp | Self::CpuPerPacketUp | Self::CyclesPerPacketUp => Load::Datagrams(Up),
            Self::UdpRateDown | Self::CpuPerPacketDown | Self::CyclesPerPacketDown => {
                Load::Datagrams(Down)
            }
            Self::FrameRateUp => Load::Frames(Up),
            Self::FrameRateDown => Load::Frames(Down),
            Self::NewUdpFlows => Load::NewFlows(Transport::Udp),
            Self::NewTcpConnections => Load::NewFlows(Transport::Tcp),
            Self::SessionsHeld
            | Self::MemoryPerSession
            | Self::ExchangesHeld
            | Self::TcpThroughputHeld => Load::Hold,
            Self::DnsRate => Load::Search,
            Self::DnsFresh | Self::CpuPerAnswerFresh => Load::Questions(Mixed::Fresh),
            Self::DnsKnown | Self::CpuPerAnswerKnown => Load::Questions(Mixed::Known),
            Self::DnsperfFresh => Load::Dnsperf(Mixed::Fresh),
            Self::DnsperfKnown => Load::Dnsperf(Mixed::Known),
            Self::SessionFresh => Load::Sessions(By::FreshName),
            Self::SessionKnown => Load::Sessions(By::KnownName),
            Self::SessionLiteral => Load::Sessions(By::Literal),
            Self::PageName => Load::Pages(By::FreshName),
            Self::PageLiteral => Load::Pages(By::Literal),
            Self::HttpSmall => Load::Fetch(Fetch::Small),
            Self::HttpLarge => Load::Fetch(Fetch::Large),
            Self::HttpTunnel => Load::Fetch(Fetch::Tunnel),
            Self::HttpRttSmall => Load::Exchange(Exchange::Small),
            Self::HttpRttUp => Load::Exchange(Exchange::Up),
            Self::HttpRttDown => Load::Exchange(Exchange::Down),
            Self::SimplexThroughput => Load::Simplex,
            Self::DuplexThroughput => Load::Duplex,
            Self::AbTotalTime
            | Self::AbBytes
            | Self::AbKeepalive
            | Self::AbRequestsPerS
            | Self::AbTimePerRequest
            | Self::AbTransferRate => Load::Ab,
            Self::Initiation => Load::Initiation,
            Self::StartTime => Load::Start,
            Self::Gate => return None,
        })
    }

    /// Where the report shows it.
    pub fn group(self) -> Option<Group> {
        Some(match self {
            Self::TcpThroughputUp | Self::TcpThroughputDown | Self::Rtt => Group::Flow,
            Self::LatencyP50 | Self::LatencyP99 | Self::LatencyP999 => Group::Tail,
            Self::UdpRateUp | Self::UdpRateDown | Self::FrameRateUp | Self::FrameRateDown => {
                Group::Packets
            }
            Self::NewUdpFlows
            | Self::NewTcpConnections
            | Self::SessionsHeld
            | Self::MemoryPerSession
            | Self::ExchangesHeld
            | Self::TcpThroughputHeld => Group::Sessions,
            Self::CpuPerGbitUp
            | Self::CpuPerGbitDown
            | Self::CpuPerPacketUp
            | Self::CpuPerPacketDown
            | Self::CyclesPerPacketUp
            | Self::CyclesPerPacketDown
            | Self::CpuPerAnswerFresh
            | Self::CpuPerAnswerKnown => Group::Processor,
            Self::DnsRate
            | Self::DnsFresh
            | Self::DnsKnown
            | Self::DnsperfFresh
            | Self::DnsperfKnown => Group::Dns,
            Self::SessionFresh
            | Self::SessionKnown
            | Self::SessionLiteral
            | Self::PageName
            | Self::PageLiteral => Group::Waiting,
            Self::HttpSmall | Self::HttpLarge | Self::HttpTunnel => Group::Web,
            Self::HttpRttSmall | Self::HttpRttUp | Self::HttpRttDown => Group::Exchanges,
            Self::SimplexThroughput | Self::DuplexThroughput => Group::Beside,
            Self::AbTotalTime
            | Self::AbBytes
            | Self::AbKeepalive
            | Self::AbRequestsPerS
            | Self::AbTimePerRequest
            | Self::AbTransferRate => Group::Ab,
            Self::Initiation => Group::Initiation,
            Self::StartTime => Group::Start,
            Self::Gate => return None,
        })
    }

    /// `up`, `down`, or `both`.
    pub fn direction(self) -> &'static str {
        match self.load() {
            Some(Load::Flow(way) | Load::Datagrams(way) | Load::Frames(way)) => way.name(),
            Some(Load::Exchange(Exchange::Up)) => Way::Up.name(),
            Some(Load::Exchange(Exchange::Down)) => Way::Down.name(),
            _ => "both",
        }
    }

    /// Whether a larger value is the better one.
    pub fn higher_is_better(self) -> bool {
        self.is_throughput()
            || match self.group() {
                Some(Group::Packets | Group::Dns | Group::Web | Group::Beside) => true,
                Some(Group::Sessions) => self != Self::MemoryPerSession,
                Some(Group::Ab) => !matches!(self, Self::AbTotalTime | Self::AbTimePerRequest),
                _ => false,
            }
    }

    /// Whether it is TCP's throughput.
    pub(crate) fn is_throughput(self) -> bool {
        matches!(self, Self::TcpThroughputUp | Self::TcpThroughputDown)
    }

    /// Whether one deployment gives many values, of which its own is the typical one.
    pub(crate) fn has_replies(self) -> bool {
        self == Self::Rtt || self.group() == Some(Group::Waiting)
    }

    /// Whether a session, or a page, is found by its name.
    pub fn needs_names(self) -> bool {
        matches!(
            self.load(),
            Some(Load::Sessions(By::FreshName | By::KnownName) | Load::Pages(By::FreshName))
        )
    }

    /// A value within this factor of the generator's own ceiling may be the generator's.
    pub(crate) fn ceiling_factor(self) -> f64 {
        match self.load() {
            // RFC 8219 section 9.2.1: the tester has to answer 2 (1 + 0.1) questions for each that it asks.
            Some(Load::Search | Load::Questions(Mixed::Fresh) | Load::Dnsperf(Mixed::Fresh)) => 2.2,
            // No question of the server's own comes on top of a known answer.
            Some(Load::Questions(Mixed::Known) | Load::Dnsperf(Mixed::Known)) => 1.1,
            _ => 2.0,
        }
    }

    /// Whether it is measured at several points of one deployment.
    pub(crate) fn has_points(self) -> bool {
        matches!(self.load(), Some(Load::Exchange(_) | Load::Simplex | Load::Duplex | Load::Ab))
    }

    /// Whether something held it down that is worth naming.
    pub(crate) fn has_limiter(self) -> bool {
        self.higher_is_better()
            && !matches!(
                self,
                Self::SessionsHeld | Self::TcpThroughputHeld | Self::AbBytes | Self::AbKeepalive
            )
    }

    /// Whether the generator's own ceiling can be found with nothing in the way.
    pub(crate) fn has_ceiling(self) -> bool {
        self.has_limiter() && self.load() != Some(Load::Hold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_names_agree_with_their_serialised_form() {
        for metric in Metric::ALL {
            assert_eq!(serde_json::to_value(metric).unwrap(), metric.name());
            assert_eq!(metric.load().is_none(), metric == Metric::Gate);
            assert_eq!(metric.group().is_none(), metric == Metric::Gate);
        }
    }

    #[test]
    fn names_end_with_their_direction() {
        for metric in Metric::ALL {
            let expected = match metric.direction() {
                "both" => continue,
                way => format!("_{way}"),
            };
            assert!(metric.name().ends_with(&expected), "{}", metric.name());
        }
    }
}
