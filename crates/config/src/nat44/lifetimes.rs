//! `lifetimes` of mode `nat44`: conntrack's.

use std::time::Duration;

use serde_json::json;

use crate::diagnostic::Sink;
use crate::keys::{self, Key, Keys, Section, Written, keys};
use crate::nat64::lifetimes::LIFETIME;
use crate::problem::Problem;

keys! {
    /// Conntrack's lifetimes, in whole seconds.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Nat44Lifetimes {
        /// UDP; at least 2 minutes (RFC 4787 REQ-5)
        udp: Duration = LIFETIME, or(Duration::from_secs(300));
        /// ICMP queries; at least 1 minute (RFC 5508 REQ-2)
        icmp: Duration = LIFETIME, or(Duration::from_secs(60));
        /// Established TCP connections; at least 2 hours (RFC 5382 REQ-5)
        tcp_est: Duration = LIFETIME, or(Duration::from_secs(7440));
        /// TCP connections that open or close; at least 4 minutes (RFC 5382 REQ-5)
        tcp_trans: Duration = LIFETIME, or(Duration::from_secs(240));
    }
}

impl Default for Nat44Lifetimes {
    fn default() -> Nat44Lifetimes {
        keys::usual()
    }
}

/// A table, or `host` where conntrack's are to stay as they are.
impl Keys for Option<Nat44Lifetimes> {
    fn read(section: &mut Section<'_, '_>, sink: &mut Sink) -> (Option<Nat44Lifetimes>, bool) {
        if section.word("lifetimes") == Some("host") {
            section.know(&["lifetimes"]);
            return (None, true);
        }
        if section.word("lifetimes").is_some() {
            section.read(sink, "lifetimes", |v| -> Result<(), _> {
                let help = "write lifetimes = \"host\", or a table such as { udp = \"5m\" }";
                Err(Problem::new(v.span(), "this is no table of lifetimes", help).into())
            });
            return (Some(Nat44Lifetimes::default()), true);
        }
        let (table, complete) = section.table(sink, "lifetimes", "lifetimes");
        (Some(table.unwrap_or_default()), complete)
    }

    fn write(&self, to: &mut Written) {
        match self {
            None => to.put("lifetimes", "host".into()),
            Some(lifetimes) => to.table("lifetimes", keys::write(lifetimes)),
        }
    }

    fn keys() -> Vec<Key> {
        let doc =
            "How long the kernel keeps what it knows of connections; `host`: as the host has it";
        let key = Key::table::<Nat44Lifetimes>("lifetimes", doc);
        let schema = json!({"anyOf": [key.schema, {"const": "host"}]});
        vec![Key { values: "a table, `\"host\"`".to_owned(), schema, ..key }]
    }
}
