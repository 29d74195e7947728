//! IPFIX messages (RFC 7011) over UDP, with the records of RFC 8158.
//!
//! ```text
//! message = header (16 octets), sets
//! set     = set id, length; a template set (id 2) holds templates, a data set records of one template
//! ```

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fordway_config::LogEvent;
use fordway_xlat::nat64::Binding;

use super::Record;
use super::record::{Fields, protocol};
use super::sink::{Encode, Message};

const VERSION: u16 = 10;

/// Octets of a message's header: version, length, export time, sequence number, observation domain.
const HEADER: usize = 16;

/// Octets of a set's header: set id, length.
const SET_HEADER: usize = 4;

const TEMPLATE_SET: u16 = 2;

/// Octets of a message: what an IPv6 packet of 1280 octets holds, since the path may allow no more.
const MESSAGE: usize = 1232;

/// How often templates are sent again over UDP (RFC 7011 section 8.4).
const TEMPLATES_AGAIN: Duration = Duration::from_secs(60);

/// Information elements, with their lengths in octets (IANA's registry of IPFIX entities).
mod element {
    pub(super) const TIME_MILLISECONDS: (u16, u16) = (323, 8);
    pub(super) const NAT_EVENT: (u16, u16) = (230, 1);
    pub(super) const SOURCE_V6: (u16, u16) = (27, 16);
    pub(super) const SOURCE_V6_PREFIX_LENGTH: (u16, u16) = (29, 1);
    pub(super) const POST_NAT_SOURCE_V4: (u16, u16) = (225, 4);
    pub(super) const PROTOCOL: (u16, u16) = (4, 1);
    pub(super) const SOURCE_PORT: (u16, u16) = (7, 2);
    pub(super) const POST_NAPT_SOURCE_PORT: (u16, u16) = (227, 2);
    pub(super) const POST_NAT_DESTINATION_V4: (u16, u16) = (226, 4);
    pub(super) const POST_NAPT_DESTINATION_PORT: (u16, u16) = (228, 2);
    pub(super) const PORT_RANGE_START: (u16, u16) = (361, 2);
    pub(super) const PORT_RANGE_END: (u16, u16) = (362, 2);
    pub(super) const INITIATOR_OCTETS: (u16, u16) = (231, 8);
    pub(super) const RESPONDER_OCTETS: (u16, u16) = (232, 8);
    pub(super) const INITIATOR_PACKETS: (u16, u16) = (298, 8);
    pub(super) const RESPONDER_PACKETS: (u16, u16) = (299, 8);
}

use element::{
    INITIATOR_OCTETS, INITIATOR_PACKETS, NAT_EVENT, PORT_RANGE_END, PORT_RANGE_START,
    POST_NAPT_DESTINATION_PORT, POST_NAPT_SOURCE_PORT, POST_NAT_DESTINATION_V4, POST_NAT_SOURCE_V4,
    PROTOCOL, RESPONDER_OCTETS, RESPONDER_PACKETS, SOURCE_PORT, SOURCE_V6, SOURCE_V6_PREFIX_LENGTH,
    TIME_MILLISECONDS,
};

/// RFC 8158 section 5.6.10: port block allocation and de-allocation.
const BLOCK: u16 = 256;
/// RFC 8158 section 5.6.3: NAT64 BIB create and delete.
const BIB: u16 = 257;
/// RFC 8158 section 5.6.1: NAT64 session create.
const SESSION_CREATED: u16 = 258;
/// RFC 8158 section 5.6.1: NAT64 session delete, with packets and octets.
const SESSION_REMOVED: u16 = 259;

type Element = (u16, u16);

const BLOCK_FIELDS: [Element; 7] = [
    TIME_MILLISECONDS,
    NAT_EVENT,
    SOURCE_V6,
    SOURCE_V6_PREFIX_LENGTH,
    POST_NAT_SOURCE_V4,
    PORT_RANGE_START,
    PORT_RANGE_END,
];

const BINDING_FIELDS: [Element; 7] = [
    TIME_MILLISECONDS,
    NAT_EVENT,
    SOURCE_V6,
    POST_NAT_SOURCE_V4,
    PROTOCOL,
    SOURCE_PORT,
    POST_NAPT_SOURCE_PORT,
];

const DESTINATION_FIELDS: [Element; 2] = [POST_NAT_DESTINATION_V4, POST_NAPT_DESTINATION_PORT];

const COUNT_FIELDS: [Element; 4] =
    [INITIATOR_PACKETS, INITIATOR_OCTETS, RESPONDER_PACKETS, RESPONDER_OCTETS];

pub(crate) struct Ipfix {
    domain: u32,
    destinations: bool,
    templates: Vec<u8>,
    templates_sent: Option<SystemTime>,
    /// Templates may have been lost, and are sent again and again.
    repeats: bool,
    /// Data records in all messages before (RFC 7011 section 3.1).
    sequence: u32,
    now: SystemTime,
    open: Open,
    messages: Vec<Message>,
}

/// A message that grows.
#[derive(Default)]
struct Open {
    octets: Vec<u8>,
    records: u32,
    /// Where the open set begins, and its id.
    set: Option<(usize, u16)>,
}

impl Ipfix {
    /// For datagrams.
    pub(crate) fn new(domain: u32, what: &[LogEvent], destinations: bool) -> Ipfix {
        Ipfix {
            repeats: true,
            domain,
            destinations,
            templates: templates(what, destinations),
            templates_sent: None,
            sequence: 0,
            now: UNIX_EPOCH,
            open: Open::default(),
            messages: Vec::new(),
        }
    }

    /// For a stream, which loses nothing in between: templates go once over each connection (RFC 7011 section 8.1), and
    /// its messages count from 0 (section 3.1).
    pub(crate) fn stream(domain: u32, what: &[LogEvent], destinations: bool) -> Ipfix {
        Ipfix { repeats: false, ..Ipfix::new(domain, what, destinations) }
    }

