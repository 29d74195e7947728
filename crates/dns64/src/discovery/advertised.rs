//! What routers say with a lifetime: prefixes (RFC 8781) and resolvers (RFC 8106).

use std::net::Ipv6Addr;
use std::time::Duration;

use super::Time;

/// Values that are kept of one kind and interface, since any node on the link can send advertisements.
const MOST: usize = 32;

/// A value that a router advertises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held<T> {
    /// The value.
    pub(super) value: T,
    /// The router.
    pub(super) router: Ipv6Addr,
    /// When it expires; `None`: never.
    pub(super) until: Option<Time>,
    /// The life of the link in which it was last heard.
    pub(super) life: u64,
}

/// The values of one kind that the routers of a link advertise, in the order in which they were first received.
///
/// A value that one router withdraws stays as long as another advertises it. The lifetime as a default router does not
/// matter (RFC 8781 section 4.1).
#[derive(Clone, Debug)]
pub(super) struct Advertised<T> {
    held: Vec<Held<T>>,
}

impl<T> Default for Advertised<T> {
    fn default() -> Self {
        Self { held: Vec::new() }
    }
}

impl<T: Copy + PartialEq> Advertised<T> {
    /// A router advertises a value for a lifetime; zero withdraws it, `None` never expires.
    pub(super) fn hear(
        &mut self,
        router: Ipv6Addr,
        value: T,
        lifetime: Option<Duration>,
        now: Time,
        life: u64,
    ) {
        let until = lifetime.map(|lifetime| now + lifetime);
        let at = self.held.iter().position(|held| held.router == router && held.value == value);
        match (at, lifetime == Some(Duration::ZERO)) {
            (Some(at), true) => {
                self.held.remove(at);
            }
            (Some(at), false) => {
                if let Some(held) = self.held.get_mut(at) {
                    (held.until, held.life) = (until, life);
                }
            }
            (None, false) if self.held.len() < MOST => {
                self.held.push(Held { value, router, until, life });
            }
            (None, _) => {}
        }
    }

    /// Removes expired values.
    pub(super) fn expire(&mut self, now: Time) {
        self.held.retain(|held| held.until.is_none_or(|until| until > now));
    }

    /// Removes values that were not received in this life of the link.
    pub(super) fn keep_life(&mut self, life: u64) {
        self.held.retain(|held| held.life == life);
    }

    /// Removes all values.
    pub(super) fn clear(&mut self) {
        self.held.clear();
    }

    /// When the next value expires.
    pub(super) fn next(&self) -> Option<Time> {
        self.held.iter().filter_map(|held| held.until).min()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether any value was not received in this life of the link.
    pub(super) fn has_older(&self, life: u64) -> bool {
        self.held.iter().any(|held| held.life != life)
    }

    /// Each value once, with the router whose lifetime is longest: first those received in this life of the link, then
    /// the others.
    pub(super) fn values(&self, life: u64) -> Vec<&Held<T>> {
        let mut values: Vec<&Held<T>> = Vec::new();
        let heard = |held: &&Held<T>| held.life == life;
        let older = |held: &&Held<T>| held.life != life;
        for held in self.held.iter().filter(heard).chain(self.held.iter().filter(older)) {
            let longer = |other: &Held<T>| match (held.until, other.until) {
                (None, other) => other.is_some(),
                (Some(_), None) => false,
                (Some(until), Some(other)) => until > other,
            };
            match values.iter_mut().find(|other| other.value == held.value) {
                Some(other) if other.life == held.life && longer(other) => *other = held,
                Some(_) => {}
                None => values.push(held),
            }
        }
        values
    }
}
