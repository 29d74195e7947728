//! Validation (RFC 4035 section 5) by the library, over the same servers and the same cache.
//!
//! Servers are asked with CD (RFC 6840 section 5.9), for data and for keys alike. A chain of aliases is validated link by
//! link: each may be in another zone, and prove what it has to by itself.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fordway_dns64::{Question, Security, dname_target};
use futures_util::Stream;
use futures_util::future::BoxFuture;
use futures_util::stream;
use hickory_net::dnssec::DnssecDnsHandle;
use hickory_net::runtime::TokioRuntimeProvider;
use hickory_net::xfer::{DnsHandle, FirstAnswer};
use hickory_net::{DnsError, NetError};
use hickory_proto::dnssec::Proof;
use hickory_proto::dnssec::rdata::DNSSECRData;
use hickory_proto::op::{DnsRequest, DnsRequestOptions, DnsResponse, Message, Query, ResponseCode};
use hickory_proto::rr::rdata::CNAME;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tracing::warn;

use super::anchors::Anchors;
use super::answer::{Answer, Outcome};
use super::asker::Asker;
use super::error::{Error, LookupError};
use super::forwarder::{Forwarder, answer_of};
use super::key::{Key, KeyBuf, query_of, question};
use super::lifetime;
use super::settings::TrustAnchors;
use fordway_serve::clock;

/// The longest chain of aliases.
const MAX_ALIASES: usize = 16;
/// How many validated sets of records the library remembers.
const REMEMBERED: usize = 16_384;

/// Validates answers.
pub(super) struct Validator {
    forwarder: Arc<Forwarder>,
    anchors: Anchors,
    /// Made when the keys of all digests are known.
    validator: OnceCell<DnssecDnsHandle<Upstream>>,
    deadline: Duration,
}

impl fmt::Debug for Validator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Validator").finish_non_exhaustive()
    }
}

impl Validator {
    /// Begins with these anchors. A question may take so long, with all that has to be asked for it.
    pub(super) fn new(
        forwarder: &Arc<Forwarder>,
        anchors: &TrustAnchors,
        deadline: Duration,
    ) -> Result<Self, Error> {
        let anchors = Anchors::new(anchors)?;
        let validator = OnceCell::new();
        Ok(Self { forwarder: Arc::clone(forwarder), anchors, validator, deadline })
    }

    /// The validated answer to a question without CD, which is not in the cache.
    pub(super) async fn fetch(&self, question: &Question, key: &Key, asker: Asker) -> Outcome {
        self.forwarder.once(key, asker, async |_| self.check(question, asker).await).await
    }

    /// The answer to a question without CD whose servers' answers are not validated, and which is not in the cache.
    pub(super) async fn fetch_unchecked(
        &self,
        question: &Question,
        key: &Key,
        asker: Asker,
    ) -> Outcome {
        let ask = async |key: &Key| {
            let answer = self.ask_unchecked(question, key, 0, asker).await?;
            Ok(self.counted(answer))
        };
        self.forwarder.once(key, asker, ask).await
    }

    /// Asks servers whose answers are not validated. If an alias leads to a name whose answers are, that part of the answer
    /// is validated.
    async fn ask_unchecked(
        &self,
        question: &Question,
        key: &Key,
        aliases: usize,
        asker: Asker,
    ) -> Outcome {
        let leaves = |target: &Question| self.forwarder.routes.validates(target);
        let (head, left) = self.forwarder.ask_servers(question, key, asker, leaves).await?;
        let Some(target) = left else { return Ok(Arc::new(answer_of(head, question))) };
        if aliases >= MAX_ALIASES {
            return Err(LookupError::Unusable);
        }
        let signed = Question { name: target, dnssec_ok: true, ..question.clone() };
        let rest = timeout(self.deadline, self.find(signed, aliases + 1, asker)).await;
        let mut rest = rest.unwrap_or(Err(LookupError::Timeout))?;
        if !question.dnssec_ok {
            rest = Arc::new(without_signatures(&rest, question));
        }
        let mut message = rest.message_at(clock::now());
        message.answers = [head.answers, message.answers].concat();
        message.metadata.authentic_data &= head.metadata.authentic_data;
        let mut answer = answer_of(message, question);
        answer.expires = answer.expires.min(rest.expires);
        answer.security = weaker(answer.security, rest.security);
        Ok(Arc::new(answer))
    }

    async fn check(&self, question: &Question, asker: Asker) -> Outcome {
        let find = async {
            if question.dnssec_ok {
                return self.validate(question, 0, asker).await;
            }
            let signed = Question { dnssec_ok: true, ..question.clone() };
            let answer = self.find(signed, 0, asker).await?;
            Ok(Arc::new(without_signatures(&answer, question)))
        };
        let found = timeout(self.deadline, find).await;
        Ok(self.counted(found.unwrap_or(Err(LookupError::Timeout))?))
    }

    /// Counts what validation has found.
    fn counted(&self, answer: Arc<Answer>) -> Arc<Answer> {
        let counters = &self.forwarder.counters;
        match answer.security {
            Security::Secure => counters.secure.count(),
            Security::Insecure => counters.insecure.count(),
            Security::Bogus => counters.bogus.count(),
            Security::Unchecked => {}
        }
        answer
    }

