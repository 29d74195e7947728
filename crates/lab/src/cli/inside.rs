//! What the lab starts of itself inside a namespace or on another host; not for people.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Subcommand;
use fordway_data::spec::Processors;

/// What runs inside a namespace.
#[derive(Debug, Subcommand)]
pub(crate) enum Probe {
    /// The far end: payload check and echo
    Serve {
        /// Own addresses to echo from
        #[arg(required = true)]
        own: Vec<IpAddr>,
    },
    /// The near end: prints its checks as JSON
    Client {
        /// The far end's address
        #[arg(long)]
        target: IpAddr,
        /// Octets of TCP payload each way
        #[arg(long, default_value_t = 0)]
        tcp_bytes: usize,
        /// UDP payload sizes
        #[arg(long, value_delimiter = ',')]
        udp_sizes: Vec<usize>,
        /// Ask a closed port
        #[arg(long)]
        refused: bool,
        /// Proxy that TCP goes through
        #[arg(long)]
        proxy: Option<SocketAddr>,
        /// Payload by HTTP
        #[arg(long)]
        site: bool,
    },
    /// Connects once: the exit status says whether it worked
    Knock {
        /// Where
        door: SocketAddr,
    },
    /// Connections one after the other, with little in each: prints how many were whole
    Begin {
        /// The far end's address
        #[arg(long)]
        target: IpAddr,
        /// How many
        #[arg(long)]
        count: u32,
        /// Proxy that they go through
        #[arg(long)]
        proxy: Option<SocketAddr>,
        /// Payload by HTTP
        #[arg(long)]
        site: bool,
    },
    /// The far end by its name: prints its check as JSON
    Name {
        /// Who is asked for the name
        #[arg(long)]
        resolver: IpAddr,
        /// Proxy that looks it up instead
        #[arg(long)]
        proxy: Option<SocketAddr>,
        /// Payload by HTTP
        #[arg(long)]
        site: bool,
    },
    /// A name server: prints its checks as JSON
    Names {
        /// Its address
        #[arg(long)]
        server: IpAddr,
        /// Prefix that it is to synthesise with
        #[arg(long, required_unless_present = "wait")]
        prefix: Option<std::net::Ipv6Addr>,
        /// The most important check alone
        #[arg(long)]
        few: bool,
        /// Only wait until it answers
        #[arg(long)]
        wait: bool,
    },
    /// Prints ms from the start of a command to the first echo through what it sets up
    Start {
        /// The far end's address
        #[arg(long)]
        target: IpAddr,
        /// Control socket of the gateway that the command starts: its status is printed as well
        #[arg(long)]
        ask: Option<PathBuf>,
        /// Processors for the probe itself, once the command is started
        #[arg(long)]
        on: Option<Processors>,
        /// The command
        #[arg(last = true, required = true)]
        argv: Vec<String>,
    },
}

