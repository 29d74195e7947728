//! `fordway dstm-server`, `fordway dstm-client` and `fordway leases`.

use clap::{ArgMatches, Args, Subcommand};
use fordway_daemon::failure::Failure;
use toml::{Table, Value};

use super::flag::flag;
use super::short::{Options, Part, Short};
use super::translators::{INTERFACE, TAKING};

/// The commands of DSTM.
#[derive(Debug, Subcommand)]
pub(crate) enum DstmCommand {
    /// Run a DSTM server and its tunnel end point: hosts of an IPv6-only network borrow IPv4 addresses
    ///
    /// The same as a configuration file with [dstm_server] and one [[translator]] of mode softwire and role tep.
    /// Addresses go through tunnels (RFC 2473), unchanged; a CLAT needs no server and no keys, and will often do.
    #[command(after_help = "\
Examples:
  fordway dstm-server --listen 2001:db8:2::2 --local 2001:db8:f::1 --pool 192.0.2.0/28 --client laptop=/etc/fordway/laptop.key
  fordway dstm-server --listen 2001:db8:2::2 --local 2001:db8:f::1 --pool 192.0.2.1/32 --ports-per-client 4096 --prefix 2001:db8:1::/64=/etc/fordway/lan.key")]
    DstmServer(Options<DstmServer>),
    /// Run a DSTM client: borrow an IPv4 address when a packet needs one
    ///
    /// The same as a configuration file with one [[dstm_client]]. The first packet waits for the address; when nothing
    /// has used it for a while it is given back.
    #[command(after_help = "\
Examples:
  fordway dstm-client --server 2001:db8:2::2 --id laptop --key-file /etc/fordway/laptop.key
  fordway dstm-client --server 2001:db8:2::2 --key-file /etc/fordway/lan.key --idle 1m --routes4 198.51.100.0/24")]
    DstmClient(Options<DstmClient>),
    /// Show who has borrowed which IPv4 address from the DSTM server, or end a lease
    ///
    /// A client whose lease has ended hears of it when it renews; until then its packets are refused.
    #[command(after_help = "\
Examples:
  fordway leases
  fordway leases --json | jq -r '.[].client'
  fordway leases --release laptop")]
    Leases(LeasesArgs),
}

/// `fordway dstm-server`.
#[derive(Debug)]
pub(crate) struct DstmServer;
/// `fordway dstm-client`.
#[derive(Debug)]
pub(crate) struct DstmClient;

/// `fordway leases`.
#[derive(Debug, Args)]
pub(crate) struct LeasesArgs {
    /// End the lease of a client: its name, or the address of its requests
    #[arg(long, value_name = "CLIENT")]
    pub(crate) release: Option<String>,
    /// Write the leases as JSON
    #[arg(long, conflicts_with = "release")]
    pub(crate) json: bool,
}

const TEP: &str = "[[translator]]";

impl Short for DstmServer {
    const PARTS: &'static [Part] = &[
        Part {
            title: "[dstm_server]",
            sections: &["dstm_server"],
            fixed: &[],
            flags: &[&[
                flag("listen"),
                flag("pool"),
                flag("client")
                    .placeholder("ID=KEYFILE[,V4]")
                    .unless(&["prefix"])
                    .parse(client)
                    .help("A client with a key of its own, and perhaps an address that it always gets"),
                flag("prefix")
                    .placeholder("PREFIX=KEYFILE")
                    .parse(prefix)
                    .help("A prefix whose clients share a key"),
                flag("ports_per_client"),
                flag("lifetime"),
                flag("state"),
            ]],
        },
        Part {
            title: TEP,
            sections: &["translator.tep", "translator"],
            fixed: &[("mode", "softwire"), ("role", "tep")],
            flags: &[
                &[
                    INTERFACE
                        .default("tep0")
                        .help("Name of the tunnel end point and its interface"),
                    flag("local"),
                ],
                TAKING,
            ],
        },
    ];

    fn finish(part: &Part, table: &mut Table, matches: &ArgMatches) {
        let interface = matches.get_one::<String>("interface");
        if let Some(interface) = interface.filter(|_| part.title != TEP) {
            table.insert("tep".to_owned(), interface.as_str().into());
        }
    }
}

impl Short for DstmClient {
    const PARTS: &'static [Part] = &[Part {
        title: "[[dstm_client]]",
        sections: &["dstm_client"],
        fixed: &[],
        flags: &[&[
            flag("name").long("interface").default("dstm0"),
            flag("server"),
            flag("key_file"),
            flag("id"),
            flag("idle"),
            flag("routes4"),
            flag("local"),
            flag("uplink"),
            flag("engine"),
        ]],
    }];
}

/// `ID=KEYFILE[,V4]` as a table of `client`.
fn client(option: &str, text: &str) -> Result<Table, Failure> {
    let (id, rest) = halves(option, text, "laptop=/etc/fordway/laptop.key")?;
    let (file, v4) = rest.split_once(',').map_or((rest, None), |(file, v4)| (file, Some(v4)));
    let keys = [("id", Some(id)), ("key_file", Some(file)), ("v4", v4)];
    let given = keys.into_iter().filter_map(|(key, text)| Some((key, text?)));
    Ok(given.map(|(key, text)| (key.to_owned(), Value::from(text.trim()))).collect())
}

/// `PREFIX=KEYFILE` as a table of `prefix`.
fn prefix(option: &str, text: &str) -> Result<Table, Failure> {
    let (prefix, file) = halves(option, text, "2001:db8:1::/64=/etc/fordway/lan.key")?;
    let keys = [("prefix", prefix), ("key_file", file)];
    Ok(keys.into_iter().map(|(key, text)| (key.to_owned(), Value::from(text))).collect())
}

/// What stands on either side of `=`.
fn halves<'t>(option: &str, text: &'t str, example: &str) -> Result<(&'t str, &'t str), Failure> {
    let halves = text.split_once('=').map(|(one, other)| (one.trim(), other.trim()));
    halves.ok_or_else(|| {
        Failure::usage(
            format!("{option} {text}: there is no '='"),
            format!("write {option} {example}"),
        )
    })
}
