//! Metrics of a gateway in its cluster.

use fordway_control::{ClusterPhase, ClusterStats, Stats};

use super::{Family, Group, Put, Values, counters};
use crate::metrics::counters::{CLUSTER_CHANNEL, CLUSTER_SHARDS, CLUSTER_STORE};

pub(super) const GROUP: Group = (
    "A gateway in its cluster ([cluster.md](cluster.md#operation))",
    families! {
        Gauge cluster_phase[phase] "1 for where it stands: `joining`, `member`, `wrong_config`, `name_in_use`, `replaced`, `left` or `failed`" |s, _, put| {
            if let Some(it) = &s.cluster {
                ClusterPhase::ALL.iter().for_each(|phase| put(&[phase.word()], (it.state.phase == *phase).into()));
            }
        };
        Gauge cluster_lease_milliseconds[] "Time until its lease ends, if nothing extends it; 0: it translates nothing" |s, _, put| of_cluster(s, put, |it| it.state.lease_ms);
        Gauge cluster_store_connected[] "1: a server of the store is connected, and the bucket open" |s, _, put| of_cluster(s, put, |it| it.state.store_connected.into());
        Gauge cluster_store_silent[] "1: the store acknowledges nothing, and promises of other gateways extend the lease" |s, _, put| of_cluster(s, put, |it| it.state.silent.into());
        Gauge cluster_peers[] "Gateways that can vote to end its lease, or promise to respect it" |s, _, put| of_cluster(s, put, |it| it.state.peers);
        Gauge cluster_shards[role] "Shards, by what it is to them: `owner`, `moving` (its own, moving away), `ready` (a standby that has the records), `other`" |s, _, put| {
            for it in s.cluster.iter().map(|it| &it.state.shards_by_role) {
                let roles = [("owner", it.owner), ("moving", it.moving), ("ready", it.ready), ("other", it.other)];
                roles.iter().for_each(|(role, count)| put(&[role], *count));
            }
        };
        Gauge cluster_shards_uncovered[] "Shards of its own without a standby that is ready" |s, _, put| of_cluster(s, put, |it| it.state.shards_by_role.uncovered);
        Gauge cluster_records[of] "Replicated records, of its `own` shards and of those of `others`" |s, _, put| {
            for it in s.cluster.iter().map(|it| &it.records) {
                put(&["own"], it.own);
                put(&["others"], it.others);
            }
        };
        Gauge cluster_lag_records[] "Records of its own shards that standbys have not acknowledged" |s, _, put| of_cluster(s, put, |it| it.records.lag);
        Gauge cluster_lag_milliseconds[] "Age of the oldest of these" |s, _, put| of_cluster(s, put, |it| it.records.lag_ms);
        Gauge cluster_records_dropped[] "Records of the shards that it owns now that full queues have dropped; the standby gets all of a shard's again" |s, _, put| of_cluster(s, put, |it| it.records.dropped);
        Gauge cluster_records_unplaced[] "Records of others that are in no table: sessions that wait for their BIB entry, and refused records" |s, _, put| of_cluster(s, put, |it| it.tables.unplaced);
        Counter cluster_records_refused[] "Records of others that the tables have refused: they are full, or the configuration differs" |s, _, put| of_cluster(s, put, |it| it.tables.refused);
        Counter cluster_scans[] "Scans of the tables for records" |s, _, put| of_cluster(s, put, |it| it.tables.scans);
        Gauge cluster_last_scan_microseconds[] "Time that the last scan took, with its pauses" |s, _, put| of_cluster(s, put, |it| it.tables.last_scan_us);
        Counter cluster_shard_events[event] "What has happened to shards here" cluster;
        Counter cluster_store_events[event] "What has happened at the store" cluster;
        Counter cluster_channel_events[event] "What has happened to messages between gateways" cluster;
    },
);

fn cluster(s: &Stats, family: &str, put: Put<'_, u64>) {
    if let Some(it) = &s.cluster {
        counters(CLUSTER_SHARDS, family, &[], &it.moves, put);
        counters(CLUSTER_STORE, family, &[], &it.store, put);
        counters(CLUSTER_CHANNEL, family, &[], &it.channel, put);
    }
}

fn of_cluster(s: &Stats, put: Put<'_, u64>, pick: fn(&ClusterStats) -> u64) {
    s.cluster.iter().for_each(|it| put(&[], pick(it)));
}
