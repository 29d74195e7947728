//! Options of the commands that show and change a stateful translator's tables.

use std::net::{SocketAddrV4, SocketAddrV6};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use ipnet::Ipv6Net;

use fordway_control::Transport4;

/// `fordway bib`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BibArgs {
    #[command(subcommand)]
    pub(crate) change: Option<BibCommand>,
    /// Only entries of this protocol
    #[arg(long, value_name = "PROTOCOL", value_parser = ["tcp", "udp", "icmp", "all"])]
    pub(crate) protocol: Option<String>,
    /// Only entries that an operator has made
    #[arg(long = "static")]
    pub(crate) only_static: bool,
    #[command(flatten)]
    pub(crate) v6: V6Arg,
    #[command(flatten)]
    pub(crate) v4: V4Arg,
    #[command(flatten)]
    pub(crate) list: ListArgs,
}

/// A change of the BIB.
#[derive(Debug, Subcommand)]
pub(crate) enum BibCommand {
    /// Bind a port of the translator to an IPv6 host
    #[command(after_help = "\
Examples:
  fordway bib add tcp 192.0.2.1:80 [2001:db8::5]:8080")]
    Add {
        /// tcp, udp or icmp
        #[arg(value_parser = ["tcp", "udp", "icmp"])]
        protocol: String,
        /// The IPv4 side: ADDR:PORT
        #[arg(value_parser = transport4)]
        v4: SocketAddrV4,
        /// The IPv6 host: [ADDR]:PORT
        #[arg(value_parser = transport6)]
        v6: SocketAddrV6,
        #[command(flatten)]
        translator: TranslatorArg,
    },
    /// Remove an entry; its sessions end
    #[command(after_help = "\
Examples:
  fordway bib del tcp 192.0.2.1:80")]
    Del {
        /// tcp, udp or icmp
        #[arg(value_parser = ["tcp", "udp", "icmp"])]
        protocol: String,
        /// The IPv4 side: ADDR:PORT
        #[arg(value_parser = transport4)]
        v4: SocketAddrV4,
        #[command(flatten)]
        translator: TranslatorArg,
    },
}

/// `fordway sessions`.
#[derive(Debug, Args)]
pub(crate) struct SessionsArgs {
    /// Only sessions of this protocol
    #[arg(long, value_name = "PROTOCOL", value_parser = ["tcp", "udp", "icmp"])]
    pub(crate) protocol: Option<String>,
    /// Only sessions with this host at the other end: an address or a network, with or without :PORT
    #[arg(long, value_name = "ADDR[:PORT]")]
    pub(crate) remote: Option<Transport4>,
    /// Only TCP sessions in this state
    #[arg(long, value_name = "STATE", value_parser = [
        "v4_init", "v6_init", "established", "v4_fin_rcv", "v6_fin_rcv", "v4_fin_v6_fin_rcv", "trans",
    ])]
    pub(crate) state: Option<String>,
    #[command(flatten)]
    pub(crate) v6: V6Arg,
    #[command(flatten)]
    pub(crate) v4: V4Arg,
    #[command(flatten)]
    pub(crate) list: ListArgs,
}

/// `fordway subscribers`.
#[derive(Debug, Args)]
pub(crate) struct SubscribersArgs {
    /// Say whose this IPv4 address and port is
    #[arg(long, value_name = "ADDR:PORT", value_parser = transport4,
        conflicts_with_all = ["v6", "v4", "limit", "count"])]
    pub(crate) reverse: Option<SocketAddrV4>,
    /// With --reverse: compute it from this configuration file, without a daemon
    #[arg(short, long, value_name = "FILE", requires = "reverse")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) v6: V6Arg,
    #[command(flatten)]
    pub(crate) v4: V4Arg,
    #[command(flatten)]
    pub(crate) list: ListArgs,
}

/// `fordway drain`.
#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    /// The translator
    pub(crate) name: String,
    /// How long to wait for the last session
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = humantime::parse_duration)]
    pub(crate) timeout: Duration,
    /// Take the translator down when no session is left, or when the time is over
    #[arg(long, conflicts_with = "undo")]
    pub(crate) down: bool,
    /// Make new sessions again
    #[arg(long)]
    pub(crate) undo: bool,
}

/// Which translator.
#[derive(Debug, Args)]
pub(crate) struct TranslatorArg {
    /// The translator, where there are several
    #[arg(long, value_name = "NAME")]
    pub(crate) translator: Option<String>,
}

/// By the IPv6 host.
#[derive(Debug, Args)]
pub(crate) struct V6Arg {
    /// Only of IPv6 hosts in this network
    #[arg(long, value_name = "PREFIX", value_parser = net6)]
    pub(crate) v6: Option<Ipv6Net>,
}

/// By the address and port in IPv4.
#[derive(Debug, Args)]
pub(crate) struct V4Arg {
    /// Only what has this IPv4 address, with or without :PORT
    #[arg(long, value_name = "ADDR[:PORT]")]
    pub(crate) v4: Option<Transport4>,
}

/// `fordway dns64-cache`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Dns64CacheArgs {
    #[command(subcommand)]
    pub(crate) change: Option<Dns64CacheCommand>,
    /// Only answers about this name
    #[arg(long, value_name = "NAME", value_parser = dns_name)]
    pub(crate) name: Option<String>,
    /// Also of all names below it
    #[arg(long, requires = "name")]
    pub(crate) subtree: bool,
    #[command(flatten)]
    pub(crate) shown: ShownArgs,
}

/// A change of the DNS64 server's cache.
#[derive(Debug, Subcommand)]
pub(crate) enum Dns64CacheCommand {
    /// Remove what is cached of a name, or of all names
    ///
    /// Answers of upstream servers, and what was made of them. The next question goes to the upstream servers.
    #[command(after_help = "\
Examples:
  fordway dns64-cache flush www.example.net
  fordway dns64-cache flush example.net --subtree
  fordway dns64-cache flush")]
    Flush {
        /// The name [default: all names]
        #[arg(value_parser = dns_name)]
        name: Option<String>,
        /// Also of all names below it
        #[arg(long, requires = "name")]
        subtree: bool,
    },
}

/// Of all that list entries of translators.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) translator: TranslatorArg,
    #[command(flatten)]
    pub(crate) shown: ShownArgs,
}

/// Of all that list something.
#[derive(Debug, Args)]
pub(crate) struct ShownArgs {
    /// Show so many at most
    #[arg(long, value_name = "NUMBER", conflicts_with = "count",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Only say how many there are
    #[arg(long)]
    pub(crate) count: bool,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn dns_name(text: &str) -> Result<String, String> {
    let read = hickory_proto::rr::Name::from_ascii(text);
    read.map(|name| name.to_ascii()).map_err(|_| "write a name such as www.example.net".to_owned())
}

fn transport4(text: &str) -> Result<SocketAddrV4, String> {
    text.parse().map_err(|_| "write an address and a port such as 192.0.2.1:80".to_owned())
}

fn transport6(text: &str) -> Result<SocketAddrV6, String> {
    text.parse().map_err(|_| "write an address and a port such as [2001:db8::5]:8080".to_owned())
}

fn net6(text: &str) -> Result<Ipv6Net, String> {
    let address = text.parse::<std::net::Ipv6Addr>().map(Ipv6Net::from);
    text.parse().or(address).map_err(|_| "this is no IPv6 address or prefix".to_owned())
}
