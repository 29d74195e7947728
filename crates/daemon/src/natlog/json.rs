//! One JSON object per line.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::SystemTime;

use fordway_xlat::nat64::{Binding, PortBlock};
use ipnet::Ipv6Net;
use serde::Serialize;

use super::record::Fields;
use super::sink::{Encode, Message};
use super::{Record, What};

/// Octets after which lines are written though more wait.
const ENOUGH: usize = 256 << 10;

pub(crate) struct Json {
    translator: String,
    destinations: bool,
    lines: Message,
}

/// A line.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    translator: &'a str,
    event: &'static str,
    #[serde(flatten)]
    of: Of,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Of {
    Block {
        subscriber: Ipv6Net,
        v4: Ipv4Addr,
        low: u16,
        high: u16,
    },
    Binding {
        #[serde(flatten)]
        binding: BindingKeys,
        #[serde(flatten)]
        remote: Option<RemoteKeys>,
        #[serde(flatten)]
        counts: Option<CountKeys>,
    },
}

#[derive(Serialize)]
struct BindingKeys {
    protocol: &'static str,
    v6: Ipv6Addr,
    v6_port: u16,
    v4: Ipv4Addr,
    v4_port: u16,
}

#[derive(Serialize)]
struct RemoteKeys {
    remote: Ipv4Addr,
    remote_port: u16,
}

#[derive(Serialize)]
struct CountKeys {
    packets_from_v4: u64,
    octets_from_v4: u64,
    packets_from_v6: u64,
    octets_from_v6: u64,
}

impl Json {
    pub(crate) fn new(translator: &str, destinations: bool) -> Json {
        Json { translator: translator.to_owned(), destinations, lines: Message::default() }
    }

    fn of(&self, what: &What) -> Of {
        let (binding, remote, counts) = match what.fields() {
            Fields::Block(subscriber, &PortBlock { v4, low, high }) => {
                return Of::Block { subscriber: *subscriber, v4, low, high };
            }
            Fields::Binding(binding, remote, counts) => (keys(*binding), remote, counts),
        };
        let remote = remote.filter(|_| self.destinations);
        Of::Binding {
            binding,
            remote: remote.map(|(remote, remote_port)| RemoteKeys { remote, remote_port }),
            counts: counts.map(|[from_v4, from_v6]| CountKeys {
                packets_from_v4: from_v4.0,
                octets_from_v4: from_v4.1,
                packets_from_v6: from_v6.0,
                octets_from_v6: from_v6.1,
            }),
        }
    }
}

fn keys(binding: Binding) -> BindingKeys {
    let Binding { protocol, v6: (v6, v6_port), v4: (v4, v4_port) } = binding;
    let protocol = protocol.map_or("all", fordway_xlat::nat64::Protocol::label);
    BindingKeys { protocol, v6, v6_port, v4, v4_port }
}

impl Encode for Json {
    fn begin(&mut self, _now: SystemTime) {}

    fn add(&mut self, record: &Record) -> bool {
        let line = Line {
            time: humantime::format_rfc3339_millis(record.time).to_string(),
            translator: &self.translator,
            event: record.what.name(),
            of: self.of(&record.what),
        };
        let Ok(mut text) = serde_json::to_vec(&line) else { return false };
        text.push(b'\n');
        self.lines.octets.append(&mut text);
        self.lines.records += 1;
        self.lines.octets.len() >= ENOUGH
    }

    fn take(&mut self) -> Vec<Message> {
        vec![std::mem::take(&mut self.lines)]
    }
}
