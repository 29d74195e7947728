//! What a metric is called: in files, in tables, in little room; and its unit.

use super::Metric;

impl Metric {
    /// The name in artefacts.
    pub fn name(self) -> &'static str {
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
    pub fn label(self) -> &'static str {
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
    pub fn short(self) -> &'static str {
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
    pub fn unit(self) -> &'static str {
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
}
