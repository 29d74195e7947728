//! The DNS ALG of NAT-PT (RFC 2766 section 4). It translates messages on their way between hosts and servers, neither
//! of which is configured for it.
//!
//! ```text
//!   IPv4 client ── A? ──────────►            ──────────► A? ──  IPv6 server
//!                                    ALG     ◄────────── no A ─
//!                                            ──────────► AAAA? ─
//!   IPv4 client ◄── A 192.0.2.1 ─            ◄── AAAA 2001:db8::5
//! ```
//!
//! A client's question passes unchanged, and so does an answer with records of the client's own family. If the answer
//! has none, the ALG asks the server for the other family instead and translates that answer: addresses for IPv6
//! clients are embedded in the translation prefix; for IPv4 clients the ALG binds an address of the pool to the IPv6
//! host. In a question for the name of an address, it replaces the address by that of the server's side.
//!
//! RFC 2766 changes every A question to AAAA at once. This ALG does not, because that hides existing A records (RFC
//! 4966 sections 4.1 and 4.3).
//!
//! Messages that can't be parsed, and answers to no known question, pass unchanged.

mod counters;
mod message;
mod pending;
mod stream;
#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fordway_xlat::DropReason;
use fordway_xlat::addr::classify;
use fordway_xlat::dns::{DnsAction, DnsReader, Exchange};
use fordway_xlat::nat64::{Bound, Side};
use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use ipnet::Ipv4Net;

use crate::chain::{follow, is};
use crate::reverse;

pub use self::counters::{DnsCounter, DnsCounters};
use self::message::{Asked, Stage, limit};
use self::pending::{Key, Pending};
pub use self::stream::DnsStreams;

/// What the operator sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsPolicy {
    /// IPv4 clients whose questions are translated; empty: all.
    pub clients: Vec<Ipv4Net>,
    /// TTL of records with an address that is bound for a while, seconds.
    pub ttl: u32,
    /// Addresses of one answer for IPv4 clients, each of which takes one of the pool.
    pub most_addresses: usize,
    /// New bindings that one IPv4 client may cause in [`DnsPolicy::WINDOW`].
    pub most_bindings: u32,
}

impl DnsPolicy {
    /// The time in which bindings of a client are counted.
    pub const WINDOW: Duration = Duration::from_secs(60);

    fn may_ask(&self, client: Ipv4Addr) -> bool {
        self.clients.is_empty() || self.clients.iter().any(|net| net.contains(&client))
    }
}

impl Default for DnsPolicy {
    fn default() -> DnsPolicy {
        DnsPolicy { clients: Vec::new(), ttl: 0, most_addresses: 1, most_bindings: 64 }
    }
}

/// The ALG. One for all threads.
#[derive(Debug)]
pub struct DnsAlg {
    policy: DnsPolicy,
    shared: Arc<Shared>,
}

/// What outlives a change of the policy.
#[derive(Debug, Default)]
struct Shared {
    counters: DnsCounters,
    pending: Mutex<Pending>,
}

/// What becomes of a message.
#[derive(Debug)]
pub(crate) enum Outcome {
    Pass,
    /// It is replaced.
    Replace(Vec<u8>),
    /// A question is sent back to the server.
    Ask(Vec<u8>),
}

impl DnsAlg {
    /// An ALG without pending questions.
    #[must_use]
    pub fn new(policy: DnsPolicy) -> DnsAlg {
        DnsAlg { policy, shared: Arc::default() }
    }

    /// An ALG with another policy, which shares counters and pending questions with this one.
    #[must_use]
    pub fn with(&self, policy: DnsPolicy) -> DnsAlg {
        DnsAlg { policy, shared: Arc::clone(&self.shared) }
    }

    /// What the operator has set.
    #[must_use]
    pub fn policy(&self) -> &DnsPolicy {
        &self.policy
    }

    /// What it has done since it was made.
    #[must_use]
    pub fn counters(&self) -> &DnsCounters {
        &self.shared.counters
    }

    fn count(&self, counter: DnsCounter) {
        self.shared.counters.count(counter);
    }

