//! The server: requests in; answers, leases and bindings out.
//!
//! The caller carries out a [`Step`] in this order: write the records to disk, remove bindings from the tunnel end
//! point, add the new one, send the answer. If one of these fails, [`Server::failed`] rolls the step back.

mod receive;
mod settings;

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddrV6;

use crate::cookie::Jar;
use crate::lease::{Identity, Lease, Record, Slot};
use crate::message::{Body, Key, Message, Reason};
use crate::pool::Pool;
use fordway_counters::dstm::ServerStats;
use fordway_softwire::Binding;

pub use settings::{ClientKey, PrefixKey, ServerSettings, WrongSettings};

/// Messages that a client may send at once.
const BURST: u64 = 30;

/// Time in which a client may send one more, in ms.
const PER_MESSAGE: u64 = 1000;

/// Seconds after which a client that was refused for lack of addresses retries.
const RETRY: u32 = 10;

/// What is to be done after a message, or when leases have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Records for the lease file.
    pub records: Vec<Record>,
    /// Bindings to remove from the tunnel end point.
    pub gone: Vec<Binding>,
    /// The lease whose binding is to be added to the tunnel end point.
    pub come: Option<Lease>,
    /// The answer, sent last.
    pub reply: Option<Reply>,
    /// For [`Server::failed`].
    undo: Option<Undo>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The destination.
    pub to: SocketAddrV6,
    /// The message.
    pub octets: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Undo {
    identity: Identity,
    before: Option<Lease>,
    transaction: u64,
    number: u64,
}

/// A client that is known, with its lease or for a while after it.
#[derive(Debug)]
struct Peer {
    /// Of its last message.
    number: u64,
    transaction: u64,
    /// The answer to that.
    answer: Vec<u8>,
    lease: Option<Lease>,
    /// When its bucket is full again, in ms.
    full_at: u64,
    /// When it may be forgotten, if it has no lease.
    forget_at: u64,
}

/// The leases, and the clients that may have them. All times are in ms since 1970, and never go back.
#[derive(Debug)]
pub struct Server {
    settings: ServerSettings,
    named: HashMap<crate::message::ClientId, (Key, Option<Slot>)>,
    jar: Jar,
    pool: Pool,
    peers: HashMap<Identity, Peer>,
    /// How many of them have a lease.
    held: usize,
    /// When leases end, and when those without one are forgotten.
    ends: BTreeSet<(u64, Identity)>,
    stats: ServerStats,
}

impl Server {
    /// A server without leases. `secret`: random, new whenever the server starts.
    pub fn new(settings: ServerSettings, secret: [u8; 32]) -> Result<Server, WrongSettings> {
        let mut pool = Pool::new(&settings.pool, settings.ports)?;
        let mut named = HashMap::new();
        for client in &settings.clients {
            if let Some(slot) = &client.slot {
                // Reserved for this client, whether it is the pool's or not.
                pool.take(slot);
            }
            if named.insert(client.id.clone(), (client.key.clone(), client.slot)).is_some() {
                return Err(WrongSettings::Twice(client.id.clone()));
            }
        }
        Ok(Server {
            settings,
            named,
            jar: Jar::new(secret),
            pool,
            peers: HashMap::new(),
            held: 0,
            ends: BTreeSet::new(),
            stats: ServerStats::default(),
        })
    }

    /// Restores a lease from before a restart. `false`: it has expired, or does not fit these settings.
    pub fn restore(&mut self, lease: &Lease, now: u64) -> bool {
        let identity = &lease.identity;
        let fits = lease.until > now
            && lease.local == self.settings.tep
            && self.lease(identity).is_none()
            && self.key_of(identity).is_some()
            && match self.reservation(identity) {
                Some(reserved) => reserved == lease.slot,
                None => self.pool.take(&lease.slot),
            };
        if fits {
            self.put_lease(identity, lease.clone());
            self.ends.insert((lease.until, identity.clone()));
        }
        fits
    }

    /// Applies other settings. Leases that do not fit them end; the step says which.
    ///
    /// Errors: [`WrongSettings`]; nothing has changed then.
    pub fn replace(&mut self, settings: ServerSettings, now: u64) -> Result<Step, WrongSettings> {
        let mut other = Server::new(settings, [0; 32])?;
        std::mem::swap(&mut other.jar, &mut self.jar);
        other.stats = self.stats;
        let mut step = Step::default();
        for (identity, peer) in self.peers.drain() {
            if let Some(lease) = &peer.lease
                && !other.restore(lease, now)
            {
                step.records.push(Record::Ended(lease.slot));
                step.gone.push(lease.binding());
                continue;
            }
            let end = peer.lease.as_ref().map_or(peer.forget_at, |lease| lease.until);
            other.ends.insert((end, identity.clone()));
            other.peers.insert(identity, peer);
        }
        *self = other;
        Ok(step)
    }

