//! A message of a client, from its octets to the answer.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};

use super::{BURST, PER_MESSAGE, RETRY, Reply, Server, Step, Undo};
use crate::lease::{Identity, Lease, Record, Slot};
use crate::message::{Body, Key, Message, Reason};

/// A message whose sender is known.
struct Asked {
    identity: Identity,
    key: Key,
    from: SocketAddrV6,
    message: Message,
}

impl Asked {
    /// The client's end of the tunnel.
    fn tunnel_end(&self) -> Ipv6Addr {
        match self.message.body {
            Body::Request { tunnel: Some(end), .. } | Body::Renew { tunnel: Some(end), .. } => end,
            _ => *self.from.ip(),
        }
    }
}

/// Whether a tunnel's end is in the /64 of the client's verified address. A /64 is one link, so a client can't direct a
/// tunnel to hosts elsewhere.
fn is_near(end: Ipv6Addr, source: Ipv6Addr) -> bool {
    end.octets()[..8] == source.octets()[..8] && !end.is_unspecified() && !end.is_multicast()
}

impl Server {
    /// Handles a message `from` a client at `now`. Without a valid key there is no answer.
    pub fn receive(&mut self, from: SocketAddrV6, octets: &[u8], now: u64) -> Step {
        let Some(asked) = self.authenticate(from, octets) else { return Step::default() };
        if !self.returns(&asked, now) {
            self.stats.offers += 1;
            let cookie = self.jar.make(*from.ip(), now);
            return answer(&asked, Body::Offer { cookie });
        }
        if let Some(step) = self.repeated(&asked, now) {
            return step;
        }
        let mut step = match asked.message.body {
            Body::Request { tunnel: Some(end), .. } | Body::Renew { tunnel: Some(end), .. }
                if !is_near(end, *from.ip()) =>
            {
                self.refuse(&asked, Reason::Tunnel)
            }
            Body::Request { v4, sharing, lifetime, .. } => {
                self.request(&asked, v4, sharing, lifetime, now)
            }
            Body::Renew { v4, ports, lifetime, .. } => {
                self.renew(&asked, Slot { v4, ports }, lifetime, now)
            }
            Body::Release { v4, ports, .. } => self.release(&asked, Slot { v4, ports }, now),
            _ => self.refuse(&asked, Reason::Trouble),
        };
        self.remember(&asked, &mut step, now);
        step
    }

    /// Parses a message, finds the key of its claimed sender, and verifies the authenticator.
    fn authenticate(&mut self, from: SocketAddrV6, octets: &[u8]) -> Option<Asked> {
        let Ok(message) = Message::parse(octets) else {
            self.stats.malformed += 1;
            return None;
        };
        let asks = matches!(
            message.body,
            Body::Request { .. } | Body::Renew { .. } | Body::Release { .. }
        );
        if !asks {
            self.stats.unexpected += 1;
            return None;
        }
        let identity = match message.body.client() {
            Some(id) => Identity::Named(id.clone()),
            None => Identity::At(*from.ip()),
        };
        let Some(key) = self.key_of(&identity).cloned() else {
            self.stats.unknown += 1;
            return None;
        };
        if !key.has_sealed(octets) {
            self.stats.forged += 1;
            return None;
        }
        Some(Asked { identity, key, from, message })
    }

    /// Whether the client has shown that it receives where it sends from.
    fn returns(&self, asked: &Asked, now: u64) -> bool {
        let cookie = match &asked.message.body {
            Body::Request { cookie, .. }
            | Body::Renew { cookie, .. }
            | Body::Release { cookie, .. } => cookie.as_ref(),
            _ => None,
        };
        cookie.is_some_and(|cookie| self.jar.knows(cookie, *asked.from.ip(), now))
    }

    /// The step for a repeated message, an old one, or one beyond the rate limit; it changes no lease.
    fn repeated(&mut self, asked: &Asked, now: u64) -> Option<Step> {
        let Asked { from, message, .. } = asked;
        let peer = self.peers.get_mut(&asked.identity)?;
        let full_at = peer.full_at.max(now) + PER_MESSAGE;
        if full_at > now + BURST * PER_MESSAGE {
            self.stats.limited += 1;
            return Some(Step::default());
        }
        peer.full_at = full_at;
        if message.number > peer.number {
            return None;
        }
        if message.number == peer.number && message.transaction == peer.transaction {
            self.stats.repeated += 1;
            let reply = Reply { to: *from, octets: peer.answer.clone() };
            return Some(Step { reply: Some(reply), ..Step::default() });
        }
        self.stats.stale += 1;
        let expected = Some(peer.number);
        Some(answer(asked, Body::Refuse { reason: Reason::Stale, expected, retry: 0 }))
    }

    fn request(
        &mut self,
        asked: &Asked,
        wish: Option<Ipv4Addr>,
        sharing: bool,
        lifetime: u32,
        now: u64,
    ) -> Step {
        if let Some(lease) = self.lease(&asked.identity).cloned() {
            return self.prolong(asked, lease, lifetime, now);
        }
        let slot = match self.reservation(&asked.identity) {
            Some(slot) if slot.ports.is_some() && !sharing => {
                return self.refuse(asked, Reason::SharedOnly);
            }
            Some(slot) => slot,
            None if self.pool.is_shared() && !sharing => {
                return self.refuse(asked, Reason::SharedOnly);
            }
            None if self.is_at_limit(&asked.identity) => {
                return self.refuse(asked, Reason::Limit);
            }
            None => match self.pool.lend(&asked.identity, wish, now) {
                Some(slot) => slot,
                None => return self.refuse(asked, Reason::Exhausted),
            },
        };
        self.stats.granted += 1;
        self.grant(asked, slot, None, lifetime, now)
    }

