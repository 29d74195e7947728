//! A connection of a client, and the one to the server.

use std::net::{SocketAddrV4, SocketAddrV6};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use fordway_net::unacknowledged;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;

use super::super::core::Core;
use super::super::settings::Limits;
use super::abort;
use super::flow::{Broken, Flow, Pumped};
use fordway_serve::Ticket;
use fordway_serve::pipe::Pipes;

/// How long a reset waits for what was sent before it to arrive.
const DRAIN: Duration = Duration::from_secs(5);

/// Time until the first check of that; later checks are a fifth of the time waited apart.
const FIRST_LOOK: Duration = Duration::from_millis(10);

/// A side of the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in super::super) enum Side {
    #[error("client")]
    V6,
    #[error("server")]
    V4,
}

/// Why a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum End {
    #[error("finished")]
    Finished,
    /// Before the server has answered.
    #[error("the client is gone")]
    Abandoned,
    #[error("not connected: {0}")]
    Failed(Errno),
    /// This side has reset it, or is lost.
    #[error("reset by the {0}")]
    Reset(Side),
    #[error("idle")]
    Idle,
}

/// What is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// The kernel will say.
    Wait,
    /// More, when others had their turn.
    Again,
    /// It ends.
    End(End),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The connection to the server is being made.
    Connecting,
    /// Both sides are there.
    Open,
    /// This side has failed. Until this time the other side gets what had been received before; then it gets a reset.
    Failed(Side, Instant),
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) v6: OwnedFd,
    pub(super) v4: OwnedFd,
    /// It counts for its client network.
    _ticket: Ticket,
    up: Flow,
    down: Flow,
    state: State,
    /// When it is checked without an event.
    pub(super) timer: Option<Instant>,
    /// It is in the list of connections that wait for a pipe.
    pub(super) listed: bool,
    /// Octets sent before a failure are not acknowledged: when to check again.
    look: Option<Instant>,
    opened: Instant,
    active: Instant,
    /// The client, what it has asked for, and the server.
    ends: (SocketAddrV6, SocketAddrV6, SocketAddrV4),
}

impl Connection {
    pub(super) fn new(
        v6: OwnedFd,
        v4: OwnedFd,
        ends: (SocketAddrV6, SocketAddrV6, SocketAddrV4),
        ticket: Ticket,
        now: Instant,
    ) -> Connection {
        let (up, down) = (Flow::default(), Flow::default());
        let state = State::Connecting;
        Connection {
            v6,
            v4,
            _ticket: ticket,
            up,
            down,
            state,
            timer: None,
            listed: false,
            look: None,
            opened: now,
            active: now,
            ends,
        }
    }

    /// Takes the events of a side. Returns an end if the connection could not be made.
    pub(super) fn heard(&mut self, side: Side, flags: EventFlags, core: &mut Core) -> Option<End> {
        let gone = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        let (from, to) = match side {
            Side::V6 => (&mut self.up, &mut self.down),
            Side::V4 => (&mut self.down, &mut self.up),
        };
        // A socket that has failed reports its error when it is used.
        from.urgent |= flags.contains(EventFlags::PRI);
        from.readable |= from.urgent || gone;
        from.readable |= flags.intersects(EventFlags::IN | EventFlags::RDHUP);
        to.writable |= gone || flags.contains(EventFlags::OUT);
        if self.state != State::Connecting {
            return None;
        }
        match side {
            Side::V6 => gone.then_some(End::Abandoned),
            Side::V4 if gone || flags.contains(EventFlags::OUT) => match socket_error(&self.v4) {
                Ok(Ok(())) if !gone => {
                    core.counters.tcp_established.add(1);
                    self.state = State::Open;
                    self.active = core.now;
                    let (client, asked, server) = self.ends;
                    tracing::debug!(%client, %asked, %server, "connected");
                    None
                }
                Ok(Ok(())) => Some(End::Failed(Errno::CONNRESET)),
                Ok(Err(errno)) | Err(errno) => Some(End::Failed(errno)),
            },
            Side::V4 => None,
        }
    }

    /// Forwards what there is.
    pub(super) fn run(&mut self, pipes: &mut Pipes, core: &mut Core) -> Next {
        let before = (self.up.octets, self.down.octets, self.up.met + self.down.met);
        let next = match self.state {
            State::Connecting => Next::Wait,
            State::Open => self.pump(pipes, core),
            State::Failed(side, _) => self.pump_rest(side, pipes, core),
        };
        let (up, down) = (self.up.octets - before.0, self.down.octets - before.1);
        if up + down > 0 {
            self.active = core.now;
            core.counters.tcp_octets_up.add(up);
            core.counters.tcp_octets_down.add(down);
            core.counters.tcp_urgent.add(self.up.met + self.down.met - before.2);
        }
        next
    }

