//! The command line.

#[cfg(feature = "cluster")]
mod cluster;
mod described;
mod desired;
mod discover;
mod doctor;
#[cfg(feature = "dstm")]
mod dstm;
mod export;
mod flag;
mod global;
mod import;
#[cfg(feature = "nat44")]
mod nat44;
#[cfg(feature = "nat-pt")]
mod nat_pt;
mod offline;
mod run;
mod servers;
mod short;
mod show;
mod source;
mod tables;
mod translators;

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use crate::features;
use short::Options;

#[cfg(feature = "cluster")]
pub(crate) use cluster::{ClusterArgs, ClusterCommand};
pub(crate) use desired::{ApplyArgs, GetArgs, WatchArgs};
pub(crate) use discover::DiscoverArgs;
pub(crate) use doctor::DoctorArgs;
#[cfg(feature = "dstm")]
pub(crate) use dstm::{DstmCommand, LeasesArgs};
pub(crate) use export::{ExportArgs, Program};
pub(crate) use global::Global;
pub(crate) use import::{ImportArgs, Origin};
pub(crate) use offline::{ExplainArgs, PcapArgs};
pub(crate) use run::{
    BenchArgs, CheckArgs, DownArgs, MeasureArgs, ReloadArgs, RunArgs, Switch, TakeoverArgs,
    TraceArgs,
};
pub(crate) use show::{StatsArgs, StatusArgs, TopArgs};
pub(crate) use source::{Source, SourceArgs};
pub(crate) use tables::{
    BibArgs, BibCommand, Dns64CacheArgs, Dns64CacheCommand, DrainArgs, ListArgs, SessionsArgs,
    ShownArgs, SubscribersArgs,
};

