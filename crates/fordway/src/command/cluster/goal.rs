//! What commands wait for.

use fordway_control::{ClusterPhase, ClusterStatus, GatewayState};

/// A state of the cluster that an operator waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// A shard is where it is wanted; without a gateway: its wish is gone.
    Moved { shard: u16, to: Option<String> },
    /// This gateway owns no shard.
    Drained,
    /// It has left.
    Left,
}

impl Goal {
    /// What is missing, in words; `None`: nothing.
    pub(super) fn missing(&self, status: &ClusterStatus) -> Option<String> {
        let state = &status.stats.state;
        let owned = state.shards_by_role.owned();
        let alone = || {
            let mut others = status.gateways.iter().filter(|it| !it.this);
            match others.any(|it| it.state == GatewayState::Active) {
                true => "",
                false => "; no other gateway is active",
            }
        };
        match self {
            Goal::Moved { shard, to } => {
                let Some(row) = status.shards.iter().find(|row| row.shard == *shard) else {
                    return Some(format!("nothing is known of shard {shard}"));
                };
                match to {
                    None => row.wish.is_some().then(|| format!("shard {shard} has its old wish")),
                    Some(to) => (row.owner.as_ref() != Some(to)).then(|| {
                        let owner = row.owner.as_deref().unwrap_or("nobody");
                        format!("shard {shard} is owned by {owner}")
                    }),
                }
            }
            Goal::Drained => (owned > 0).then(|| format!("{} left{}", shards(owned), alone())),
            Goal::Left if state.phase == ClusterPhase::Left => None,
            Goal::Left if owned > 0 => Some(format!("{} left{}", shards(owned), alone())),
            Goal::Left => Some("the lease has not ended".to_owned()),
        }
    }

    /// What is said at the end.
    pub(super) fn reached(&self) -> String {
        match self {
            Goal::Moved { shard, to: Some(to) } => format!("shard {shard} is owned by {to}"),
            Goal::Moved { shard, to: None } => {
                format!("shard {shard} goes where placement wants it")
            }
            Goal::Drained => "this gateway owns no shard".to_owned(),
            Goal::Left => "this gateway has left".to_owned(),
        }
    }

    /// What to do about one that is not reached yet.
    pub(super) fn advice(&self) -> &'static str {
        match self {
            Goal::Moved { .. } => {
                "fordway cluster status --shards shows it, fordway cluster move SHARD --back undoes it"
            }
            Goal::Drained | Goal::Left => {
                "fordway cluster status shows it, fordway cluster join undoes it"
            }
        }
    }
}

fn shards(count: u64) -> String {
    if count == 1 { "1 shard is".to_owned() } else { format!("{count} shards are") }
}

#[cfg(test)]
mod tests {
    use fordway_control::{ClusterState, ClusterStats, GatewayRow, ShardCounts, ShardRow};

    use super::*;

    fn status(owner: u64, phase: ClusterPhase, other: GatewayState) -> ClusterStatus {
        let shards_by_role = ShardCounts { owner, ..ShardCounts::default() };
        let state = ClusterState { phase, shards_by_role, ..ClusterState::default() };
        let row = |name: &str, this, state| GatewayRow {
            name: name.to_owned(),
            this,
            state,
            ..GatewayRow::default()
        };
        let shard = ShardRow { shard: 7, owner: Some("gw-a".to_owned()), ..ShardRow::default() };
        ClusterStatus {
            stats: ClusterStats { state, ..ClusterStats::default() },
            gateways: vec![row("gw-a", true, GatewayState::Draining), row("gw-b", false, other)],
            shards: vec![ShardRow { wish: Some("gw-b".to_owned()), ..shard }],
        }
    }

    #[test]
    fn a_drain_is_done_when_no_shard_is_owned() {
        let of = |owner, other| Goal::Drained.missing(&status(owner, ClusterPhase::Member, other));
        assert_eq!(of(0, GatewayState::Active), None);
        assert_eq!(of(1, GatewayState::Active).unwrap(), "1 shard is left");
        let alone = of(3, GatewayState::Ended).unwrap();
        assert_eq!(alone, "3 shards are left; no other gateway is active");
    }

    #[test]
    fn who_leaves_has_left_when_the_lease_has_ended() {
        let of = |owner, phase| Goal::Left.missing(&status(owner, phase, GatewayState::Active));
        assert_eq!(of(2, ClusterPhase::Member).unwrap(), "2 shards are left");
        assert_eq!(of(0, ClusterPhase::Member).unwrap(), "the lease has not ended");
        assert_eq!(of(0, ClusterPhase::Left), None);
    }

    #[test]
    fn a_move_is_done_at_its_gateway_and_one_back_without_a_wish() {
        let mut status = status(1, ClusterPhase::Member, GatewayState::Active);
        let to = |name: &str| Goal::Moved { shard: 7, to: Some(name.to_owned()) };
        assert_eq!(to("gw-b").missing(&status).unwrap(), "shard 7 is owned by gw-a");
        assert_eq!(to("gw-a").missing(&status), None);
        let back = Goal::Moved { shard: 7, to: None };
        assert_eq!(back.missing(&status).unwrap(), "shard 7 has its old wish");
        status.shards[0].wish = None;
        assert_eq!(back.missing(&status), None);
        status.shards.clear();
        assert_eq!(back.missing(&status).unwrap(), "nothing is known of shard 7");
    }
}
