//! Loads, and groups of quantities for readers.

use super::own::OwnLoad;

/// Direction of a load, as the client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Way {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

impl Way {
    /// `up` or `down`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// What a flow is carried by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transport {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
}

/// Which names a load of questions is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mixed {
    /// Names that nobody has asked for before.
    Fresh,
    /// Names whose answers the server knows.
    Known,
}

/// How a session finds its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum By {
    /// By a name that nobody has asked for before.
    FreshName,
    /// By a name whose answer the name server knows.
    KnownName,
    /// By its IPv4 address, or where there is no IPv4, its IPv6 address.
    Literal,
}

/// What is fetched by HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fetch {
    /// Small objects, as many as there can be.
    Small,
    /// Large objects.
    Large,
    /// One long object, where there is a proxy, through a tunnel (CONNECT).
    Tunnel,
}

impl Fetch {
    /// `small`, `large` or `tunnel`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
            Self::Tunnel => "tunnel",
        }
    }
}

/// What goes over connections that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Exchange {
    /// A small request, a small answer.
    Small,
    /// A large request, a small answer.
    Up,
    /// A small request, a large answer.
    Down,
}

/// Transactions by HTTP as RFC 9411 orders them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transact {
    /// One on each connection, objects of one size (sections 7.2 and 7.4).
    Single,
    /// Ten on each connection, objects of one size (sections 7.3 and 7.4).
    Kept,
    /// Ten on each connection, objects of several sizes in turn (section 7.3).
    Mixed,
    /// Ten on each of many connections that are open at the same time (section 7.5).
    Held,
}

impl Transact {
    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Kept => "kept",
            Self::Mixed => "mixed",
            Self::Held => "held",
        }
    }
}

/// One piece of work that yields one or several quantities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Load {
    /// One TCP flow.
    Flow(Way),
    /// ICMP echo, one at a time.
    Ping,
    /// Small datagrams at a steady rate, echoed.
    Probe,
    /// Small datagrams from a socket, as many as it takes.
    Datagrams(Way),
    /// Small datagrams at a steady rate that is the same for all, none of which may be lost.
    Paced(Way),
    /// Small frames at a gateway's device, as many as it takes.
    Frames(Way),
    /// The same between more and more pairs of hosts.
    Pairs(Way),
    /// Frames of several sizes, which take turns (RFC 6985).
    Imix(Way),
    /// Flows that nobody has seen before.
    NewFlows(Transport),
    /// Questions at a rate without loss, which is searched for.
    Search,
    /// Questions, as many as a number of them under way allows.
    Questions(Mixed),
    /// The same by `dnsperf`.
    Dnsperf(Mixed),
    /// Sessions to their first octet, one after the other.
    Sessions(By),
    /// Pages with their objects, one after the other.
    Pages(By),
    /// Objects by HTTP.
    Fetch(Fetch),
    /// Requests over several connections that are kept, one after the other on each.
    Exchange(Exchange),
    /// Transactions by HTTP, as RFC 9411 orders them.
    Transactions(Transact),
    /// Pages by `ab`, as study B fetched them.
    Ab,
    /// One TCP flow beside background datagrams of the same way, at a rate that rises.
    Simplex,
    /// One TCP flow beside background flows of both ways, more and more of them.
    Duplex,
    /// Several TCP flows from the client to the server at once.
    Streams,
    /// Several TCP flows each way at once, and echo requests beside them.
    Rrul,
    /// New connections, whose first packets are timed at the box in the middle.
    Initiation,
    /// New flows in tables whose entries were used before, parts of which are held; on a deployment of its own.
    Recycled,
    /// Many sessions at once, on a deployment of their own.
    Hold,
    /// Throughput, latency, PDV and IPDV with frames of one size each.
    Forwarding,
    /// Bursts and overload with frames of one size each.
    Disturbance,
    /// Restarts of the mechanism under way, on deployments of their own.
    Reset,
    /// Frame loss at shares of the highest rate.
    FrameLoss,
    /// Throughput with more and more network flows.
    Overload,
    /// Throughput with network flows that start one after the other.
    Incremental,
    /// The tests of RFC 9693 over a table of so many connections.
    Connections,
    /// How many connections a table holds; on a deployment of its own.
    Capacity,
    /// The start of the translator's process.
    Start,
    /// The death of a gateway that has a standby; on a deployment of its own.
    Failover,
    /// A command line that the experiment brings.
    Own(OwnLoad),
}

