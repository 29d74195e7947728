//! DNS over TCP (RFC 7766): messages with their length in front.
//!
//! An ALG can't send a question back into a TCP stream. So it sends the question for the other family at once, behind
//! each question for an address and with another ID, and forwards one of the two answers (RFC 2766 section 4.2 does so
//! for both transports). Answers arrive in any order; the first is kept until the second has come.

use std::collections::HashMap;
use std::sync::Arc;

use fordway_xlat::alg::{Advice, Alg, Context, Dialogue, Ends, HELD_MAX};
use fordway_xlat::dns::{Exchange, PORT};
use fordway_xlat::nat64::Side;
use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::RecordType;

use super::message::{self, Asked, Stage};
use super::{DnsAlg, DnsCounter, other, other_name};

/// Pending questions of one connection at most.
const MOST: usize = 64;

/// Octets of answers of one connection that are kept at most, and octets that a question takes.
const KEPT: usize = 32 * 1024;
const QUESTION: usize = size_of::<Question>();

/// Octets of a message's length.
const LENGTH: usize = 2;

/// The ALG for connections. One for all of them.
#[derive(Debug)]
pub struct DnsStreams(Arc<DnsAlg>);

impl DnsStreams {
    /// The ALG for connections that shares policy and counters with the one for datagrams.
    #[must_use]
    pub fn new(alg: Arc<DnsAlg>) -> DnsStreams {
        DnsStreams(alg)
    }
}

impl Alg for DnsStreams {
    fn label(&self) -> &'static str {
        "dns"
    }

    fn ports(&self) -> &[u16] {
        &[PORT]
    }

    fn open(&self, _ends: &Ends) -> Box<dyn Dialogue> {
        Box::new(Stream { alg: Arc::clone(&self.0), skip: [0; 2], questions: HashMap::new() })
    }
}

/// What is known of a question.
#[derive(Debug)]
struct Question {
    asked: Asked,
    /// The ID of the question for the other family, if it was asked.
    second: Option<u16>,
    /// Those of the two answers that have come.
    answers: [Option<Vec<u8>>; 2],
    /// The client has its answer; the other answer is to be dropped.
    is_answered: bool,
}

#[derive(Debug)]
struct Stream {
    alg: Arc<DnsAlg>,
    /// Octets, by direction, of a message that is too long to be held.
    skip: [usize; 2],
    questions: HashMap<u16, Question>,
}

impl Dialogue for Stream {
    fn octets(
        &mut self,
        from: Side,
        octets: &[u8],
        ended: bool,
        out: &mut Vec<u8>,
        context: &mut Context<'_>,
    ) -> Advice {
        let skip = &mut self.skip[usize::from(from == Side::V6)];
        if *skip == 0 {
            let Some((length, rest)) = octets.split_first_chunk::<LENGTH>() else {
                return if ended { Advice::Bypass } else { Advice::Hold };
            };
            let len = usize::from(u16::from_be_bytes(*length));
            if LENGTH + len <= HELD_MAX {
                let Some(message) = rest.get(..len) else {
                    return if ended { Advice::Bypass } else { Advice::Hold };
                };
                let Some((config, nat64)) = context.tables() else { return Advice::Bypass };
                let Ends { host, local, remote, .. } = context.ends;
                let now = context.now;
                let exchange = Exchange { from, host, local, remote, config, nat64, now, shard: 0 };
                let may_keep = context.may_keep;
                return match self.message(&exchange, message, (ended, may_keep), out) {
                    Done::Pass => Advice::Pass(LENGTH + len),
                    Done::Replace => Advice::Replace(LENGTH + len),
                };
            }
            *skip = LENGTH + len;
        }
        let passed = octets.len().min(*skip);
        *skip -= passed;
        Advice::Pass(passed)
    }

    fn kept(&self) -> usize {
        self.waiting() + self.questions.len() * QUESTION
    }
}

enum Done {
    Pass,
    Replace,
}

impl Stream {
    fn message(
        &mut self,
        exchange: &Exchange<'_>,
        octets: &[u8],
        (ended, may_keep): (bool, bool),
        out: &mut Vec<u8>,
    ) -> Done {
        match message::kind(octets) {
            Some(MessageType::Query) => self.query(exchange, octets, may_keep, out),
            Some(MessageType::Response) => self.response(exchange, octets, (ended, may_keep), out),
            None => {
                self.alg.count(DnsCounter::Malformed);
                None
            }
        }
        .map_or(Done::Pass, |()| Done::Replace)
    }