    /// All leases.
    pub fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.peers.values().filter_map(|peer| peer.lease.as_ref())
    }

    /// How many leases there are.
    #[must_use]
    pub fn lease_count(&self) -> usize {
        self.held
    }

    /// The lease of one.
    #[must_use]
    pub fn lease(&self, identity: &Identity) -> Option<&Lease> {
        self.peers.get(identity)?.lease.as_ref()
    }

    /// How many more leases there can be of the pool.
    #[must_use]
    pub fn free(&self) -> usize {
        self.pool.free()
    }

    /// Its state, and what it has counted.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        ServerStats { leases: self.held as u64, free: self.free() as u64, ..self.stats }
    }

    /// When [`Server::expire`] has something to do.
    #[must_use]
    pub fn next_end(&self) -> Option<u64> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// Ends what has ended at `now`.
    pub fn expire(&mut self, now: u64) -> Step {
        let mut step = Step::default();
        while self.ends.first().is_some_and(|(end, _)| *end <= now) {
            let Some((_, identity)) = self.ends.pop_first() else { break };
            let Some(peer) = self.peers.get(&identity) else { continue };
            match &peer.lease {
                // It has got one since, which has an end of its own.
                Some(lease) if lease.until > now => {}
                Some(_) => {
                    if let Some(lease) = self.take_lease(&identity) {
                        self.stats.expired += 1;
                        self.end(&identity, &lease, now, &mut step);
                    }
                }
                None if peer.forget_at > now => {}
                None => drop(self.peers.remove(&identity)),
            }
        }
        step
    }

    /// Ends a lease on the operator's request. `None`: there is none.
    pub fn revoke(&mut self, identity: &Identity, now: u64) -> Option<Step> {
        let lease = self.take_lease(identity)?;
        self.ends.remove(&(lease.until, identity.clone()));
        let mut step = Step::default();
        self.end(identity, &lease, now, &mut step);
        Some(step)
    }

    /// Rolls back a step that could not be carried out: the client has what it had before, and is refused.
    pub fn failed(&mut self, step: &Step, now: u64) -> Step {
        self.stats.failed += 1;
        let (Some(undo), Some(reply)) = (&step.undo, &step.reply) else { return Step::default() };
        let mut back = Step::default();
        let now_has = self.take_lease(&undo.identity);
        if let Some(lease) = now_has {
            self.ends.remove(&(lease.until, undo.identity.clone()));
            match &undo.before {
                Some(before) if before.slot == lease.slot => {
                    let moved = before.remote != lease.remote;
                    back.gone.extend(moved.then(|| lease.binding()));
                }
                _ => self.end(&undo.identity, &lease, now, &mut back),
            }
        }
        if let Some(before) = &undo.before {
            // One that had been given back.
            self.pool.take(&before.slot);
            self.ends.insert((before.until, undo.identity.clone()));
            back.records.push(Record::Lent(before.clone()));
            back.come = Some(before.clone());
            self.put_lease(&undo.identity, before.clone());
        }
        let body = Body::Refuse { reason: Reason::Trouble, expected: None, retry: RETRY };
        let message = Message { transaction: undo.transaction, number: undo.number, body };
        if let Some(key) = self.key_of(&undo.identity) {
            let octets = message.seal(key);
            if let Some(peer) = self.peers.get_mut(&undo.identity) {
                peer.answer.clone_from(&octets);
            }
            back.reply = Some(Reply { to: reply.to, octets });
        }
        back
    }

    /// Gives the slot back, and forgets the client after a while.
    fn end(&mut self, identity: &Identity, lease: &Lease, now: u64, step: &mut Step) {
        let until = now + u64::from(self.settings.rest) * 1000;
        let reserved = self.reservation(identity) == Some(lease.slot);
        if !reserved {
            self.pool.give_back(&lease.slot, identity, until);
        }
        step.records.push(Record::Ended(lease.slot));
        step.gone.push(lease.binding());
        // As long as a cookie of it may be sent again by others.
        let forget_at = now + 2 * crate::cookie::LIFETIME;
        if let Some(peer) = self.peers.get_mut(identity) {
            peer.forget_at = forget_at;
            self.ends.insert((forget_at, identity.clone()));
        }
    }

    fn reservation(&self, identity: &Identity) -> Option<Slot> {
        match identity {
            Identity::Named(id) => self.named.get(id)?.1,
            Identity::At(_) => None,
        }
    }

    fn key_of(&self, identity: &Identity) -> Option<&Key> {
        match identity {
            Identity::Named(id) => self.named.get(id).map(|(key, _)| key),
            Identity::At(address) => self.prefix_of(*address).map(|it| &it.key),
        }
    }

    /// The longest prefix with a key that an address is in.
    fn prefix_of(&self, address: std::net::Ipv6Addr) -> Option<&PrefixKey> {
        let fits = self.settings.prefixes.iter().filter(|it| it.prefix.contains(&address));
        fits.max_by_key(|it| it.prefix.prefix_len())
    }

    /// Gives a client a lease, in the place of one that it may have.
    fn put_lease(&mut self, identity: &Identity, lease: Lease) {
        if self.peer(identity).lease.replace(lease).is_none() {
            self.held += 1;
        }
    }

    /// Takes a client's lease, if it has one.
    fn take_lease(&mut self, identity: &Identity) -> Option<Lease> {
        let lease = self.peers.get_mut(identity)?.lease.take()?;
        self.held -= 1;
        Some(lease)
    }

    fn peer(&mut self, identity: &Identity) -> &mut Peer {
        self.peers.entry(identity.clone()).or_insert_with(|| Peer {
            number: 0,
            transaction: 0,
            answer: Vec::new(),
            lease: None,
            full_at: 0,
            forget_at: 0,
        })
    }
}

#[cfg(test)]
mod tests;
