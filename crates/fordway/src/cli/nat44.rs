//! The short form `fordway nat44`.

use super::flag::flag;
use super::short::{Part, Short};

/// `fordway nat44`.
#[derive(Debug)]
pub(crate) struct Nat44;

impl Short for Nat44 {
    const PARTS: &'static [Part] = &[Part {
        title: "[[translator]]",
        sections: &["translator.nat44"],
        fixed: &[("mode", "nat44")],
        flags: &[&[
            flag("name").default("nat44"),
            flag("clients"),
            flag("uplink"),
            flag("devices").long("device"),
            flag("pool4").more(
                "ADDR, ADDR/LEN or ADDR-ADDR, with :LO-HI behind it for other ports than 1024-65535; or \
                 interface:DEV:LO-HI for these ports of the uplink's address.",
            ),
            flag("netmap"),
            flag("forward"),
            flag("random_ports"),
            flag("quotas.sessions").long("sessions"),
            flag("lifetimes")
                .long("keep-timeouts")
                .word("host")
                .help("Leave the host's own timeouts of connections as they are"),
        ]],
    }];
}