    /// A question on its way to a server.
    fn query(&self, exchange: &Exchange<'_>, octets: &[u8]) -> Outcome {
        let Some(mut asked) = self.read_query(exchange, octets) else { return Outcome::Pass };
        let key = Key::of(exchange, asked.id);
        let mut octets = None;
        if asked.question.query_type == RecordType::PTR {
            let Some(name) = other_name(exchange, &asked) else { return Outcome::Pass };
            asked.stage = Stage::Pointer;
            octets = message::question(&asked, name, RecordType::PTR);
            if octets.is_none() {
                return Outcome::Pass;
            }
        }
        if !self.lock().keep(key, asked, exchange.now) {
            self.count(DnsCounter::TooMany);
            return Outcome::Pass;
        }
        octets.map_or(Outcome::Pass, Outcome::Replace)
    }

    /// A question that the ALG may have to translate.
    pub(crate) fn read_query(&self, exchange: &Exchange<'_>, octets: &[u8]) -> Option<Asked> {
        let client = exchange.from;
        if client == Side::V4 && !self.policy.may_ask(exchange.remote.0) {
            self.count(DnsCounter::NotAllowed);
            return None;
        }
        let read = Message::from_vec(octets);
        let Ok(query) = read else {
            self.count(DnsCounter::Malformed);
            return None;
        };
        let [question] = query.queries.as_slice() else { return None };
        let native = native(client);
        let known = question.query_type == native || question.query_type == RecordType::PTR;
        if query.metadata.op_code != OpCode::Query
            || question.query_class != DNSClass::IN
            || !known
            || query.signature.is_some()
        {
            return None;
        }
        // A client that validates must get the answer unchanged (RFC 6147 section 5.5); it would rightly reject a
        // translated one (RFC 2766 section 7.5).
        let edns = query.edns.as_ref();
        let validates = edns.is_some_and(|edns| edns.flags().dnssec_ok);
        if validates && query.metadata.checking_disabled {
            self.count(DnsCounter::Dnssec);
            return None;
        }
        self.count(DnsCounter::Queries);
        Some(Asked {
            client,
            id: query.metadata.id,
            question: question.clone(),
            recursion_desired: query.metadata.recursion_desired,
            checking_disabled: query.metadata.checking_disabled,
            payload: edns.map(hickory_proto::op::Edns::max_payload),
            dnssec_ok: validates,
            stage: Stage::Native,
        })
    }

    /// An answer on its way to a client.
    fn response(&self, exchange: &Exchange<'_>, octets: &[u8]) -> Outcome {
        let Some(id) = octets.first_chunk().map(|id| u16::from_be_bytes(*id)) else {
            return Outcome::Pass;
        };
        let key = Key::of(exchange, id);
        let client = exchange.from.other();
        let Some(mut asked) = self.lock().find(&key, exchange.now).filter(|it| it.client == client)
        else {
            return Outcome::Pass;
        };
        let Ok(answer) = Message::from_vec(octets) else {
            self.count(DnsCounter::Malformed);
            return Outcome::Pass;
        };
        if !asked.is_answered_by(&answer, exchange) {
            return Outcome::Pass;
        }
        if asked.stage == Stage::Native && self.needs_other(&asked, &answer) {
            let name = asked.question.name.clone();
            let Some(octets) = message::question(&asked, name, other(client)) else {
                return Outcome::Pass;
            };
            asked.stage = Stage::Other;
            if self.lock().keep(key, asked, exchange.now) {
                return Outcome::Ask(octets);
            }
            self.count(DnsCounter::TooMany);
            return Outcome::Pass;
        }
        self.lock().forget(&key);
        match asked.stage {
            Stage::Native => Outcome::Pass,
            Stage::Other | Stage::Pointer => {
                let most = limit(asked.payload);
                match self.translate(&asked, &answer, exchange).and_then(|it| it.written(most)) {
                    Some(octets) => Outcome::Replace(octets),
                    None => Outcome::Pass,
                }
            }
        }
    }

