//! From a query to its response (RFC 6147 section 5): upstream questions, and the response made of their answers.
//!
//! ```text
//! let mut step = begin(policy, &query);
//! let response = loop {
//!     match step {
//!         Step::Done(response) => break response,
//!         Step::Ask(pending) => {
//!             let outcome = resolver.lookup(pending.question());
//!             step = pending.resume(outcome);
//!         }
//!     }
//! };
//! ```

use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::{DNSClass, RData, Record, RecordType};

use crate::chain::{Chain, covered, follow, is};
use crate::ede::Ede;
use crate::exchange::{Answer, Failure, Outcome, Question, Security};
use crate::policy::Policy;
use crate::response::{
    Kind, Response, add_edns, authentic, copy_rest, dnssec_ok, fail, header, lifetime, pass,
    records, refuse, soa, ttl,
};
use crate::reverse::{self, Lookup};
use crate::special;
use crate::synthesis::{NO_SOA_TTL, synthesise};

/// Further questions for a chain whose parts come one by one.
const MAX_HOPS: u8 = 8;

/// The next step.
#[derive(Debug)]
pub enum Step<'a> {
    /// The response.
    Done(Response),
    /// A question for the upstream servers.
    Ask(Pending<'a>),
}

/// A client's query, and its policy.
#[derive(Clone, Copy, Debug)]
struct Context<'a> {
    policy: &'a Policy,
    query: &'a Message,
}

/// A query that waits for an answer from upstream.
#[derive(Debug)]
pub struct Pending<'a> {
    context: Context<'a>,
    question: Question,
    goal: Goal,
    notes: Notes,
}

/// What a response has to say of the answers that it was made of.
#[derive(Clone, Copy, Debug, Default)]
struct Notes {
    /// The code of the first that is older than it should be.
    stale: Option<u16>,
    /// Private addresses were taken out of one.
    blocked: bool,
}

/// The purpose of a question.
#[derive(Debug)]
enum Goal {
    /// The answer is passed on.
    Pass,
    /// The answer names a synthetic address.
    Reverse,
    /// The answer tells whether there are usable AAAA records.
    Aaaa(Walk),
    /// AAAA records are synthesised from the answer.
    A(Walk, NoAaaa),
}

/// A chain of aliases whose beginning has come with earlier answers.
#[derive(Debug, Default)]
struct Walk {
    links: Vec<Record>,
    security: Vec<Security>,
    hops: u8,
}

/// What came of the AAAA question.
#[derive(Debug)]
struct NoAaaa {
    /// The response if there are no A records either (RFC 6147 section 5.4); none if there were AAAA records, which may
    /// not be returned.
    response: Option<Response>,
    /// The most that a synthetic record may live (section 5.1.7).
    ttl: u32,
    /// `None`: an error, or no answer.
    security: Option<Security>,
}

/// The first step for a query that [`parse`](crate::parse) has let pass.
pub fn begin<'a>(policy: &'a Policy, query: &'a Message) -> Step<'a> {
    let Some(asked) = query.queries.first() else {
        return Step::Done(refuse(query, ResponseCode::FormErr, None));
    };
    let checks_itself = dnssec_ok(query) && query.metadata.checking_disabled;
    // RFC 6147 section 5.1: class IN alone.
    let enabled = policy.enabled && asked.query_class == DNSClass::IN;
    if enabled && let Some(response) = special::answer(policy, query, asked) {
        return Step::Done(response);
    }
    // RFC 6147 section 5.5 item 3: with DO and CD, nothing is synthesised.
    let enabled = enabled && !checks_itself;
    let reverse = if enabled { reverse::lookup(policy, query, asked) } else { None };
    if let Some(Lookup::Local(response)) = reverse {
        return Step::Done(*response);
    }
    if !query.metadata.recursion_desired {
        let why = Ede::new(Ede::NOT_AUTHORITATIVE, "");
        return Step::Done(refuse(query, ResponseCode::Refused, Some(&why)));
    }
    let (name, goal) = match reverse {
        Some(Lookup::Cname(name)) => (name, Goal::Reverse),
        _ if enabled
            && asked.query_type == RecordType::AAAA
            && !policy.exempt.cover(&asked.name) =>
        {
            (asked.name.clone(), Goal::Aaaa(Walk::default()))
        }
        _ => (asked.name.clone(), Goal::Pass),
    };
    let question = Question {
        name,
        record_type: asked.query_type,
        class: asked.query_class,
        dnssec_ok: dnssec_ok(query),
        checking_disabled: query.metadata.checking_disabled,
    };
    let context = Context { policy, query };
    Step::Ask(Pending { context, question, goal, notes: Notes::default() })
}

