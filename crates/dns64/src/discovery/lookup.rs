//! Queries for `ipv4only.arpa`: when, to which resolver, and how long an answer is valid (RFC 7050 section 3).

use std::net::SocketAddr;
use std::time::Duration;

use fordway_xlat::addr::Pool6;
use hickory_proto::op::Message;
use hickory_proto::rr::{Name, RecordType};

use super::answer::{Failure, Outcome};
use super::heuristic::{Candidate, prefixes};
use super::random::Random;
use super::report::{Said, ServerReport};
use super::validation::{Step, Validation, Validator};
use super::{Ask, Settings, Time};
use crate::well_known::well_known_name;

const SECOND: Duration = Duration::from_secs(1);

/// The discovery is repeated so long before the time to live is over (RFC 7050 section 3).
pub(super) const REFRESH: Duration = Duration::from_secs(10);
/// Shorter times to live count as this: a resolver answers with what is left of its own, so a client that asks shortly
/// before the end would ask ever more often.
pub(super) const SHORTEST: Duration = Duration::from_secs(60);
/// How long an answer is used beyond its time if no resolver answers (RFC 8767).
pub(super) const STALE: Duration = Duration::from_secs(3600);
/// Longest time between attempts when no resolver answers; the first is a second.
pub(super) const LONGEST_RETRY: Duration = Duration::from_secs(300);
/// How long the first attempt waits for an answer, and how long every other one.
const PATIENCE: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(4)];
/// How many resolvers are asked.
const MOST_SERVERS: usize = 8;

/// The questions to one set of resolvers.
#[derive(Clone, Debug, Default)]
pub(super) struct Lookup {
    servers: Vec<Server>,
    /// Index of the next resolver to ask.
    turn: usize,
    /// Whether a resolver did not answer in this round.
    failing: bool,
    /// Consecutive rounds in which a resolver did not answer, and none had a prefix.
    failed: u32,
    /// When to ask.
    next: Time,
    asking: Option<Asking>,
    /// The resolver to ask for the name's IPv4 addresses.
    diagnosed: Option<SocketAddr>,
    /// Prefixes that are to be validated.
    proofs: Vec<(Pool6, Validator)>,
    answer: Option<Answer>,
}

#[derive(Clone, Debug)]
struct Server {
    /// It gave a negative answer, which is valid until then.
    not_before: Time,
    report: ServerReport,
}

#[derive(Clone, Debug)]
struct Asking {
    id: u64,
    server: SocketAddr,
    question: Question,
    name: Name,
    record_type: RecordType,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Prefixes,
    /// Does it know the name's IPv4 addresses?
    Name,
    Proof,
}

/// Prefixes that a resolver told.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) server: SocketAddr,
    pub(super) prefixes: Vec<(Candidate, Validation)>,
    pub(super) until: Time,
    /// The life of the links in which it was told.
    pub(super) life: u64,
}

impl Lookup {
    /// Takes the resolvers to ask, best first.
    pub(super) fn set_servers(&mut self, addresses: &[SocketAddr], now: Time) {
        let addresses = addresses.get(..MOST_SERVERS).unwrap_or(addresses);
        if self.servers.iter().map(|server| &server.report.server).eq(addresses) {
            return;
        }
        let new = |server: &SocketAddr| Server {
            not_before: Time::ZERO,
            report: ServerReport { server: *server, asked: 0, said: None, knows_name: None },
        };
        let mut old = std::mem::take(&mut self.servers);
        for address in addresses {
            let known = old.iter().position(|server| server.report.server == *address);
            self.servers.push(known.map_or_else(|| new(address), |at| old.swap_remove(at)));
        }
        self.begin_round(now);
    }

    pub(super) fn has_servers(&self) -> bool {
        !self.servers.is_empty()
    }

    /// Whether any resolver has answered, with a prefix or not.
    pub(super) fn has_result(&self) -> bool {
        self.servers.iter().any(|server| server.report.said.is_some())
    }

    /// Whether no query is pending, and there is an answer or all resolvers were asked.
    pub(super) fn is_settled(&self) -> bool {
        let quiet = self.asking.is_none() && self.diagnosed.is_none() && self.proofs.is_empty();
        let all = self.servers.iter().all(|server| server.report.said.is_some());
        quiet && (self.answer.is_some() || all)
    }

    /// Asks all resolvers again: the network may have changed.
    pub(super) fn restart(&mut self, now: Time) {
        for server in &mut self.servers {
            server.not_before = Time::ZERO;
            (server.report.said, server.report.knows_name) = (None, None);
        }
        self.failed = 0;
        self.begin_round(now);
    }

    /// Retries at once after failures: addresses or routes have changed.
    pub(super) fn reachable(&mut self, now: Time) {
        if self.asking.is_none() && self.failed > 0 && self.next > now {
            self.begin_round(now);
        }
    }

    fn begin_round(&mut self, now: Time) {
        (self.turn, self.failing, self.next) = (0, false, now);
        (self.asking, self.diagnosed) = (None, None);
        self.proofs.clear();
    }

