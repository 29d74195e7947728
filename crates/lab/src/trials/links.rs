//! Counters of network devices, per place.

use fordway_data::trial::{LinkCounters, Snapshot};

use crate::backend::{Backend, Place, must};
use crate::error::{LabError, Result};

/// Reads the counters of all devices of the given places.
pub(super) fn snapshot(backend: &dyn Backend, places: &[(&str, &Place)]) -> Result<Snapshot> {
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
