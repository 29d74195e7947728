//! CLATs that set themselves up.

use std::fmt::Write;

use fordway_control::{AutoStatus, FoundStatus};
use fordway_daemon::output::{FAINT, GOOD, STRONG};

use super::Render;
use super::status::duration;

impl Render for AutoStatus {
    fn render(&self) -> String {
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

impl Render for FoundStatus {
    fn render(&self) -> String {
        let until = match self.valid_seconds {
            _ if self.stale => ", outdated: no resolver answers".to_owned(),
            Some(seconds) => format!(", for {}", duration(seconds)),
            None => String::new(),
        };
        format!("{} from {}{until}", self.prefix, self.from)
    }
}