/// Quantities that a reader wants side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// TCP and round-trip time: what the study measured.
    Flow,
    /// Round-trip time under a steady load.
    Tail,
    /// Small packets.
    Packets,
    /// Small packets between many pairs of hosts.
    Pairs,
    /// New flows and held sessions.
    Sessions,
    /// Processor time.
    Processor,
    /// What a user waits for: the start of a session, a page.
    Waiting,
    /// Objects by HTTP.
    Web,
    /// Round trips by HTTP over many connections.
    Exchanges,
    /// Pages by `ab`.
    Ab,
    /// TCP beside background traffic.
    Beside,
    /// Several TCP flows at once.
    Streams,
    /// First packets of connections.
    Initiation,
    /// Answers of a DNS64 server.
    Dns,
    /// Forwarding of frames, as RFC 8219 tests it.
    Rfc8219,
    /// Tables of connections, as RFC 9693 tests them.
    Rfc9693,
    /// Transactions by HTTP, as RFC 9411 tests them.
    Rfc9411,
    /// Start of the translator.
    Start,
    /// What remains when a gateway dies.
    Failover,
    /// What the experiment's own command lines measure.
    Own,
}

impl Group {
    /// All groups, in the order of the report.
    pub const ALL: [Self; 20] = [
        Self::Flow,
        Self::Tail,
        Self::Packets,
        Self::Pairs,
        Self::Beside,
        Self::Streams,
        Self::Initiation,
        Self::Waiting,
        Self::Web,
        Self::Exchanges,
        Self::Ab,
        Self::Sessions,
        Self::Processor,
        Self::Dns,
        Self::Rfc8219,
        Self::Rfc9693,
        Self::Rfc9411,
        Self::Start,
        Self::Failover,
        Self::Own,
    ];

