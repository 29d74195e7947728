//! The fence of a cluster: whether a packet's shard may be translated here now (docs/cluster.md).
//!
//! A packet enters the shard of its host before anything is changed. One that hairpins enters the shards of both
//! hosts. Before it is sent, [`Shards::let_leave`] asks for all of them again, since the lease may
//! have ended meanwhile.

use core::net::Ipv4Addr;
use core::time::Duration;

use crate::nat64::policy::{Closed, Partition, Settings, Shards};
use crate::passage::{Entered, Passage};
use crate::state::State;

/// The fence, for one packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fence<'a> {
    shards: &'a Shards,
    boottime: Duration,
    enablings: u64,
    pub(crate) entered: Entered,
}

impl<'a> Fence<'a> {
    /// The fence as it is now for packets of `state`; `None`: there are no shards.
    #[inline]
    pub(crate) fn new(settings: &'a Settings, state: &State) -> Option<Fence<'a>> {
        let shards = settings.shards.as_deref()?;
        let State { boottime, enablings, .. } = *state;
        Some(Fence { shards, boottime, enablings, entered: Entered::default() })
    }

    pub(crate) fn partition(&self) -> &'a dyn Partition {
        self.shards.partition()
    }

    /// Enters a shard, unless the packet has entered it before. Gives whether the shard is quiet.
    pub(crate) fn enter(&mut self, shard: u16) -> Result<bool, Closed> {
        let is_free = |slot: &&mut Option<Passage>| slot.is_none_or(|it| it.shard == shard);
        let slot = self.entered.iter_mut().find(is_free).ok_or(Closed::Elsewhere)?;
        let passage = match *slot {
            Some(passage) => passage,
            None => *slot.insert(self.shards.enter(shard, self.boottime, self.enablings)?),
        };
        Ok(passage.is_quiet)
    }

    /// Whether an IPv4 transport address is of a shard that is translated here, or of none.
    pub(crate) fn translates(&self, v4: Ipv4Addr, port: u16) -> bool {
        let shard = self.partition().of_v4(v4, port);
        shard.is_none_or(|shard| self.shards.enter(shard, self.boottime, self.enablings).is_ok())
    }
}
