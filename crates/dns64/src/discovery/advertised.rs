//! What routers say with a lifetime: prefixes (RFC 8781) and resolvers (RFC 8106).

use std::net::Ipv6Addr;
use std::time::Duration;

use super::Time;

/// How much is kept of one kind and interface. Whoever is on the link can say as much as it likes.
const MOST: usize = 32;

/// One thing that one router says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held<T> {
    /// What.
    pub(super) value: T,
    /// Who.
    pub(super) router: Ipv6Addr,
    /// Until when; none is for ever.
    pub(super) until: Option<Time>,
    /// The life of the link in which it was last heard.
    pub(super) life: u64,
}

/// Everything of one kind that the routers of one link say, in the order in which it was first heard.
///
/// Each router speaks for itself: what one withdraws stays as long as another says it. Its own lifetime
/// as a default router has nothing to do with it (RFC 8781 section 4.1).
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
    /// A router says something for a lifetime; zero withdraws it, none is for ever.
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

    /// Forgets what is over.
    pub(super) fn expire(&mut self, now: Time) {
        self.held.retain(|held| held.until.is_none_or(|until| until > now));
    }

    /// Forgets what has not been heard in this life of the link.
    pub(super) fn keep_life(&mut self, life: u64) {
        self.held.retain(|held| held.life == life);
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.held.clear();
    }

    /// When the next is over.
    pub(super) fn next(&self) -> Option<Time> {
        self.held.iter().filter_map(|held| held.until).min()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether any has not been heard in this life of the link.
    pub(super) fn has_older(&self, life: u64) -> bool {
        self.held.iter().any(|held| held.life != life)
    }

    /// Each value once, with the router that says it longest: first those heard in this life of the
    /// link, then the others.
    pub(super) fn values(&self, life: u64) -> Vec<&Held<T>> {
        let mut values: Vec<&Held<T>> = Vec::new();
        let heard = |held: &&Held<T>| held.life == life;
        let older = |held: &&Held<T>| held.life != life;
        for held in self.held.iter().filter(heard).chain(self.held.iter().filter(older)) {
            // For ever is longest.
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
