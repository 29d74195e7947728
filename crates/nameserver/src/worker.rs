//! One thread: how each query is answered.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use fordway_dns64::{Kind, Rejected};
use hickory_proto::op::Message;
use hickory_proto::rr::RecordType;
use hickory_proto::serialize::binary::BinEncodable;

use super::brief::Brief;
use super::cache::Key;
use super::cookie::Shown;
use super::due::Renewals;
use super::extras::Extras;
use super::query::{MIN_UDP_SIZE, Query};
use super::ready::{Asked, Form, Ready};
use super::resolve::{self, Made};
use super::shared::{Active, Shared};
use super::sockets::Transport;
use super::stats::Counters;
use fordway_resolver::shares::Place;
use fordway_serve::Network;
use fordway_serve::clock;

/// Of the queries over the rate, one in so many is answered with TC, so that a client whose address is forged still
/// gets its answers, by TCP.
const SLIP: u32 = 2;

/// State of a thread.
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    /// Which thread this is.
    pub(super) index: usize,
    slip: Cell<u32>,
    /// Answers that are to be made anew before they expire.
    pub(super) renewals: Renewals,
}

/// Where a query came from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Client {
    pub(super) address: IpAddr,
    pub(super) transport: Transport,
}

/// A query whose answer is not there yet.
pub(super) struct Waiting {
    pub(super) active: Arc<Active>,
    pub(super) client: IpAddr,
    pub(super) message: Message,
    form: Form,
    /// None: the answer is not to be kept.
    key: Option<Box<Key>>,
    /// As the client has written it.
    question: Vec<u8>,
    extras: Extras,
    since: Instant,
    _place: Place,
}

/// One moment in all units that are needed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) instant: Instant,
    /// Since the server's start.
    pub(super) millis: u64,
    nanos: u64,
}