/// What sends and receives small packets inside a namespace.
#[derive(Debug, Subcommand)]
pub(crate) enum Tester {
    /// Send small datagrams from a socket
    Datagrams {
        /// Address and port of the far end
        #[arg(long)]
        target: SocketAddr,
        /// Own address to send from
        #[arg(long)]
        source: Option<IpAddr>,
        /// For how long
        #[arg(long)]
        seconds: f64,
        /// Datagrams per second; 0 is as many as the sender can
        #[arg(long, default_value_t = 0)]
        rate: u64,
        /// Octets of payload
        #[arg(long, default_value_t = fordway_load::SMALL)]
        size: usize,
    },
    /// Time the echoes of datagrams at a steady rate
    Echo {
        /// Address and port of the echo
        #[arg(long)]
        target: SocketAddr,
        /// Datagrams per second
        #[arg(long)]
        rate: u32,
        /// How many
        #[arg(long)]
        count: u64,
        /// Milliseconds after which an answer is lost
        #[arg(long, default_value_t = 1000)]
        patience: u64,
    },
    /// Send several flows of datagrams at a steady rate
    Background {
        /// Address and port of the far end
        #[arg(long)]
        target: SocketAddr,
        /// Own address to send from
        #[arg(long)]
        source: IpAddr,
        /// For how long
        #[arg(long)]
        seconds: f64,
        /// Datagrams per second, over all flows
        #[arg(long)]
        rate: u64,
        /// Flows
        #[arg(long)]
        flows: u16,
        /// Octets of payload
        #[arg(long)]
        size: usize,
    },
    /// Time requests over connections that are kept
    Exchange {
        /// Address and port of the server or proxy
        #[arg(long)]
        target: SocketAddr,
        /// Path, or for a proxy the whole address
        #[arg(long)]
        request: String,
        /// Name of the server in the request
        #[arg(long)]
        host: String,
        /// Octets of content that go up with each request
        #[arg(long)]
        up: usize,
        /// Connections at a time
        #[arg(long)]
        connections: usize,
        /// Requests of each
        #[arg(long)]
        requests: u64,
        /// Seconds after which it ends
        #[arg(long)]
        limit: f64,
    },
    /// Keep connections in use and open further ones: prints what became of each
    Pulses {
        /// Address and port of the echo
        #[arg(long)]
        target: SocketAddr,
        /// Connections that are there from the beginning
        #[arg(long)]
        connections: u32,
        /// For how long
        #[arg(long)]
        seconds: f64,
    },
    /// Echo for these
    PulseServe {
        /// The port, by TCP and UDP
        #[arg(long)]
        port: u16,
    },
    /// Send frames from the kernel
    SendFrames {
        /// The device
        #[arg(long)]
        device: String,
        /// The frame's octets in hexadecimal; several frames take turns
        #[arg(long, required = true)]
        frame: Vec<String>,
        /// Hosts that take turns: the frames' own and those with the addresses behind it
        #[arg(long, default_value_t = 1)]
        hosts: u32,
        /// They are those that frames are sent to, not those that send
        #[arg(long)]
        at_target: bool,
        /// How many at most
        #[arg(long)]
        limit: u32,
    },
    /// Open flows by the hundred thousand; orders come from standard input, one JSON object a line
    Flows {
        #[command(flatten)]
        ends: crate::load::tester::Ends,
        /// Packets arrive at the server as IPv4
        #[arg(long)]
        far_v4: bool,
        /// What all source addresses begin with; the last 16 bits are zero
        #[arg(long)]
        source: IpAddr,
        /// The server
        #[arg(long)]
        target: IpAddr,
        /// Number of source addresses, as a power of two
        #[arg(long)]
        sources: u8,
        /// Most flows
        #[arg(long)]
        flows: u32,
        /// TCP connections rather than UDP flows
        #[arg(long)]
        tcp: bool,
        /// The server sends datagrams and data back
        #[arg(long)]
        echo: bool,
    },
    /// Send paced frames through a gateway and follow each of them; orders come from standard input, one JSON object a line
    Trials {
        #[command(flatten)]
        stand: crate::load::tester::Stand,
    },
    /// Ask a DNS64 server; orders come from standard input, one JSON object a line
    DnsClient {
        /// Address and port of the server
        #[arg(long)]
        target: SocketAddr,
        /// Prefix that it is to synthesise with; 96 bits of it count
        #[arg(long)]
        prefix: std::net::Ipv6Addr,
        /// Sockets to ask from
        #[arg(long, default_value_t = 32)]
        sockets: usize,
    },
    /// Answer for the zone lab.example; each line of standard input is answered with what was asked so far
    DnsServe {
        /// Addresses and ports to answer from
        #[arg(required = true)]
        own: Vec<SocketAddr>,
        /// Threads per address
        #[arg(long, default_value_t = 1)]
        threads: usize,
        /// A record of names that begin with s
        #[arg(long)]
        v4: Option<std::net::Ipv4Addr>,
        /// AAAA record of names that begin with s
        #[arg(long)]
        v6: Option<std::net::Ipv6Addr>,
    },
    /// Serve pages over HTTP
    WebServe {
        /// TCP port
        #[arg(long, default_value_t = fordway_load::web::PORT)]
        port: u16,
    },
    /// Time sessions to their first octet, or pages to their last
    Sessions {
        /// The server's address; without it, names are asked for
        #[arg(long, conflicts_with_all = ["resolver", "known"])]
        literal: Option<IpAddr>,
        /// Address and port of the name server
        #[arg(long, required_unless_present = "literal")]
        resolver: Option<SocketAddr>,
        /// Ask for one name again and again rather than for a new one each time
        #[arg(long)]
        known: bool,
        /// Series of the names
        #[arg(long, default_value_t = 1)]
        series: u16,
        /// How often
        #[arg(long)]
        count: u32,
        /// Objects of a page; 0 is no page
        #[arg(long, default_value_t = 0)]
        objects: u32,
        /// Octets of an object
        #[arg(long, default_value_t = 0)]
        size: u32,
        /// TCP port of the server
        #[arg(long, default_value_t = fordway_load::web::PORT)]
        port: u16,
    },
    /// Count and drop small frames at a device
    ReceiveFrames {
        /// The device
        #[arg(long)]
        device: String,
        /// Count octets of payload as well
        #[arg(long)]
        sized: bool,
        /// Frames carry IPv4 rather than IPv6
        #[arg(long)]
        v4: bool,
        /// UDP port that they are sent to
        #[arg(long, default_value_t = fordway_load::SINK_PORT)]
        port: u16,
        /// Length of the measurement
        #[arg(long)]
        seconds: f64,
    },
}
