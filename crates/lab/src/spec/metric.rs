//! What is measured: quantities, and the loads that yield them.

use serde::{Deserialize, Serialize};

/// Direction of a load, as the client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Way {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

impl Way {
    /// `up` or `down`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// What a flow is carried by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Transport {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
}

/// One piece of work that yields one or several quantities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Load {
    /// One TCP flow.
    Flow(Way),
    /// ICMP echo, one at a time.
    Ping,
    /// Small datagrams at a steady rate, echoed.
    Probe,
    /// Small datagrams from a socket, as many as it takes.
    Datagrams(Way),
    /// Small frames at a gateway's device, as many as it takes.
    Frames(Way),
    /// Flows that nobody has seen before.
    NewFlows(Transport),
    /// Many sessions at once, on a deployment of their own.
    Hold,
    /// The start of the translator's process.
    Start,
}

/// Quantities that a reader wants side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Group {
    /// TCP and round-trip time: what the study measured.
    Flow,
    /// Round-trip time under a steady load.
    Tail,
    /// Small packets.
    Packets,
    /// New flows and held sessions.
    Sessions,
    /// Processor time.
    Processor,
    /// Start of the translator.
    Start,
}

impl Group {
    /// All groups, in the order of the report.
    pub(crate) const ALL: [Self; 6] =
        [Self::Flow, Self::Tail, Self::Packets, Self::Sessions, Self::Processor, Self::Start];

    /// Heading.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Flow => "Throughput and round trip",
            Self::Tail => "Round trip under a steady load",
            Self::Packets => "Small packets",
            Self::Sessions => "Sessions",
            Self::Processor => "Processor",
            Self::Start => "Start",
        }
    }

    /// How to read its numbers.
    pub(crate) fn note(self) -> &'static str {
        match self {
            Self::Flow => "One TCP flow each way; ICMP echo on an idle path.",
            Self::Tail => {
                "Small datagrams at a steady rate, whatever comes back, echoed by the server. Time \
                 counts from the moment a datagram was due; a lost one counts as later than all \
                 others. Percentiles of one deployment each."
            }
            Self::Packets => {
                "Packets per second that arrive while as many are sent as the sender can. \
                 Datagrams: from a socket of the application. Frames: put on the gateway's link by \
                 the kernel's own generator and dropped on arrival, so that the gateway is most of \
                 the work."
            }
            Self::Sessions => {
                "Every flow has a source address and port of its own and is counted when it has \
                 arrived intact, once: a datagram, or a TCP handshake. The sender's processor does \
                 all the work of the path but that of a gateway's own process. Held: TCP \
                 connections opened, and after a while data exchanged on every one of them."
            }
            Self::Processor => {
                "Busy time of all processors, sender and receiver included, while the load runs: \
                 compare with the base, the difference is the mechanism's."
            }
            Self::Start => "From the start of the process to the first translated packet.",
        }
    }
}

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
    /// From the start of the translator's process to the first translated reply, ms.
    StartTime,
    /// The correctness gate; not a number.
    Gate,
}

use Way::{Down, Up};

impl Metric {
    /// Every metric.
    pub(crate) const ALL: [Self; 24] = [
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
            Self::StartTime => "start",
            Self::Gate => "gate",
        }
    }

    /// The unit of its values.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::TcpThroughputUp | Self::TcpThroughputDown | Self::TcpThroughputHeld => "Gbit/s",
            Self::NewUdpFlows => "kflows/s",
            Self::NewTcpConnections => "kconnections/s",
            Self::SessionsHeld => "thousand",
            Self::MemoryPerSession => "octets",
            Self::ExchangesHeld => "kexchanges/s",
            Self::Rtt | Self::StartTime => "ms",
            Self::LatencyP50 | Self::LatencyP99 | Self::LatencyP999 => "µs",
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
            | Self::CyclesPerPacketDown => Group::Processor,
            Self::StartTime => Group::Start,
            Self::Gate => return None,
        })
    }

    /// `up`, `down`, or `both`.
    pub(crate) fn direction(self) -> &'static str {
        match self.load() {
            Some(Load::Flow(way) | Load::Datagrams(way) | Load::Frames(way)) => way.name(),
            _ => "both",
        }
    }

    /// Whether a larger value is the better one.
    pub(crate) fn higher_is_better(self) -> bool {
        self.is_throughput()
            || match self.group() {
                Some(Group::Packets) => true,
                Some(Group::Sessions) => self != Self::MemoryPerSession,
                _ => false,
            }
    }

    /// Whether it is TCP's throughput.
    pub(crate) fn is_throughput(self) -> bool {
        matches!(self, Self::TcpThroughputUp | Self::TcpThroughputDown)
    }

    /// Whether something held it down that is worth naming.
    pub(crate) fn has_limiter(self) -> bool {
        self.higher_is_better() && !matches!(self, Self::SessionsHeld | Self::TcpThroughputHeld)
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
