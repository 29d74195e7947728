//! The short form `fordway nat-pt`.

use super::flag::flag;
use super::short::{Part, Short};
use super::translators::{COMMON, INTERFACE, TAKING};

/// `fordway nat-pt`.
#[derive(Debug)]
pub(crate) struct NatPt;

impl Short for NatPt {
    const PARTS: &'static [Part] = &[Part {
        title: "[[translator]]",
        sections: &["translator.nat-pt", "translator.nat64", "translator"],
        fixed: &[("mode", "nat-pt")],
        flags: &[
            &[
                INTERFACE.default("natpt0"),
                flag("pool6"),
                flag("addresses").unless(&["pool4", "binding"]).more(
                    "A question for a name takes one for a while, so that strangers can use all of them up (RFC 4966 \
                     section 3.4): say with --dns-client who may ask.",
                ),
                flag("pool4").help("IPv4 addresses and ports for what IPv6 hosts begin (NAPT-PT)").more(
                    "Without it they send from --addresses, and a stranger's questions can keep them from it. Written \
                     as in fordway nat64.",
                ),
                flag("address_bindings").long("binding"),
                flag("bib"),
                flag("initiators").long("initiator").more(
                    "With the default, every host that IPv4 can name is open to everybody (RFC 4966 section 6).",
                ),
                flag("dns_clients").long("dns-client").conflicts(&["no-dns-alg"]),
                flag("alg"),
                flag("dns_alg").help("Leave DNS messages alone").more(
                    "The gateway changes what servers have said, so that those who check signatures refuse it (RFC 4966 \
                     section 4.5); and what a server remembers of it is wrong everywhere else (section 4.2).",
                ),
                flag("hold"),
                flag("idle"),
            ],
            TAKING,
            COMMON,
        ],
    }];
}