    /// Whether the answer to the client's own question has nothing for it, so that the other family is asked for (RFC
    /// 6147 section 5.1: every RCODE but 0 and 3 is taken as if there were none).
    pub(crate) fn needs_other(&self, asked: &Asked, answer: &Message) -> bool {
        if asked.question.query_type == RecordType::PTR || answer.metadata.truncation {
            return false;
        }
        match answer.metadata.response_code {
            ResponseCode::NXDomain => false,
            ResponseCode::NoError => {
                let chain = follow(&asked.question.name, &answer.answers);
                let wanted = asked.question.query_type;
                !chain.is_some_and(|chain| {
                    let data = |it: &Record| is(it, &chain.end) && it.record_type() == wanted;
                    answer.answers.iter().any(data)
                })
            }
            _ => true,
        }
    }

    /// The client's answer, of one about the other family or the other name.
    pub(crate) fn translate(
        &self,
        asked: &Asked,
        answer: &Message,
        exchange: &Exchange<'_>,
    ) -> Option<message::Reply> {
        let mut reply = message::Reply::new(asked, answer);
        if answer.metadata.truncation || answer.metadata.response_code != ResponseCode::NoError {
            return Some(reply);
        }
        if asked.stage == Stage::Pointer {
            let name = other_name(exchange, asked)?;
            let renamed = answer.answers.iter().filter(|it| it.record_type() != RecordType::RRSIG);
            reply.message.answers.extend(renamed.cloned().map(|mut record| {
                if record.name == name {
                    record.name = asked.question.name.clone();
                }
                record
            }));
            if asked.client == Side::V4 && !is_fixed(exchange, asked) {
                reply.set_ttl(self.policy.ttl);
            }
            self.count(DnsCounter::Pointers);
            return Some(reply);
        }
        let chain = follow(&asked.question.name, &answer.answers)?;
        let unsigned = chain.links.into_iter().filter(|it| it.record_type() != RecordType::RRSIG);
        reply.message.answers.extend(unsigned);
        let data = answer.answers.iter().filter(|record| is(record, &chain.end));
        let mut found = false;
        match asked.client {
            Side::V6 => {
                for (a, record) in data.filter_map(|record| match record.data {
                    RData::A(A(a)) => Some((a, record)),
                    _ => None,
                }) {
                    let Some(v6) = embed(exchange, a) else { continue };
                    let data = RData::AAAA(AAAA(v6));
                    let record = Record::from_rdata(record.name.clone(), record.ttl, data);
                    reply.message.answers.push(record);
                    found = true;
                }
            }
            Side::V4 => {
                let mut trouble = None;
                let mut is_temporary = false;
                let hosts = data.filter_map(|record| match record.data {
                    RData::AAAA(AAAA(host)) => Some((host, record)),
                    _ => None,
                });
                let mut number = 0;
                for (host, record) in hosts {
                    if number == self.policy.most_addresses {
                        break;
                    }
                    match self.bind(exchange, host) {
                        Ok(bound) => {
                            is_temporary |= !bound.is_fixed;
                            let (name, data) = (record.name.clone(), RData::A(A(bound.addr)));
                            reply.message.answers.push(Record::from_rdata(name, record.ttl, data));
                            number += 1;
                        }
                        // A host that can't be reached through the translator is left out.
                        Err(DropReason::NoMappingDestination) => {}
                        Err(reason) => trouble = Some(reason),
                    }
                }
                found = number > 0;
                if let (false, Some(_)) = (found, trouble) {
                    // SERVFAIL, so that no resolver caches the lack of an address.
                    self.count(DnsCounter::Exhausted);
                    reply.fail(ResponseCode::ServFail);
                    return Some(reply);
                }
                // RFC 2766 section 4.1: temporary bindings must not be cached.
                if is_temporary {
                    reply.set_ttl(self.policy.ttl);
                }
            }
        }
        if found {
            self.count(match asked.client {
                Side::V4 => DnsCounter::ToA,
                Side::V6 => DnsCounter::ToAaaa,
            });
        }
        Some(reply)
    }

