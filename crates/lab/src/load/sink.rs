//! Where small datagrams end: counted and dropped before any socket, by nftables in the receiver's
//! namespace. A receiving socket would cost more than what is measured, and lose datagrams of its
//! own accord.

use std::time::{Duration, Instant};

use fordway_load::SINK_PORT;

use crate::backend::{Backend, Place, must};
use crate::error::{LabError, Result};
use crate::process::interrupted;

const TABLE: &str = "fordway-lab";
/// The count is final when it has not changed for this long: queues are empty.
const QUIET: Duration = Duration::from_millis(60);
/// The longest wait for that.
const PATIENCE: Duration = Duration::from_secs(3);

/// A sink; dropping it takes the rules away.
pub(crate) struct Sink<'a> {
    backend: &'a dyn Backend,
    place: Place,
}

impl<'a> Sink<'a> {
    /// Puts a sink into a place, for datagrams that arrive there as IPv4 or as IPv6.
    pub(crate) fn open(backend: &'a dyn Backend, place: &Place, v4: bool) -> Result<Self> {
        let sink = Self { backend, place: place.clone() };
        let family = if v4 { "ipv4" } else { "ipv6" };
        let rule = format!("meta nfproto {family} udp dport {SINK_PORT} counter name arrived drop");
        let hook = "{ type filter hook prerouting priority raw; }";
        for words in [
            vec!["add", "table", "inet", TABLE],
            vec!["add", "counter", "inet", TABLE, "arrived"],
            vec!["add", "chain", "inet", TABLE, "early", hook],
            [vec!["add", "rule", "inet", TABLE, "early"], rule.split(' ').collect()].concat(),
        ] {
            must(backend, place, &[vec!["nft"], words].concat())?;
        }
        Ok(sink)
    }

    /// Datagrams so far.
    pub(crate) fn count(&self) -> Result<u64> {
        let argv = ["nft", "-j", "list", "counter", "inet", TABLE, "arrived"];
        parse(&must(self.backend, &self.place, &argv)?.stdout)
    }

    /// Datagrams in all, once no more arrive.
    pub(crate) fn settled(&self) -> Result<u64> {
        let start = Instant::now();
        let (mut last, mut since) = (self.count()?, Instant::now());
        loop {
            std::thread::sleep(Duration::from_millis(10));
            if interrupted() {
                return Err(LabError::Interrupted);
            }
            let now = self.count()?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
            if since.elapsed() >= QUIET || start.elapsed() >= PATIENCE {
                return Ok(last);
            }
        }
    }
}

impl Drop for Sink<'_> {
    fn drop(&mut self) {
        // The namespace goes soon after; rules that stay until then count what nobody reads.
        let _ = must(self.backend, &self.place, &["nft", "delete", "table", "inet", TABLE]);
    }
}

fn parse(text: &str) -> Result<u64> {
    let bad = |why: String| LabError::Parse { tool: "nft", why };
    let json: serde_json::Value = serde_json::from_str(text).map_err(|e| bad(e.to_string()))?;
    let all = json["nftables"].as_array().ok_or_else(|| bad("no list".into()))?;
    all.iter()
        .find_map(|entry| entry["counter"]["packets"].as_u64())
        .ok_or_else(|| bad("no counter".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_found_in_nfts_list() {
        let text = r#"{"nftables": [{"metainfo": {"version": "1.0.6"}}, {"counter": {
            "family": "inet", "name": "arrived", "table": "fordway-lab", "handle": 2,
            "packets": 4216896, "bytes": 278315136}}]}"#;
        assert_eq!(parse(text).unwrap(), 4_216_896);
        assert!(parse(r#"{"nftables": []}"#).is_err());
    }
}