impl<'a> Pending<'a> {
    /// What to ask.
    pub fn question(&self) -> &Question {
        &self.question
    }

    /// What will probably have to be asked next, and may be asked at the same time (RFC 6147 section 5.1.8):
    /// [`Pending::resume`] asks for it again if it is wanted. Not for those who validate, who know only after the first
    /// answer whether they may ask the second question (section 5.5).
    pub fn ahead(&self) -> Option<Question> {
        matches!(self.goal, Goal::Aaaa(_))
            .then(|| Question { record_type: RecordType::A, ..self.question.clone() })
    }

    /// The next step, with what became of the question.
    pub fn resume(mut self, outcome: Outcome<'_>) -> Step<'a> {
        let (query, mut notes) = (self.context.query, self.notes);
        let public;
        let outcome = match outcome {
            Outcome::Answer(answer) => {
                notes.add(answer.message);
                match self.context.without_private(answer.message) {
                    None => outcome,
                    Some(message) => {
                        notes.blocked = true;
                        public = message;
                        let security = match answer.security {
                            Security::Bogus => Security::Bogus,
                            _ => Security::Unchecked,
                        };
                        Outcome::Answer(Answer { message: &public, security, ..answer })
                    }
                }
            }
            Outcome::Failed(_) => outcome,
        };
        self.notes = notes;
        match self.step(outcome) {
            Step::Done(mut response) => {
                notes.write(&mut response.message, query);
                response.blocked = notes.blocked;
                Step::Done(response)
            }
            Step::Ask(pending) => Step::Ask(Pending { notes, ..pending }),
        }
    }

    fn step(self, outcome: Outcome<'_>) -> Step<'a> {
        let answer = match outcome {
            Outcome::Failed(failure) => return self.failed(failure),
            Outcome::Answer(answer) => answer,
        };
        // Records of an UPDATE may lack data (RFC 2136 section 2.4), so they can't stand in an answer.
        let meta = &answer.message.metadata;
        if meta.message_type != MessageType::Response || meta.op_code != OpCode::Query {
            return self.failed(Failure::Malformed);
        }
        if answer.security == Security::Bogus && !self.context.query.metadata.checking_disabled {
            let why = Ede::of(answer.message).into_iter().find(Ede::is_dnssec);
            return self.failed(Failure::Bogus(why.map_or(Ede::DNSSEC_BOGUS, |why| why.code)));
        }
        let Pending { context, question, goal, .. } = self;
        let Context { policy, query } = context;
        match goal {
            Goal::Pass => Step::Done(pass(query, &answer)),
            Goal::Reverse => Step::Done(match query.queries.first() {
                Some(asked) => reverse::respond(policy, query, asked, &question.name, &answer),
                None => pass(query, &answer),
            }),
            Goal::Aaaa(walk) => context.aaaa(question, walk, &answer),
            Goal::A(walk, none) => context.a(&question, walk, none, &answer),
        }
    }

    fn failed(self, failure: Failure) -> Step<'a> {
        let Pending { context, question, goal, .. } = self;
        let response = fail(context.query, failure);
        match (goal, failure) {
            // RFC 6147 section 5.1.3: like RCODE 2, and section 5.1.2: like an empty answer.
            (Goal::Aaaa(walk), Failure::Timeout | Failure::Unreachable | Failure::Malformed) => {
                let none = NoAaaa { response: Some(response), ttl: NO_SOA_TTL, security: None };
                context.ask_a(question, walk, none)
            }
            // RFC 6147 section 5.5 item 2: what does not validate is no reason to ask for A.
            _ => Step::Done(response),
        }
    }
}

impl Notes {
    fn add(&mut self, message: &Message) {
        let stale = || Ede::of(message).into_iter().find(Ede::is_stale).map(|ede| ede.code);
        self.stale = self.stale.or_else(stale);
    }

