//! Vectors: one file per case, the same for every [`Subject`].
//!
//! A vector says what is configured, what comes in, and exactly what must come out. It is TOML:
//!
//! ```toml
//! title = "The hop limit runs out in the translator"
//! source = "RFC 7915 section 4.1"
//! config = { pool6 = ["2001:db8:64::/96"] }
//!
//! [input]
//! v4 = { src = "192.0.2.1", dst = "198.51.100.2", ttl = 1 }
//! udp = { sport = 40000, dport = 53 }
//! payload = 12
//!
//! [expect]
//! verdict = "reply"
//! error = "time_exceeded"
//! reason = "hop_limit_exceeded"
//!
//! [[expect.packet]]
//! v4 = { src = "192.0.0.8", dst = "192.0.2.1", tos = 0xc0, id = 1 }
//! icmp = { type = 11 }
//! quote = "input"
//! ```
//!
//! Lengths and checksums that are not set are computed by the [packet builder](crate::packet), so that
//! a file says only what matters; the comparison is octet by octet nevertheless. Counters that are not
//! set follow from the verdict; all others must be zero.

mod case;
mod config;
mod format;
mod report;
mod run;
pub mod sequence;
mod softwire;

pub use case::{Case, CaseError, CaseStep, Expected};
pub use config::{ConfigSpec, ConfigSpecError};
pub use format::{CounterMap, ExpectSpec, OffloadSpec, StepSpec, Vector, VerdictSpec};
pub use report::{Mismatch, dissect};
pub use run::{
    Applies, Core, Observation, Sent, Subject, SubjectError, check, counter_map, load, translate,
    vectors_dir, walk, walk_sequences,
};
pub use softwire::{
    Assembled, BindingSpec, FLOW_SECRET, RoleSpec, SoftwireSpec, SoftwireSpecError, assemble,
};
