//! The short forms of translators: `fordway clat`, `siit`, `nat64`, `softwire` and `dual-stack`.

use clap::ArgMatches;
use fordway_daemon::failure::Failure;
use toml::{Table, Value};

use super::flag::{Flag, flag};
use super::short::{Part, Short};

/// `fordway clat`.
#[derive(Debug)]
pub(crate) struct Clat;
/// `fordway siit`.
#[derive(Debug)]
pub(crate) struct Siit;
/// `fordway nat64`.
#[derive(Debug)]
pub(crate) struct Nat64;
/// `fordway softwire`.
#[derive(Debug)]
pub(crate) struct Softwire;
/// `fordway dual-stack`.
#[derive(Debug)]
pub(crate) struct DualStack;

/// The interface's name, which is the translator's.
pub(super) const INTERFACE: Flag =
    flag("name").long("interface").help("Name of the translator and its interface");

/// Options that say by what and where packets are taken.
pub(super) const TAKING: &[Flag] = &[
    flag("engine"),
    flag("attach").help("Where packets are taken [default: auto]"),
    flag("devices").long("device").required(false).help("Device for --attach ingress or xdp"),
    flag("forward").help("How packets leave with --attach ingress"),
    flag("bypass_nftables").help("Let --forward direct bypass rules for forwarded packets"),
];

/// Further options of everything with an interface.
pub(super) const COMMON: &[Flag] = &[
    flag("measure"),
    flag("mtu"),
    flag("queues"),
    flag("icmp_source4"),
    flag("icmp_source6"),
    flag("allow_private"),
    flag("manage").help("Leave addresses, routes and settings of the host alone"),
];

const MAPPINGS: &[Flag] = &[flag("eam"), flag("routes4")];

const PORTS: &str = "ADDR, ADDR/LEN or ADDR-ADDR, with :LO-HI behind it for other ports than 1024-65535; or \
                     interface:DEV[:LO-HI] for the addresses of a device.";

impl Short for Clat {
    const PARTS: &'static [Part] = &[Part {
        title: "[[translator]]",
        sections: &["translator.clat", "translator"],
        fixed: &[("mode", "clat")],
        flags: &[
            &[
                INTERFACE.default("clat0"),
                flag("pref64"),
                flag("always"),
                flag("uplink"),
                flag("v4"),
                flag("v6"),
            ],
            MAPPINGS,
            TAKING,
            COMMON,
        ],
    }];
}

impl Short for Siit {
    const PARTS: &'static [Part] = &[Part {
        title: "[[translator]]",
        sections: &["translator.siit", "translator"],
        fixed: &[("mode", "siit")],
        flags: &[
            &[INTERFACE.default("siit0"), flag("pool6").unless(&["eam"])],
            MAPPINGS,
            TAKING,
            COMMON,
        ],
    }];
}

impl Short for Nat64 {
    const PARTS: &'static [Part] = &[Part {
        title: "[[translator]]",
        sections: &["translator.nat64", "translator"],
        fixed: &[("mode", "nat64")],
        flags: &[
            &[
                INTERFACE.default("nat64"),
                flag("pool6"),
                flag("pool4").required(true).more(PORTS),
                flag("bib"),
                flag("filtering"),
                flag("alg"),
                flag("port_blocks.size")
                    .long("port-blocks")
                    .required(false)
                    .help("Give each subscriber ports of its own, in blocks of this size"),
                flag("subscriber_len"),
                flag("max_sessions"),
            ],
            TAKING,
            COMMON,
        ],
    }];
}

impl Short for Softwire {
    const PARTS: &'static [Part] = &[Part {
        title: "[[translator]]",
        sections: &["translator.client", "translator.tep", "translator.softwire", "translator"],
        fixed: &[("mode", "softwire")],
        flags: &[
            &[
                INTERFACE.default("softwire0"),
                flag("bindings")
                    .long("binding")
                    .placeholder("V4[:PSID/LEN[@OFFSET]]=CLIENT")
                    .conflicts(&["v4", "remote"])
                    .parse(binding)
                    .help("The tunnel end point's binding of an IPv4 address, or of ports of it")
                    .more(
                        "V4=CLIENT for a whole address; V4:PSID/LEN=CLIENT for the ports whose first LEN bits are PSID, \
                         and V4:PSID/LEN@OFFSET=CLIENT where OFFSET bits come before them (RFC 7597 section 5.1).",
                    ),
                flag("v4")
                    .placeholder("V4[:PSID/LEN[@OFFSET]]")
                    .requires("remote")
                    .unless(&["local"])
                    .parse(address)
                    .help("A client's IPv4 address, or the ports of it that are the client's"),
                flag("remote").required(false).requires("v4").help("A client's tunnel end point"),
                flag("local"),
                flag("uplink").requires("v4"),
                flag("routes4"),
            ],
            TAKING,
            COMMON,
        ],
    }];

    fn finish(_: &Part, table: &mut Table, matches: &ArgMatches) {
        let role = if matches.contains_id("v4") { "client" } else { "tep" };
        table.insert("role".to_owned(), role.into());
    }
}

impl Short for DualStack {
    const PARTS: &'static [Part] = &[Part {
        title: "[[translator]]",
        sections: &["translator.dual-stack"],
        fixed: &[("mode", "dual-stack")],
        flags: &[&[
            flag("name").default("dual-stack"),
            flag("devices").long("device"),
            flag("addresses").long("address"),
        ]],
    }];
}

/// `V4[:PSID/LEN[@OFFSET]]=CLIENT` as a table of `bindings`.
fn binding(option: &str, text: &str) -> Result<Table, Failure> {
    let Some((v4, remote)) = text.split_once('=') else {
        return Err(Failure::usage(
            format!("{option} {text}: there is no '='"),
            format!("write {option} 192.0.2.1=2001:db8:1::1"),
        ));
    };
    let mut table = address(option, v4)?;
    table.insert("remote".to_owned(), remote.trim().into());
    Ok(table)
}

/// `V4[:PSID/LEN[@OFFSET]]` as keys of the file.
fn address(option: &str, text: &str) -> Result<Table, Failure> {
    let (v4, ports) = text.split_once(':').map_or((text, None), |(v4, ports)| (v4, Some(ports)));
    let mut table = Table::from_iter([("v4".to_owned(), Value::from(v4.trim()))]);
    let Some(ports) = ports else { return Ok(table) };
    let (set, offset) = ports.split_once('@').map_or((ports, None), |(set, it)| (set, Some(it)));
    let (psid, len) = set.split_once('/').unwrap_or((set, ""));
    let numbers = [("psid", Some(psid)), ("psid_len", Some(len)), ("psid_offset", offset)];
    for (key, number) in numbers {
        let Some(number) = number else { continue };
        let number: i64 = number.trim().parse().map_err(|_| {
            Failure::usage(
                format!("{option} {text}: \"{ports}\" is no port set"),
                "write PSID/LEN, such as 192.0.2.1:3/4 for the fourth of 16 parts",
            )
        })?;
        table.insert(key.to_owned(), number.into());
    }
    Ok(table)
}
