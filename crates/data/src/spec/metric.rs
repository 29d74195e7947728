//! What is measured: quantities, and the loads that yield them.

use super::group::Way::{Down, Up};
use super::group::{By, Exchange, Fetch, Group, Load, Mixed, Transact, Transport};
use super::own::{Better, OwnMetric};

/// What is fixed about a metric.
struct Row {
    name: &'static str,
    label: &'static str,
    short: &'static str,
    unit: &'static str,
    measured: Option<(Group, Load)>,
}

/// Makes the metrics of a table: variant, name in artefacts, name for people, a few letters without the direction, unit,
/// where the report shows it, and what has to run to get it.
macro_rules! metrics {
    ($($(#[$about:meta])* $variant:ident: $name:literal, $label:literal, $short:literal, $unit:literal
        $(, $group:ident, $load:expr)?;)*) => {
        /// A measured quantity.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Metric {
            $($(#[$about])* $variant,)*
            /// One that an experiment brings itself.
            Own(OwnMetric),
        }

        impl Metric {
            /// Every built-in metric.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            fn row(self) -> Row {
                match self {
                    $(Self::$variant => Row {
                        name: $name,
                        label: $label,
                        short: $short,
                        unit: $unit,
                        measured: None$(.or(Some((Group::$group, $load))))?,
                    },)*
                    Self::Own(own) => {
                        let own = own.spec();
                        let label = &own.metric.label;
                        Row {
                            name: &own.metric.name,
                            label,
                            short: own.metric.short.as_ref().unwrap_or(label),
                            unit: &own.metric.unit,
                            measured: Some((Group::Own, Load::Own(own.load))),
                        }
                    }
                }
            }
        }
    };
}

metrics! {
    /// One TCP flow from the client to the server, Gbit/s of payload.
    TcpThroughputUp: "tcp_throughput_up", "TCP up (client to server)", "TCP", "Gbit/s", Flow, Load::Flow(Up);
    /// One TCP flow from the server to the client, Gbit/s of payload.
    TcpThroughputDown: "tcp_throughput_down", "TCP down (server to client)", "TCP", "Gbit/s", Flow, Load::Flow(Down);
    /// ICMP echo, ms; a deployment's value is the mean of the middle half of its replies.
    Rtt: "rtt", "Round-trip time", "RTT", "ms", Flow, Load::Ping;
    /// Median round-trip time of datagrams at a steady rate, µs.
    LatencyP50: "latency_p50", "Round trip, P50", "P50", "µs", Tail, Load::Probe;
    /// 99th percentile of the same.
    LatencyP99: "latency_p99", "Round trip, P99", "P99", "µs", Tail, Load::Probe;
    /// 99.9th percentile of the same.
    LatencyP999: "latency_p99_9", "Round trip, P99.9", "P99.9", "µs", Tail, Load::Probe;
    /// Small datagrams from the client that arrive, thousands per second.
    UdpRateUp: "udp_rate_up", "Datagrams up", "datagrams", "kpackets/s", Packets, Load::Datagrams(Up);
    /// Small datagrams from the server that arrive, thousands per second.
    UdpRateDown: "udp_rate_down", "Datagrams down", "datagrams", "kpackets/s", Packets, Load::Datagrams(Down);
    /// Small frames from the client's side that a gateway passes on, thousands per second.
    FrameRateUp: "frame_rate_up", "Frames up", "frames", "kpackets/s", Packets, Load::Frames(Up);
    /// Small frames from the server's side that a gateway passes on, thousands per second.
    FrameRateDown: "frame_rate_down", "Frames down", "frames", "kpackets/s", Packets, Load::Frames(Down);
    /// Small frames from many hosts behind the client that a gateway passes on to the server, thousands per second.
    PairRateUp: "pair_rate_up", "Frames up, between pairs of hosts", "frames, pairs", "kpackets/s", Pairs, Load::Pairs(Up);
    /// Small frames from the server to many hosts behind the client, thousands per second.
    PairRateDown: "pair_rate_down", "Frames down, between pairs of hosts", "frames, pairs", "kpackets/s", Pairs, Load::Pairs(Down);
    /// Frames of several sizes, one after the other, from the client's side that a gateway passes on, thousands per second.
    ImixRateUp: "imix_rate_up", "IMIX frames up", "IMIX", "kpackets/s", Packets, Load::Imix(Up);
    /// The same from the server's side.
    ImixRateDown: "imix_rate_down", "IMIX frames down", "IMIX", "kpackets/s", Packets, Load::Imix(Down);
    /// UDP payload of these frames, up, Gbit/s.
    ImixThroughputUp: "imix_throughput_up", "IMIX payload up", "IMIX payload", "Gbit/s", Packets, Load::Imix(Up);
    /// UDP payload of these frames, down, Gbit/s.
    ImixThroughputDown: "imix_throughput_down", "IMIX payload down", "IMIX payload", "Gbit/s", Packets, Load::Imix(Down);
    /// New UDP flows that arrive, thousands per second.
    NewUdpFlows: "new_udp_flows", "New UDP flows", "new UDP", "kflows/s", Sessions, Load::NewFlows(Transport::Udp);
    /// New TCP connections, thousands per second.
    NewTcpConnections: "new_tcp_connections", "New TCP connections", "new TCP", "kconnections/s", Sessions, Load::NewFlows(Transport::Tcp);
    /// New UDP flows in a table whose entries were all used before, thousands per second.
    RecycledUdpFlows: "new_udp_flows_recycled", "New UDP flows, recycled table", "new UDP, recycled", "kflows/s", Sessions, Load::Recycled;
    /// The same while half of the table is held.
    HalfHeldUdpFlows: "new_udp_flows_held_50", "New UDP flows, 50 % of the table held", "new UDP, 50 % held", "kflows/s", Sessions, Load::Recycled;
    /// The same while nine tenths are held.
    MostHeldUdpFlows: "new_udp_flows_held_90", "New UDP flows, 90 % of the table held", "new UDP, 90 % held", "kflows/s", Sessions, Load::Recycled;
    /// New TCP connections in a table whose entries were all used before, thousands per second.
    RecycledTcpConnections: "new_tcp_connections_recycled", "New TCP connections, recycled table", "new TCP, recycled", "kconnections/s", Sessions, Load::Recycled;
    /// The same while half of the table is held.
    HalfHeldTcpConnections: "new_tcp_connections_held_50", "New TCP connections, 50 % of the table held", "new TCP, 50 % held", "kconnections/s", Sessions, Load::Recycled;
    /// The same while nine tenths are held.
    MostHeldTcpConnections: "new_tcp_connections_held_90", "New TCP connections, 90 % of the table held", "new TCP, 90 % held", "kconnections/s", Sessions, Load::Recycled;
    /// Sessions that were opened and still carry data, thousands.
    SessionsHeld: "sessions_held", "Sessions held", "held", "thousand", Sessions, Load::Hold;
    /// Memory that a translator takes for one of them, octets.
    MemoryPerSession: "memory_per_session", "Memory per session", "memory", "octets", Sessions, Load::Hold;
    /// Exchanges of data with every session in turn, thousands per second.
    ExchangesHeld: "exchanges_held", "Exchanges over all held sessions", "exchanges, held", "kexchanges/s", Sessions, Load::Hold;
    /// One TCP flow from the client to the server beside the held sessions, Gbit/s of payload.
    TcpThroughputHeld: "tcp_throughput_held", "TCP up beside held sessions", "TCP, held", "Gbit/s", Sessions, Load::Hold;
    /// Processor time per payload carried by TCP up, ms per Gbit.
    CpuPerGbitUp: "cpu_per_gbit_up", "Processor time, TCP up", "CPU, TCP", "ms/Gbit", Processor, Load::Flow(Up);
    /// Processor time per payload carried by TCP down, ms per Gbit.
    CpuPerGbitDown: "cpu_per_gbit_down", "Processor time, TCP down", "CPU, TCP", "ms/Gbit", Processor, Load::Flow(Down);
    /// Processor time per small datagram at a steady rate without loss, up, µs.
    CpuPerPacketUp: "cpu_per_packet_up", "Processor time per datagram up", "CPU, datagram", "µs/packet", Processor, Load::Paced(Up);
    /// Processor time per small datagram at a steady rate without loss, down, µs.
    CpuPerPacketDown: "cpu_per_packet_down", "Processor time per datagram down", "CPU, datagram", "µs/packet", Processor, Load::Paced(Down);
    /// Processor cycles per small datagram at a steady rate without loss, up.
    CyclesPerPacketUp: "cycles_per_packet_up", "Cycles per datagram up", "cycles", "cycles/packet", Processor, Load::Paced(Up);
    /// Processor cycles per small datagram at a steady rate without loss, down.
    CyclesPerPacketDown: "cycles_per_packet_down", "Cycles per datagram down", "cycles", "cycles/packet", Processor, Load::Paced(Down);
    /// Questions per second of which none is lost (RFC 8219 section 9), thousands.
    DnsRate: "dns_rate", "DNS64, rate without loss", "no loss", "kqueries/s", Dns, Load::Search;
    /// Answers per second for names that nobody has asked for before, thousands.
    DnsFresh: "dns_fresh", "DNS64, answers, new names", "new names", "kqueries/s", Dns, Load::Questions(Mixed::Fresh);
    /// Answers per second for names that are in the cache, thousands.
    DnsKnown: "dns_known", "DNS64, answers, known names", "known names", "kqueries/s", Dns, Load::Questions(Mixed::Known);
    /// The same by `dnsperf`.
    DnsperfFresh: "dnsperf_fresh", "DNS64 by dnsperf, new names", "dnsperf, new", "kqueries/s", Dns, Load::Dnsperf(Mixed::Fresh);
    /// The same by `dnsperf`.
    DnsperfKnown: "dnsperf_known", "DNS64 by dnsperf, known names", "dnsperf, known", "kqueries/s", Dns, Load::Dnsperf(Mixed::Known);
    /// Processor time per answer for a new name, µs.
    CpuPerAnswerFresh: "cpu_per_answer_fresh", "Processor time per answer, new names", "CPU, new name", "µs/answer", Processor, Load::Questions(Mixed::Fresh);
    /// Processor time per answer for a known name, µs.
    CpuPerAnswerKnown: "cpu_per_answer_known", "Processor time per answer, known names", "CPU, known name", "µs/answer", Processor, Load::Questions(Mixed::Known);
    /// Name, connection, first octet; by a name that nobody has asked for before. ms.
    SessionFresh: "session_fresh", "Session start, new name", "new name", "ms", Waiting, Load::Sessions(By::FreshName);
    /// The same by a name that the name server knows.
    SessionKnown: "session_known", "Session start, known name", "known name", "ms", Waiting, Load::Sessions(By::KnownName);
    /// The same without a name.
    SessionLiteral: "session_literal", "Session start, address", "address", "ms", Waiting, Load::Sessions(By::Literal);
    /// A page with all its objects, by a new name. ms.
    PageName: "page_name", "Page, new name", "page, name", "ms", Waiting, Load::Pages(By::FreshName);
    /// The same without a name.
    PageLiteral: "page_literal", "Page, address", "page, address", "ms", Waiting, Load::Pages(By::Literal);
    /// Small objects by HTTP, thousand requests per second.
    HttpSmall: "http_small", "HTTP, small objects", "small", "krequests/s", Web, Load::Fetch(Fetch::Small);
    /// Large objects by HTTP, Gbit/s of content.
    HttpLarge: "http_large", "HTTP, large objects", "large", "Gbit/s", Web, Load::Fetch(Fetch::Large);
    /// One long object, where there is a proxy through a tunnel, Gbit/s of content.
    HttpTunnel: "http_tunnel", "HTTP, one long object (tunnel)", "tunnel", "Gbit/s", Web, Load::Fetch(Fetch::Tunnel);
    /// Median round trip of small requests by HTTP over several connections, µs.
    HttpRttSmall: "http_rtt_small", "HTTP round trip, small", "small", "µs", Exchanges, Load::Exchange(Exchange::Small);
    /// The same of requests with much content.
    HttpRttUp: "http_rtt_up", "HTTP round trip, large up", "large up", "µs", Exchanges, Load::Exchange(Exchange::Up);
    /// The same of answers with much content.
    HttpRttDown: "http_rtt_down", "HTTP round trip, large down", "large down", "µs", Exchanges, Load::Exchange(Exchange::Down);
    /// One TCP flow from the client beside datagrams of the same way, Gbit/s of payload.
    SimplexThroughput: "simplex_throughput", "TCP up beside simplex traffic", "simplex", "Gbit/s", Beside, Load::Simplex;
    /// One TCP flow from the client beside flows of both ways, Gbit/s of payload.
    DuplexThroughput: "duplex_throughput", "TCP up beside duplex traffic", "duplex", "Gbit/s", Beside, Load::Duplex;
    /// Several TCP flows from the client at once, Gbit/s of payload together.
    TcpStreams: "tcp_streams", "TCP up, several flows together", "TCP flows", "Gbit/s", Streams, Load::Streams;
    /// As many TCP flows each way at once, Gbit/s of payload of both ways together.
    TcpBothWays: "tcp_both_ways", "TCP both ways, several flows together", "TCP both ways", "Gbit/s", Streams, Load::Rrul;
    /// ICMP echo while these run, ms.
    RttLoaded: "rtt_loaded", "Round trip while TCP runs both ways", "RTT, loaded", "ms", Streams, Load::Rrul;
    /// Time that `ab` takes for all its requests, s.
    AbTotalTime: "ab_total_time", "ab, total time", "total time", "s", Ab, Load::Ab;
    /// Octets that `ab` received, heads included.
    AbBytes: "ab_bytes", "ab, octets transferred", "octets", "octets", Ab, Load::Ab;
    /// Requests after which the connection was kept.
    AbKeepalive: "ab_keepalive", "ab, successful keep-alives", "kept", "requests", Ab, Load::Ab;
    /// Requests per second by `ab`.
    AbRequestsPerS: "ab_requests_per_s", "ab, requests per second", "requests/s", "requests/s", Ab, Load::Ab;
    /// Time per request by `ab`, across all concurrent requests, ms.
    AbTimePerRequest: "ab_time_per_request", "ab, time per request", "time/request", "ms", Ab, Load::Ab;
    /// What `ab` receives, KiB/s (it writes Kbytes/sec, and counts in 1024 octets).
    AbTransferRate: "ab_transfer_rate", "ab, transfer rate", "transfer", "KiB/s", Ab, Load::Ab;
    /// First packet of a connection into the box in the middle, to the first out of it, µs.
    Initiation: "initiation", "Initiation, TCP", "initiation", "µs", Initiation, Load::Initiation;
    /// Highest rate each way at which no frame is lost (RFC 8219 section 7.1), thousands of frames per second.
    Throughput: "rfc8219_throughput", "Throughput", "throughput", "kframes/s", Rfc8219, Load::Forwarding;
    /// Highest rate each way at which at most one frame in 200 is lost, thousands of frames per second.
    ThroughputLossy: "rfc8219_throughput_lossy", "Throughput with 0.5 % loss", "0.5 % lost", "kframes/s", Rfc8219, Load::Forwarding;
    /// Typical latency, up (RFC 8219 section 7.2), µs.
    TypicalLatencyUp: "rfc8219_typical_latency_up", "Typical latency up", "TL", "µs", Rfc8219, Load::Forwarding;
    /// Typical latency, down, µs.
    TypicalLatencyDown: "rfc8219_typical_latency_down", "Typical latency down", "TL", "µs", Rfc8219, Load::Forwarding;
    /// Worst-case latency, up: the 99.9th percentile, µs.
    WorstLatencyUp: "rfc8219_worst_latency_up", "Worst-case latency up", "WCL", "µs", Rfc8219, Load::Forwarding;
    /// Worst-case latency, down, µs.
    WorstLatencyDown: "rfc8219_worst_latency_down", "Worst-case latency down", "WCL", "µs", Rfc8219, Load::Forwarding;
    /// Packet delay variation, up (RFC 8219 section 7.3.1), µs.
    PdvUp: "rfc8219_pdv_up", "PDV up", "PDV", "µs", Rfc8219, Load::Forwarding;
    /// Packet delay variation, down, µs.
    PdvDown: "rfc8219_pdv_down", "PDV down", "PDV", "µs", Rfc8219, Load::Forwarding;
    /// Least inter packet delay variation, up (RFC 8219 section 7.3.2), µs.
    IpdvMinUp: "rfc8219_ipdv_min_up", "IPDV up, least", "IPDV least", "µs", Rfc8219, Load::Forwarding;
    /// Least inter packet delay variation, down, µs.
    IpdvMinDown: "rfc8219_ipdv_min_down", "IPDV down, least", "IPDV least", "µs", Rfc8219, Load::Forwarding;
    /// Median inter packet delay variation, up, µs.
    IpdvMedianUp: "rfc8219_ipdv_median_up", "IPDV up, median", "IPDV median", "µs", Rfc8219, Load::Forwarding;
    /// Median inter packet delay variation, down, µs.
    IpdvMedianDown: "rfc8219_ipdv_median_down", "IPDV down, median", "IPDV median", "µs", Rfc8219, Load::Forwarding;
    /// Greatest inter packet delay variation, up, µs.
    IpdvMaxUp: "rfc8219_ipdv_max_up", "IPDV up, greatest", "IPDV greatest", "µs", Rfc8219, Load::Forwarding;
    /// Greatest inter packet delay variation, down, µs.
    IpdvMaxDown: "rfc8219_ipdv_max_down", "IPDV down, greatest", "IPDV greatest", "µs", Rfc8219, Load::Forwarding;
    /// Frames of the longest burst that is forwarded whole (RFC 8219 section 7.5, RFC 9004).
    BackToBack: "rfc8219_back_to_back", "Back-to-back frames", "burst", "frames", Rfc8219, Load::Disturbance;
    /// Corrected buffer time of that burst (RFC 9004 section 6), ms.
    BufferTime: "rfc8219_buffer_time", "Corrected buffer time", "buffer", "ms", Rfc8219, Load::Disturbance;
    /// From the end of an overload to the last lost frame (RFC 8219 section 7.6), ms.
    Recovery: "rfc8219_recovery", "System recovery", "recovery", "ms", Rfc8219, Load::Disturbance;
    /// Time without forwarding while the mechanism is started again (RFC 8219 section 7.7, RFC 6201), ms.
    Reset: "rfc8219_reset", "Reset", "reset", "ms", Rfc8219, Load::Reset;
    /// Frames that are lost at a share of the highest rate (RFC 8219 section 7.4), per cent.
    FrameLoss: "rfc8219_frame_loss", "Frame loss rate", "loss", "%", Rfc8219, Load::FrameLoss;
    /// Loss of throughput with so many network flows against one (RFC 8219 section 10), per cent.
    Degradation: "rfc8219_degradation", "Degradation", "Xpd", "%", Rfc8219, Load::Overload;
    /// Loss of throughput with network flows that start one after the other, against one (RFC 8219 section 10.2.2), per cent.
    DegradationIncremental: "rfc8219_degradation_incremental", "Degradation, flows one after the other", "Xpd, incremental", "%", Rfc8219, Load::Incremental;
    /// Highest rate at which every new connection is established and valid (RFC 9693 sections 4.5 and 4.6), thousands per second.
    EstablishmentRate: "rfc9693_establishment_rate", "Maximum connection establishment rate", "MCER", "kconnections/s", Rfc9693, Load::Connections;
    /// Highest rate each way at which no frame of established connections is lost (RFC 9693 section 4.7), thousands of
    /// frames per second.
    StatefulThroughput: "rfc9693_throughput", "Throughput over a filled table", "throughput", "kframes/s", Rfc9693, Load::Connections;
    /// Typical latency at that rate, µs.
    StatefulTypicalLatency: "rfc9693_typical_latency", "Typical latency over a filled table", "TL", "µs", Rfc9693, Load::Connections;
    /// Worst-case latency at that rate, µs.
    StatefulWorstLatency: "rfc9693_worst_latency", "Worst-case latency over a filled table", "WCL", "µs", Rfc9693, Load::Connections;
    /// Rate at which all connections of the table are deleted together (RFC 9693 section 4.8), thousands per second.
    TearDownRate: "rfc9693_tear_down_rate", "Connection tear-down rate", "tear-down", "kconnections/s", Rfc9693, Load::Connections;
    /// Connections that the table holds (RFC 9693 section 4.9), thousands.
    TableCapacity: "rfc9693_capacity", "Connection tracking table capacity", "capacity", "thousand", Rfc9693, Load::Capacity;
    /// TCP connections with one transaction by HTTP each (RFC 9411 section 7.2), thousands per second.
    WebConnectionRate: "rfc9411_connections_per_s", "TCP connections per second with HTTP", "connections", "kconnections/s", Rfc9411, Load::Transactions(Transact::Single);
    /// Mean time from the start of the handshake to the first octet of the answer, at half of that rate (RFC 9411 section 7.4), µs.
    WebFirstByte: "rfc9411_ttfb", "Time to first byte, new connections", "TTFB", "µs", Rfc9411, Load::Transactions(Transact::Single);
    /// Mean time from the start of the handshake to the last octet of the answer, at half of the highest rate (RFC 9411 section 7.4), µs.
    WebLastByte: "rfc9411_ttlb", "Time to last byte, new connections", "TTLB", "µs", Rfc9411, Load::Transactions(Transact::Single);
    /// Content by HTTP with ten transactions on each connection (RFC 9411 section 7.3), Gbit/s.
    WebThroughput: "rfc9411_throughput", "HTTP throughput", "HTTP", "Gbit/s", Rfc9411, Load::Transactions(Transact::Kept);
    /// Transactions by HTTP with ten on each connection (RFC 9411 section 7.3), thousands per second.
    WebTransactionRate: "rfc9411_transactions_per_s", "HTTP transactions per second", "transactions", "ktransactions/s", Rfc9411, Load::Transactions(Transact::Kept);
    /// Mean time to the first octet of an answer with ten transactions on each connection, at half of the highest rate, µs.
    WebFirstByteKept: "rfc9411_ttfb_kept", "Time to first byte, ten transactions", "TTFB, kept", "µs", Rfc9411, Load::Transactions(Transact::Kept);
    /// Mean time to the last octet of an answer with ten transactions on each connection, at half of the highest rate, µs.
    WebLastByteKept: "rfc9411_ttlb_kept", "Time to last byte, ten transactions", "TTLB, kept", "µs", Rfc9411, Load::Transactions(Transact::Kept);
    /// Content by HTTP with objects of several sizes in turn (RFC 9411 section 7.3), Gbit/s.
    WebThroughputMixed: "rfc9411_throughput_mixed", "HTTP throughput, mixed objects", "HTTP, mixed", "Gbit/s", Rfc9411, Load::Transactions(Transact::Mixed);
    /// Transactions by HTTP with objects of several sizes in turn (RFC 9411 section 7.3), thousands per second.
    WebTransactionRateMixed: "rfc9411_transactions_per_s_mixed", "HTTP transactions per second, mixed objects", "transactions, mixed", "ktransactions/s", Rfc9411, Load::Transactions(Transact::Mixed);
    /// TCP connections with transactions by HTTP that are open at the same time (RFC 9411 section 7.5), thousands.
    WebConnectionsHeld: "rfc9411_concurrent_connections", "Concurrent TCP connections with HTTP", "concurrent", "thousand", Rfc9411, Load::Transactions(Transact::Held);
    /// From the start of the translator's process to the first translated reply, ms.
    StartTime: "start_time", "Start to first packet", "start", "ms", Start, Load::Start;
    /// The longest time without a datagram when a gateway dies that has a standby, ms.
    FailoverSilence: "failover_silence", "Datagrams stand still", "datagrams", "ms", Failover, Load::Failover;
    /// The longest time that an octet of a TCP connection took, ms.
    FailoverStall: "failover_stall", "Connections stand still", "connections", "ms", Failover, Load::Failover;
    /// TCP connections older than a second that did not go on, of each hundred.
    FailoverBroken: "failover_broken", "Connections broken", "broken", "%", Failover, Load::Failover;
    /// Age of the oldest TCP connection that did not go on, ms; 0: all did.
    FailoverLost: "failover_lost_age", "Age of the oldest connection lost", "lost, age", "ms", Failover, Load::Failover;
    /// The correctness gate; not a number.
    Gate: "gate", "Correctness gate", "gate", "";
}

impl Metric {
    /// The name in artefacts.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The name for people.
    pub fn label(self) -> &'static str {
        self.row().label
    }

    /// A few letters for narrow tables and figures, without the direction.
    pub fn short(self) -> &'static str {
        self.row().short
    }

    /// The unit of its values.
    pub fn unit(self) -> &'static str {
        self.row().unit
    }

    /// What has to run to get it; nothing for the gate, which is no measurement.
    pub fn load(self) -> Option<Load> {
        self.row().measured.map(|(_, load)| load)
    }

    /// Where the report shows it; nowhere for the gate.
    pub fn group(self) -> Option<Group> {
        self.row().measured.map(|(group, _)| group)
    }

    /// `up`, `down`, or `both`.
    pub fn direction(self) -> &'static str {
        match self.load() {
            Some(
                Load::Flow(way)
                | Load::Datagrams(way)
                | Load::Paced(way)
                | Load::Frames(way)
                | Load::Pairs(way)
                | Load::Imix(way),
            ) => way.name(),
            Some(Load::Exchange(Exchange::Up)) => Up.name(),
            Some(Load::Exchange(Exchange::Down)) => Down.name(),
            Some(Load::Forwarding) if self.name().ends_with("_up") => Up.name(),
            Some(Load::Forwarding) if self.name().ends_with("_down") => Down.name(),
            _ => "both",
        }
    }

    /// Whether a larger value is the better one.
    pub fn higher_is_better(self) -> bool {
        if let Self::Own(own) = self {
            return own.spec().metric.better == Better::Higher;
        }
        let is_rate = matches!(
            self,
            Self::Throughput
                | Self::ThroughputLossy
                | Self::BackToBack
                | Self::BufferTime
                | Self::EstablishmentRate
                | Self::StatefulThroughput
                | Self::TearDownRate
                | Self::TableCapacity
        );
        self.is_throughput()
            || is_rate
            || match self.group() {
                Some(Group::Packets | Group::Pairs | Group::Dns | Group::Web | Group::Beside) => {
                    true
                }
                Some(Group::Streams) => self != Self::RttLoaded,
                Some(Group::Sessions) => self != Self::MemoryPerSession,
                Some(Group::Ab) => !matches!(self, Self::AbTotalTime | Self::AbTimePerRequest),
                Some(Group::Rfc9411) => self.unit() != "µs",
                _ => false,
            }
    }

    /// Whether it is TCP's throughput.
    pub(crate) fn is_throughput(self) -> bool {
        matches!(self, Self::TcpThroughputUp | Self::TcpThroughputDown)
    }

    /// Whether one deployment gives many values, of which its own is the typical one.
    pub(crate) fn has_replies(self) -> bool {
        matches!(self, Self::Rtt | Self::RttLoaded) || self.group() == Some(Group::Waiting)
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
        if let Self::Own(own) = self
            && let Some(factor) = own.spec().metric.ceiling_factor
        {
            return factor;
        }
        match self.load() {
            // RFC 8219 section 9.2.1: the tester has to answer 2 (1 + 0.1) questions for each that it asks.
            Some(Load::Search | Load::Questions(Mixed::Fresh) | Load::Dnsperf(Mixed::Fresh)) => 2.2,
            // No question of the server's own comes on top of a known answer.
            Some(Load::Questions(Mixed::Known) | Load::Dnsperf(Mixed::Known)) => 1.1,
            // Ends of TCP flows, and of transactions, are part of what is compared: their share is the same on every path, and a difference
            // shows as long as the path, and not the ends, is the narrower part.
            Some(Load::Flow(_) | Load::Transactions(_)) => 1.1,
            _ => 2.0,
        }
    }

    /// Whether it is measured at several points of one deployment.
    pub(crate) fn has_points(self) -> bool {
        if let Self::Own(own) = self {
            return own.spec().load.spec().scan.is_some();
        }
        matches!(
            self.load(),
            Some(
                Load::Exchange(_)
                    | Load::Pairs(_)
                    | Load::Simplex
                    | Load::Duplex
                    | Load::Streams
                    | Load::Rrul
                    | Load::Ab
                    | Load::Transactions(Transact::Single | Transact::Kept)
                    | Load::Forwarding
                    | Load::Disturbance
                    | Load::Reset
                    | Load::FrameLoss
                    | Load::Overload
                    | Load::Incremental
                    | Load::Connections
            )
        )
    }

    /// Whether something held it down that is worth naming.
    pub(crate) fn has_limiter(self) -> bool {
        self.higher_is_better()
            && !matches!(
                self,
                Self::SessionsHeld
                    | Self::TcpThroughputHeld
                    | Self::AbBytes
                    | Self::AbKeepalive
                    | Self::BackToBack
                    | Self::BufferTime
                    | Self::TearDownRate
                    | Self::TableCapacity
            )
    }

    /// Whether it may be 0 or less although something was measured: a loss, a time until the last one, a difference.
    pub fn may_be_zero(self) -> bool {
        match self {
            Self::Own(_) => !self.higher_is_better(),
            _ => {
                matches!(
                    self,
                    Self::FrameLoss
                        | Self::Recovery
                        | Self::Reset
                        | Self::FailoverBroken
                        | Self::FailoverLost
                ) || ["rfc8219_ipdv_", "rfc8219_degradation"]
                    .iter()
                    .any(|head| self.name().starts_with(head))
            }
        }
    }

    /// Whether it is processor time in which that of sender and receiver is included.
    pub(crate) fn includes_the_tester(self) -> bool {
        matches!(
            self,
            Self::CpuPerGbitUp
                | Self::CpuPerGbitDown
                | Self::CpuPerPacketUp
                | Self::CpuPerPacketDown
                | Self::CpuPerAnswerFresh
                | Self::CpuPerAnswerKnown
        )
    }

    /// Whether the generator's own ceiling can be found with nothing in the way.
    pub(crate) fn has_ceiling(self) -> bool {
        // The testers of RFC 8219 and RFC 9693 find their own highest rate, which a trial then names as its cap.
        let own = matches!(self.group(), Some(Group::Rfc8219 | Group::Rfc9693));
        // What is held has no rate.
        let holds = matches!(self.load(), Some(Load::Hold | Load::Transactions(Transact::Held)));
        self.has_limiter() && !own && !holds && self.ceiling_factor() > 0.0
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
