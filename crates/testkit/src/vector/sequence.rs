//! Sequences: vectors of stateful translation (RFC 6146), with time and tables.
//!
//! A file with a `nat64` table is a sequence. Its steps come one after the other; between them the clock
//! moves, and the sweeper runs every second:
//!
//! ```toml
//! title = "A connection is opened from IPv6"
//! source = "RFC 6146 section 3.5.2.2"
//!
//! [config]
//! pool6 = ["2001:db8:64::/96"]
//!
//! [nat64]
//! pool4 = ["203.0.113.1:1024-65535"]
//!
//! [flow]                      # what the steps send, unless they say more
//! protocol = "tcp"            # tcp | udp | icmp
//! v6 = ["2001:db8:1::1", 40000]
//! v4 = ["203.0.113.1", "$t"]  # the port is the translator's choice
//! remote = ["198.51.100.2", 80]
//!
//! [[step]]
//! v6 = "S"                    # the IPv6 host sends a SYN
//! expect = "forward"
//! state = "v6_init"
//! left = "240s"
//!
//! [[step]]
//! at = "1s"
//! v4 = "SA"                   # the answer from IPv4
//! expect = "forward"
//! state = "established"
//! left = "2h"
//! ```
//!
//! `"$t"` names a value that is not known beforehand: in an expected packet it takes the value that is
//! there the first time, and must be the same ever after. Identifications of IPv4 packets that are not
//! set are not compared.

mod bind;
mod core;
mod flow;
mod run;
mod settings;
mod spec;
mod tables;
mod time;

pub use core::{CoreNat64, tables_of};
pub use run::{Gateway, Stateful, check_sequence, load_sequence};
pub use settings::{Nat64Spec, SettingsError};
pub use spec::{Operator, Sequence, SequenceError, StepSpec as SequenceStep};
pub use tables::{BibRow, SessionRow, SubscriberRow, Tables};
pub use time::Time;
