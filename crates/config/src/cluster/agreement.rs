//! What all gateways of a cluster have to have alike.

use std::fmt::Write as _;
use std::hash::Hasher;

use fordway_cluster::{Fencing, Timing};
use fordway_xlat::nat64::replica::Replicated;
use fordway_xlat::nat64::{Allocation, Filtering, Lifetimes};
use siphasher::sip::SipHasher24;

use super::Cluster;
use crate::nat64::{Gateway, Nat64, Pool};

/// Goes up with each change of what stands below, which gateways of two versions have alike as well.
const VERSION: &str = "1";

impl Cluster {
    /// Hash of what all gateways have to have alike; the first gateway writes it to the store, and the others compare. `key`:
    /// the cluster's, which must be equal, too.
    #[must_use]
    pub fn hash(&self, nat64: &Nat64, key: [u64; 2]) -> u64 {
        let mut text = String::new();
        for (name, value) in self.agreement(nat64) {
            // Writing to a string can't fail.
            let _ = writeln!(text, "{name} {value}");
        }
        let mut hasher = SipHasher24::new_with_keys(key[0], key[1]);
        hasher.write(text.as_bytes());
        hasher.finish()
    }

    /// Keys, and what gateways have to agree on. Each field of the types is named here, so that who adds one has to decide.
    ///
    /// Numbers that depend on a gateway's size or on taste (tables, quotas, weights), addresses of gateways, files and logs
    /// may differ. Times and numbers of gateways may not, since the promise of one owner rests on them; pools and prefixes
    /// since records name them by their place; lifetimes and all else that says how long sessions live since a standby
    /// should end none earlier than its owner.
    pub(crate) fn agreement(&self, nat64: &Nat64) -> [(&'static str, String); 13] {
        let Cluster {
            name: _,
            fencing,
            shards,
            key_file: _,
            certificate: _,
            key: _,
            authority: _,
            route_table: _,
            replicate: Replicated { udp, icmp },
            ttl: _,
            outage: _,
            store: _,
            gateways,
        } = self;
        let Nat64 {
            pool6,
            nat_pt: _,
            pools,
            bib: _,
            filtering,
            accept_v4_syn: _,
            refresh_from_v4,
            gateways: algs,
            subscriber_len,
            sizes: _,
            allow_short_lifetimes: _,
            lifetimes,
            quotas: _,
            logs: _,
        } = nat64;
        let mut gateways: Vec<_> = gateways.iter().map(|it| (it.number, &it.name)).collect();
        gateways.sort_unstable();
        let fencing = match fencing {
            Fencing::Majority => "majority",
            Fencing::Any => "any",
        };
        let filtering = match filtering {
            Filtering::EndpointIndependent => "endpoint-independent",
            Filtering::AddressDependent => "address-dependent",
        };
        let algs = algs.on.iter().map(|alg| match alg {
            Gateway::Ftp => format!("ftp {}", joined(&algs.ftp_ports)),
        });
        [
            ("version", VERSION.to_owned()),
            ("fencing", fencing.to_owned()),
            ("shards", shards.to_string()),
            ("ttl", times(&self.timing())),
            ("replicate", format!("udp {udp} icmp {icmp}")),
            ("gateway", joined(gateways.iter().map(|(number, name)| format!("{number} {name}")))),
            ("pool6", joined(pool6)),
            ("pool4", joined(pools.iter().map(pool))),
            ("filtering", filtering.to_owned()),
            ("refresh_from_v4", refresh_from_v4.to_string()),
            ("alg", joined(algs)),
            ("subscriber_len", subscriber_len.to_string()),
            ("lifetimes", lived(lifetimes)),
        ]
    }
}

fn joined<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(",")
}

/// In ns.
fn times(timing: &Timing) -> String {
    let &Timing {
        ttl,
        renew,
        drift_ppm,
        slack,
        outage,
        grace,
        memory: _,
        patience: _,
        turn,
        handover,
        batch,
        resend,
    } = timing;
    joined([ttl, renew, drift_ppm, slack, outage, grace, turn, handover, batch, resend])
}

/// In ms.
fn lived(lifetimes: &Lifetimes) -> String {
    let &Lifetimes {
        udp,
        icmp,
        tcp_est,
        tcp_trans,
        tcp_incoming_syn,
        hold_down,
        hold_down_most: _,
        subscriber,
        dynamic4: _,
    } = lifetimes;
    let all = [udp, icmp, tcp_est, tcp_trans, tcp_incoming_syn, hold_down, subscriber];
    joined(all.map(|time| time.as_millis()))
}

/// Addresses from first to last, however they are written.
fn pool(pool: &Pool) -> String {
    let Pool { pool4, clients, mark, allocation } = pool;
    let ranges = pool4.iter().map(|entry| match entry.addresses() {
        Some((first, last)) => format!("{first}-{last}:{}", entry.ports),
        None => entry.to_string(),
    });
    let allocation = match allocation {
        Allocation::Shared => "shared".to_owned(),
        Allocation::Blocks { size, most } => format!("blocks {size} {most}"),
        Allocation::Deterministic { size } => format!("deterministic {size}"),
    };
    let mark = mark.map_or("none".to_owned(), |mark| mark.to_string());
    format!("[{}] clients [{}] mark {mark} {allocation}", joined(ranges), joined(clients))
}
