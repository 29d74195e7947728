//! Room for sessions: in the tables of mechanisms, and in the machine's connection tracking.

use fordway_data::plan;
use fordway_data::spec::{Load, Metric};

use super::Runner;
use super::loads::{loads, networks, renews};
use crate::error::Result;
use crate::host::conntrack::Limits;
use crate::load::flows::subscribers;
use crate::mechanism::Room;
use crate::state::Guard;

/// Sessions of a deployment that is only probed.
pub(super) const FEW_SESSIONS: u32 = 4096;

impl Runner {
    /// Sessions that a deployment on which these are measured must have room for.
    pub(super) fn sessions(&self, metrics: &[Metric]) -> u32 {
        let profile = self.profile();
        let of = |load: Load| match load {
            Load::Hold => profile.held_sessions,
            Load::NewFlows(_) => profile.new_flows + subscribers(profile.new_flows),
            Load::Recycled => profile.table_entries,
            Load::Connections => {
                let most = profile.table_connections.iter().max().copied().unwrap_or(0);
                u32::try_from(2 * most).unwrap_or(u32::MAX)
            }
            Load::Capacity => u32::try_from(2 * profile.safe_connections).unwrap_or(u32::MAX),
            _ => 0,
        };
        loads(metrics).into_iter().map(of).sum::<u32>() + FEW_SESSIONS
    }

    /// The tables of such a deployment.
    pub(super) fn room(&self, metrics: &[Metric]) -> Room {
        if loads(metrics).contains(&Load::Recycled) {
            return Room { sessions: self.profile().table_entries, recycles: true };
        }
        Room::of(self.sessions(metrics))
    }

    /// Raises the machine's limits of connection tracking where a mechanism of this run needs it; the
    /// guard puts them back.
    pub(super) fn make_room(&self, guard: &mut Guard) -> Result<()> {
        let mut most = 0;
        for name in &self.run.mechanisms {
            let arm = self.arm(name)?;
            if self.mechanism(&arm)?.tracks_connections(arm.kind) {
                let wanted = plan::metrics_of(&self.experiment, &self.run.unmeasured, &arm);
                let together = networks(arm.kind, &wanted).into_iter();
                // What takes the mechanism down is measured alone.
                let alone = wanted.iter().filter(|metric| metric.load().is_some_and(renews));
                let all = together.chain(alone.map(|metric| vec![*metric]));
                most = most.max(all.map(|metrics| self.sessions(&metrics)).max().unwrap_or(0));
            }
        }
        self.limit_conntrack(guard, most).map(drop)
    }

    /// Makes room for so many tracked connections where mechanisms run; the limits in force.
    pub(super) fn limit_conntrack(
        &self,
        guard: &mut Guard,
        connections: u32,
    ) -> Result<Option<Limits>> {
        match self.backend.pair() {
            Some(pair) => pair.limit_conntrack(guard, connections.into()),
            None => guard.limit_conntrack(connections.into()),
        }
    }
}
