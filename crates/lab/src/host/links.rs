//! Counters of network devices, per place.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::backend::{Backend, Place, must};
use crate::error::{LabError, Result};

/// Counters of one device.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub(crate) struct LinkCounters {
    /// Octets received.
    pub(crate) rx_bytes: u64,
    /// Packets received; a super-packet counts as one.
    pub(crate) rx_packets: u64,
    /// Packets dropped or in error on receipt.
    pub(crate) rx_lost: u64,
    /// Octets sent.
    pub(crate) tx_bytes: u64,
    /// Packets sent.
    pub(crate) tx_packets: u64,
    /// Packets dropped or in error on sending; a full TUN queue counts here.
    pub(crate) tx_lost: u64,
}

impl LinkCounters {
    /// What was counted since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            rx_bytes: self.rx_bytes.saturating_sub(before.rx_bytes),
            rx_packets: self.rx_packets.saturating_sub(before.rx_packets),
            rx_lost: self.rx_lost.saturating_sub(before.rx_lost),
            tx_bytes: self.tx_bytes.saturating_sub(before.tx_bytes),
            tx_packets: self.tx_packets.saturating_sub(before.tx_packets),
            tx_lost: self.tx_lost.saturating_sub(before.tx_lost),
        }
    }
}

/// Counters by `role/device`.
pub(crate) type Snapshot = BTreeMap<String, LinkCounters>;

/// Reads the counters of all devices of the given places.
pub(crate) fn snapshot(backend: &dyn Backend, places: &[(&str, &Place)]) -> Result<Snapshot> {
    let mut all = Snapshot::new();
    for (role, place) in places {
        let text = must(backend, place, &["ip", "-s", "-j", "link", "show"])?.stdout;
        for (device, counters) in parse(&text)? {
            if device != "lo" {
                all.insert(format!("{role}/{device}"), counters);
            }
        }
    }
    Ok(all)
}

/// What was counted between two snapshots.
pub(crate) fn difference(before: &Snapshot, after: &Snapshot) -> Snapshot {
    let get = |name: &String| before.get(name).copied().unwrap_or_default();
    after.iter().map(|(name, c)| (name.clone(), c.since(get(name)))).collect()
}

fn parse(text: &str) -> Result<Vec<(String, LinkCounters)>> {
    let bad = |why: String| LabError::Parse { tool: "ip -s -j link", why };
    let links: Vec<serde_json::Value> =
        serde_json::from_str(text).map_err(|e| bad(e.to_string()))?;
    let mut all = Vec::new();
    for link in &links {
        let Some(name) = link["ifname"].as_str() else { continue };
        let n = |way: &str, key: &str| link["stats64"][way][key].as_u64().unwrap_or(0);
        let counters = LinkCounters {
            rx_bytes: n("rx", "bytes"),
            rx_packets: n("rx", "packets"),
            rx_lost: n("rx", "dropped") + n("rx", "errors"),
            tx_bytes: n("tx", "bytes"),
            tx_packets: n("tx", "packets"),
            tx_lost: n("tx", "dropped") + n("tx", "errors"),
        };
        all.push((name.to_owned(), counters));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_from_ip_json() {
        let text = r#"[{"ifname":"lo"},{"ifname":"uplink","stats64":{
            "rx":{"bytes":10,"packets":2,"errors":1,"dropped":3},
            "tx":{"bytes":20,"packets":4,"errors":0,"dropped":5}}}]"#;
        let links = parse(text).unwrap();
        assert_eq!(links[0].1, LinkCounters::default());
        let c = links[1].1;
        assert_eq!((c.rx_bytes, c.rx_lost, c.tx_packets, c.tx_lost), (10, 4, 4, 5));
        assert_eq!(c.since(c), LinkCounters::default());
    }
}