    /// Adds extended errors, where the response does not have them from its last answer.
    fn write(self, message: &mut Message, query: &Message) {
        let has = Ede::of(message);
        let stale = self.stale.filter(|_| !has.iter().any(Ede::is_stale));
        let blocked = self.blocked && !has.iter().any(|ede| ede.code == Ede::BLOCKED);
        let stale = stale.map(|code| Ede::new(code, ""));
        let blocked = blocked.then(|| Ede::new(Ede::BLOCKED, "private address"));
        if let Some(edns) = message.edns.as_mut().filter(|_| query.edns.is_some()) {
            stale.iter().chain(&blocked).for_each(|ede| ede.insert(edns));
        }
    }
}

impl<'a> Context<'a> {
    /// An answer without private addresses, if it has some that the name may not have.
    fn without_private(self, answer: &Message) -> Option<Message> {
        let asked = self.query.queries.first()?;
        let rebinding = self.policy.rebinding.as_ref()?;
        rebinding.without_private(self.policy, &asked.name, answer)
    }

    /// After the AAAA question was answered.
    fn aaaa(self, question: Question, walk: Walk, answer: &Answer<'_>) -> Step<'a> {
        match answer.message.metadata.response_code {
            ResponseCode::NoError => {}
            // RFC 6147 section 5.1.2: normal operation, and no synthesis.
            ResponseCode::NXDomain => return Step::Done(walk.before(self.usable(answer))),
            // A validating server upstream that refuses what does not validate is not to be circumvented (section 5.5 item
            // 2). Any other error is like an empty answer.
            _ => {
                let response = self.usable(answer);
                let checked = !self.query.metadata.checking_disabled;
                if checked && Ede::of(answer.message).iter().any(Ede::is_dnssec) {
                    return Step::Done(response);
                }
                let none = NoAaaa { response: Some(response), ttl: NO_SOA_TTL, security: None };
                return self.ask_a(question, walk, none);
            }
        }
        let section = records(self.query, answer, &answer.message.answers);
        let Some(chain) = follow(&question.name, &section) else {
            return Step::Done(fail(self.query, Failure::Malformed));
        };
        if self.policy.exempt.cover(&chain.end) {
            return Step::Done(walk.before(pass(self.query, answer)));
        }
        let mut found = section
            .iter()
            .filter(|record| record.record_type() == RecordType::AAAA && is(record, &chain.end));
        if found.clone().any(|record| !is_excluded(self.policy, record)) {
            return Step::Done(walk.before(self.usable(answer)));
        }
        let is_empty = found.next().is_none();
        let soa = soa(&answer.message.authorities);
        if is_empty && soa.is_none() && chain.end != question.name && walk.hops < MAX_HOPS {
            return self.ask_on(&question, chain, walk, answer, Goal::Aaaa);
        }
        let ttl = soa.map_or(NO_SOA_TTL, |(_, lifetime)| ttl(lifetime, answer.age));
        let security = Some(answer.security);
        let response = is_empty.then(|| walk.clone_before(self.usable(answer)));
        self.ask_a(question, walk, NoAaaa { response, ttl, security })
    }

    /// RFC 6147 section 5.1.6: the A records of the same name.
    fn ask_a(self, question: Question, walk: Walk, none: NoAaaa) -> Step<'a> {
        let question = Question { record_type: RecordType::A, ..question };
        Step::Ask(Pending {
            context: self,
            question,
            goal: Goal::A(walk, none),
            notes: Notes::default(),
        })
    }

    /// RFC 6147 section 5.1.5: the chain goes on, but the answer does not.
    fn ask_on(
        self,
        question: &Question,
        chain: Chain,
        mut walk: Walk,
        answer: &Answer<'_>,
        goal: impl FnOnce(Walk) -> Goal,
    ) -> Step<'a> {
        walk.links.extend(chain.links);
        walk.security.push(answer.security);
        walk.hops += 1;
        let question = Question { name: chain.end, ..*question };
        Step::Ask(Pending { context: self, question, goal: goal(walk), notes: Notes::default() })
    }