impl Now {
    fn new(start: Instant, instant: Instant) -> Self {
        let since = instant.saturating_duration_since(start);
        Now { instant, millis: since.as_millis() as u64, nanos: since.as_nanos() as u64 }
    }
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, index: usize) -> Self {
        Worker { shared, index, slip: Cell::new(0), renewals: Renewals::default() }
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.shared.threads[self.index].counters
    }

    pub(super) fn now(&self) -> Now {
        Now::new(self.shared.start, clock::now())
    }

    /// Answers a message at once, by appending to `out`, or returns what has to be waited for.
    pub(super) fn handle(
        &self,
        active: &Arc<Active>,
        client: Client,
        octets: &[u8],
        now: Now,
        out: &mut Vec<u8>,
    ) -> Option<Box<Waiting>> {
        let counters = self.counters();
        match client.transport {
            Transport::Udp => counters.udp_queries.add(1),
            Transport::Tcp => counters.tcp_queries.add(1),
            Transport::Tls => counters.tls_queries.add(1),
            Transport::Https => counters.https_queries.add(1),
        }
        let query = Query::read(octets);
        let size = active.settings.udp_size;
        let brief = |query: &Query<'_>, extras, brief: Brief, out: &mut Vec<u8>| {
            counters.answer(brief.rcode());
            brief.write(query, extras, size, out);
        };
        let hidden = matches!(client.transport, Transport::Tls | Transport::Https);
        let padded = |query: Query<'_>| query.edns.is_some_and(|edns| edns.padded);
        let mut extras = Extras { cookie: None, pads: hidden && query.is_some_and(padded) };
        if !active.settings.allow.contains(client.address) {
            match query {
                Some(query) if self.may_refuse(active, client, now) => {
                    counters.refused.add(1);
                    brief(&query, extras, Brief::Prohibited, out);
                }
                _ => counters.dropped.refused.add(1),
            }
            return None;
        }
        let mut is_malformed = false;
        let mut is_known = client.transport != Transport::Udp;
        if let (Some(secrets), Some(shown)) = (&active.cookies, cookie_of(query.as_ref(), octets)) {
            if let Some((given, shown)) = secrets.check(shown, client.address, unix_seconds()) {
                counters.cookie(shown);
                extras.cookie = Some(given);
                is_known |= shown == Shown::Valid;
            } else {
                counters.cookies_invalid.add(1);
                is_malformed = true;
            }
        }
        if !is_known && !may_answer(active, client.address, now) {
            match query {
                Some(query) if self.slips() => {
                    counters.limited.add(1);
                    // A client that sends this cookie back, or retries by TCP, is not limited.
                    let how =
                        if extras.cookie.is_some() { Brief::BadCookie } else { Brief::Truncated };
                    brief(&query, extras, how, out);
                }
                _ => counters.dropped.limited.add(1),
            }
            return None;
        }
        if is_malformed {
            if let Some(query) = query {
                brief(&query, extras, Brief::MalformedCookie, out);
            }
            return None;
        }
        if let (None, Some(_)) = (&query, extras.cookie)
            && let Some(query) = Query::read_bare(octets)
        {
            counters.local.add(1);
            brief(&query, extras, Brief::Cookie, out);
            return None;
        }
        let Some(query) = query else {
            return self.handle_unusual(active, client, octets, now, out);
        };
        let form = form(active, &query, client.transport);
        if query.record_type == u16::from(RecordType::ANY) && client.transport == Transport::Udp {
            // All records of a name, sent to an address that may be forged, would amplify an attack (RFC 8482).
            counters.truncated.add(1);
            brief(&query, extras, Brief::Truncated, out);
            return None;
        }
        let (policy, _) = active.settings.policies.of(client.address);
        let key = Key::new(policy, &query);
        let asked = Asked::of(&query, extras);
        let found = active.ready.read(&key, now.millis, |ready| {
            counters.cached.add(1);
            self.write(ready, &asked, form, now, out);
        });
        if let Some(due) = found {
            if let Some(expires) = due.filter(|_| active.settings.prefetch) {
                self.renewals.push(client.address, key, query, expires);
            }
            return None;
        }
        let waiting = query.to_message(key.name()).and_then(|message| {
            let flushes = active.ready.flushes();
            let made = resolve::at_once(active, client.address, &message);
            let ready = made.and_then(|made| self.encode(active, made, now));
            if let Some((ready, is_kept)) = ready {
                self.write(&ready, &asked, form, now, out);
                if is_kept {
                    active.ready.insert(&key, ready, now.millis, flushes);
                }
                return Some(None);
            }
            let query = || (message, Some(Box::new(key)), query.question.to_vec());
            let mut waiting = self.admit(active, client, now, form, key.name(), query)?;
            waiting.extras = extras;
            Some(Some(waiting))
        });
        waiting.unwrap_or_else(|| {
            counters.overload.add(1);
            brief(&query, extras, Brief::Overload, out);
            None
        })
    }

    /// Appends an answer to the query of a client, and counts it.
    fn write(&self, ready: &Ready, asked: &Asked<'_>, form: Form, now: Now, out: &mut Vec<u8>) {
        let counters = self.counters();
        counters.answer(ready.rcode());
        if ready.write(asked, form, now.millis, out) {
            counters.truncated.add(1);
        }
    }

    /// Encodes the response to a query, made of answers that may be used until some moment, and counts it; with whether it
    /// may be kept.
    fn encode(&self, active: &Active, made: Made, now: Now) -> Option<(Ready, bool)> {
        let (kind, blocked) = (made.0.kind, made.0.blocked);
        let encoded = encode(active, made, now)?;
        self.counters().made(kind);
        self.counters().blocked.add(blocked.into());
        Some(encoded)
    }

    /// A message that is no plain query: the library reads it, and makes the error if there is one.
    fn handle_unusual(
        &self,
        active: &Arc<Active>,
        client: Client,
        octets: &[u8],
        now: Now,
        out: &mut Vec<u8>,
    ) -> Option<Box<Waiting>> {
        let least = match client.transport {
            Transport::Udp => Form::Datagram(MIN_UDP_SIZE.into()),
            _ => Form::Stream(None),
        };
        match fordway_dns64::parse(octets) {
            Err(Rejected::Ignore) => self.counters().dropped.malformed.add(1),
            Err(Rejected::Answer(message)) => {
                self.counters().made(Kind::Error);
                let size = active.settings.udp_size;
                if let Some(ready) = Ready::encode(&message, size, now.millis, now.millis) {
                    self.counters().answer(ready.rcode());
                    let asked = Asked::bare(message.metadata.id);
                    ready.write(&asked, least, now.millis, out);
                }
            }
            Ok(message) => {
                let limit = fordway_dns64::udp_limit(&message, active.settings.udp_size);
                let form = match client.transport {
                    Transport::Udp => Form::Datagram(limit),
                    _ => Form::Stream(None),
                };
                let made = resolve::at_once(active, client.address, &message);
                if let Some((ready, _)) = made.and_then(|made| self.encode(active, made, now)) {
                    let asked = Asked::bare(message.metadata.id);
                    self.write(&ready, &asked, form, now, out);
                    return None;
                }
                let name = message.queries.first().map(|asked| asked.name.to_lowercase());
                let name = name.and_then(|name| name.to_bytes().ok()).unwrap_or_default();
                // Its question is repeated as the library writes it.
                let query = || (message, None, Vec::new());
                let waiting = self.admit(active, client, now, form, &name, query);
                if waiting.is_none() {
                    self.counters().dropped.limited.add(1);
                }
                return waiting;
            }
        }
        None
    }

    /// A place among the queries that wait, if there is one for this client and this name (in lower case, as on the
    /// wire).
    fn admit(
        &self,
        active: &Arc<Active>,
        client: Client,
        now: Now,
        form: Form,
        name: &[u8],
        query: impl FnOnce() -> (Message, Option<Box<Key>>, Vec<u8>),
    ) -> Option<Box<Waiting>> {
        let limits = &active.settings.limits;
        let network = network(active, client.address);
        let place = self.shared.queries.take(limits.queries, Some(network), name)?;
        let (message, key, question) = query();
        Some(Box::new(Waiting {
            active: Arc::clone(active),
            client: client.address,
            message,
            form,
            key,
            question,
            extras: Extras::default(),
            since: now.instant,
            _place: place,
        }))
    }

    /// Waits for what a query needs, and hands its answer to `write`.
    pub(super) async fn finish<R>(
        &self,
        mut waiting: Box<Waiting>,
        write: impl FnOnce(&dyn Fn(&mut Vec<u8>)) -> R,
    ) -> R {
        let (made, flushes) = loop {
            let flushes = waiting.active.ready.flushes();
            let made = {
                let Waiting { active, client, message, .. } = &*waiting;
                resolve::resolve(active, *client, message, Duration::ZERO).await
            };
            let active = self.shared.active.load();
            if active.generation == waiting.active.generation {
                break (made, flushes);
            }
            // Settings have changed meanwhile: the answer is one of the old ones.
            waiting.active = Arc::clone(&active);
        };
        let counters = self.counters();
        let now = self.now();
        let active = &waiting.active;
        let Some((ready, is_kept)) = self.encode(active, made, now) else {
            counters.dropped.malformed.add(1);
            return write(&|_| {});
        };
        counters.took(now.instant.saturating_duration_since(waiting.since).as_micros() as u64, 1);
        let (id, extras) = (waiting.message.metadata.id, waiting.extras);
        let asked = Asked { id, question: &waiting.question, extras };
        let written = write(&|out| self.write(&ready, &asked, waiting.form, now, out));
        if let Some(key) = waiting.key.as_deref().filter(|_| is_kept) {
            active.ready.insert(key, ready, now.millis, flushes);
        }
        written
    }

    fn may_refuse(&self, active: &Active, client: Client, now: Now) -> bool {
        client.transport != Transport::Udp
            || self.shared.refusals.allow(network(active, client.address), now.nanos)
    }

    fn slips(&self) -> bool {
        let count = self.slip.get().wrapping_add(1);
        self.slip.set(count);
        count.is_multiple_of(SLIP)
    }
}