    /// When [`Lookup::poll`] has something to do.
    pub(super) fn next(&self, now: Time) -> Option<Time> {
        if self.asking.is_some() {
            return None;
        }
        if self.diagnosed.is_some() || !self.proofs.is_empty() {
            return Some(now);
        }
        let ready = self.servers.iter().skip(self.turn).map(|server| server.not_before).min()?;
        Some(ready.max(self.next))
    }

    /// When the answer becomes stale or expires.
    pub(super) fn ends(&self, now: Time, needed: bool) -> Option<Time> {
        let answer = self.answer.as_ref()?;
        Some(if needed && now >= answer.until { answer.until + STALE } else { answer.until })
    }

    /// The answer, and whether it is stale.
    pub(super) fn answer(&self, now: Time) -> Option<(&Answer, bool)> {
        self.answer.as_ref().map(|answer| (answer, now >= answer.until))
    }

    /// The life of the links in which the answer came.
    pub(super) fn life(&self) -> Option<u64> {
        self.answer.as_ref().map(|answer| answer.life)
    }

    /// Removes an expired answer; a stale one is kept for [`STALE`] if it is `needed`.
    pub(super) fn expire(&mut self, now: Time, needed: bool) {
        let grace = if needed { STALE } else { Duration::ZERO };
        self.forget(|answer| now >= answer.until + grace);
    }

    /// Removes an answer from an earlier life of the links.
    pub(super) fn keep_life(&mut self, life: u64) {
        self.forget(|answer| answer.life != life);
    }

    /// Removes the answer.
    pub(super) fn clear(&mut self) {
        self.forget(|_| true);
    }

    fn forget(&mut self, is_over: impl FnOnce(&mut Answer) -> bool) {
        if self.answer.take_if(is_over).is_some() {
            self.proofs.clear();
        }
    }

    pub(super) fn reports(&self) -> Vec<ServerReport> {
        self.servers.iter().map(|server| server.report.clone()).collect()
    }

    pub(super) fn is_asking(&self, id: u64) -> bool {
        self.asking.as_ref().is_some_and(|asking| asking.id == id)
    }

    /// The query that is due, with the number `id`.
    pub(super) fn poll(&mut self, now: Time, id: u64) -> Option<Ask> {
        if self.asking.is_some() {
            return None;
        }
        if let Some(server) = self.diagnosed.take() {
            return Some(self.ask(id, server, Question::Name, well_known_name(), RecordType::A));
        }
        if let Some(query) = self.poll_proofs(id) {
            return Some(query);
        }
        if now < self.next {
            return None;
        }
        let at = (self.turn..self.servers.len())
            .find(|at| self.servers.get(*at).is_some_and(|server| server.not_before <= now))?;
        self.turn = at;
        let server = self.servers.get_mut(at)?;
        server.report.asked = server.report.asked.saturating_add(1);
        let server = server.report.server;
        let name = well_known_name();
        Some(self.ask(id, server, Question::Prefixes, name, RecordType::AAAA))
    }

    /// The next query of a proof.
    fn poll_proofs(&mut self, id: u64) -> Option<Ask> {
        let server = self.answer.as_ref()?.server;
        let (_, validator) = self.proofs.first()?;
        match validator.step() {
            Step::Ask { name, record_type } => {
                Some(self.ask(id, server, Question::Proof, name, record_type))
            }
            Step::Done(_) => None,
        }
    }

    /// Applies the results of finished proofs.
    fn settle(&mut self) {
        while let Some((pool6, validator)) = self.proofs.first() {
            let Step::Done(validation) = validator.step() else { return };
            let pool6 = *pool6;
            self.proofs.remove(0);
            self.set_validation(pool6, &validation);
        }
    }

    fn set_validation(&mut self, pool6: Pool6, validation: &Validation) {
        let prefixes = self.answer.iter_mut().flat_map(|answer| &mut answer.prefixes);
        for (candidate, known) in prefixes {
            if candidate.pool6 == pool6 {
                known.clone_from(validation);
            }
        }
    }

    fn ask(
        &mut self,
        id: u64,
        server: SocketAddr,
        question: Question,
        name: Name,
        record_type: RecordType,
    ) -> Ask {
        let timeout = if self.failed == 0 { PATIENCE[0] } else { PATIENCE[1] };
        self.asking = Some(Asking { id, server, question, name: name.clone(), record_type });
        let authenticated = question == Question::Proof;
        Ask { id, device: None, server, name, record_type, authenticated, timeout }
    }

    /// Handles the answer to the last query.
    pub(super) fn answered(
        &mut self,
        now: Time,
        answer: Result<&Message, Failure>,
        life: u64,
        settings: &Settings,
        random: &mut Random,
    ) {
        let Some(asking) = self.asking.take() else { return };
        let outcome = match answer {
            Ok(message) => Outcome::read(message, &asking.name, asking.record_type),
            Err(failure) => Outcome::Failed(failure),
        };
        match asking.question {
            Question::Prefixes => self.told(now, asking.server, &outcome, life, settings, random),
            Question::Name => {
                let knows = matches!(outcome, Outcome::Records { .. });
                self.report(asking.server, |report| report.knows_name = Some(knows));
                self.go_on(now, random);
            }
            Question::Proof => {
                // The AD bit of a resolver on this host is trustworthy; that of another one may have been set on the
                // way.
                let secure = settings.secure_channel || asking.server.ip().is_loopback();
                if let Some((_, validator)) = self.proofs.first_mut() {
                    validator.answer(&outcome, secure);
                }
                self.settle();
            }
        }
    }