    /// An address for a host, within the client's limit of bindings.
    fn bind(&self, exchange: &Exchange<'_>, host: Ipv6Addr) -> Result<Bound, DropReason> {
        let Exchange { nat64, now, shard, .. } = *exchange;
        // An address in pool6 represents an IPv4 host, not an IPv6 host.
        if exchange.config.pool6.iter().any(|pool6| pool6.contains(host)) {
            return Err(DropReason::NoMappingDestination);
        }
        if nat64.is_bound(host, now) {
            return nat64.bind_by_name(host, now, shard);
        }
        if !self.lock().may_bind(exchange.remote.0, self.policy.most_bindings, now) {
            self.count(DnsCounter::ClientLimit);
            return Err(DropReason::RateQuota);
        }
        nat64.bind_by_name(host, now, shard)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Pending> {
        self.shared.pending.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl DnsReader for DnsAlg {
    fn message(&self, exchange: &Exchange<'_>, message: &[u8], out: &mut Vec<u8>) -> DnsAction {
        let outcome = match message::kind(message) {
            Some(MessageType::Query) => self.query(exchange, message),
            Some(MessageType::Response) => self.response(exchange, message),
            None => {
                self.count(DnsCounter::Malformed);
                Outcome::Pass
            }
        };
        let (octets, action) = match outcome {
            Outcome::Pass => return DnsAction::Pass,
            Outcome::Replace(octets) => (octets, DnsAction::Replace),
            Outcome::Ask(octets) => (octets, DnsAction::Return),
        };
        out.extend_from_slice(&octets);
        action
    }
}

/// The type of a client's own addresses.
fn native(client: Side) -> RecordType {
    match client {
        Side::V4 => RecordType::A,
        Side::V6 => RecordType::AAAA,
    }
}

/// The type of the server's.
pub(crate) fn other(client: Side) -> RecordType {
    native(client.other())
}

/// The name that an address has on the server's side (RFC 2766 section 4.1 b, with IP6.ARPA for IP6.INT).
pub(crate) fn other_name(exchange: &Exchange<'_>, asked: &Asked) -> Option<Name> {
    let name = &asked.question.name;
    match asked.client {
        Side::V4 => {
            let (host, _) = exchange.nat64.bound_host(address4(name)?, exchange.now)?;
            Some(Name::from(host))
        }
        Side::V6 => {
            let v6 = reverse::address(name)?;
            let pool6 = exchange.config.pool6.iter().find(|pool6| pool6.contains(v6))?;
            pool6.extract(v6).map(Name::from)
        }
    }
}

/// The address that a name below IN-ADDR.ARPA stands for (RFC 1035 section 3.5): 4 numbers, the last first.
fn address4(name: &Name) -> Option<Ipv4Addr> {
    let labels: Vec<&[u8]> = name.iter().collect();
    let [d, c, b, a, in_addr, arpa] = labels.as_slice() else { return None };
    if !in_addr.eq_ignore_ascii_case(b"in-addr") || !arpa.eq_ignore_ascii_case(b"arpa") {
        return None;
    }
    // As a dotted quad: no sign, no zero in front.
    let text = [a, b, c, d].map(|label| std::str::from_utf8(label).unwrap_or_default()).join(".");
    text.parse().ok()
}

/// Whether the address whose name is asked for is bound permanently.
fn is_fixed(exchange: &Exchange<'_>, asked: &Asked) -> bool {
    address4(&asked.question.name)
        .and_then(|addr| exchange.nat64.bound_host(addr, exchange.now))
        .is_some_and(|(_, fixed)| fixed)
}

/// The IPv6 address that stands for an IPv4 host.
fn embed(exchange: &Exchange<'_>, addr: Ipv4Addr) -> Option<Ipv6Addr> {
    if classify::illegal_v4(addr).is_some() {
        return None;
    }
    let pool6 = *exchange.config.pool6.first()?;
    fordway_xlat::mapping::map_v4_into(exchange.config, pool6, addr).ok().map(|mapped| mapped.addr)
}