    /// Its anchor in the page.
    pub fn id(self) -> &'static str {
        match self {
            Self::Flow => "flow",
            Self::Tail => "steady",
            Self::Packets => "packets",
            Self::Pairs => "pairs",
            Self::Sessions => "sessions",
            Self::Processor => "processor",
            Self::Waiting => "waiting",
            Self::Web => "http",
            Self::Initiation => "initiation",
            Self::Dns => "dns64",
            Self::Exchanges => "exchanges",
            Self::Ab => "ab",
            Self::Beside => "beside",
            Self::Streams => "streams",
            Self::Rfc8219 => "rfc8219",
            Self::Rfc9693 => "rfc9693",
            Self::Rfc9411 => "rfc9411",
            Self::Start => "start",
            Self::Failover => "failover",
            Self::Own => "own",
        }
    }

    /// Heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Flow => "Throughput and round trip",
            Self::Tail => "Round trip under a steady load",
            Self::Packets => "Small packets",
            Self::Pairs => "Small packets between many pairs of hosts",
            Self::Sessions => "Sessions",
            Self::Processor => "Processor",
            Self::Waiting => "Start of a session, and pages",
            Self::Web => "HTTP",
            Self::Exchanges => "Round trips by HTTP",
            Self::Ab => "Pages by ab",
            Self::Beside => "TCP beside background traffic",
            Self::Streams => "Several TCP flows at once",
            Self::Initiation => "Initiation",
            Self::Dns => "DNS64",
            Self::Rfc8219 => "RFC 8219",
            Self::Rfc9693 => "RFC 9693",
            Self::Rfc9411 => "RFC 9411",
            Self::Start => "Start",
            Self::Failover => "Failover",
            Self::Own => "Loads of this experiment",
        }
    }

    /// How to read its numbers.
    pub fn note(self) -> &'static str {
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
                 the work. IMIX: frames of several sizes that take turns; Gbit/s are of UDP payload."
            }
            Self::Pairs => {
                "Frames as above, from so many hosts behind the client to one server, or back: hosts take turns, packet by \
                 packet, so that what a gateway remembers of a pair of hosts is of use for as long as it has room for \
                 all of them."
            }
            Self::Sessions => {
                "Every flow has a source address and port of its own and is counted when it has \
                 arrived intact, once: a datagram, or a TCP handshake. The sender's processor does \
                 all the work of the path but that of a gateway's own process. Held: TCP \
                 connections opened, and after a while data exchanged on every one of them."
            }
            Self::Processor => {
                "Busy time of all processors, sender and receiver included, while the load runs: \
                 compare with the base, the difference is the mechanism's. Per datagram: at one steady \
                 rate for all mechanisms, of which a thousandth may be lost."
            }
            Self::Waiting => {
                "One after the other, each from the first octet sent. Session: name, connection, first \
                 octet of the answer. A and AAAA records are asked for at once, by a name that nobody \
                 has asked for before, or one that the name server knows; or the address is known. \
                 Page: an HTML page and its objects by HTTP/1.1 over up to six connections, to the last \
                 octet, by a new name or by address. Means of the middle half of one deployment each."
            }
            Self::Dns => {
                "Questions for AAAA records of names that have none, or as the condition says; an answer \
                 counts when it is the one right address. Rate without loss: RFC 8219 section 9. \
                 Answers: closed loop of a hundred questions per thread. Known: answers that the server \
                 has in its cache."
            }
            Self::Web => {
                "Objects from nginx at the server, by wrk, on connections that are kept: 32 for objects of 1 KiB, 8 for \
                 objects of 1 MiB; tunnel: one object by curl, where there is a proxy through CONNECT. Client, proxy \
                 and server share the processors."
            }
            Self::Exchanges => {
                "So many connections at once are kept, and each sends its next request when the answer before is there \
                 whole; nginx at the server. Small: 64 octets come back. Large up: 16,384 octets of content go with each \
                 request. Large down: as many come back. Median of all requests of one deployment, from a request's \
                 first octet to its answer's last."
            }
            Self::Ab => {
                "A page of 173,225 octets from nginx at the server, fetched by ab over kept connections, each of which the \
                 server closes after a hundred requests (Apache's default). Numbers are those that ab prints."
            }
            Self::Beside => {
                "One TCP flow from the client to the server while UDP datagrams run beside it: from the client alone, \
                 at a rate that rises (simplex), or from both ends, with more and more flows per host (duplex)."
            }
            Self::Streams => {
                "So many TCP flows at once, by one iperf3: from the client to the server alone, or as many again the \
                 other way. Round trips are those of echo requests every 10 ms while the flows of both ways run (after \
                 flent's RRUL): what waits in front of a packet on a loaded path. Median of one deployment each."
            }
            Self::Initiation => {
                "New TCP connections one after the other. From the arrival of each one's first packet at the box in the \
                 middle to the departure of the first packet on its other side, by tcpdump's timestamps at both \
                 devices; the median of one deployment each. A relay's first packet leaves after its handshake with \
                 the client, a proxy's after the client's request."
            }
            Self::Rfc8219 => {
                "Tagged UDP frames of one size at a paced rate, both ways at once. Frame sizes are those of the IPv6 side, with \
                 the check sequence; the IPv4 side's are 20 octets less. A frame is lost if it does not arrive within its own \
                 time-out. Values of one deployment are one repetition of the RFC's; the list of deviations says where this \
                 profile departs from the RFC."
            }
            Self::Rfc9693 => {
                "Each connection is a UDP frame with addresses and ports of its own, in pseudorandom order (phase 1); frames of \
                 both ways over the table that this has filled follow (phase 2). The table is emptied between steps by the \
                 mechanism's own means."
            }
            Self::Rfc9411 => {
                "Transactions by HTTP/1.1 with nginx at the server, whose own counts give the rates of the sustain phase. Rates: \
                 wrk, 32 connections at once. Times: hey, at half of the rate that was just found, from the start of a \
                 connection's handshake or, on a kept connection, of the request. Connections at once: h2load. Client and \
                 server share the processors."
            }
            Self::Start => "From the start of the process to the first translated packet.",
            Self::Failover => {
                "A gateway dies: all processes of its box are killed, and its links go down. Through it go TCP connections, in \
                 each of which an octet goes there and back every 20 ms, and a datagram every 2 ms; further connections are \
                 opened one after the other. Datagrams: the longest time in which none came back. Connections: the longest time \
                 that an octet took. Broken: of the connections that were older than a second. Lost: the age of the oldest \
                 connection that was open when the gateway died and did not go on; 0 if all went on."
            }
            Self::Own => {
                "Values that command lines of the experiment file print. The list of deviations has each command line and \
                 where its values stand."
            }
        }
    }
}
