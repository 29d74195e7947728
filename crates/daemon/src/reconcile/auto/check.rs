//! Whether the CLAT's address is free: when a detection begins, and what has come of it.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::time::Instant;

use tracing::debug;

use super::decide::Desired;
use super::discovery::{Claim, Prober};
use super::duplicate::{self, DELAY, Detection, Due, Mac, Question};

/// Duplicate address detection for the address in use.
#[derive(Debug)]
pub(super) struct Check {
    /// There is a socket.
    able: bool,
    state: State,
    /// The end of a detection was not told yet.
    fresh: bool,
}

/// An address on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Subject {
    v6: Ipv6Addr,
    index: u32,
    own: Mac,
}

#[derive(Debug)]
enum State {
    /// No neighbour could use the address, or there is no socket to probe with.
    Idle,
    Asking(Subject, Detection),
    Free(Subject),
}

impl Check {
    pub(super) fn new(able: bool) -> Check {
        Check { able, state: State::Idle, fresh: false }
    }

    /// For people; none if there is no address that others could have.
    pub(super) fn describe(&self, applied: Option<&Desired>) -> Option<&'static str> {
        applied.filter(|applied| applied.on_link)?;
        Some(match &self.state {
            State::Asking(..) => "being checked",
            State::Free(_) => "unique on the link",
            State::Idle if self.able => {
                "not checked: the link has no Ethernet addresses, or is down"
            }
            State::Idle => "not checked: CAP_NET_RAW is missing",
        })
    }

    /// Whether a detection has ended since the last call with the address free.
    pub(super) fn free_now(&mut self) -> bool {
        std::mem::take(&mut self.fresh)
    }

    /// Asks for the address of `desired`, anew if the link was `down` meanwhile. Gives the time to come back.
    pub(super) fn follow(
        &mut self,
        desired: Option<&Desired>,
        down: &BTreeSet<u32>,
        prober: Option<&mut Prober>,
        now: Instant,
    ) -> Option<Instant> {
        let prober = prober?;
        let wanted = desired.and_then(subject);
        let same = match (&self.state, wanted) {
            (State::Asking(subject, _) | State::Free(subject), Some(wanted)) => {
                *subject == wanted && !down.contains(&wanted.index)
            }
            (State::Idle, None) => true,
            _ => false,
        };
        if !same {
            prober.stop_listening();
            self.state = State::Idle;
            if let Some(wanted) = wanted {
                self.begin(wanted, prober, now);
            }
        }
        self.go_on(prober, now)
    }

    /// The address that is being probed, if the claim is for it.
    pub(super) fn claimed(&mut self, claim: &Claim) -> Option<Ipv6Addr> {
        let State::Asking(subject, detection) = &self.state else { return None };
        (detection.question() == claim.question).then_some(subject.v6)
    }

    fn begin(&mut self, subject: Subject, prober: &mut Prober, now: Instant) {
        let (Ok(random), Ok(nonce)) = (getrandom::u32(), getrandom::u64()) else { return };
        let delay = DELAY * (random >> 22) / 1024;
        let [.., a, b, c, d, e, f] = nonce.to_be_bytes();
        let Subject { v6, index, own } = subject;
        let question = Question { v6, index, own, nonce: [a, b, c, d, e, f] };
        let detection = Detection::new(question, now + delay);
        let began = prober.listen(question, &detection.groups()).and_then(|()| {
            let (packet, to) = duplicate::announcement(subject.v6, subject.own);
            prober.send(&packet, subject.index, to)
        });
        match began {
            Ok(()) => self.state = State::Asking(subject, detection),
            // The link has just gone: there will be another look.
            Err(error) => debug!("{}: {error}", subject.v6),
        }
    }

    fn go_on(&mut self, prober: &mut Prober, now: Instant) -> Option<Instant> {
        loop {
            let State::Asking(subject, detection) = &mut self.state else { return None };
            match detection.due(now) {
                Due::Wait(until) => return Some(until),
                Due::Send((packet, to)) => {
                    if let Err(error) = prober.send(&packet, subject.index, to) {
                        debug!("{}: {error}", subject.v6);
                    }
                }
                Due::Free => {
                    prober.stop_listening();
                    self.fresh = true;
                    self.state = State::Free(*subject);
                }
            }
        }
    }
}

/// The address, where it can be asked for.
fn subject(desired: &Desired) -> Option<Subject> {
    let own = Mac::try_from(desired.uplink.hardware_address.as_slice()).ok()?;
    let subject = Subject { v6: desired.v6, index: desired.uplink.index, own };
    desired.uplink.up.then_some(subject)
}
