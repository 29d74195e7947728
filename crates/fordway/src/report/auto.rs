//! CLATs that set themselves up.

use std::fmt::Write;
use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};

use super::status::duration;
use crate::output::{FAINT, GOOD, STRONG};

/// A CLAT that sets itself up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AutoStatus {
    pub(crate) name: String,
    /// `active`, `waiting` or `aside`.
    pub(crate) state: String,
    /// Why it does not translate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Seconds since it is in this state.
    pub(crate) since_seconds: u64,
    /// How often state, prefix, uplink or address have changed.
    pub(crate) changes: u64,
    /// The prefix in use.
    pub(crate) pref64: Option<String>,
    pub(crate) uplink: Option<String>,
    /// The CLAT's IPv6 address.
    pub(crate) v6: Option<Ipv6Addr>,
    /// What is known of others with the same address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) duplicates: Option<String>,
    /// What the network tells, the best first.
    pub(crate) prefixes: Vec<FoundStatus>,
    /// What an earlier daemon has left goes on translating.
    pub(crate) left: bool,
    /// Why the host could not be set up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Seconds until that is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retry_seconds: Option<u64>,
}

/// A prefix that was discovered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FoundStatus {
    pub(crate) prefix: String,
    /// `router advertisement`, `dns` or `configured`.
    pub(crate) source: String,
    /// Who has told it.
    pub(crate) from: String,
    /// Seconds until it ends unless it is told again.
    pub(crate) valid_seconds: Option<u64>,
    /// Its time is over, but no resolver answers.
    pub(crate) stale: bool,
}

impl AutoStatus {
    pub(super) fn render(&self) -> String {
        let state = format!("{GOOD}{}{GOOD:#} {STRONG}automatic{STRONG:#}", self.name);
        let mut text = format!(
            "{state}, {} for {} {FAINT}(changed {} times){FAINT:#}\n",
            self.state,
            duration(self.since_seconds),
            self.changes
        );
        let mut line = |label: &str, value: &str| {
            let _ = writeln!(text, "  {label:<13} {value}");
        };
        if let Some(reason) = &self.reason {
            line(&self.state, reason);
        }
        for found in &self.prefixes {
            line("found", &found.render());
        }
        if let (Some(pref64), Some(uplink), Some(v6)) = (&self.pref64, &self.uplink, &self.v6) {
            let checked = self.duplicates.as_ref().map_or(String::new(), |it| format!(", {it}"));
            line("uses", &format!("{pref64} by way of {uplink} from {v6}{checked}"));
        }
        if self.left {
            line("left", "what an earlier daemon set up goes on for the moment");
        }
        if let Some(error) = &self.error {
            let retry = self
                .retry_seconds
                .map_or(String::new(), |seconds| format!("; tried again in {}", duration(seconds)));
            line("error", &format!("{error}{retry}"));
        }
        text
    }
}

impl FoundStatus {
    fn render(&self) -> String {
        let until = match self.valid_seconds {
            _ if self.stale => ", outdated: no resolver answers".to_owned(),
            Some(seconds) => format!(", for {}", duration(seconds)),
            None => String::new(),
        };
        format!("{} from {}{until}", self.prefix, self.from)
    }
}
