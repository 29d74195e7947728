//! Places that clients and zones share, so that neither a client nor a dead zone takes all of them.
//!
//! Each holder may have a multiple of the places that are still free (the dynamic threshold of shared buffers, Choudhury
//! and Hahne 1998). A holder that is alone gets many; with each further one all get fewer; and as long as a place is
//! free, a newcomer finds one.
//!
//! Queries to recursive servers don't show zone cuts, so a name counts for its first levels below the root. The higher
//! the level, the larger its share: when a zone has used up its own, its siblings still find places in their parent's.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::quality::RandomState;

use fordway_serve::Network;

/// Levels of a name that are counted.
const LEVELS: usize = 4;
/// A holder may have so many halves of a half of the free places: of the levels of names from the top, and of a client.
const LEVEL_QUARTERS: [usize; LEVELS] = [8, 4, 2, 1];
const CLIENT_QUARTERS: usize = 2;
/// The labels that each level has, from the root. Reverse names have a label for every four bits (RFC 3596 section 2.5),
/// or for every octet (RFC 1035 section 3.5); what is delegated there begins further down.
const PLAIN: [usize; LEVELS] = [1, 2, 3, 4];
const IN_ADDR_ARPA: [usize; LEVELS] = [2, 3, 4, 5];
const IP6_ARPA: [usize; LEVELS] = [2, 6, 10, 14];

/// Places, and how many each holder has.
#[derive(Debug, Default)]
pub struct Shares {
    hasher: RandomState,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// By a keyed hash of the holder; without holders that have none.
    by_holder: HashMap<u64, usize, RandomState>,
}

/// A holder, with its share in quarters of the free places.
type Holder = (u64, usize);

/// A place, given back when dropped.
#[derive(Debug)]
pub struct Place {
    shares: Arc<Shares>,
    holders: [Option<Holder>; LEVELS + 1],
}

impl Shares {
    /// How many are taken.
    pub fn count(&self) -> usize {
        self.taken().all
    }

    /// One of `most` places for a question about a name (in lower case, as on the wire), and for a client if it is known.
    /// None: there is none left, or none for this client, or for a zone of the name.
    pub fn take(
        self: &Arc<Self>,
        most: usize,
        client: Option<Network>,
        name: &[u8],
    ) -> Option<Place> {
        let mut holders = [None; LEVELS + 1];
        holders[0] = client.map(|network| (self.hasher.hash_one(network), CLIENT_QUARTERS));
        for (holder, (level, share)) in
            holders[1..].iter_mut().zip(levels(name).into_iter().zip(LEVEL_QUARTERS))
        {
            *holder = level.map(|zone| (self.hasher.hash_one((share, zone)), share));
        }
        let mut taken = self.taken();
        let free = most.saturating_sub(taken.all);
        let may_have_more = |(holder, share): &Holder| {
            let held = taken.by_holder.get(holder).copied().unwrap_or(0);
            4 * held < share * free
        };
        if free == 0 || !holders.iter().flatten().all(may_have_more) {
            return None;
        }
        taken.all += 1;
        for (holder, _) in holders.iter().flatten() {
            *taken.by_holder.entry(*holder).or_default() += 1;
        }
        drop(taken);
        Some(Place { shares: Arc::clone(self), holders })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        // Numbers are whole even if a thread has panicked.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.shares.taken();
        taken.all -= 1;
        for (holder, _) in self.holders.iter().flatten() {
            if let Entry::Occupied(mut held) = taken.by_holder.entry(*holder) {
                *held.get_mut() -= 1;
                if *held.get() == 0 {
                    held.remove();
                }
            }
        }
    }
}

