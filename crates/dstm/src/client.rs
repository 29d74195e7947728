//! The client: requests, renews and releases a lease.
//!
//! ```text
//!            a packet waits              Ack
//!   Idle ───────────────────► Asking ──────────► Bound ──┐ half of the lifetime: Renew
//!    ▲                          │ Refuse           │ ▲───┘ seven eighths: Request, of any server
//!    │◄─────────────────────────┘                  │
//!    │◄────────── lease over, refused ─────────────┤
//!    │◄────────── Releasing ◄──────────────────────┘ idle, or the end
//! ```
//!
//! While it is idle, it has a cookie ready: the first packet then waits for one exchange instead of two.

mod grant;
mod settings;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};

use crate::cookie::LIFETIME;
use crate::message::{Body, COOKIE, Message, Reason};
use crate::random::Random;

pub use grant::Grant;
pub use settings::ClientSettings;

/// Time to the first retransmission of a request, in ms; each later one takes twice as long.
const FIRST: u64 = 250;

/// The longest time between two requests while a packet waits, in ms.
const LONGEST: u64 = 30_000;

/// Requests to one server before the client tries the next one.
const TRIES: u32 = 3;

/// How often a release is sent at most.
const RELEASES: u32 = 3;

/// How often a server can cause an immediate repetition: with a cookie, and with a higher number.
const HURRIES: u32 = 2;

/// Shortest and longest time between two renewals that get no answer, in ms.
const RENEWAL: (u64, u64) = (1000, 60_000);

/// How long a cookie is used that no packet has waited for, in ms; servers accept it for longer ([`LIFETIME`]).
const FRESH: u64 = LIFETIME * 5 / 6;

/// What the client's owner is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send this to this server.
    Send(SocketAddrV6, Vec<u8>),
    /// Set up the tunnel, or change it, and send the packets that wait.
    Bound(Grant),
    /// The lease was renewed; the tunnel is unchanged.
    Renewed(Grant),
    /// Take down the tunnel: the lease has expired, or the server does not know it.
    Lost,
    /// There is no address: drop the packets that wait.
    Refused(Reason),
    /// The server has the address back, or does not answer; the tunnel is down already.
    Released,
}

/// The phase of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It has no address, and needs none.
    Idle,
    /// It requests an address.
    Asking,
    /// It was refused, and waits before the next request.
    Refused,
    /// It has one.
    Bound,
    /// It releases its address.
    Releasing,
}

#[derive(Debug)]
enum State {
    Idle,
    Asking(Exchange),
    /// No requests until then (ms).
    Refused(u64),
    Bound(Grant, Renewal),
    Releasing(Grant, Exchange),
}

/// A request that is retransmitted until it is answered.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    transaction: u64,
    number: u64,
    /// Index of the server.
    server: usize,
    /// How often it has been sent in all.
    tries: u32,
    /// When it is sent again.
    again: u64,
    /// Immediate repetitions that the server has caused.
    hurried: u32,
}

/// Renewing a lease.
#[derive(Clone, Copy, Debug)]
struct Renewal {
    /// Under way.
    exchange: Option<Exchange>,
    /// When it begins, or goes on.
    at: u64,
    /// The time to the next try.
    pause: u64,
}

/// A cookie that is requested before a packet waits.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    /// Under way.
    exchange: Option<Exchange>,
    /// When it is requested, or requested again.
    at: u64,
    /// The time to the next try.
    pause: u64,
}

/// A client. All times are in ms of any clock that never goes back.
#[derive(Debug)]
pub struct Client {
    settings: ClientSettings,
    state: State,
    /// The last server that answered.
    server: usize,
    /// What each server has offered last.
    cookies: Vec<Option<[u8; COOKIE]>>,
    ahead: Ahead,
    /// What it had last, and would like again.
    last: Option<Ipv4Addr>,
    /// Its end of the tunnel, if it is not the address that it sends from.
    tunnel: Option<Ipv6Addr>,
    number: u64,
    random: Random,
    /// Answers that were not authentic, or not for a question of ours.
    foreign: u64,
}