    fn report(&mut self, server: SocketAddr, change: impl FnOnce(&mut ServerReport)) {
        let mut reports = self.servers.iter_mut().map(|server| &mut server.report);
        if let Some(report) = reports.find(|report| report.server == server) {
            change(report);
        }
    }

    /// An answer for the well-known name.
    fn told(
        &mut self,
        now: Time,
        server: SocketAddr,
        outcome: &Outcome,
        life: u64,
        settings: &Settings,
        random: &mut Random,
    ) {
        let addresses = outcome.addresses();
        let candidates = prefixes(&addresses);
        let (said, nothing_for) = match (outcome, addresses.first()) {
            (Outcome::Failed(failure), _) => {
                self.report(server, |report| report.said = Some(Said::Failed(failure.clone())));
                self.failing = true;
                self.go_on(now, random);
                return;
            }
            (Outcome::Records { ttl, .. }, Some(_)) if !candidates.is_empty() => {
                let said = candidates.iter().map(|candidate| candidate.pool6).collect();
                self.report(server, |report| report.said = Some(Said::Prefixes(said)));
                self.take(now, server, candidates, *ttl, life, settings);
                return;
            }
            (Outcome::Records { ttl, .. }, Some(first)) => {
                (Said::OtherAddresses(*first), Some(*ttl))
            }
            (Outcome::Records { ttl, .. }, None) => {
                (Said::Nothing { name_exists: true }, Some(*ttl))
            }
            (Outcome::None { name_exists, ttl }, _) => {
                (Said::Nothing { name_exists: *name_exists }, *ttl)
            }
        };
        // RFC 7050 section 3: the time to live of a negative answer MUST be obeyed.
        let wait = nothing_for.unwrap_or_default().max(SHORTEST);
        let diagnose = settings.diagnose && matches!(said, Said::Nothing { .. });
        self.report(server, |report| report.said = Some(said));
        let mut servers = self.servers.iter_mut();
        if let Some(known) = servers.find(|known| known.report.server == server) {
            known.not_before = now + wait;
        }
        self.forget(|answer| answer.server == server);
        if diagnose {
            self.diagnosed = Some(server);
        } else {
            self.go_on(now, random);
        }
    }

    /// Prefixes: they are used, and asked for again before they end.
    fn take(
        &mut self,
        now: Time,
        server: SocketAddr,
        mut candidates: Vec<Candidate>,
        ttl: Duration,
        life: u64,
        settings: &Settings,
    ) {
        let until = now + ttl.max(SHORTEST);
        let old = self.answer.take().map(|answer| answer.prefixes).unwrap_or_default();
        // Resolvers rotate the records of an answer. As long as the prefixes are the same, they keep their first order.
        let place = |candidate: &Candidate| {
            old.iter().position(|(known, _)| known.pool6 == candidate.pool6)
        };
        if candidates.len() == old.len() && candidates.iter().all(|one| place(one).is_some()) {
            candidates.sort_by_key(place);
        }
        self.proofs.clear();
        let prefixes = candidates
            .into_iter()
            .map(|candidate| {
                if settings.secure_channel {
                    return (candidate, Validation::SecureChannel);
                }
                let validator = Validator::new(candidate.clone(), &settings.trusted_domains);
                self.proofs.push((candidate.pool6, validator));
                // What was proved stays so until the new proof is done.
                let known = old.iter().find(|(known, _)| known.pool6 == candidate.pool6);
                (candidate, known.map(|(_, validation)| validation.clone()).unwrap_or_default())
            })
            .collect();
        self.answer = Some(Answer { server, prefixes, until, life });
        (self.turn, self.failing, self.failed) = (0, false, 0);
        self.next = until - REFRESH;
        self.settle();
    }

    /// The turn of the next resolver, or the end of the round.
    fn go_on(&mut self, now: Time, random: &mut Random) {
        let ready = |server: &Server| server.not_before <= now;
        let next =
            (self.turn + 1..self.servers.len()).find(|at| self.servers.get(*at).is_some_and(ready));
        if let Some(next) = next {
            (self.turn, self.next) = (next, now);
            return;
        }
        let idle = self.servers.iter().map(|server| server.not_before).filter(|at| *at > now).min();
        self.next = if self.failing {
            let exponent = self.failed.min(16);
            self.failed = self.failed.saturating_add(1);
            let retry = now + random.about((SECOND * (1 << exponent)).min(LONGEST_RETRY));
            idle.map_or(retry, |idle| idle.min(retry))
        } else {
            self.failed = 0;
            idle.unwrap_or(now + SHORTEST)
        };
        (self.turn, self.failing) = (0, false);
    }
}

#[cfg(test)]
mod tests;
