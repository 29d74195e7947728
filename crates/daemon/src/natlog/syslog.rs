//! Syslog messages (RFC 5424), with the fields of RFC 8158 as structured data.

use std::fmt::Write;
use std::time::SystemTime;

use fordway_xlat::nat64::Binding;

use super::Record;
use super::record::{Fields, protocol};
use super::sink::{Encode, Message};

/// Facility local0, severity informational (RFC 5424 section 6.2.1).
const PRIORITY: u8 = 16 * 8 + 6;

/// Messages that go out together.
const TOGETHER: usize = 64;

/// The name of the structured data: without a number of one's own (RFC 5424 section 6.3.2), that for
/// examples (RFC 5612).
const SD_ID: &str = "nat64@32473";

pub(crate) struct Syslog {
    translator: String,
    destinations: bool,
    host: String,
    process: u32,
    messages: Vec<Message>,
}

impl Syslog {
    pub(crate) fn new(translator: &str, destinations: bool) -> Syslog {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        // RFC 5424 section 6.2.4: printable ASCII without spaces, or a hyphen.
        let host: String = host.chars().filter(char::is_ascii_graphic).take(255).collect();
        Syslog {
            translator: translator.to_owned(),
            destinations,
            host: if host.is_empty() { "-".to_owned() } else { host },
            process: std::process::id(),
            messages: Vec::new(),
        }
    }

    fn message(&self, record: &Record) -> String {
        let what = &record.what;
        let mut text = format!(
            "<{PRIORITY}>1 {} {} fordway {} {} [{SD_ID} translator=\"{}\" natEvent=\"{}\"",
            humantime::format_rfc3339_millis(record.time),
            self.host,
            self.process,
            what.name(),
            self.translator,
            what.nat_event(),
        );
        match what.fields() {
            Fields::Block(subscriber, block) => {
                let _ = write!(
                    text,
                    " sourceIPv6Prefix=\"{subscriber}\" postNATSourceIPv4Address=\"{}\" \
                     portRangeStart=\"{}\" portRangeEnd=\"{}\"",
                    block.v4, block.low, block.high
                );
            }
            Fields::Binding(bound, remote, counts) => {
                binding(&mut text, bound);
                if let Some((address, port)) = remote.filter(|_| self.destinations) {
                    let _ = write!(
                        text,
                        " postNATDestinationIPv4Address=\"{address}\" postNAPTDestinationTransportPort=\"{port}\""
                    );
                }
                if let Some([from_v4, from_v6]) = counts {
                    let _ = write!(
                        text,
                        " initiatorPackets=\"{}\" initiatorOctets=\"{}\" responderPackets=\"{}\" \
                         responderOctets=\"{}\"",
                        from_v6.0, from_v6.1, from_v4.0, from_v4.1
                    );
                }
            }
        }
        text.push(']');
        text
    }
}

fn binding(text: &mut String, bound: &Binding) {
    let _ = write!(
        text,
        " protocolIdentifier=\"{}\" sourceIPv6Address=\"{}\" sourceTransportPort=\"{}\" \
         postNATSourceIPv4Address=\"{}\" postNAPTSourceTransportPort=\"{}\"",
        protocol(bound),
        bound.v6.0,
        bound.v6.1,
        bound.v4.0,
        bound.v4.1
    );
}

impl Encode for Syslog {
    fn begin(&mut self, _now: SystemTime) {}

    fn add(&mut self, record: &Record) -> bool {
        let octets = self.message(record).into_bytes();
        self.messages.push(Message { octets, records: 1 });
        self.messages.len() >= TOGETHER
    }

    fn take(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.messages)
    }
}