    /// Finds an answer with signatures, which may be in the cache.
    fn find(&self, question: Question, aliases: usize, asker: Asker) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            let Some(key) = KeyBuf::new(&question, true).map(|key| key.to_key()) else {
                return Err(LookupError::Unusable);
            };
            if let Some(outcome) = self.forwarder.cache.get(&key, clock::now(), asker.ahead) {
                return outcome;
            }
            let flushes = self.forwarder.cache.flushes();
            let outcome = self.validate(&question, aliases, asker).await;
            self.forwarder.cache.insert(&key, &outcome, clock::now(), flushes);
            outcome
        })
    }

    async fn validate(&self, question: &Question, aliases: usize, asker: Asker) -> Outcome {
        if !self.forwarder.routes.validates(question) {
            let Some(key) = KeyBuf::new(question, false).map(|key| key.to_key()) else {
                return Err(LookupError::Unusable);
            };
            // Not by way of the questions under way: two aliases that lead to each other would wait for each other.
            return match self.forwarder.cache.get(&key, clock::now(), asker.ahead) {
                Some(outcome) => outcome,
                None => self.ask_unchecked(question, &key, aliases, asker).await,
            };
        }
        let unchecked = Question { checking_disabled: true, ..question.clone() };
        let raw = self.forwarder.lookup(&unchecked, asker).await?;
        if ![ResponseCode::NoError, ResponseCode::NXDomain].contains(&raw.message.response_code) {
            return Ok(raw);
        }
        let follows = ![RecordType::CNAME, RecordType::ANY].contains(&question.record_type);
        match alias(&raw.message, &question.name).filter(|_| follows) {
            Some(alias) if aliases < MAX_ALIASES => {
                self.validate_chain(question, alias, aliases, asker).await
            }
            Some(_) => Err(LookupError::Unusable),
            None => self.validate_plain(question, &raw).await,
        }
    }

    /// Validates the alias, and what it leads to, apart.
    async fn validate_chain(
        &self,
        question: &Question,
        alias: Alias,
        aliases: usize,
        asker: Asker,
    ) -> Outcome {
        let link =
            Question { name: alias.owner, record_type: alias.record_type, ..question.clone() };
        let link = self.find(link, MAX_ALIASES, asker).await?;
        let Some((found, target)) = follow(&link.message, &question.name) else {
            // It is another answer than a moment ago.
            return Err(LookupError::Unusable);
        };
        let rest = Question { name: target, ..question.clone() };
        let rest = self.find(rest, aliases + 1, asker).await?;
        let now = clock::now();
        let (head, tail) = (link.message_at(now), rest.message_at(now));
        let mut message = tail;
        message.queries = vec![query_of(question)];
        message.answers = [found, message.answers].concat();
        message.authorities = [head.authorities, message.authorities].concat();
        message.metadata.authentic_data &= head.metadata.authentic_data;
        let security = weaker(link.security, rest.security);
        Ok(Arc::new(Answer {
            message,
            fetched: now,
            expires: link.expires.min(rest.expires),
            security,
        }))
    }

    async fn validate_plain(&self, question: &Question, raw: &Arc<Answer>) -> Outcome {
        let validator = self.validator.get_or_try_init(|| self.prime()).await?;
        let query = Query::query(question.name.clone(), question.record_type);
        let response = validator.lookup(query, DnsRequestOptions::default()).first_answer().await;
        let (mut message, security) = match response {
            Ok(response) => {
                let message = response.into_message();
                let security = judge(&message);
                (message, security)
            }
            Err(NetError::Dns(DnsError::Nsec { response, proof, .. })) => {
                (response.into_message(), security_of(proof))
            }
            Err(NetError::Timeout) => return Err(LookupError::Timeout),
            Err(NetError::Busy) => return Err(LookupError::Busy),
            Err(NetError::NoConnections) => return Err(LookupError::Unreachable),
            Err(_) => return Err(LookupError::Unusable),
        };
        message.queries = vec![query_of(question)];
        message.additionals.retain(|record| !record.proof.is_bogus());
        let fetched = clock::now();
        // The library lowers TTLs to what signatures allow (RFC 4035 section 5.3.3).
        let lifetime = lifetime::of_answer(&message, question.record_type);
        let expires = (fetched + lifetime).min(raw.expires.max(fetched));
        Ok(Arc::new(Answer { message, fetched, expires, security }))
    }

    /// Asks for the keys that the digests vouch for.
    async fn prime(&self) -> Result<DnssecDnsHandle<Upstream>, LookupError> {
        let mut anchors = self.anchors.clone();
        let mut zones: Vec<Name> = anchors.digests.iter().map(|(zone, _)| zone.clone()).collect();
        zones.dedup();
        for zone in zones {
            let keys = self
                .forwarder
                .lookup(&raw_question(zone.clone(), RecordType::DNSKEY), Asker::default())
                .await?;
            let mut vouched = false;
            for record in &keys.message.answers {
                if let RData::DNSSEC(DNSSECRData::DNSKEY(key)) = &record.data {
                    vouched |= anchors.add_if_vouched(&zone, key);
                }
            }
            if !vouched {
                warn!(%zone, "no key of the zone fits its trust anchors; nothing below it can be validated");
                return Err(LookupError::Unusable);
            }
        }
        let upstream = Upstream(Arc::clone(&self.forwarder));
        let validator = DnssecDnsHandle::with_trust_anchor(upstream, Arc::new(anchors.keys));
        // A query of the validator that found no place, or was lost, must not make a name bogus for long.
        let brief = Duration::ZERO..=Duration::from_secs(1);
        Ok(validator.validation_cache_size(REMEMBERED).negative_validation_ttl(brief))
    }
}