/// The ends of a name that are counted, from the shortest on.
fn levels(name: &[u8]) -> [Option<&[u8]>; LEVELS] {
    /// The most labels that a name has (RFC 1035 section 3.1: 255 octets).
    const MOST: usize = 128;
    let (mut starts, mut labels, mut at) = ([0; MOST], 0, 0);
    while let Some(len @ 1..) = name.get(at).copied()
        && labels < MOST
    {
        starts[labels] = at;
        labels += 1;
        at += 1 + usize::from(len);
    }
    let depths = if name.ends_with(b"\x03ip6\x04arpa\0") {
        IP6_ARPA
    } else if name.ends_with(b"\x07in-addr\x04arpa\0") {
        IN_ADDR_ARPA
    } else {
        PLAIN
    };
    depths.map(|depth| starts[..labels].get(labels.checked_sub(depth)?).map(|at| &name[*at..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fordway_serve::ClientLen;

    fn network(number: u32) -> Option<Network> {
        let address = std::net::Ipv6Addr::from(0x2001_0db8 << 96 | u128::from(number) << 72);
        Some(Network::of(address.into(), ClientLen::default()))
    }

    fn wire(name: &str) -> Vec<u8> {
        let labels = name.split('.').filter(|label| !label.is_empty());
        let mut octets: Vec<u8> =
            labels.flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat()).collect();
        octets.push(0);
        octets
    }

    /// Takes places until there is none.
    fn fill(
        shares: &Arc<Shares>,
        most: usize,
        ask: impl Fn(u32) -> (Option<Network>, String),
    ) -> Vec<Place> {
        let take = |number| {
            let (client, name) = ask(number);
            shares.take(most, client, &wire(&name))
        };
        (0..).map_while(take).collect()
    }

    #[test]
    fn one_client_leaves_room_for_others() {
        let shares = Arc::<Shares>::default();
        // Each in a zone of its own.
        let held = fill(&shares, 900, |number| (network(0), format!("www.n{number}.t{number}")));
        assert_eq!(held.len(), 300, "a third");
        assert!(shares.take(900, network(1), &wire("www.n0.t0")).is_some());
        // Whoever comes later gets as much as who was there, but for what is free now.
        let other = fill(&shares, 900, |number| (network(1), format!("www.n{number}.t{number}")));
        assert!(other.len() >= 180, "{}", other.len());
        drop((held, other));
        assert_eq!(shares.count(), 0);
        assert!(shares.taken().by_holder.is_empty(), "no trace");
    }

    #[test]
    fn a_zone_leaves_room_for_its_siblings_and_its_parent() {
        for (dead, others) in [
            ("dead", ["x.alive", "example.net", "a.b.c.d"]),
            ("dead.net", ["example.net", "www.example.net", "www.example.org"]),
            ("dead.co.uk", ["example.co.uk", "www.example.co.uk", "example.uk"]),
            ("a.dead.co.uk", ["b.dead.co.uk", "dead.co.uk", "example.net"]),
            (
                "2.0.192.in-addr.arpa",
                ["1.3.0.192.in-addr.arpa", "1.1.1.192.in-addr.arpa", "example.net"],
            ),
            (
                "1.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa",
                [
                    "1.2.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa",
                    "1.f.8.b.d.0.1.0.0.2.ip6.arpa",
                    "1.2.f.0.1.0.0.2.ip6.arpa",
                ],
            ),
        ] {
            let shares = Arc::<Shares>::default();
            // From everywhere, each question by somebody else.
            let held = fill(&shares, 1000, |number| (network(number), format!("r{number}.{dead}")));
            assert!(held.len() <= 667, "{dead}: {}", held.len());
            for other in others {
                assert!(shares.take(1000, network(7), &wire(other)).is_some(), "{dead}: {other}");
            }
            assert!(
                shares.take(1000, network(7), &wire(&format!("new.{dead}"))).is_none(),
                "{dead}"
            );
        }
    }

    #[test]
    fn names_by_level() {
        let of = |name: &str| {
            let name = wire(name);
            levels(&name).map(|level| level.map(<[u8]>::to_vec))
        };
        assert_eq!(of(""), [const { None }; 4]);
        assert_eq!(of("net"), [Some(wire("net")), None, None, None]);
        let expected = ["net", "c.net", "b.c.net", "a.b.c.net"].map(|name| Some(wire(name)));
        assert_eq!(of("a.b.c.net"), expected);
        assert_eq!(of("x.y.a.b.c.net"), expected);
        let expected =
            ["in-addr.arpa", "192.in-addr.arpa", "0.192.in-addr.arpa", "2.0.192.in-addr.arpa"];
        assert_eq!(of("1.2.0.192.in-addr.arpa"), expected.map(|name| Some(wire(name))));
        assert_eq!(levels(&[3, b'a']), [Some(&[3, b'a'][..]), None, None, None], "no octets amiss");
    }

    #[test]
    fn the_last_place_is_somebodys() {
        let shares = Arc::<Shares>::default();
        let held = shares.take(1, network(0), &wire("a.b.c.d")).unwrap();
        assert!(shares.take(1, network(1), &wire("x.y")).is_none());
        drop(held);
        assert!(shares.take(1, network(1), &wire("x.y")).is_some());
        assert!(Arc::<Shares>::default().take(0, None, &wire("")).is_none());
    }
}