/// Fordway lets IPv4 and IPv6 talk.
///
/// A translator is a network interface: what should be translated is routed into it; what comes out
/// arrives from it.
#[derive(Debug, Parser)]
#[command(name = "fordway", version, long_version = features::version(), propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  fordway clat --pref64 64:ff9b::/96           give this host IPv4 on an IPv6-only network
  fordway siit --pool6 2001:db8:64::/96 --eam 198.51.100.0/24=2001:db8:1::/120
  fordway nat64 --pool6 64:ff9b::/96 --pool4 192.0.2.1
  fordway run /etc/fordway/fordway.toml        run what a file says
  fordway stats                                see what it carries and drops

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What a JSON Schema is of.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum SchemaOf {
    /// Configuration files
    #[default]
    Config,
    /// Lines on the control socket
    Control,
    /// Lines of fordway top --json
    Top,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run what a configuration file says: translators, DNS64, router advertisements, proxies
    ///
    /// Sets the host up, works until SIGTERM or SIGINT, and takes exactly what it set up down
    /// again. Logs go to standard error.
    #[command(after_help = "\
Examples:
  fordway run /etc/fordway/fordway.toml
  fordway run examples/ipv6-only-network.toml
  fordway run -c test.toml --log-level debug --socket /run/fordway/test.sock")]
    Run(RunArgs),
    /// Have the daemon read its configuration file again
    ///
    /// Translators whose name stays get their new configuration without losing a packet; new ones are
    /// set up, and those that are not in the file any more are taken down. On any error everything
    /// stays as it was. SIGHUP does the same, with the answer in the log. --dry-run says what would be added, changed and
    /// removed, with how many sessions each, and does nothing.
    #[command(after_help = "\
Examples:
  fordway reload --dry-run && fordway reload
  fordway reload --dry-run --json | jq '.changes[] | select(.ended > 0)'")]
    Reload(ReloadArgs),
    /// Write more or less into the daemon's log, until it ends or another level is set
    ///
    /// The configuration is unchanged: the next start logs as [log] level says.
    #[command(after_help = "\
Examples:
  fordway log-level debug
  fordway log-level info")]
    LogLevel {
        /// Least severity of log lines: off, error, warn, info, debug or trace
        #[arg(value_parser = global::level)]
        level: fordway_config::LevelFilter,
    },
    /// Measure the time that packets take in a translator's kernel engine, or not, while the daemon runs
    ///
    /// `fordway status` shows the mean. It costs a little per packet. The next reload or start does as `measure` in the
    /// configuration says.
    #[command(after_help = "\
Examples:
  fordway measure nat64 on && sleep 10 && fordway status --json | jq .translators[].kernel.ns_per_packet
  fordway measure nat64 off")]
    Measure(MeasureArgs),
    /// Take one translator down, also one whose daemon was killed
    ///
    /// A running daemon goes on with its other translators. Of a translator whose daemon is dead,
    /// everything that it left is removed: programs, interface, addresses, routes and settings.
    #[command(after_help = "\
Examples:
  fordway down clat0
  fordway down --all")]
    Down(DownArgs),
    /// End the daemon and leave its kernel engines running: for an upgrade
    ///
    /// Translators with a kernel engine go on translating what that takes; the next start takes them
    /// over without a gap. Those without one are taken down. SIGUSR2, which `systemctl restart` sends,
    /// does the same.
    #[command(after_help = "\
Examples:
  fordway leave && systemctl start fordway")]
    Leave,
    /// Say what the next start takes over from the run before it, and what it can't
    ///
    /// Sessions in the kernel's tables, 1:1 mappings, leases, and host changes in the ledger: of the daemon that runs, or
    /// of one that has ended. Nothing is changed. Exit code 1 if something can't be taken over: because of the
    /// configuration, or because another version has written it.
    #[command(after_help = "\
Examples:
  fordway takeover -c /etc/fordway/fordway.toml
  fordway takeover -c fordway.toml --json | jq '.[] | select(.taken_over | not)'
  fordway leave && fordway takeover -c fordway.toml --drop    so that the next start succeeds")]
    Takeover(TakeoverArgs),
    /// Tell live what becomes of packets, and why
    ///
    /// Each packet that the kernel engine sees: translated, passed on to the user engine (and what that of a
    /// stateless translator makes of it), or dropped. FILTER is one or more of tcp, udp, icmp, host ADDR, net PREFIX,
    /// port NUMBER and outcome translated|passed|dropped|unmatched, joined by and; addresses and ports
    /// count on either side, before translation and after it. At most 2000 packets per second and
    /// processor are told. Costs nothing while no trace runs.
    #[command(after_help = "\
Examples:
  fordway trace clat0
  fordway trace clat0 udp and port 53
  fordway trace siit0 host 198.51.100.1 and outcome passed --count 10
  fordway trace siit0 outcome dropped --json | jq .reason")]
    Trace(TraceArgs),
    /// Measure the kernel engine's programs on this host
    ///
    /// Loads the programs without attaching them and lets the kernel run them on a packet: nanoseconds
    /// per packet for each program, direction, protocol and size. Needs root, touches no traffic.
    ///
    /// With --path, observes real traffic instead: how often the kernel receives, queues, sends and drops packets, how many of
    /// them are GSO packets, how long programs and softirqs take, and in which functions the processors are. Programs at the
    /// kernel's tracepoints count; they change no packet, and go with this command.
    #[command(after_help = "\
Examples:
  fordway bench
  fordway bench --json | jq '.[] | select(.packet_octets == 64)'
  fordway bench --path
  fordway bench --path --seconds 1 --json | jq '.functions[:10]'")]
    Bench(BenchArgs),
    /// Check a configuration file
    ///
    /// Says what is wrong, where, and what to write instead. Exit code 2 if anything is.
    #[command(after_help = "\
Examples:
  fordway check -c /etc/fordway/fordway.toml
  fordway check -c - < draft.toml
  fordway check -c draft.toml --print-config    the file with every key written out")]
    Check(CheckArgs),
    /// Write the configuration of another program that does a part of what the file says
    ///
    /// radvd and dnsmasq send router advertisements, dnsmasq and Kea answer DHCPv6, unbound and BIND do
    /// DNS64, as [[advertise]] and [dns64] have it. What the program can't do is a comment.
    #[command(after_help = "\
Examples:
  fordway export radvd -c /etc/fordway/fordway.toml > /etc/radvd.conf
  fordway export radvd --for 2.19 -c fordway.toml
  fordway export unbound -c fordway.toml > /etc/unbound/unbound.conf.d/dns64.conf")]
    Export(ExportArgs),
    /// Make a configuration file of one of Jool, TAYGA or clatd
    ///
    /// What has no counterpart, or is not the same, stands in it as a comment. The result is checked before it is
    /// printed.
    #[command(after_help = "\
Examples:
  fordway import jool /etc/jool/jool.conf > fordway.toml
  fordway import jool-siit /etc/jool/jool_siit.conf
  fordway import tayga /etc/tayga.conf > fordway.toml && fordway check -c fordway.toml
  fordway import clatd /etc/clatd.conf")]
    Import(ImportArgs),
    /// Run one CLAT (RFC 6877): IPv4 for this host over an IPv6-only network
    ///
    /// The same as a configuration file with one [[translator]] of mode clat.
    #[command(after_help = "\
Examples:
  fordway clat --pref64 64:ff9b::/96
  fordway clat --pref64 2001:db8:64::/96 --uplink eth0 --v6 2001:db8:1::464
  fordway clat --pref64 64:ff9b::/96 --print-config > fordway.toml")]
    Clat(Options<translators::Clat>),
    /// Run one stateless translator (SIIT, RFC 7915) between an IPv4 and an IPv6 network
    ///
    /// The same as a configuration file with one [[translator]] of mode siit.
    #[command(after_help = "\
Examples:
  fordway siit --pool6 64:ff9b::/96 --eam 198.51.100.0/24=2001:db8:1::/120
  fordway siit --pool6 2001:db8:64::/96 --routes4 198.51.100.0/24
  fordway siit --pool6 64:ff9b::/96 --eam 192.0.2.1=2001:db8::1 --set traffic_class=0")]
    Siit(Options<translators::Siit>),
    /// Run one stateful translator (NAT64, RFC 6146): IPv6 hosts share IPv4 addresses
    ///
    /// The same as a configuration file with one [[translator]] of mode nat64.
    #[command(after_help = "\
Examples:
  fordway nat64 --pool6 64:ff9b::/96 --pool4 192.0.2.1
  fordway nat64 --pool6 64:ff9b::/96 --pool4 192.0.2.0/28:1024-65535 --port-blocks 512
  fordway nat64 --pool6 64:ff9b::/96 --pool4 interface:eth0:61000-65535
  fordway nat64 --pool6 64:ff9b::/96 --pool4 192.0.2.1 --bib tcp:192.0.2.1:80=[2001:db8::5]:8080")]
    Nat64(Options<translators::Nat64>),
    /// Run one end of softwires: IPv4 in IPv6 (RFC 2473, RFC 7596)
    ///
    /// The same as a configuration file with one [[translator]] of mode softwire: a tunnel end point with
    /// --local and --binding, or a client with --v4 and --remote.
    #[command(after_help = "\
Examples:
  fordway softwire --local 2001:db8:2::1 --binding 192.0.2.1=2001:db8:1::1
  fordway softwire --local 2001:db8:2::1 --binding 192.0.2.3:1/4=2001:db8:1::3 --binding 192.0.2.3:2/4=2001:db8:1::4
  fordway softwire --v4 192.0.2.1 --remote 2001:db8:2::1
  fordway softwire --v4 192.0.2.3:1/4 --remote 2001:db8:2::1 --local 2001:db8:1::3")]
    Softwire(Options<translators::Softwire>),
    /// Run one NAT-PT (RFC 2766, historic): IPv4 and IPv6 hosts reach each other by name
    ///
    /// The same as a configuration file with one [[translator]] of mode nat-pt. The IETF has taken NAT-PT back
    /// (RFC 4966): take nat64 with dns64 for what IPv6 hosts begin, and siit with --eam for servers that IPv4 hosts
    /// are to reach. This is for networks that still have it, and for comparisons.
    #[command(after_help = "\
Examples:
  fordway nat-pt --pool6 2001:db8:64::/96 --addresses 192.0.2.64/26 --dns-client 198.51.100.53
  fordway nat-pt --pool6 2001:db8:64::/96 --addresses 192.0.2.64/26 --pool4 192.0.2.1
  fordway nat-pt --pool6 2001:db8:64::/96 --pool4 192.0.2.1 --binding 192.0.2.10=2001:db8::5 --no-dns-alg")]
    #[cfg(feature = "nat-pt")]
    NatPt(Options<nat_pt::NatPt>),
    /// Have the kernel translate IPv4 addresses (NAT44, RFC 3022): hosts share the uplink's address
    ///
    /// The same as a configuration file with one [[translator]] of mode nat44. An nftables table of its own does
    /// it, behind the operator's own rules; docs/nat44.md has its priorities.
    #[command(after_help = "\
Examples:
  fordway nat44 --clients 198.51.100.0/24 --uplink eth0
  fordway nat44 --clients 198.51.100.0/24 --uplink eth0 --pool4 192.0.2.1:1024-65535
  fordway nat44 --clients 198.51.100.0/24 --uplink eth0 --forward tcp:80=198.51.100.10:8080
  fordway nat44 --clients 192.0.0.0/29 --device softwire0 --uplink eth0")]
    #[cfg(feature = "nat44")]
    Nat44(Options<nat44::Nat44>),
    /// Forward IPv4 and IPv6 between devices, and nothing else
    ///
    /// The same as a configuration file with one [[translator]] of mode dual-stack. Router advertisements are
    /// [[advertise]] beside it.
    #[command(after_help = "\
Examples:
  fordway dual-stack --device lan0 --device wan0
  fordway dual-stack --device lan0 --device wan0 --address lan0=198.51.100.1/24 --address lan0=2001:db8:1::1/64")]
    DualStack(Options<translators::DualStack>),
    /// Run a DNS64 server (RFC 6147): names of IPv4-only servers get IPv6 addresses
    ///
    /// The same as a configuration file with [dns64] alone, for a network whose translator is another host.
    #[command(after_help = "\
Examples:
  fordway dns64 --listen 2001:db8:1::1 --upstream 192.0.2.53 --pref64 64:ff9b::/96
  fordway dns64 --listen ::1 --upstream tls://2001:db8::53#dns.example --pref64 2001:db8:64::/96
  fordway dns64 --listen [::1]:5353 --upstream 2001:db8::53 --pref64 64:ff9b::/96 --print-config")]
    Dns64(Options<servers::Dns64>),
    /// Relay TCP and UDP from IPv6 hosts to IPv4 servers (TRT, RFC 3142), until interrupted
    ///
    /// The same as a configuration file with one [[trt]]. Hosts need no change: a DNS64 gives them addresses in the
    /// prefix, which must be routed to this host. Where NAT64 will do, it is the better choice.
    #[command(after_help = "\
Examples:
  fordway trt --pool6 2001:db8:64::/96
  fordway trt --pool6 64:ff9b::/96 --allow 2001:db8:1::/48 --source4 192.0.2.1
  fordway trt --pool6 64:ff9b::/96 --set udp=false --set max_per_client=200 --print-config")]
    Trt(Options<servers::Trt>),
    /// Run an HTTP proxy: for IPv6-only clients, or in front of an IPv4-only site
    ///
    /// The same as a configuration file with one [[proxy]]. Without --upstream it serves clients that know it (absolute
    /// URLs and CONNECT, HTTP/1.1 and HTTP/2); with it, it stands in front of a site.
    #[command(after_help = "\
Examples:
  fordway proxy --listen 2001:db8:1::1 --allow 2001:db8:1::/64
  fordway proxy --listen ::1 --pref64 64:ff9b::/96 --log stdout
  fordway proxy --listen 2001:db8:1::80 --upstream 192.0.2.10 192.0.2.11:8080
  fordway proxy --listen [::1]:8080 --set 'connect_ports=[443, 8443]' --print-config")]
    Proxy(Options<servers::Proxy>),
    #[cfg(feature = "dstm")]
    #[command(flatten)]
    Dstm(DstmCommand),
    /// Say which translation prefix the network has, and how it tells
    ///
    /// From router advertisements (PREF64, RFC 8781) and from resolvers (ipv4only.arpa, RFC 7050), with who
    /// said it and until when. Advertisements go first; of several interfaces, that with the best IPv6
    /// default route. Without CAP_NET_RAW only resolvers are asked. Exit code 1 if there is none.
    #[command(after_help = "\
Examples:
  fordway discover
  fordway discover --device eth0 --timeout 3s
  fordway discover --json | jq -r .preferred
  fordway discover --trust example.net
  fordway discover --watch")]
    Discover(DiscoverArgs),
    /// Say what would happen to a packet, step by step, with the RFC sections
    ///
    /// Nothing is sent and the host is not looked at: options that a daemon takes from the host
    /// (the CLAT's address, the source of ICMPv6 errors) must be given.
    #[command(after_help = "\
Examples:
  fordway explain -c fordway.toml --pcap capture.pcap --packet 3
  fordway explain --pool6 2001:db8:46::/96 --hex 4500001c0000400040114e9ac6336402c0000201303900350008e338
  tcpdump -i eth0 -c 1 -w - ip | fordway explain -c fordway.toml --pcap -")]
    Explain(ExplainArgs),
    /// Translate a capture file
    ///
    /// Reads pcap and pcapng with raw IP, Ethernet (VLAN tags too) and Linux cooked frames. Writes
    /// what the translator would send, ICMP errors included; link-layer headers are kept. The time
    /// of the capture drives the rate limit of ICMP errors.
    #[command(after_help = "\
Examples:
  fordway pcap -c fordway.toml in.pcap out.pcap
  fordway pcap --pref64 64:ff9b::/96 --v6 2001:db8::464 in.pcapng out.pcapng --json")]
    Pcap(PcapArgs),
    /// Find out what of an IPv6-only network works from here, and what to do about the rest
    ///
    /// On a host: kernel, addresses and routes, the network's translation prefix, DNS64, the way through the
    /// translator and the sizes that pass, other translators, rules of nftables in the way. With -c FILE on a
    /// gateway: its forwarding, interfaces and routes, its DNS64 server and the upstream ones. Changes nothing;
    /// sends some pings and DNS questions. Exit code 1 if something does not work.
    #[command(after_help = "\
Examples:
  fordway doctor
  fordway doctor --target www.example.net
  fordway doctor -c /etc/fordway/fordway.toml --target 198.51.100.1
  fordway doctor --json | jq '.findings[] | select(.state == \"bad\")'")]
    Doctor(DoctorArgs),
    /// Show what the daemon runs: all daemons of the host, unless --socket names one
    ///
    /// Daemons are found by their control sockets in the run directory, and in folders beside it whose names begin with its
    /// name and a dash. With --json each daemon is a JSON object, one after the other.
    #[command(after_help = "\
Examples:
  fordway status
  fordway --socket /run/fordway/clat.sock status
  fordway status --json | jq '.translators[].offloads'")]
    Status(StatusArgs),
    /// Show what the daemon has carried and dropped
    ///
    /// Packets, segments and octets per direction, every reason for a drop, ICMP errors, and errors
    /// of the queues.
    #[command(after_help = "\
Examples:
  fordway stats
  fordway stats --watch
  fordway stats --json --per-queue
  fordway stats --prometheus")]
    Stats(StatsArgs),
    /// Show rates, sessions, pools and drops of all daemons of the host, live
    ///
    /// Each translator with packets and bits per second of each direction, drops with their reasons, sessions, and how full
    /// tables and pools are; the servers beside them. A daemon that ends is shown as not reachable, until it is back. On a
    /// terminal q or Ctrl-C quits; without one, or with TERM=dumb, each view is lines of text. NO_COLOR is respected.
    #[command(after_help = "\
Examples:
  fordway top
  fordway top --interval 5s
  fordway top --once
  fordway top --once --json | jq '.daemons[].drops'
  fordway --socket /run/fordway/clat.sock top")]
    Top(TopArgs),
    /// Show the BIB of stateful translators, or change it
    ///
    /// Which IPv6 transport address is bound to which IPv4 transport address (RFC 6146 section 3.1), with
    /// the 1:1 mappings of dynamic4. Entries made by hand stay until they are removed, or the tables are.
    #[command(after_help = "\
Examples:
  fordway bib
  fordway bib --protocol tcp --v6 2001:db8:1::/48
  fordway bib --v4 192.0.2.1:4096 --json
  fordway bib --static --count
  fordway bib add tcp 192.0.2.1:80 [2001:db8::5]:8080
  fordway bib del tcp 192.0.2.1:80")]
    Bib(BibArgs),
    /// Show the sessions of stateful translators
    #[command(after_help = "\
Examples:
  fordway sessions --limit 20
  fordway sessions --protocol tcp --state established --count
  fordway sessions --v6 2001:db8:1::5 --json
  fordway sessions --remote 198.51.100.0/24:443")]
    Sessions(SessionsArgs),
    /// Show the subscribers of stateful translators, or whose a port is
    ///
    /// Subscribers, with their addresses, blocks of ports and use of quotas. --reverse asks whose a
    /// transport address is: in deterministic pools (RFC 7422) by computation, with -c FILE also without
    /// a daemon; else who has it now.
    #[command(after_help = "\
Examples:
  fordway subscribers
  fordway subscribers --v6 2001:db8:1::5
  fordway subscribers --reverse 192.0.2.1:4096
  fordway subscribers --reverse 192.0.2.1:4096 -c /etc/fordway/fordway.toml")]
    Subscribers(SubscribersArgs),
    /// Show what the DNS64 server has cached, or flush it
    ///
    /// Answers of upstream servers, with the seconds that they still hold, the response code, what validation found, and
    /// their records. What was made of them (synthesised addresses) is flushed with them.
    #[command(after_help = "\
Examples:
  fordway dns64-cache --name www.example.net
  fordway dns64-cache --name corp.example --subtree --json
  fordway dns64-cache --count
  fordway dns64-cache flush example.net --subtree")]
    Dns64Cache(Dns64CacheArgs),
    /// Let a stateful translator make no new sessions, and wait until none is left
    ///
    /// Sessions that exist go on. Exit code 1 if some are left when the time is over; the translator then
    /// goes on as it is, and makes no new ones.
    #[command(after_help = "\
Examples:
  fordway drain nat64
  fordway drain nat64 --timeout 10m --down
  fordway drain nat64 --undo")]
    Drain(DrainArgs),
    /// Show the cluster of gateways that the daemon is in, or change it
    ///
    /// Gateways that share one pool4 own a part of its shards each (docs/cluster.md). Commands are for the gateway whose daemon is
    /// asked.
    #[cfg(feature = "cluster")]
    #[command(after_help = "\
Examples:
  fordway cluster status
  fordway cluster drain && apt-get install fordway
  fordway cluster move 7 gw-b --wait")]
    Cluster(ClusterArgs),
    /// Set keys of the daemon's configuration, as a controller does
    ///
    /// The document is a JSON object of keys, such as translator.nat64.bib, and the whole values that they are to have, as
    /// in the configuration file; null gives a key back to the file. All of it is applied like a reload, without losing a
    /// packet, or nothing is. The same document again changes nothing. What was set holds through reloads and restarts,
    /// until the host boots.
    #[command(after_help = "\
Examples:
  fordway apply keys.json
  fordway apply --key translator.nat64.eam --dry-run - < eam.json
  echo '{\"translator.nat64.bib\": null}' | fordway apply -
  fordway apply --replace --json keys.json | jq '.keys[] | select(.added > 0)'")]
    Apply(ApplyArgs),
    /// Show values of keys of the daemon's configuration, as JSON that apply reads
    #[command(after_help = "\
Examples:
  fordway get                                   what controllers have set
  fordway get translator.nat64.eam translator.nat64.pool")]
    Get(GetArgs),
    /// Tell of changes of the configuration, of BIB entries made by hand, and of translators
    ///
    /// Each change has a number, one more than the one before, and the first line says the number of the last change. After
    /// a connection that was lost, compare: if the number is another, read everything again.
    #[command(after_help = "\
Examples:
  fordway watch
  fordway watch --json --count 1")]
    Watch(WatchArgs),
    /// Write a JSON Schema to standard output: of configuration files, of the control socket, or of top --json
    ///
    /// That of configuration files is for editors, which then complete and check keys and values, and for whatever makes such
    /// files; what has to go together across keys is found by fordway check. That of the control socket describes each line:
    /// requests and replies.
    #[command(after_help = "\
Examples:
  fordway schema > fordway.schema.json
  (in fordway.toml) #:schema ./fordway.schema.json
  fordway schema control")]
    Schema {
        /// Of what
        #[arg(value_enum, default_value_t)]
        of: SchemaOf,
    },
    /// Write a completion script for a shell to standard output
    #[command(after_help = "\
Examples:
  fordway completions bash > /usr/share/bash-completion/completions/fordway
  fordway completions zsh > /usr/share/zsh/site-functions/_fordway")]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder
    #[command(after_help = "\
Examples:
  fordway man /usr/share/man/man1")]
    Man {
        /// The folder; it is made if need be
        dir: PathBuf,
    },
}

#[cfg(test)]
mod tests;