    /// Both directions.
    fn pump(&mut self, pipes: &mut Pipes, core: &mut Core) -> Next {
        let urgent = core.settings.urgent;
        let up = match self.up.pump(&self.v6, &self.v4, pipes, urgent) {
            Ok(pumped) => pumped,
            Err(Broken::Sender) => return self.fail(Side::V6, pipes, core),
            // The failed write has consumed the socket's error: a read would now see an orderly end.
            Err(Broken::Receiver) => return self.fail(Side::V4, pipes, core),
        };
        let down = match self.down.pump(&self.v4, &self.v6, pipes, urgent) {
            Ok(pumped) => pumped,
            Err(Broken::Sender) => return self.fail(Side::V4, pipes, core),
            Err(Broken::Receiver) => return self.fail(Side::V6, pipes, core),
        };
        if self.up.is_done() && self.down.is_done() {
            Next::End(End::Finished)
        } else if up == Pumped::More || down == Pumped::More {
            Next::Again
        } else {
            Next::Wait
        }
    }

    fn fail(&mut self, side: Side, pipes: &mut Pipes, core: &mut Core) -> Next {
        self.state = State::Failed(side, core.now + DRAIN);
        self.pump_rest(side, pipes, core)
    }

    /// Forwards what the failed side had sent before.
    fn pump_rest(&mut self, failed: Side, pipes: &mut Pipes, core: &mut Core) -> Next {
        let urgent = core.settings.urgent;
        let (flow, from, to) = match failed {
            Side::V6 => (&mut self.up, &self.v6, &self.v4),
            Side::V4 => (&mut self.down, &self.v4, &self.v6),
        };
        flow.cut = true;
        // No event comes any more from a peer that is gone.
        flow.readable = true;
        match flow.pump(from, to, pipes, urgent) {
            Err(Broken::Receiver) => Next::End(End::Reset(failed)),
            Ok(Pumped::More) => Next::Again,
            Ok(Pumped::Waits) | Err(Broken::Sender) if flow.is_empty() => self.drained(core.now),
            // The receiver is slow: an event tells when it goes on, or its time ends.
            Ok(Pumped::Waits) | Err(Broken::Sender) => Next::Wait,
        }
    }

    /// After a failure: ends the connection once everything is acknowledged.
    pub(super) fn drained(&mut self, now: Instant) -> Next {
        let State::Failed(side, until) = self.state else { return Next::Wait };
        let rest = match side {
            Side::V4 => unacknowledged(&self.v6),
            Side::V6 => unacknowledged(&self.v4),
        };
        match rest {
            Ok(1..) if now < until => {
                let waited = DRAIN.saturating_sub(until - now);
                self.look = Some(now + (waited / 5).max(FIRST_LOOK));
                Next::Wait
            }
            _ => Next::End(End::Reset(side)),
        }
    }

    /// When it ends without further events, and how.
    fn limit(&self, limits: &Limits) -> (Instant, End) {
        match self.state {
            State::Connecting => (self.opened + limits.connect, End::Failed(Errno::TIMEDOUT)),
            State::Open => {
                let half = self.up.has_ended() || self.down.has_ended();
                let idle = if half { limits.half_closed.min(limits.idle) } else { limits.idle };
                (self.active + idle, End::Idle)
            }
            State::Failed(side, until) => (until, End::Reset(side)),
        }
    }

    /// When it has to be checked without an event.
    pub(super) fn due(&self, limits: &Limits) -> Instant {
        let (end, _) = self.limit(limits);
        self.look.map_or(end, |look| look.min(end))
    }

    /// Checks without an event whether its time is over, or everything is acknowledged.
    pub(super) fn look(&mut self, limits: &Limits, now: Instant) -> Next {
        let (until, end) = self.limit(limits);
        if now >= until {
            Next::End(end)
        } else if self.look.take_if(|look| now >= *look).is_some() {
            self.drained(now)
        } else {
            Next::Wait
        }
    }

    /// Whether it waits for a pipe.
    pub(super) fn is_starved(&self) -> bool {
        self.up.is_starved() || self.down.is_starved()
    }

    /// Closes both sides: with a reset, unless both have ended it.
    pub(super) fn close(self, end: End, now: Instant) {
        let (client, asked, server) = self.ends;
        let seconds = now.saturating_duration_since(self.opened).as_secs_f32();
        let (up, down) = (self.up.octets, self.down.octets);
        tracing::debug!(%client, %asked, %server, up, down, seconds, "ended: {end}");
        if end != End::Finished {
            abort(self.v6);
            abort(self.v4);
        }
    }
}
