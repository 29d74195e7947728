//! The fence of a cluster: whether a packet's shard may be translated here now (docs/cluster.md).
//!
//! A packet enters the shard of its host before anything is changed. One that hairpins enters the shards of both
//! hosts. Before it is sent, [`Shards::let_leave`] asks for all of them again, since the lease may
//! have ended meanwhile.

use core::net::Ipv4Addr;
use core::time::Duration;

use crate::nat64::policy::{Closed, Partition, Settings, Shards};
use crate::passage::{Entered, Passage};

/// The fence, for one packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fence<'a> {
    shards: &'a Shards,
    boottime: Duration,
    pub(crate) entered: Entered,
}

impl<'a> Fence<'a> {
    /// The fence at a time of CLOCK_BOOTTIME; `None`: there are no shards.
    #[inline]
    pub(crate) fn new(settings: &'a Settings, boottime: Duration) -> Option<Fence<'a>> {
        let shards = settings.shards.as_deref()?;
        Some(Fence { shards, boottime, entered: Entered::default() })
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
            None => *slot.insert(self.shards.enter(shard, self.boottime)?),
        };
        Ok(passage.is_quiet)
    }

    /// Whether an IPv4 transport address is of a shard that is translated here, or of none.
    pub(crate) fn translates(&self, v4: Ipv4Addr, port: u16) -> bool {
        let shard = self.partition().of_v4(v4, port);
        shard.is_none_or(|shard| self.shards.enter(shard, self.boottime).is_ok())
    }
}