    fn renew(&mut self, asked: &Asked, slot: Slot, lifetime: u32, now: u64) -> Step {
        match self.lease(&asked.identity).filter(|lease| lease.slot == slot).cloned() {
            Some(lease) => self.prolong(asked, lease, lifetime, now),
            None => self.refuse(asked, Reason::NoLease),
        }
    }

    fn release(&mut self, asked: &Asked, slot: Slot, now: u64) -> Step {
        let tep = self.settings.tep;
        let body = Body::Ack { v4: slot.v4, ports: slot.ports, lifetime: 0, tep };
        let mut step = answer(asked, body);
        let held = self.lease(&asked.identity).is_some_and(|lease| lease.slot == slot);
        if held && let Some(lease) = self.take_lease(&asked.identity) {
            self.stats.released += 1;
            self.ends.remove(&(lease.until, asked.identity.clone()));
            self.end(&asked.identity, &lease, now, &mut step);
            step.undo = Some(undo(asked, Some(lease)));
        }
        step
    }

    /// Renews a lease, perhaps with another end of the tunnel.
    fn prolong(&mut self, asked: &Asked, lease: Lease, lifetime: u32, now: u64) -> Step {
        self.stats.renewed += 1;
        self.ends.remove(&(lease.until, asked.identity.clone()));
        self.grant(asked, lease.slot, Some(lease), lifetime, now)
    }

    fn grant(
        &mut self,
        asked: &Asked,
        slot: Slot,
        before: Option<Lease>,
        lifetime: u32,
        now: u64,
    ) -> Step {
        let lifetime = self.settings.lifetime_for(lifetime);
        let lease = Lease {
            identity: asked.identity.clone(),
            slot,
            remote: asked.tunnel_end(),
            local: self.settings.tep,
            until: now + u64::from(lifetime) * 1000,
        };
        let Slot { v4, ports } = slot;
        let mut step = answer(asked, Body::Ack { v4, ports, lifetime, tep: lease.local });
        step.records.push(Record::Lent(lease.clone()));
        let moved = before.as_ref().filter(|before| before.remote != lease.remote);
        step.gone.extend(moved.map(Lease::binding));
        self.ends.insert((lease.until, asked.identity.clone()));
        self.put_lease(&asked.identity, lease.clone());
        step.come = Some(lease);
        step.undo = Some(undo(asked, before));
        step
    }

    fn refuse(&mut self, asked: &Asked, reason: Reason) -> Step {
        let retry = match reason {
            Reason::Exhausted => {
                self.stats.exhausted += 1;
                RETRY
            }
            Reason::NoLease => {
                self.stats.refused += 1;
                0
            }
            _ => {
                self.stats.refused += 1;
                RETRY
            }
        };
        answer(asked, Body::Refuse { reason, expected: None, retry })
    }

    /// Whether a prefix has as many leases as it may have, or twice as many clients that are remembered.
    fn is_at_limit(&self, identity: &Identity) -> bool {
        let Identity::At(address) = identity else { return false };
        let Some(prefix) = self.prefix_of(*address) else { return true };
        let of_prefix = |identity: &Identity| match identity {
            Identity::At(other) => {
                self.prefix_of(*other).is_some_and(|it| it.prefix == prefix.prefix)
            }
            Identity::Named(_) => false,
        };
        let known = self.peers.iter().filter(|(identity, _)| of_prefix(identity));
        let (leases, all) = known.fold((0, 0), |(leases, all), (_, peer)| {
            (leases + usize::from(peer.lease.is_some()), all + 1)
        });
        leases >= prefix.most || all >= prefix.most.saturating_mul(2)
    }

    /// Keeps the answer in case the message is retransmitted. Clients without a lease are kept only if they are named.
    fn remember(&mut self, asked: &Asked, step: &mut Step, now: u64) {
        let named = matches!(asked.identity, Identity::Named(_));
        if named && !self.peers.contains_key(&asked.identity) {
            let forget_at = now + 2 * crate::cookie::LIFETIME;
            self.peer(&asked.identity).forget_at = forget_at;
            self.ends.insert((forget_at, asked.identity.clone()));
        }
        if let (Some(peer), Some(reply)) = (self.peers.get_mut(&asked.identity), &step.reply) {
            peer.number = asked.message.number;
            peer.transaction = asked.message.transaction;
            peer.answer.clone_from(&reply.octets);
        }
    }
}

fn undo(asked: &Asked, before: Option<Lease>) -> Undo {
    Undo {
        identity: asked.identity.clone(),
        before,
        transaction: asked.message.transaction,
        number: asked.message.number,
    }
}

fn answer(asked: &Asked, body: Body) -> Step {
    let Message { transaction, number, .. } = asked.message;
    let octets = Message { transaction, number, body }.seal(&asked.key);
    Step { reply: Some(Reply { to: asked.from, octets }), ..Step::default() }
}