    fn query(
        &mut self,
        exchange: &Exchange<'_>,
        octets: &[u8],
        may_keep: bool,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let mut asked = self.alg.read_query(exchange, octets)?;
        let id = asked.id;
        if self.questions.len() >= MOST || !may_keep || self.holds(id) {
            self.alg.count(DnsCounter::TooMany);
            return None;
        }
        let mut second = None;
        if asked.question.query_type == RecordType::PTR {
            let name = other_name(exchange, &asked)?;
            asked.stage = Stage::Pointer;
            put(out, &message::question(&asked, name, RecordType::PTR)?);
        } else {
            let number = (1..=u16::MAX).map(|step| id ^ step).find(|it| !self.holds(*it))?;
            let also = Asked { id: number, ..asked.clone() };
            let name = asked.question.name.clone();
            let question = message::question(&also, name, other(asked.client))?;
            put(out, octets);
            put(out, &question);
            second = Some(number);
        }
        let question = Question { asked, second, answers: [None, None], is_answered: false };
        self.questions.insert(id, question);
        Some(())
    }

    /// Whether a pending question has this ID.
    fn holds(&self, id: u16) -> bool {
        self.questions.iter().any(|(first, it)| *first == id || it.second == Some(id))
    }

    /// Octets of answers that are kept.
    fn waiting(&self) -> usize {
        let answers = self.questions.values().flat_map(|it| &it.answers).flatten();
        answers.map(Vec::len).sum()
    }

    fn response(
        &mut self,
        exchange: &Exchange<'_>,
        octets: &[u8],
        (ended, may_keep): (bool, bool),
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let may_wait = may_keep && self.waiting() + octets.len() <= KEPT;
        let id = octets.first_chunk().map(|id| u16::from_be_bytes(*id))?;
        let (&first, question) =
            self.questions.iter_mut().find(|(first, it)| **first == id || it.second == Some(id))?;
        if question.asked.client == exchange.from {
            return None;
        }
        let is_second = question.second == Some(id);
        if question.is_answered {
            // The answer that is no longer needed.
            self.questions.remove(&first);
            return is_second.then_some(());
        }
        if question.second.is_none() {
            let asked = question.asked.clone();
            self.questions.remove(&first);
            put(out, &self.alg.translated(&asked, exchange, octets)?);
            return Some(());
        }
        let place = usize::from(is_second);
        // Without memory to keep an answer, the client gets the one to its own question, whatever it says, and the
        // other counts as empty.
        let is_alone = !may_wait && question.answers.iter().all(Option::is_none);
        if is_alone {
            self.alg.count(DnsCounter::TooMany);
        }
        let lost = is_alone && is_second;
        question.answers[place] = Some(if lost { Vec::new() } else { octets.to_vec() });
        let own = question.answers[0].as_deref();
        let is_enough = own.is_some_and(|own| {
            let read = Message::from_vec(own);
            read.is_ok_and(|own| !self.alg.needs_other(&question.asked, &own))
        });
        let other = question.answers[1].as_deref();
        if is_enough || (ended || is_alone) && own.is_some() && other.is_none() {
            put(out, own.unwrap_or_default());
            if other.is_some() || ended {
                self.questions.remove(&first);
            } else {
                question.is_answered = true;
                question.answers = [None, None];
            }
        } else if let (Some(own), Some(other)) = (own, other) {
            let asked = Asked { stage: Stage::Other, ..question.asked.clone() };
            let is_there = !other.is_empty();
            let translated = is_there.then(|| self.alg.translated(&asked, exchange, other));
            let translated = translated.flatten();
            put(out, translated.as_deref().unwrap_or(own));
            self.questions.remove(&first);
        }
        // Else the answer is kept until the other has come.
        Some(())
    }
}

impl DnsAlg {
    /// The client's answer over TCP, of the octets of one about the other family or the other name.
    fn translated(&self, asked: &Asked, exchange: &Exchange<'_>, octets: &[u8]) -> Option<Vec<u8>> {
        let Ok(answer) = Message::from_vec(octets) else {
            self.count(DnsCounter::Malformed);
            return None;
        };
        if !asked.is_answered_by(&answer, exchange) {
            return None;
        }
        self.translate(asked, &answer, exchange)?.written(usize::from(u16::MAX))
    }
}

/// Writes a message with its length in front.
fn put(out: &mut Vec<u8>, message: &[u8]) {
    let Ok(len) = u16::try_from(message.len()) else { return };
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(message);
}