    /// After the A question was answered.
    fn a(self, question: &Question, walk: Walk, none: NoAaaa, answer: &Answer<'_>) -> Step<'a> {
        // RFC 6147 section 5.1.6: an error is what the client gets.
        if answer.message.metadata.response_code != ResponseCode::NoError {
            return Step::Done(walk.before(self.usable(answer)));
        }
        let section = records(self.query, answer, &answer.message.answers);
        let Some(chain) = follow(&question.name, &section) else {
            return Step::Done(fail(self.query, Failure::Malformed));
        };
        let is_a =
            |record: &Record| record.record_type() == RecordType::A && is(record, &chain.end);
        if !section.iter().any(is_a) {
            let goes_on = chain.end != question.name && walk.hops < MAX_HOPS;
            if goes_on && soa(&answer.message.authorities).is_none() {
                return self.ask_on(question, chain, walk, answer, |walk| Goal::A(walk, none));
            }
            return Step::Done(none.response.unwrap_or_else(|| walk.before(self.no_a(answer))));
        }
        // RFC 6147 section 5.5 item 2: a signed zone can prove that there is no AAAA, and has not done so.
        if none.security.is_none() && authentic_data(self.query, answer) {
            return Step::Done(fail(self.query, Failure::Bogus(Ede::NSEC_MISSING)));
        }
        let synthetic = if self.policy.exempt.cover(&chain.end) {
            Vec::new()
        } else {
            synthesise(self.policy, &chain.end, &section, none.ttl)
        };
        if synthetic.is_empty() {
            let response = none.response.unwrap_or_else(|| walk.before(self.no_a(answer)));
            return Step::Done(explained(response));
        }
        let mut message = header(self.query);
        let security: Vec<Security> =
            walk.security.iter().copied().chain(none.security).chain([answer.security]).collect();
        message.metadata.authentic_data =
            none.security.is_some() && authentic(self.query, &security);
        message.answers = walk.links;
        message.answers.extend(chain.links);
        message.answers.extend(synthetic);
        copy_rest(&mut message, self.query, answer);
        add_edns(&mut message, self.query, &[Ede::new(Ede::SYNTHESIZED, "")]);
        let lifetime = lifetime(&message);
        Step::Done(Response::new(message, Kind::Synthetic, lifetime))
    }

    /// An answer to the A question as one that says that there are no AAAA records.
    fn no_a(self, answer: &Answer<'_>) -> Response {
        let mut response = self.usable(answer);
        let is_a = |record: &Record| {
            record.record_type() == RecordType::A || covered(record) == Some(RecordType::A)
        };
        response.message.answers.retain(|record| !is_a(record));
        response.message.metadata.authentic_data = false;
        response.lifetime = lifetime(&response.message);
        response
    }

    /// The upstream's answer without the AAAA records that do not count, which MUST NOT be returned (RFC 6147 section
    /// 5.1.4). The signature of the whole set does not fit what is left of it.
    fn usable(self, answer: &Answer<'_>) -> Response {
        let mut response = pass(self.query, answer);
        let message = &mut response.message;
        let before = message.answers.len();
        message.answers.retain(|record| !is_excluded(self.policy, record));
        if message.answers.len() < before {
            message.answers.retain(|record| covered(record) != Some(RecordType::AAAA));
            message.metadata.authentic_data = false;
            response.lifetime = lifetime(message);
        }
        response
    }
}

/// Whether the answer was validated here as authentic, and the client has not disabled checking.
fn authentic_data(query: &Message, answer: &Answer<'_>) -> bool {
    answer.security == Security::Secure && !query.metadata.checking_disabled
}

fn is_excluded(policy: &Policy, record: &Record) -> bool {
    match record.data {
        RData::AAAA(v6) => !policy.is_usable(v6.0),
        _ => false,
    }
}

/// Adds the reason why there is no address although there are A records.
fn explained(mut response: Response) -> Response {
    if let Some(edns) = &mut response.message.edns {
        let text = "IPv4 addresses without a translation prefix";
        Ede::new(Ede::OTHER, text).insert(edns);
    }
    response
}

impl Walk {
    /// The response with the part of the chain that came before it.
    fn before(self, mut response: Response) -> Response {
        if !self.links.is_empty() {
            let all_secure = self.security.iter().all(|s| *s == Security::Secure);
            let message = &mut response.message;
            message.metadata.authentic_data &= all_secure;
            message.answers.splice(0..0, self.links);
            response.lifetime = lifetime(message);
        }
        response
    }

    fn clone_before(&self, response: Response) -> Response {
        let walk =
            Walk { links: self.links.clone(), security: self.security.clone(), hops: self.hops };
        walk.before(response)
    }
}

#[cfg(test)]
mod tests;
