//! Counts that a killed process has left wrong.
//!
//! A session is counted at its BIB entry and its subscriber, and a BIB entry at its subscriber. Who is killed
//! between counting and making, or between unmaking and counting, leaves a count too high: the entry would
//! never go, the quota never be free. Programs in the kernel are not killed so; so this is done once, when
//! tables of an earlier process are taken over. They may be in use meanwhile: a count is mended only if it has
//! not changed while it was checked.

use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::Nat64;
use super::chain::state;
use super::layout::{Bib, Subscriber};
use super::settings::Protocol;
use super::subscriber::ADDING;
use super::view::{life, life_parts};

impl Nat64 {
    /// Mends what a killed process has left: to be called once, before the first sweep and before the user
    /// engine works on the tables. Gives the number of counts that were wrong.
    pub fn reconcile(&self) -> usize {
        let regions = self.memory.regions();
        let lives: Vec<u32> = regions.bibs.iter().map(|bib| bib.life.load(Acquire)).collect();
        let quotas: Vec<[u32; 4]> = regions.subscribers.iter().map(counts).collect();
        let mut sessions = vec![0_u32; regions.bibs.len()];
        let mut used = vec![[0_u32; 4]; regions.subscribers.len()];
        for session in regions.sessions {
            let life = session.life();
            let entry = session.bib.load(Relaxed) as usize;
            if life.state != state::DEAD && !life.is_live() || entry == 0 {
                continue;
            }
            let Some(bib) = regions.bibs.get(entry) else { continue };
            sessions[entry] += 1;
            if let Some(used) = used.get_mut(bib.subscriber.load(Relaxed) as usize) {
                used[3] += 1;
            }
        }
        for bib in regions.bibs {
            let is_live = bib.state() == state::LIVE;
            if let (Some(protocol), true, Some(used)) = (
                Protocol::of(bib.protocol.load(Relaxed)),
                is_live,
                used.get_mut(bib.subscriber.load(Relaxed) as usize),
            ) {
                used[protocol.index()] += 1;
            }
        }
        let bibs = regions.bibs.iter().zip(lives).zip(sessions);
        let mended = bibs.filter(|((bib, life), sessions)| mend_bib(bib, *life, *sessions)).count();
        let subscribers = regions.subscribers.iter().zip(quotas).zip(used).skip(1);
        mended + subscribers.map(|((entry, before), used)| mend(entry, before, used)).sum::<usize>()
    }
}

/// Ports by protocol, and sessions.
fn counts(subscriber: &Subscriber) -> [u32; 4] {
    let ports = [0, 1, 2].map(|place: usize| subscriber.ports[place].load(Acquire));
    [ports[0], ports[1], ports[2], subscriber.sessions.load(Acquire)]
}

fn mend_bib(bib: &Bib, before: u32, sessions: u32) -> bool {
    let (state, number) = life_parts(before);
    matches!(state, state::LIVE | state::DEAD)
        && number != sessions
        && bib.life.compare_exchange(before, life(state, sessions), AcqRel, Acquire).is_ok()
}

fn mend(subscriber: &Subscriber, before: [u32; 4], used: [u32; 4]) -> usize {
    let word = subscriber.life.load(Acquire);
    let (state, number) = life_parts(word);
    if !matches!(state, state::LIVE | state::DEAD) {
        return 0;
    }
    if number & ADDING != 0 {
        // Nobody is left who would finish this; should the swap fail, somebody did.
        let _ = subscriber.life.compare_exchange(word, word & !ADDING, AcqRel, Acquire);
    }
    let [tcp, udp, icmp] = &subscriber.ports;
    let counters: [&AtomicU32; 4] = [tcp, udp, icmp, &subscriber.sessions];
    let wrong = counters.iter().zip(before).zip(used).filter(|((counter, before), used)| {
        before != used && counter.compare_exchange(*before, *used, AcqRel, Acquire).is_ok()
    });
    wrong.count()
}