/// Encodes the response to a query, made of answers that may be used until some moment; with whether it may be kept.
pub(super) fn encode(active: &Active, made: Made, now: Now) -> Option<(Ready, bool)> {
    let (response, until) = made;
    let age_limit = until.map(|until| until.saturating_duration_since(now.instant).as_millis());
    let lifetime =
        (u64::from(response.lifetime) * 1000).min(age_limit.map_or(u64::MAX, |limit| limit as u64));
    let size = active.settings.udp_size;
    let ready = Ready::encode(&response.message, size, now.millis, now.millis + lifetime)?;
    Some((ready, lifetime > 0))
}

fn network(active: &Active, client: IpAddr) -> Network {
    Network::of(client, active.settings.limits.client_len)
}

/// Whether the rate of the client's network allows an answer. Loopback addresses can't be forged from outside.
fn may_answer(active: &Active, client: IpAddr, now: Now) -> bool {
    match &active.limiter {
        Some(limiter) => client.is_loopback() || limiter.allow(network(active, client), now.nanos),
        None => true,
    }
}

/// The cookie of a query, or of a message that asks for nothing else.
fn cookie_of<'a>(query: Option<&Query<'a>>, octets: &'a [u8]) -> Option<&'a [u8]> {
    match query {
        Some(query) => query.edns?.cookie,
        None => Query::read_bare(octets)?.edns?.cookie,
    }
}

/// Seconds since 1970, as cookies have them: 32 bits that begin anew.
fn unix_seconds() -> u32 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as u32)
}

/// How the answer to a query is given.
fn form(active: &Active, query: &Query<'_>, transport: Transport) -> Form {
    let settings = &active.settings;
    match transport {
        Transport::Udp => {
            let takes = query.edns.map_or(MIN_UDP_SIZE, |edns| edns.size);
            Form::Datagram(takes.min(settings.udp_size).max(MIN_UDP_SIZE).into())
        }
        // HTTP has its own ways to keep a connection.
        Transport::Https => Form::Stream(None),
        Transport::Tcp | Transport::Tls => {
            let idle = settings.limits.idle.as_millis() / 100;
            let wanted = query.edns.is_some_and(|edns| edns.keepalive);
            Form::Stream(wanted.then_some(u16::try_from(idle).unwrap_or(u16::MAX)))
        }
    }
}
