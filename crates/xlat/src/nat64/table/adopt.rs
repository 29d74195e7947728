//! Adoption of the tables of a process that was killed.
//!
//! It may have been killed at any instant: between counting a session and making it, or with an entry that is in no
//! list. Kernel programs go on meanwhile, so they are kept from making entries for a moment by the flag for draining:
//! packets that need a new session wait for the user engine. Then every half-made entry is one that the killed process
//! has left.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::time::Duration;

use crate::nat64::Nat64;

use super::{
    ADDING, Bib, Chained, FreeList, Kind, PermissionKey, Protocol, Session, Subscriber, bib_flags,
    life, life_parts, state,
};

/// What a killed process had left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Counts that were wrong.
    pub counts: usize,
    /// Entries that were half made, or in no list.
    pub entries: usize,
}

impl Nat64 {
    /// Mends what a killed process has left: to be called once, before the first sweep and before the user engine works
    /// on the tables. `kernel_grace` returns when every program in the kernel that was running has ended (an RCU grace
    /// period).
    pub fn adopt(&self, kernel_grace: &dyn Fn()) -> Adopted {
        let draining = &self.memory.regions().meta.draining;
        let before = draining.swap(1, SeqCst);
        kernel_grace();
        let counts = self.mend_counts() + self.mend_permissions();
        let adopted = Adopted { counts, entries: self.find_entries() };
        draining.store(before, SeqCst);
        adopted
    }

    /// A session is counted at its BIB entry and its subscriber, and a BIB entry at its subscriber. If a count is too
    /// high, the entry never ends, and the quota is never free.
    fn mend_counts(&self) -> usize {
        let regions = self.memory.regions();
        let mut sessions = vec![0_u32; regions.bibs.len()];
        let mut used = vec![[0_u32; 4]; regions.subscribers.len()];
        for session in regions.sessions {
            let entry = session.bib.load(Relaxed) as usize;
            if !is_counted(session) || entry == 0 {
                continue;
            }
            let Some(bib) = regions.bibs.get(entry) else { continue };
            sessions[entry] += 1;
            if let Some(used) = used.get_mut(bib.subscriber.load(Relaxed) as usize) {
                used[3] += 1;
            }
        }
        for bib in regions.bibs {
            if let (Some(protocol), state::LIVE, Some(used)) = (
                Protocol::of(bib.protocol.load(Relaxed)),
                bib.state(),
                used.get_mut(bib.subscriber.load(Relaxed) as usize),
            ) {
                used[protocol.index()] += 1;
            }
        }
        let bibs = regions.bibs.iter().zip(sessions);
        let mended = bibs.filter(|(bib, sessions)| mend_bib(bib, *sessions)).count();
        let subscribers = regions.subscribers.iter().zip(used).skip(1);
        mended + subscribers.map(|(entry, used)| mend_subscriber(entry, used)).sum::<usize>()
    }

    /// A permission counts the sessions that permit their remote address. If the count is too high, it never ends.
    fn mend_permissions(&self) -> usize {
        let view = self.view(Duration::ZERO, 0);
        let mut counted = BTreeMap::new();
        for session in view.regions.sessions {
            if is_counted(session) && session.life().permits {
                let key = PermissionKey::of(session.bib.load(Relaxed), &session.key());
                if let Some((index, _)) = view.permission(&key) {
                    *counted.entry(index as usize).or_insert(0) += 1;
                }
            }
        }
        let permissions = view.regions.sessions.iter().enumerate();
        let permissions = permissions.filter(|(_, entry)| entry.is_permission());
        let mend = |&(index, entry): &(usize, &Session)| {
            entry.mend_permitted(counted.get(&index).copied().unwrap_or(0))
        };
        permissions.filter(mend).count()
    }

    /// Ends half-made BIB entries, and puts free entries of any kind that are in no list into one.
    fn find_entries(&self) -> usize {
        let regions = self.memory.regions();
        // One that expires would expire; a static one would stay so.
        let half_made = |bib: &&Bib| {
            bib.change(state::CLAIMED, state::DEAD)
                || bib.flags.load(Relaxed) & bib_flags::STATIC != 0
                    && !self.is_announced(bib)
                    && bib.change(state::LIVE, state::DEAD)
        };
        let half_made = regions.bibs.iter().filter(half_made).count();
        let is_free = |life: &AtomicU32| life_parts(life.load(Acquire)).0 == state::FREE;
        let (bibs, subscribers) = (regions.bibs, regions.subscribers);
        let lost = [
            FreeList::of(&regions, Kind::Bib).find_lost(bibs, |bib| is_free(&bib.life)),
            FreeList::of(&regions, Kind::Session)
                .find_lost(regions.sessions, |session| session.life().state == state::FREE),
            FreeList::of(&regions, Kind::Subscriber)
                .find_lost(subscribers, |subscriber| is_free(&subscriber.life)),
        ];
        half_made + lost.iter().sum::<usize>()
    }

    /// Whether a BIB entry is found by its IPv6 side.
    fn is_announced(&self, bib: &Bib) -> bool {
        let view = self.view(Duration::ZERO, 0);
        let chain = view.bib6_chain(bib.v6(), bib.protocol.load(Relaxed));
        chain.is_some_and(|chain| chain.find(|other| core::ptr::eq(other, bib)).0.is_some())
    }
}

impl FreeList<'_> {
    /// Puts free entries that are in no list into one, while no thread takes or gives any. Gives their number.
    fn find_lost<T: Chained>(&self, entries: &[T], is_free: impl Fn(&T) -> bool) -> usize {
        let mut listed = vec![false; entries.len()];
        self.recount(entries, |index| !core::mem::replace(&mut listed[index], true));
        let used = entries.iter().zip(listed).enumerate().take(self.ever_used()).skip(1);
        let lost: Vec<usize> = used
            .filter(|(_, (entry, listed))| !listed && is_free(entry))
            .map(|(index, _)| index)
            .collect();
        for index in &lost {
            self.give(entries, *index, *index as u32);
        }
        lost.len()
    }
}

/// Whether a session stands in the counts of others: from its making until the sweeper has taken it out.
fn is_counted(session: &Session) -> bool {
    let life = session.life();
    (life.state == state::DEAD || life.is_live()) && !session.is_permission()
}

fn mend_bib(bib: &Bib, sessions: u32) -> bool {
    let (state, number) = life_parts(bib.life.load(Acquire));
    let wrong = matches!(state, state::LIVE | state::DEAD) && number != sessions;
    if wrong {
        bib.life.store(life(state, sessions), Release);
    }
    wrong
}

fn mend_subscriber(subscriber: &Subscriber, used: [u32; 4]) -> usize {
    let (state, number) = life_parts(subscriber.life.load(Acquire));
    // Of one that is claimed the sweeper was finding out whether it lives: the next one does so again.
    let state = if state == state::CLAIMED { state::LIVE } else { state };
    if !matches!(state, state::LIVE | state::DEAD) {
        return 0;
    }
    // A block that was being added, and that was not used yet.
    subscriber.life.store(life(state, number & !ADDING), Release);
    let [tcp, udp, icmp] = &subscriber.ports;
    let counters: [&AtomicU32; 4] = [tcp, udp, icmp, &subscriber.sessions];
    counters.iter().zip(used).filter(|(counter, used)| counter.swap(*used, SeqCst) != *used).count()
}
