//! The server's end of the protocol with a tunnel end point (TEP) on another host.
//!
//! The server sends Hello until the TEP answers with Welcome. It then begins a session: it pushes all bindings, and
//! from then on changes. One message is outstanding at a time. A restart is detected on both sides: a server begins a
//! new session, a TEP has a new nonce.

use std::collections::VecDeque;
use std::net::SocketAddrV6;

use crate::message::{Body, Change, Key, Message};
use crate::random::Random;

/// Time to the first retransmission, in ms; each later one takes twice as long.
const FIRST: u64 = 200;

/// The longest time to a retransmission, and the time between two Hellos of a link that is up, in ms.
const HELLO: u64 = 5000;

/// Transmissions of a message before the TEP counts as lost.
const TRIES: u32 = 5;

/// The settings of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSettings {
    /// Where the tunnel end point listens.
    pub tep: SocketAddrV6,
    /// The key that both share.
    pub key: Key,
}

/// The link to one tunnel end point. Times are in ms of any clock that never goes back.
#[derive(Debug)]
pub struct Link {
    settings: LinkSettings,
    state: State,
    /// Number of the last session; the next one has a higher number.
    session: u64,
    hello: Hello,
    random: Random,
    /// Changes given so far.
    given: u64,
    /// Changes that the TEP has confirmed.
    confirmed: u64,
    /// Messages that were not authentic, or answered nothing that was sent.
    foreign: u64,
}

#[derive(Debug)]
struct Hello {
    transaction: u64,
    tries: u32,
    again: u64,
}

#[derive(Debug)]
enum State {
    Searching,
    Up(Session),
}

#[derive(Debug)]
struct Session {
    nonce: u64,
    position: u64,
    /// Messages to send: changes, `confirmed` after they have arrived, and whether all bindings are told with them.
    waiting: VecDeque<(Vec<Change>, u64, bool)>,
    /// When the first of these is retransmitted, and how often it has been sent.
    again: u64,
    tries: u32,
}

impl Link {
    /// A link that is down. `session`: higher than any before the last restart, such as the time in µs since 1970;
    /// `seed`: secret and random.
    #[must_use]
    pub fn new(settings: LinkSettings, session: u64, seed: [u8; 32]) -> Link {
        Link {
            settings,
            state: State::Searching,
            session,
            hello: Hello { transaction: 0, tries: 0, again: 0 },
            random: Random::new(seed),
            given: 0,
            confirmed: 0,
            foreign: 0,
        }
    }

    /// Where the tunnel end point listens.
    #[must_use]
    pub fn peer(&self) -> SocketAddrV6 {
        self.settings.tep
    }

    /// Whether the tunnel end point answers, and has all bindings but those that wait.
    #[must_use]
    pub fn is_up(&self) -> bool {
        matches!(&self.state, State::Up(session) if session.tries < TRIES)
            && self.hello.tries < TRIES
    }

    /// How many changes have been given.
    #[must_use]
    pub fn given(&self) -> u64 {
        self.given
    }

    /// How many of them the tunnel end point has.
    #[must_use]
    pub fn confirmed(&self) -> u64 {
        self.confirmed
    }

    /// Messages that were not authentic, or answered nothing that was sent.
    #[must_use]
    pub fn foreign(&self) -> u64 {
        self.foreign
    }

    /// Takes changes. Gives the number that [`Link::confirmed`] reaches when they have arrived, and what is to be sent.
    pub fn change(&mut self, changes: &[Change], now: u64) -> (u64, Vec<Vec<u8>>) {
        self.given += changes.len() as u64;
        let given = self.given;
        let State::Up(session) = &mut self.state else { return (given, Vec::new()) };
        let idle = session.waiting.is_empty();
        let mut sum = given - changes.len() as u64;
        for part in changes.chunks(Body::MOST_CHANGES) {
            sum += part.len() as u64;
            session.waiting.push_back((part.to_vec(), sum, false));
        }
        (given, if idle { self.send_first(now) } else { Vec::new() })
    }

    /// When [`Link::tick`] has something to do.
    #[must_use]
    pub fn next(&self) -> u64 {
        match &self.state {
            State::Up(session) if !session.waiting.is_empty() => {
                session.again.min(self.hello.again)
            }
            _ => self.hello.again,
        }
    }

