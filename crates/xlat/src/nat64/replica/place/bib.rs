//! BIB entries.

use core::net::Ipv4Addr;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::nat64::policy::prefix as prefix_of;
use crate::nat64::table::{Bib, Found, Protocol, Subscriber, bib_flags, one_less, state};

use super::super::apply::ApplyError;
use super::super::record::{BibValue, Named};
use super::super::told::ToldBib;
use super::Place;

impl<'a> Place<'a> {
    /// A BIB entry's record.
    pub(in super::super) fn put_bib(
        &mut self,
        shard: u16,
        (protocol, v4): (Protocol, (Ipv4Addr, u16)),
        value: &BibValue,
    ) -> Result<(), ApplyError> {
        let (nat, number) = (self.view.nat, protocol.number());
        let of_v4 = self.shards.partition().of_v4(v4.0, v4.1);
        if !nat.owns(protocol, v4.0, v4.1) || of_v4.is_some_and(|other| other != shard) {
            return Err(ApplyError::Foreign);
        }
        if let Some(entry) = self.told.find(shard, &Named::Bib { protocol, v4 }) {
            if self.has_bib(entry).is_some() && self.told.bib_value(entry) == *value {
                return Ok(());
            }
            self.remove_bib(entry);
        }
        if let Some(chain) = self.view.bib4_chain(v4, number)
            && let Some(holder) = self.view.holder4(&chain, v4, number).0
        {
            self.displace(shard, holder)?;
        }
        if let Some(chain) = self.view.bib6_chain(value.v6, number)
            && let Some(holder) = self.view.find6(&chain, value.v6, number).0
        {
            self.displace(shard, holder)?;
        }
        let prefix = prefix_of(value.v6.0, nat.settings.subscriber_len);
        let (owner, subscriber) = self.subscriber(shard, prefix, value.mark)?;
        let made = self.make_bib(protocol, v4, value, owner, subscriber);
        let (entry, bib) = match made {
            Ok(made) => made,
            Err(error) => {
                self.drop_unneeded(owner);
                return Err(error);
            }
        };
        self.told.put_bib(entry, ToldBib::of(bib, shard));
        Ok(())
    }

    fn make_bib(
        &mut self,
        protocol: Protocol,
        v4: (Ipv4Addr, u16),
        value: &BibValue,
        owner: u32,
        subscriber: &Subscriber,
    ) -> Result<Found<'a, Bib>, ApplyError> {
        let counter = &subscriber.ports[protocol.index()];
        counter.fetch_add(1, SeqCst);
        let Some(new) = self.view.new_bib(value.v6, protocol.number(), owner) else {
            one_less(counter);
            return Err(ApplyError::BibFull);
        };
        self.grow();
        if self.told.bibs[new.0 as usize].is_told() {
            self.untell_bib(new.0);
        }
        // The gateway on which it was made has reported it.
        let expected = if value.is_expected { bib_flags::EXPECTED } else { 0 };
        new.1.flags.store(bib_flags::SEEN | expected, Relaxed);
        self.view.put(new, v4, |_| false).map_err(|_| ApplyError::Conflict)?;
        Ok(new)
    }

    /// Removes a BIB entry that contradicts a record of a shard. `Err`: it may not be.
    fn displace(&mut self, shard: u16, (entry, bib): Found<'a, Bib>) -> Result<(), ApplyError> {
        let its_shard = self.shards.partition().of_host(bib.v6().0);
        let is_static = bib.flags.load(Relaxed) & bib_flags::STATIC != 0;
        if its_shard != shard || is_static {
            return Err(ApplyError::Conflict);
        }
        if self.has_bib(entry).is_some() {
            self.remove_bib(entry);
        } else if !bib.change(state::HOLD_DOWN, state::DEAD)
            && !self.sweeper.remove_bib(&self.view, entry)
        {
            return Err(ApplyError::Conflict);
        }
        Ok(())
    }
}
