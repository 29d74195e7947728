//! The short forms of servers: `fordway dns64`, `trt` and `proxy`.

use clap::ArgMatches;
use toml::Table;

use super::flag::flag;
use super::short::{Part, Short};

/// `fordway dns64`.
#[derive(Debug)]
pub(crate) struct Dns64;
/// `fordway trt`.
#[derive(Debug)]
pub(crate) struct Trt;
/// `fordway proxy`.
#[derive(Debug)]
pub(crate) struct Proxy;

impl Short for Dns64 {
    const PARTS: &'static [Part] = &[Part {
        title: "[dns64]",
        sections: &["dns64"],
        fixed: &[],
        flags: &[&[
            flag("listen"),
            flag("upstream").several().help("Server to pass questions on to").more(
                "An address, with a port other than the usual one as [ADDR]:PORT; in front of it tcp://, tls:// or \
                 https:// for another way than UDP, behind it #NAME for the name in the certificate.",
            ),
            flag("pool6").long("pref64").required(true),
            flag("allow"),
            flag("exempt"),
            flag("exclude"),
            flag("validate"),
            flag("ca"),
            flag("threads"),
        ]],
    }];
}

impl Short for Trt {
    const PARTS: &'static [Part] = &[Part {
        title: "[[trt]]",
        sections: &["trt"],
        fixed: &[],
        flags: &[&[
            flag("pool6"),
            flag("allow"),
            flag("refuse4"),
            flag("source4"),
            flag("allow_private"),
            flag("urgent"),
            flag("name"),
            flag("threads"),
        ]],
    }];
}

impl Short for Proxy {
    const PARTS: &'static [Part] = &[Part {
        title: "[[proxy]]",
        sections: &["proxy", "proxy.forward", "proxy.reverse"],
        fixed: &[("name", "proxy")],
        flags: &[&[
            flag("listen"),
            flag("upstream")
                .required(false)
                .several()
                .help("Stand in front of a site: its server, as ADDR, ADDR:PORT or NAME:PORT"),
            flag("allow").help(
                "Network whose hosts may use it [default: networks of this host; a site: all]",
            ),
            flag("connect_ports").long("connect-port").conflicts(&["upstream"]),
            flag("resolver"),
            flag("pref64"),
            flag("certificate").requires("key"),
            flag("key").requires("certificate"),
            flag("accept_proxy"),
            flag("send_proxy").requires("upstream"),
            flag("log"),
            flag("threads"),
        ]],
    }];

    fn finish(_: &Part, table: &mut Table, matches: &ArgMatches) {
        if matches.contains_id("upstream") {
            table.insert("mode".to_owned(), "reverse".into());
        }
    }
}
