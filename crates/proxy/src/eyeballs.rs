//! Connecting to a server that may have addresses of both families (RFC 8305, version 2 of Happy Eyeballs).

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;

use fordway_xlat::addr::Pool6;
use futures_util::StreamExt;
use futures_util::future::{FutureExt, OptionFuture};
use futures_util::stream::FuturesUnordered;
use hickory_proto::rr::RecordType;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep_until};

use super::authority::{Authority, Host};
use super::names::Names;
use super::order::{Candidate, sort};
use super::reason::Reason;
use super::settings::Eyeballs;
use fordway_serve::Network;

/// How a connection is to be made.
pub(super) struct Plan<'a> {
    pub(super) names: &'a Names,
    /// The client for which addresses are looked up; `None`: the proxy itself.
    pub(super) client: Option<Network>,
    pub(super) eyeballs: Eyeballs,
    /// IPv4 addresses are reached through the first of these.
    pub(super) pref64: &'a [Pool6],
    /// Prefixes whose addresses stand for IPv4 addresses.
    pub(super) translated: &'a [Pool6],
    /// Whether an address may be connected to; the second argument says that it is this host's own, or has one in it.
    pub(super) allows: &'a dyn Fn(IpAddr, bool) -> bool,
}

/// A connection that was made.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) stream: TcpStream,
    pub(super) to: SocketAddr,
    /// See [`Candidate::is_own`].
    pub(super) is_own: bool,
    /// An address of the other family stood in front and did not answer in time, or not at all.
    pub(super) fell_back: bool,
}

/// State of the attempts.
struct Race<'a> {
    plan: &'a Plan<'a>,
    port: u16,
    /// Addresses that have not been tried, in order.
    waiting: Vec<Candidate>,
    /// The family of the first attempt was IPv6.
    first: Option<bool>,
    denied: bool,
    failure: Option<Reason>,
}

/// Connects to the first address that answers.
pub(super) async fn connect(to: &Authority, plan: &Plan<'_>) -> Result<Connected, Reason> {
    let mut race = Race {
        plan,
        port: to.port,
        waiting: Vec::new(),
        first: None,
        denied: false,
        failure: None,
    };
    let name = match &to.host {
        Host::Address(address) => {
            race.add(&[*address]);
            None
        }
        Host::Name(name) => match plan.names.local(name) {
            Some(addresses) => {
                race.add(&addresses);
                None
            }
            None => Some(name),
        },
    };
    let lookup =
        |kind| OptionFuture::from(name.map(|name| plan.names.lookup(plan.client, name, kind)));
    // Section 3: AAAA first, A at once behind it, neither waits for the other.
    let mut aaaa = pin!(lookup(RecordType::AAAA).fuse());
    let mut a = pin!(lookup(RecordType::A).fuse());
    let (mut has_aaaa, mut has_a) = (name.is_none(), name.is_none());
    // When the next attempt may begin. Before an answer there is none; A alone waits for the Resolution Delay.
    let mut next = name.is_none().then(Instant::now);
    let mut attempts = FuturesUnordered::new();
    loop {
        if next.is_some_and(|next| next <= Instant::now())
            && let Some(candidate) = race.next()
        {
            attempts.push(attempt(candidate));
            next = Some(Instant::now() + plan.eyeballs.attempt);
        }
        if has_aaaa && has_a && attempts.is_empty() && race.waiting.is_empty() {
            return Err(race.verdict());
        }
        let may_wait = next.filter(|_| !race.waiting.is_empty());
        tokio::select! {
            biased;
            Some((Candidate { to, is_own, .. }, outcome)) = attempts.next(),
                if !attempts.is_empty() => match outcome {
                Ok(stream) => {
                    let fell_back = race.first.is_some_and(|first| first != to.is_ipv6());
                    return Ok(Connected { stream, to, is_own, fell_back });
                }
                Err(error) => {
                    race.failed(&error);
                    // Section 5: the next one need not wait.
                    next = Some(Instant::now());
                }
            },
            Some(found) = &mut aaaa, if !has_aaaa => {
                has_aaaa = true;
                race.found(found);
                if next.is_none() || race.first.is_none() {
                    next = Some(Instant::now());
                }
            }
            Some(found) = &mut a, if !has_a => {
                has_a = true;
                race.found(found);
                if next.is_none() {
                    let delay = if has_aaaa { Default::default() } else { plan.eyeballs.resolution };
                    next = Some(Instant::now() + delay);
                }
            }
            () = sleep_until(may_wait.unwrap_or_else(Instant::now)), if may_wait.is_some() => {}
        }
    }
}

impl Race<'_> {
    fn found(&mut self, found: Result<Vec<IpAddr>, Reason>) {
        match found {
            Ok(addresses) => self.add(&addresses),
            // The other query may still have addresses.
            Err(reason) => self.failure = Some(self.failure.unwrap_or(reason)),
        }
    }

    /// Adds addresses to those that wait, as far as they may be connected to.
    fn add(&mut self, addresses: &[IpAddr]) {
        for address in addresses {
            // An IPv4-mapped address is IPv4 on the wire.
            let address = match (address.to_canonical(), self.plan.pref64.first()) {
                (IpAddr::V4(v4), Some(pref64)) => IpAddr::V6(pref64.embed(v4)),
                (address, _) => address,
            };
            let to = SocketAddr::new(address, self.port);
            let candidate = Candidate::of(to, self.plan.translated);
            let known = self.waiting.iter().any(|it| it.to == candidate.to);
            if !(self.plan.allows)(address, candidate.is_own) {
                self.denied = true;
            } else if !known {
                self.waiting.push(candidate);
            }
        }
        self.waiting = sort(std::mem::take(&mut self.waiting));
    }

    fn next(&mut self) -> Option<Candidate> {
        if self.waiting.is_empty() {
            return None;
        }
        let candidate = self.waiting.remove(0);
        self.first.get_or_insert(candidate.to.is_ipv6());
        Some(candidate)
    }

    fn failed(&mut self, error: &io::Error) {
        let reason = match error.kind() {
            ErrorKind::ConnectionRefused => Reason::Refused,
            ErrorKind::TimedOut => Reason::ConnectTimeout,
            _ => Reason::Unreachable,
        };
        // A refused connection says more than a timeout.
        if self.failure != Some(Reason::Refused) {
            self.failure = Some(reason);
        }
    }

    fn verdict(&self) -> Reason {
        match (self.failure, self.denied) {
            (Some(Reason::Refused | Reason::Unreachable | Reason::ConnectTimeout), _)
            | (Some(_), false) => self.failure.unwrap_or(Reason::Unreachable),
            (_, true) => Reason::DestinationDenied,
            (None, false) => Reason::NoSuchName,
        }
    }
}

async fn attempt(candidate: Candidate) -> (Candidate, io::Result<TcpStream>) {
    let to = candidate.to;
    let socket = if to.is_ipv6() { TcpSocket::new_v6() } else { TcpSocket::new_v4() };
    let outcome = match socket {
        Ok(socket) => socket.connect(to).await,
        Err(error) => Err(error),
    };
    // Writes are whole: Nagle's algorithm would only delay them.
    let outcome = outcome.inspect(|stream| drop(stream.set_nodelay(true)));
    (candidate, outcome)
}