    fn record(&self, record: &Record) -> (u16, Vec<u8>) {
        let mut octets = Vec::with_capacity(80);
        let millis = record.time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        octets.extend((millis as u64).to_be_bytes());
        octets.push(record.what.nat_event());
        let template = match record.what.fields() {
            Fields::Block(subscriber, block) => {
                octets.extend(subscriber.addr().octets());
                octets.push(subscriber.prefix_len());
                octets.extend(block.v4.octets());
                octets.extend(block.low.to_be_bytes());
                octets.extend(block.high.to_be_bytes());
                BLOCK
            }
            Fields::Binding(bound, remote, counts) => {
                binding(&mut octets, bound);
                if let Some((address, port)) = remote.filter(|_| self.destinations) {
                    octets.extend(address.octets());
                    octets.extend(port.to_be_bytes());
                }
                if let Some([from_v4, from_v6]) = counts {
                    for count in [from_v6.0, from_v6.1, from_v4.0, from_v4.1] {
                        octets.extend(count.to_be_bytes());
                    }
                }
                match (remote, counts) {
                    (None, _) => BIB,
                    (Some(_), None) => SESSION_CREATED,
                    (Some(_), Some(_)) => SESSION_REMOVED,
                }
            }
        };
        (template, octets)
    }

    /// Begins a message: its header, and the templates if they are due.
    fn begin_message(&mut self) {
        self.open.octets.resize(HEADER, 0);
        let due = match self.templates_sent {
            // A clock that was set back sends them again, too.
            Some(_) if !self.repeats => false,
            Some(sent) => self.now.duration_since(sent).map_or(true, |it| it >= TEMPLATES_AGAIN),
            None => true,
        };
        if due {
            self.open.octets.extend_from_slice(&self.templates);
            self.templates_sent = Some(self.now);
        }
    }

    /// Finishes the message that grows.
    fn close(&mut self) {
        let mut message = std::mem::take(&mut self.open);
        if message.octets.is_empty() {
            return;
        }
        message.end_set();
        let seconds = self.now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let octets = &mut message.octets;
        let length = octets.len() as u16;
        octets[0..2].copy_from_slice(&VERSION.to_be_bytes());
        octets[2..4].copy_from_slice(&length.to_be_bytes());
        octets[4..8].copy_from_slice(&(seconds as u32).to_be_bytes());
        octets[8..12].copy_from_slice(&self.sequence.to_be_bytes());
        octets[12..16].copy_from_slice(&self.domain.to_be_bytes());
        self.sequence = self.sequence.wrapping_add(message.records);
        let records = message.records.into();
        self.messages.push(Message { octets: message.octets, records });
    }
}

impl Open {
    fn put(&mut self, template: u16, record: &[u8]) {
        if self.set.is_none_or(|(_, id)| id != template) {
            self.end_set();
            self.set = Some((self.octets.len(), template));
            self.octets.extend(template.to_be_bytes());
            self.octets.extend([0, 0]);
        }
        self.octets.extend_from_slice(record);
        self.records += 1;
    }

    fn end_set(&mut self) {
        if let Some((start, _)) = self.set.take() {
            let length = (self.octets.len() - start) as u16;
            self.octets[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
        }
    }
}

fn binding(octets: &mut Vec<u8>, bound: &Binding) {
    octets.extend(bound.v6.0.octets());
    octets.extend(bound.v4.0.octets());
    octets.push(protocol(bound));
    octets.extend(bound.v6.1.to_be_bytes());
    octets.extend(bound.v4.1.to_be_bytes());
}

/// The template set of what is logged.
fn templates(what: &[LogEvent], destinations: bool) -> Vec<u8> {
    let destination = if destinations { &DESTINATION_FIELDS[..] } else { &[] };
    let mut all: Vec<(u16, Vec<Element>)> = Vec::new();
    for event in what {
        match event {
            LogEvent::Blocks => all.push((BLOCK, BLOCK_FIELDS.to_vec())),
            LogEvent::Bindings => all.push((BIB, BINDING_FIELDS.to_vec())),
            LogEvent::Sessions => {
                let created = [&BINDING_FIELDS[..], destination].concat();
                let removed = [&created[..], &COUNT_FIELDS[..]].concat();
                all.extend([(SESSION_CREATED, created), (SESSION_REMOVED, removed)]);
            }
        }
    }
    let mut octets = Vec::new();
    for (id, fields) in all {
        octets.extend(id.to_be_bytes());
        octets.extend((fields.len() as u16).to_be_bytes());
        for (element, length) in fields {
            octets.extend(element.to_be_bytes());
            octets.extend(length.to_be_bytes());
        }
    }
    let length = (SET_HEADER + octets.len()) as u16;
    let mut set = [TEMPLATE_SET.to_be_bytes(), length.to_be_bytes()].concat();
    set.extend(octets);
    set
}

impl Encode for Ipfix {
    fn restart(&mut self) {
        self.templates_sent = None;
        self.sequence = 0;
    }

    fn begin(&mut self, now: SystemTime) {
        self.now = now;
    }

    fn add(&mut self, record: &Record) -> bool {
        let (template, octets) = self.record(record);
        if self.open.octets.is_empty() {
            self.begin_message();
        }
        if self.open.octets.len() + SET_HEADER + octets.len() > MESSAGE {
            self.close();
            self.begin_message();
        }
        self.open.put(template, &octets);
        // Some messages together, so that a burst does not wait for its end.
        self.messages.len() >= 16
    }

    fn take(&mut self) -> Vec<Message> {
        self.close();
        std::mem::take(&mut self.messages)
    }
}