    /// Sends what is due at `now`.
    pub fn tick(&mut self, now: u64) -> Vec<Vec<u8>> {
        let mut send = Vec::new();
        if let State::Up(session) = &mut self.state
            && !session.waiting.is_empty()
            && session.again <= now
        {
            if session.tries >= TRIES {
                self.state = State::Searching;
                self.hello.again = now;
                self.hello.tries = TRIES;
            } else {
                send.extend(self.send_first(now));
            }
        }
        if self.hello.again <= now {
            send.push(self.say_hello(now));
        }
        send
    }

    /// A message has come. `all` gives the bindings that there are now, for a new session.
    pub fn receive(
        &mut self,
        from: SocketAddrV6,
        octets: &[u8],
        now: u64,
        all: impl FnOnce() -> Vec<Change>,
    ) -> Vec<Vec<u8>> {
        let same = |it: &SocketAddrV6| it.ip() == from.ip() && it.port() == from.port();
        let message = Message::parse(octets).ok().filter(|_| same(&self.settings.tep));
        let message = message.filter(|_| self.settings.key.has_sealed(octets));
        match message.map(|it| (it.transaction, it.body)) {
            Some((transaction, Body::Welcome { nonce, session: last }))
                if transaction == self.hello.transaction =>
            {
                self.hello.tries = 0;
                self.hello.again = now + HELLO;
                match &self.state {
                    State::Up(session) if session.nonce == nonce => Vec::new(),
                    _ => {
                        // Higher than the TEP's last one, even if this host's clock was set back.
                        self.session = self.session.max(last);
                        self.begin(nonce, &all(), now)
                    }
                }
            }
            Some((_, Body::Done { session, position })) if session == self.session => {
                self.done(position, now)
            }
            _ => {
                self.foreign += 1;
                Vec::new()
            }
        }
    }

    /// Begins a session with all bindings.
    fn begin(&mut self, nonce: u64, all: &[Change], now: u64) -> Vec<Vec<u8>> {
        self.session = self.session.saturating_add(1);
        let mut waiting: VecDeque<(Vec<Change>, u64, bool)> = all
            .chunks(Body::MOST_CHANGES)
            .map(|part| (part.to_vec(), self.confirmed, false))
            .collect();
        if waiting.is_empty() {
            waiting.push_back((Vec::new(), 0, false));
        }
        if let Some((_, given, whole)) = waiting.back_mut() {
            // All that has been given so far is part of it.
            (*given, *whole) = (self.given, true);
        }
        self.state = State::Up(Session { nonce, position: 0, waiting, again: now, tries: 0 });
        self.send_first(now)
    }

    fn done(&mut self, position: u64, now: u64) -> Vec<Vec<u8>> {
        let State::Up(session) = &mut self.state else { return Vec::new() };
        if position != session.position + 1 {
            return Vec::new();
        }
        let Some((_, given, _)) = session.waiting.pop_front() else { return Vec::new() };
        self.confirmed = self.confirmed.max(given);
        session.position = position;
        session.tries = 0;
        self.send_first(now)
    }

    /// Sends the first message that waits, for the first time or again.
    fn send_first(&mut self, now: u64) -> Vec<Vec<u8>> {
        let transaction = self.random.next();
        let State::Up(session) = &mut self.state else { return Vec::new() };
        let Some((changes, _, whole)) = session.waiting.front() else { return Vec::new() };
        session.again = now + (FIRST << session.tries.min(5));
        session.tries += 1;
        let body = Body::Push {
            nonce: session.nonce,
            session: self.session,
            position: session.position,
            whole: *whole,
            changes: changes.clone(),
        };
        vec![Message { transaction, number: 0, body }.seal(&self.settings.key)]
    }

    fn say_hello(&mut self, now: u64) -> Vec<u8> {
        self.hello.transaction = self.random.next();
        self.hello.again = now + (FIRST << self.hello.tries.min(6)).min(HELLO);
        self.hello.tries = self.hello.tries.saturating_add(1);
        let transaction = self.hello.transaction;
        Message { transaction, number: 0, body: Body::Hello }.seal(&self.settings.key)
    }
}