/// Sends the library's queries like any other question without validation.
#[derive(Clone)]
struct Upstream(Arc<Forwarder>);

impl DnsHandle for Upstream {
    type Response = Pin<Box<dyn Stream<Item = Result<DnsResponse, NetError>> + Send>>;
    type Runtime = TokioRuntimeProvider;

    fn send(&self, request: DnsRequest) -> Self::Response {
        let forwarder = Arc::clone(&self.0);
        Box::pin(stream::once(async move {
            let query = request.queries.first().ok_or(NetError::Message("no question"))?;
            let question = raw_question(query.name().clone(), query.query_type());
            let answer =
                forwarder.lookup(&question, Asker::default()).await.map_err(
                    |error| match error {
                        LookupError::Timeout => NetError::Timeout,
                        LookupError::Unreachable => NetError::NoConnections,
                        LookupError::Busy => NetError::Busy,
                        LookupError::Unusable => NetError::Message("no answer of use"),
                    },
                )?;
            match answer.message.response_code {
                ResponseCode::NoError | ResponseCode::NXDomain => {}
                code => return Err(DnsError::ResponseCode(code).into()),
            }
            Ok(DnsResponse::from_message(answer.message_at(clock::now()).into_response())?)
        }))
    }
}

fn raw_question(name: Name, record_type: RecordType) -> Question {
    Question { dnssec_ok: true, checking_disabled: true, ..question(name, record_type) }
}

/// The record by which a name is an alias.
struct Alias {
    owner: Name,
    record_type: RecordType,
}

fn alias(message: &Message, name: &Name) -> Option<Alias> {
    let mut answers = message.answers.iter();
    // A CNAME that is made from a DNAME has no signature of its own (RFC 6672 section 5.3.1).
    let dname = answers.clone().find(|record| dname_target(record, name).is_some());
    if let Some(dname) = dname {
        return Some(Alias { owner: dname.name.clone(), record_type: RecordType::DNAME });
    }
    let is_alias =
        |record: &&Record| record.name == *name && record.record_type() == RecordType::CNAME;
    answers.find(is_alias).map(|_| Alias { owner: name.clone(), record_type: RecordType::CNAME })
}

/// Where an alias leads to from a name, and the records that say so.
fn follow(link: &Message, name: &Name) -> Option<(Vec<Record>, Name)> {
    let mut records = link.answers.clone();
    for record in &link.answers {
        if let Some(target) = dname_target(record, name) {
            let data = RData::CNAME(CNAME(target.clone()));
            let mut cname = Record::from_rdata(name.clone(), record.ttl, data);
            cname.proof = record.proof;
            records.push(cname);
            return Some((records, target));
        }
        if let RData::CNAME(CNAME(target)) = &record.data {
            return Some((records, target.clone()));
        }
    }
    None
}

/// What the proofs of its records make of a message.
fn judge(message: &Message) -> Security {
    let records = message.answers.iter().chain(&message.authorities);
    let proofs = records.filter(|record| record.record_type() != RecordType::RRSIG);
    let mut security = None;
    for proof in proofs.map(|record| security_of(record.proof)) {
        security = Some(security.map_or(proof, |so_far| weaker(so_far, proof)));
    }
    // An empty answer passes only where nothing is signed.
    security.unwrap_or(Security::Insecure)
}

fn security_of(proof: Proof) -> Security {
    match proof {
        Proof::Secure => Security::Secure,
        Proof::Insecure => Security::Insecure,
        Proof::Bogus | Proof::Indeterminate => Security::Bogus,
    }
}

fn weaker(one: Security, other: Security) -> Security {
    let order = [Security::Bogus, Security::Unchecked, Security::Insecure, Security::Secure];
    order.into_iter().find(|security| [one, other].contains(security)).unwrap_or_default()
}

/// The answer for a client that has not asked for signatures (RFC 4035 section 3.2.1).
fn without_signatures(answer: &Answer, question: &Question) -> Answer {
    let mut stripped = answer.clone();
    let message = &mut stripped.message;
    let wanted = |record: &Record| {
        let kind = record.record_type();
        kind == question.record_type
            || question.record_type == RecordType::ANY
            || ![RecordType::RRSIG, RecordType::NSEC, RecordType::NSEC3].contains(&kind)
    };
    for section in [&mut message.answers, &mut message.authorities, &mut message.additionals] {
        section.retain(wanted);
    }
    stripped
}
