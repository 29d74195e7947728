//! Sweeping of subscribers: unused, or without a pool.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::nat64::table::{ADDING, Kind, Subscriber, Unlinked, life, life_parts, state};

use super::{Event, Pass};

impl Subscriber {
    /// Claims a live subscriber whose life is `word`. Until [`Subscriber::settle`] no thread takes a port of it or
    /// makes another one for its prefix. `false`: it has changed.
    pub(crate) fn claim(&self, word: u32) -> bool {
        let claimed = life(state::CLAIMED, life_parts(word).1);
        self.life.compare_exchange(word, claimed, SeqCst, SeqCst).is_ok()
    }

    /// Ends a claimed subscriber, unless a thread that had not seen the claim has taken a port of it.
    pub(crate) fn settle(&self, word: u32) {
        let dead = life(state::DEAD, life_parts(word).1);
        self.life.store(if is_unused(self) { dead } else { word }, SeqCst);
    }
}

impl Pass<'_, '_> {
    /// Ends a subscriber whose blocks the settings no longer have.
    pub(crate) fn review_subscriber(&mut self, index: u32) {
        let subscriber = &self.view.regions.subscribers[index as usize];
        if subscriber.state() != state::LIVE {
            return;
        }
        // It may have got a block after the settings were made.
        self.view.nat.mark_blocks(subscriber);
        match self.view.nat.home(subscriber) {
            Some(number) => subscriber.pool.store(number as u16, Relaxed),
            None => subscriber.end(),
        }
    }

    pub(crate) fn subscriber(&mut self, index: u32) {
        let subscriber = &self.view.regions.subscribers[index as usize];
        match subscriber.state() {
            state::LIVE => self.live_subscriber(subscriber),
            state::LIMBO => self.found_in_limbo((Kind::Subscriber, index)),
            _ => {}
        }
        // A change of settings reads the blocks of subscribers.
        let may_finish = || self.view.nat.shared.is_unchanging();
        if subscriber.state() == state::DEAD && is_unused(subscriber) && may_finish() {
            self.finish_subscriber(index, subscriber);
        }
    }

    fn live_subscriber(&mut self, subscriber: &Subscriber) {
        let seen = subscriber.seen.load(Relaxed);
        let mut told = seen;
        for block in subscriber.blocks().skip(usize::from(seen)) {
            (self.tell)(Event::BlockAssigned(subscriber.prefix(), block));
            told += 1;
        }
        if told != seen {
            subscriber.seen.store(told, Relaxed);
        }
        let swept = &mut self.sweep.swept;
        swept.subscribers += 1;
        if let Some(pool) = swept.pools.get_mut(usize::from(subscriber.pool.load(Relaxed))) {
            pool.subscribers += 1;
            for (sum, ports) in pool.ports.iter_mut().zip(&subscriber.ports) {
                *sum += u64::from(ports.load(Relaxed));
            }
        }
        let word = subscriber.life.load(SeqCst);
        let last_used = subscriber.last_used.load(Relaxed);
        if !is_unused(subscriber)
            || life_parts(word).1 & ADDING != 0
            || !self.expired(last_used, self.view.nat.ticks.subscriber)
            || !self.view.nat.settings.ages_host(subscriber.prefix())
        {
            return;
        }
        if subscriber.claim(word) {
            subscriber.settle(word);
        }
    }

    fn finish_subscriber(&mut self, index: u32, subscriber: &Subscriber) {
        let (prefix, mark) = (subscriber.prefix(), subscriber.mark.load(Relaxed));
        let chain = self.view.subscriber_chain(prefix, mark);
        let unlinked = chain.map_or(Unlinked::Absent, |chain| chain.unlink(index));
        if !self.may_go((Kind::Subscriber, index), unlinked) {
            return;
        }
        let seen = usize::from(subscriber.seen.load(Relaxed));
        for (place, block) in subscriber.blocks().enumerate() {
            self.view.nat.take_back(block);
            if place < seen {
                (self.tell)(Event::BlockReleased(prefix, block));
            }
        }
        subscriber.life.store(life(state::LIMBO, 0), SeqCst);
        self.put_in_limbo((Kind::Subscriber, index));
    }
}

pub(super) fn is_unused(subscriber: &Subscriber) -> bool {
    subscriber.sessions.load(SeqCst) == 0
        && subscriber.ports.iter().all(|ports| ports.load(SeqCst) == 0)
}