impl Client {
    /// A client without a lease. `number`: higher than any that it has sent before its last restart, such as the time
    /// in µs since 1970; `seed`: secret and random.
    #[must_use]
    pub fn new(settings: ClientSettings, number: u64, seed: [u8; 32]) -> Client {
        Client {
            cookies: vec![None; settings.servers.len()],
            ahead: Ahead { exchange: None, at: 0, pause: RENEWAL.0 },
            settings,
            state: State::Idle,
            server: 0,
            last: None,
            tunnel: None,
            number,
            random: Random::new(seed),
            foreign: 0,
        }
    }

    /// Its phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.state {
            State::Idle => Phase::Idle,
            State::Asking(_) => Phase::Asking,
            State::Refused(_) => Phase::Refused,
            State::Bound(..) => Phase::Bound,
            State::Releasing(..) => Phase::Releasing,
        }
    }

    /// What it has.
    #[must_use]
    pub fn grant(&self) -> Option<&Grant> {
        match &self.state {
            State::Bound(grant, _) => Some(grant),
            _ => None,
        }
    }

    /// Answers that were not authentic, or not for a question of ours.
    #[must_use]
    pub fn foreign(&self) -> u64 {
        self.foreign
    }

    /// Its end of the tunnel from the next question on; `None`: the address that it sends from.
    pub fn set_tunnel(&mut self, tunnel: Option<Ipv6Addr>) {
        self.tunnel = tunnel;
    }

    /// A packet waits for an address.
    pub fn wanted(&mut self, now: u64) -> Vec<Effect> {
        match self.state {
            State::Refused(until) if until > now => return Vec::new(),
            State::Idle | State::Refused(_) => {}
            State::Asking(_) | State::Bound(..) | State::Releasing(..) => return Vec::new(),
        }
        if self.settings.servers.is_empty() {
            return Vec::new();
        }
        let exchange = self.new_exchange(self.server, now);
        self.state = State::Asking(exchange);
        vec![self.ask(&exchange, None)]
    }

    /// The address is not needed any more. The tunnel is to be taken down when this returns.
    pub fn release(&mut self, now: u64) -> Vec<Effect> {
        match self.state {
            State::Bound(grant, _) => {
                let exchange = self.new_exchange(self.server, now);
                self.state = State::Releasing(grant, exchange);
                vec![self.send_release(&grant, &exchange)]
            }
            State::Asking(_) => {
                self.state = State::Idle;
                Vec::new()
            }
            State::Idle | State::Refused(_) | State::Releasing(..) => Vec::new(),
        }
    }

    /// A message has come `from` there.
    pub fn receive(&mut self, from: SocketAddrV6, octets: &[u8], now: u64) -> Vec<Effect> {
        let Some((server, message)) = self.authenticate(from, octets) else {
            self.foreign += 1;
            return Vec::new();
        };
        self.server = server;
        match (message.body, &mut self.state) {
            (Body::Offer { cookie }, _) => {
                self.cookies[server] = Some(cookie);
                let at = now + self.pause(FRESH);
                self.ahead = Ahead { exchange: None, at, pause: RENEWAL.0 };
                self.ask_at_once(server, now)
            }
            (Body::Ack { lifetime: 0, .. }, State::Releasing(..)) => {
                self.state = State::Idle;
                vec![Effect::Released]
            }
            (Body::Ack { v4, ports, lifetime, tep }, State::Asking(_) | State::Bound(..))
                if lifetime > 0 =>
            {
                let until = now + u64::from(lifetime) * 1000;
                self.bound(Grant { v4, ports, tep, server: from, until, since: now }, lifetime, now)
            }
            (Body::Refuse { reason: Reason::Stale, expected, .. }, _) => {
                // This host's clock was set back, or another host uses this client's name.
                self.number = self.number.max(expected.unwrap_or(0));
                self.ask_at_once(server, now)
            }
            (Body::Refuse { reason, retry, .. }, _) => self.refused(reason, retry, now),
            _ => Vec::new(),
        }
    }

    /// When [`Client::tick`] has something to do.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        match &self.state {
            State::Idle if self.settings.servers.is_empty() => None,
            State::Idle => Some(self.ahead.at),
            State::Asking(exchange) | State::Releasing(_, exchange) => Some(exchange.again),
            State::Refused(until) => Some(*until),
            State::Bound(grant, renewal) => Some(renewal.at.min(grant.until)),
        }
    }

    /// Does what is due at `now`.
    pub fn tick(&mut self, now: u64) -> Vec<Effect> {
        if self.next().is_none_or(|next| next > now) {
            return Vec::new();
        }
        match self.state {
            State::Idle => vec![self.fetch_cookie(now)],
            State::Refused(_) => {
                self.state = State::Idle;
                Vec::new()
            }
            State::Asking(exchange) => self.ask_again(exchange, now),
            State::Releasing(_, exchange) if exchange.tries >= RELEASES => {
                self.state = State::Idle;
                vec![Effect::Released]
            }
            State::Releasing(grant, mut exchange) => {
                exchange.tries += 1;
                exchange.hurried = 0;
                exchange.again = now + self.pause(FIRST << exchange.tries.min(8));
                self.state = State::Releasing(grant, exchange);
                vec![self.send_release(&grant, &exchange)]
            }
            State::Bound(grant, _) if grant.until <= now => {
                self.state = State::Idle;
                vec![Effect::Lost]
            }
            State::Bound(grant, renewal) => self.renew(grant, renewal, now),
        }
    }

    /// Reads an answer to a question of ours.
    fn authenticate(&self, from: SocketAddrV6, octets: &[u8]) -> Option<(usize, Message)> {
        let same = |it: &SocketAddrV6| it.ip() == from.ip() && it.port() == from.port();
        let server = self.settings.servers.iter().position(same)?;
        let exchange = match &self.state {
            State::Asking(exchange) | State::Releasing(_, exchange) => exchange,
            State::Bound(_, Renewal { exchange: Some(exchange), .. }) => exchange,
            State::Idle => self.ahead.exchange.as_ref()?,
            _ => return None,
        };
        let message = Message::parse(octets).ok()?;
        let ours = message.transaction == exchange.transaction && message.number == exchange.number;
        (ours && self.settings.key.has_sealed(octets)).then_some((server, message))
    }

    fn bound(&mut self, grant: Grant, lifetime: u32, now: u64) -> Vec<Effect> {
        let half = u64::from(lifetime) * 500;
        let renewal = Renewal { exchange: None, at: now + half, pause: RENEWAL.0 };
        self.last = Some(grant.v4);
        let effect = match &self.state {
            State::Bound(before, _) if before.is_like(&grant) => Effect::Renewed(grant),
            _ => Effect::Bound(grant),
        };
        self.state = State::Bound(grant, renewal);
        vec![effect]
    }

    fn refused(&mut self, reason: Reason, retry: u32, now: u64) -> Vec<Effect> {
        match self.state {
            State::Asking(exchange) => {
                // Perhaps another server has one.
                let next = exchange.server + 1;
                let others = self.settings.servers.len();
                if next < others && exchange.tries < TRIES {
                    let exchange = Exchange { tries: TRIES, ..self.new_exchange(next, now) };
                    self.state = State::Asking(exchange);
                    return vec![self.ask(&exchange, None)];
                }
                let wait = u64::from(retry.clamp(1, 300)) * 1000;
                self.state = State::Refused(now + wait);
                vec![Effect::Refused(reason)]
            }
            State::Bound(..) if reason == Reason::NoLease => {
                self.state = State::Idle;
                vec![Effect::Lost]
            }
            // The lease stays valid until it expires.
            State::Bound(..) => Vec::new(),
            State::Releasing(..) => {
                self.state = State::Idle;
                vec![Effect::Released]
            }
            State::Idle | State::Refused(_) => Vec::new(),
        }
    }

    /// Repeats the request at once to a server that has offered a cookie or wants a higher number, at most [`HURRIES`]
    /// times.
    fn ask_at_once(&mut self, server: usize, now: u64) -> Vec<Effect> {
        let before = match &self.state {
            State::Asking(before) | State::Releasing(_, before) => *before,
            State::Bound(_, Renewal { exchange: Some(before), .. }) => *before,
            State::Idle | State::Refused(_) | State::Bound(..) => return Vec::new(),
        };
        if before.hurried >= HURRIES {
            return Vec::new();
        }
        let (tries, hurried) = (before.tries, before.hurried + 1);
        let exchange = Exchange { tries, hurried, ..self.new_exchange(server, now) };
        let effect = match &mut self.state {
            State::Bound(grant, renewal) => {
                renewal.exchange = Some(exchange);
                let grant = *grant;
                self.ask(&exchange, Some(&grant))
            }
            State::Releasing(grant, under_way) => {
                *under_way = exchange;
                let grant = *grant;
                self.send_release(&grant, &exchange)
            }
            state => {
                *state = State::Asking(exchange);
                self.ask(&exchange, None)
            }
        };
        vec![effect]
    }

    fn ask_again(&mut self, mut exchange: Exchange, now: u64) -> Vec<Effect> {
        let tries = exchange.tries + 1;
        if tries.is_multiple_of(TRIES) && self.settings.servers.len() > 1 {
            let next = (exchange.server + 1) % self.settings.servers.len();
            exchange = self.new_exchange(next, now);
        }
        exchange.tries = tries;
        exchange.hurried = 0;
        exchange.again = now + self.pause((FIRST << tries.min(10)).min(LONGEST));
        self.state = State::Asking(exchange);
        vec![self.ask(&exchange, None)]
    }

    /// Sends the next renewal: to the server that has granted the lease, and near its end to the others, too.
    fn renew(&mut self, grant: Grant, renewal: Renewal, now: u64) -> Vec<Effect> {
        let total = grant.until.saturating_sub(grant.since);
        let near_the_end = now + total / 8 >= grant.until;
        let count = self.settings.servers.len();
        let server = match renewal.exchange {
            Some(exchange) if near_the_end => (exchange.server + 1) % count,
            Some(exchange) => exchange.server,
            None => self.server,
        };
        let tries = renewal.exchange.map_or(1, |exchange| exchange.tries + 1);
        let exchange = Exchange { tries, ..self.new_exchange(server, now) };
        let pause = self.pause(renewal.pause);
        let next = Renewal {
            exchange: Some(exchange),
            at: now + pause,
            pause: (renewal.pause * 2).min(RENEWAL.1).min((total / 8).max(RENEWAL.0 / 4)),
        };
        self.state = State::Bound(grant, next);
        vec![self.ask(&exchange, Some(&grant))]
    }

    /// Requests a cookie, so that the first packet need not wait for one: a request without a cookie has no other effect.
    fn fetch_cookie(&mut self, now: u64) -> Effect {
        let exchange = self.new_exchange(self.server, now);
        let pause = self.ahead.pause;
        self.ahead = Ahead {
            exchange: Some(exchange),
            at: now + self.pause(pause),
            pause: (pause * 2).min(RENEWAL.1),
        };
        self.cookies[self.server] = None;
        self.ask(&exchange, None)
    }

    fn new_exchange(&mut self, server: usize, now: u64) -> Exchange {
        self.number += 1;
        let again = now + self.pause(FIRST);
        Exchange {
            transaction: self.random.next(),
            number: self.number,
            server,
            tries: 1,
            again,
            hurried: 0,
        }
    }

    /// `about`, with jitter of a tenth, so that clients do not send at the same time.
    fn pause(&mut self, about: u64) -> u64 {
        about * 9 / 10 + self.random.next() % (about / 5).max(1)
    }

    /// A request; or a renewal of the grant, of the server that has granted it.
    fn ask(&self, exchange: &Exchange, grant: Option<&Grant>) -> Effect {
        let (id, cookie) = (self.settings.id.clone(), self.cookies[exchange.server]);
        let to = self.settings.servers[exchange.server];
        let (lifetime, tunnel) = (self.settings.lifetime, self.tunnel);
        let body = match grant {
            Some(&Grant { v4, ports, server, .. }) if server == to => {
                Body::Renew { id, cookie, v4, ports, lifetime, tunnel }
            }
            grant => Body::Request {
                id,
                cookie,
                v4: grant.map(|grant| grant.v4).or(self.last),
                sharing: self.settings.sharing,
                lifetime,
                tunnel,
            },
        };
        self.send(exchange, body)
    }

    fn send_release(&self, grant: &Grant, exchange: &Exchange) -> Effect {
        let (id, cookie) = (self.settings.id.clone(), self.cookies[exchange.server]);
        self.send(exchange, Body::Release { id, cookie, v4: grant.v4, ports: grant.ports })
    }

    fn send(&self, exchange: &Exchange, body: Body) -> Effect {
        let Exchange { transaction, number, server, .. } = *exchange;
        let message = Message { transaction, number, body };
        Effect::Send(self.settings.servers[server], message.seal(&self.settings.key))
    }
}

#[cfg(test)]
mod tests;
