//! A packet that the kernel engine has told of.

use fordway_control::{TraceLine, UserEngine};
use fordway_daemon::output::{ERROR, FAINT, GOOD, WARNING};

use super::Render;

impl Render for TraceLine {
    fn render(&self) -> String {
        // The time of day is what people look for.
        let time = self.time.split('T').nth(1).unwrap_or(&self.time).trim_end_matches('Z');
        let segments = match self.segment_size {
            0 => String::new(),
            size => format!(" in segments of {size}"),
        };
        let start = format!(
            "{FAINT}{time} {}{FAINT:#} {}, {} octets{segments}:",
            self.device, self.packet, self.octets
        );
        let text = self.text.as_deref().unwrap_or_default();
        let reason = self.reason.as_deref().unwrap_or_default();
        let end = match self.outcome.as_str() {
            "translated" => match &self.translated {
                Some(translated) => format!("{GOOD}translated{GOOD:#} to {translated}"),
                None => format!("{GOOD}translated{GOOD:#}"),
            },
            "passed_on" => {
                let user = self.user_engine.as_ref().map(UserEngine::render);
                let user = user.map_or(String::new(), |user| format!(" The user engine: {user}"));
                format!("{WARNING}passed on{WARNING:#} ({reason}): {text}{user}")
            }
            "dropped" => format!("{ERROR}dropped{ERROR:#} ({reason}): {text}"),
            _ => "none of this translator's".to_owned(),
        };
        format!("{start} {end}\n")
    }
}

impl Render for UserEngine {
    fn render(&self) -> String {
        match self.packets.as_slice() {
            [] => format!("{}: {}", self.verdict, self.text),
            [one] => format!("{} ({one})", self.text),
            [first, ..] => {
                format!("{} into {} fragments ({first})", self.text, self.packets.len())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_passed_on_is_told_with_what_the_user_engine_does() {
        let line = serde_json::json!({
            "time": "1970-01-01T00:00:00.000001Z", "translator": "siit0", "device": "siit0", "direction": "v4_to_v6",
            "octets": 28, "segment_size": 0, "outcome": "passed_on", "reason": "hop_limit", "text": "It ends here.",
            "packet": {"source": "198.51.100.2", "destination": "192.0.2.1", "protocol": 17,
                       "source_port": 7, "destination_port": 9},
            "user_engine": {"verdict": "reply", "text": "an ICMP error for the sender. Too old.", "packets": []}
        });
        let line: TraceLine = serde_json::from_value(line).unwrap();
        let text = anstream::adapter::strip_str(&line.render()).to_string();
        assert_eq!(
            text,
            "00:00:00.000001 siit0 UDP 198.51.100.2:7 > 192.0.2.1:9, 28 octets: passed on (hop_limit): It ends here. \
             The user engine: reply: an ICMP error for the sender. Too old.\n"
        );
    }
}
