//! What is measured: quantities, and the loads that yield them.

use serde::{Deserialize, Serialize};

use super::group::{By, Exchange, Fetch, Group, Load, Mixed, Transport, Way};

/// A measured quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Metric {
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
    pub(crate) const ALL: [Self; 51] = [
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

    /// The name in artefacts.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::TcpThroughputUp => "tcp_throughput_up",
            Self::TcpThroughputDown => "tcp_throughput_down",
            Self::Rtt => "rtt",
            Self::LatencyP50 => "latency_p50",
            Self::LatencyP99 => "latency_p99",
            Self::LatencyP999 => "latency_p99_9",
            Self::UdpRateUp => "udp_rate_up",
            Self::UdpRateDown => "udp_rate_down",
            Self::FrameRateUp => "frame_rate_up",
            Self::FrameRateDown => "frame_rate_down",
            Self::NewUdpFlows => "new_udp_flows",
            Self::NewTcpConnections => "new_tcp_connections",
            Self::SessionsHeld => "sessions_held",
            Self::MemoryPerSession => "memory_per_session",
            Self::ExchangesHeld => "exchanges_held",
            Self::TcpThroughputHeld => "tcp_throughput_held",
            Self::CpuPerGbitUp => "cpu_per_gbit_up",
            Self::CpuPerGbitDown => "cpu_per_gbit_down",
            Self::CpuPerPacketUp => "cpu_per_packet_up",
            Self::CpuPerPacketDown => "cpu_per_packet_down",
            Self::CyclesPerPacketUp => "cycles_per_packet_up",
            Self::CyclesPerPacketDown => "cycles_per_packet_down",
            Self::DnsRate => "dns_rate",
            Self::DnsFresh => "dns_fresh",
            Self::DnsKnown => "dns_known",
            Self::DnsperfFresh => "dnsperf_fresh",
            Self::DnsperfKnown => "dnsperf_known",
            Self::CpuPerAnswerFresh => "cpu_per_answer_fresh",
            Self::CpuPerAnswerKnown => "cpu_per_answer_known",
            Self::SessionFresh => "session_fresh",
            Self::SessionKnown => "session_known",
            Self::SessionLiteral => "session_literal",
            Self::PageName => "page_name",
            Self::PageLiteral => "page_literal",
            Self::HttpSmall => "http_small",
            Self::HttpLarge => "http_large",
            Self::HttpTunnel => "http_tunnel",
            Self::HttpRttSmall => "http_rtt_small",
            Self::HttpRttUp => "http_rtt_up",
            Self::HttpRttDown => "http_rtt_down",
            Self::SimplexThroughput => "simplex_throughput",
            Self::DuplexThroughput => "duplex_throughput",
            Self::AbTotalTime => "ab_total_time",
            Self::AbBytes => "ab_bytes",
            Self::AbKeepalive => "ab_keepalive",
            Self::AbRequestsPerS => "ab_requests_per_s",
            Self::AbTimePerRequest => "ab_time_per_request",
            Self::AbTransferRate => "ab_transfer_rate",
            Self::Initiation => "initiation",
            Self::StartTime => "start_time",
            Self::Gate => "gate",
        }
    }

    /// The name for people.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::TcpThroughputUp => "TCP up (client to server)",
            Self::TcpThroughputDown => "TCP down (server to client)",
            Self::Rtt => "Round-trip time",
            Self::LatencyP50 => "Round trip, P50",
            Self::LatencyP99 => "Round trip, P99",
            Self::LatencyP999 => "Round trip, P99.9",
            Self::UdpRateUp => "Datagrams up",
            Self::UdpRateDown => "Datagrams down",
            Self::FrameRateUp => "Frames up",
            Self::FrameRateDown => "Frames down",
            Self::NewUdpFlows => "New UDP flows",
            Self::NewTcpConnections => "New TCP connections",
            Self::SessionsHeld => "Sessions held",
            Self::MemoryPerSession => "Memory per session",
            Self::ExchangesHeld => "Exchanges over all held sessions",
            Self::TcpThroughputHeld => "TCP up beside held sessions",
            Self::CpuPerGbitUp => "Processor time, TCP up",
            Self::CpuPerGbitDown => "Processor time, TCP down",
            Self::CpuPerPacketUp => "Processor time per datagram up",
            Self::CpuPerPacketDown => "Processor time per datagram down",
            Self::CyclesPerPacketUp => "Cycles per datagram up",
            Self::CyclesPerPacketDown => "Cycles per datagram down",
            Self::DnsRate => "DNS64, rate without loss",
            Self::DnsFresh => "DNS64, answers, new names",
            Self::DnsKnown => "DNS64, answers, known names",
            Self::DnsperfFresh => "DNS64 by dnsperf, new names",
            Self::DnsperfKnown => "DNS64 by dnsperf, known names",
            Self::CpuPerAnswerFresh => "Processor time per answer, new names",
            Self::CpuPerAnswerKnown => "Processor time per answer, known names",
            Self::SessionFresh => "Session start, new name",
            Self::SessionKnown => "Session start, known name",
            Self::SessionLiteral => "Session start, address",
            Self::PageName => "Page, new name",
            Self::PageLiteral => "Page, address",
            Self::HttpSmall => "HTTP, small objects",
            Self::HttpLarge => "HTTP, large objects",
            Self::HttpTunnel => "HTTP, one long object (tunnel)",
            Self::HttpRttSmall => "HTTP round trip, small",
            Self::HttpRttUp => "HTTP round trip, large up",
            Self::HttpRttDown => "HTTP round trip, large down",
            Self::SimplexThroughput => "TCP up beside simplex traffic",
            Self::DuplexThroughput => "TCP up beside duplex traffic",
            Self::AbTotalTime => "ab, total time",
            Self::AbBytes => "ab, octets transferred",
            Self::AbKeepalive => "ab, successful keep-alives",
            Self::AbRequestsPerS => "ab, requests per second",
            Self::AbTimePerRequest => "ab, time per request",
            Self::AbTransferRate => "ab, transfer rate",
            Self::Initiation => "Initiation, TCP",
            Self::StartTime => "Start to first packet",
            Self::Gate => "Correctness gate",
        }
    }

    /// A few letters for narrow tables and figures, without the direction.
    pub(crate) fn short(self) -> &'static str {
        match self {
            Self::TcpThroughputUp | Self::TcpThroughputDown => "TCP",
            Self::Rtt => "RTT",
            Self::LatencyP50 => "P50",
            Self::LatencyP99 => "P99",
            Self::LatencyP999 => "P99.9",
            Self::UdpRateUp | Self::UdpRateDown => "datagrams",
            Self::FrameRateUp | Self::FrameRateDown => "frames",
            Self::NewUdpFlows => "new UDP",
            Self::NewTcpConnections => "new TCP",
            Self::SessionsHeld => "held",
            Self::MemoryPerSession => "memory",
            Self::ExchangesHeld => "exchanges, held",
            Self::TcpThroughputHeld => "TCP, held",
            Self::CpuPerGbitUp | Self::CpuPerGbitDown => "CPU, TCP",
            Self::CpuPerPacketUp | Self::CpuPerPacketDown => "CPU, datagram",
            Self::CyclesPerPacketUp | Self::CyclesPerPacketDown => "cycles",
            Self::DnsRate => "no loss",
            Self::DnsFresh => "new names",
            Self::DnsKnown => "known names",
            Self::DnsperfFresh => "dnsperf, new",
            Self::DnsperfKnown => "dnsperf, known",
            Self::CpuPerAnswerFresh => "CPU, new name",
            Self::CpuPerAnswerKnown => "CPU, known name",
            Self::SessionFresh => "new name",
            Self::SessionKnown => "known name",
            Self::SessionLiteral => "address",
            Self::PageName => "page, name",
            Self::PageLiteral => "page, address",
            Self::HttpSmall => "small",
            Self::HttpLarge => "large",
            Self::HttpTunnel => "tunnel",
            Self::HttpRttSmall => "small",
            Self::HttpRttUp => "large up",
            Self::HttpRttDown => "large down",
            Self::SimplexThroughput => "simplex",
            Self::DuplexThroughput => "duplex",
            Self::AbTotalTime => "total time",
            Self::AbBytes => "octets",
            Self::AbKeepalive => "kept",
            Self::AbRequestsPerS => "requests/s",
            Self::AbTimePerRequest => "time/request",
            Self::AbTransferRate => "transfer",
            Self::Initiation => "initiation",
            Self::StartTime => "start",
            Self::Gate => "gate",
        }
    }

    /// The unit of its values.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::TcpThroughputUp
            | Self::TcpThroughputDown
            | Self::TcpThroughputHeld
            | Self::SimplexThroughput
            | Self::DuplexThroughput => "Gbit/s",
            Self::NewUdpFlows => "kflows/s",
            Self::NewTcpConnections => "kconnections/s",
            Self::SessionsHeld => "thousand",
            Self::MemoryPerSession | Self::AbBytes => "octets",
            Self::ExchangesHeld => "kexchanges/s",
            Self::AbTotalTime => "s",
            Self::AbKeepalive => "requests",
            Self::AbRequestsPerS => "requests/s",
            Self::AbTransferRate => "KiB/s",
            Self::Rtt
            | Self::AbTimePerRequest
            | Self::StartTime
            | Self::SessionFresh
            | Self::SessionKnown
            | Self::SessionLiteral
            | Self::PageName
            | Self::PageLiteral => "ms",
            Self::DnsRate
            | Self::DnsFresh
            | Self::DnsKnown
            | Self::DnsperfFresh
            | Self::DnsperfKnown => "kqueries/s",
            Self::CpuPerAnswerFresh | Self::CpuPerAnswerKnown => "µs/answer",
            Self::LatencyP50
            | Self::LatencyP99
            | Self::LatencyP999
            | Self::HttpRttSmall
            | Self::HttpRttUp
            | Self::HttpRttDown
            | Self::Initiation => "µs",
            Self::HttpSmall => "krequests/s",
            Self::HttpLarge | Self::HttpTunnel => "Gbit/s",
            Self::UdpRateUp | Self::UdpRateDown | Self::FrameRateUp | Self::FrameRateDown => {
                "kpackets/s"
            }
            Self::CpuPerGbitUp | Self::CpuPerGbitDown => "ms/Gbit",
            Self::CpuPerPacketUp | Self::CpuPerPacketDown => "µs/packet",
            Self::CyclesPerPacketUp | Self::CyclesPerPacketDown => "cycles/packet",
            Self::Gate => "",
        }
    }

    /// What has to run to get it; nothing for the gate, which is no measurement.
    pub(crate) fn load(self) -> Option<Load> {
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
    pub(crate) fn group(self) -> Option<Group> {
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
    pub(crate) fn direction(self) -> &'static str {
        match self.load() {
            Some(Load::Flow(way) | Load::Datagrams(way) | Load::Frames(way)) => way.name(),
            Some(Load::Exchange(Exchange::Up)) => Way::Up.name(),
            Some(Load::Exchange(Exchange::Down)) => Way::Down.name(),
            _ => "both",
        }
    }

    /// Whether a larger value is the better one.
    pub(crate) fn higher_is_better(self) -> bool {
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
    pub(crate) fn needs_names(self) -> bool {
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
        self.higher_is_better() && !matches!(self, Self::SessionsHeld | Self::TcpThroughputHeld)
    }

    /// Whether the generator's own ceiling can be found with nothing in the way.
    pub(crate) fn has_ceiling(self) -> bool {
        self.has_limiter() && self.load() != Some(Load::Hold) && !self.has_points()
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
