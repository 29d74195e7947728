//! What only CLATs have that set themselves up: `fordway_clat_*`.

use prometheus_client::encoding::DescriptorEncoder;

use super::nat64::{gauge, set};
use super::{Encoded, counter, put};
use crate::report::Stats;

/// The states, one of which each is in.
const STATES: [&str; 3] = ["active", "waiting", "aside"];

/// Where prefixes come from.
const SOURCES: [&str; 3] = ["router advertisement", "dns", "configured"];

pub(super) fn encode(stats: &Stats, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    let all = &stats.automatic;
    let mut family = gauge(encoder, "clat_state", "1: the automatic CLAT is in this state")?;
    for auto in all {
        for state in STATES {
            let labels = [("translator", auto.name.as_str()), ("state", state)];
            set(&mut family, &labels, u64::from(auto.state == state))?;
        }
    }
    let help = "Prefixes that the network tells, by source";
    let mut family = gauge(encoder, "clat_prefixes", help)?;
    for auto in all {
        for source in SOURCES {
            let count = auto.prefixes.iter().filter(|found| found.source == source).count();
            let labels = [("translator", auto.name.as_str()), ("source", source)];
            set(&mut family, &labels, count as u64)?;
        }
    }
    let help = "1: the host could not be set up, which is tried again";
    let mut family = gauge(encoder, "clat_failed", help)?;
    for auto in all {
        set(&mut family, &[("translator", &auto.name)], u64::from(auto.error.is_some()))?;
    }
    let help = "How often state, prefix, uplink or address of an automatic CLAT have changed";
    let mut family = counter(encoder, "clat_changes", help)?;
    for auto in all {
        put(&mut family, &[("translator", &auto.name)], auto.changes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::report::{AutoStatus, FoundStatus, Stats};

    #[test]
    fn state_prefixes_and_changes_are_told() {
        let found = FoundStatus {
            prefix: "64:ff9b::/96".to_owned(),
            source: "dns".to_owned(),
            from: "resolver".to_owned(),
            valid_seconds: Some(60),
            stale: false,
        };
        let auto = AutoStatus {
            name: "clat0".to_owned(),
            state: "aside".to_owned(),
            changes: 7,
            prefixes: vec![found.clone(), found],
            error: Some("no".to_owned()),
            ..AutoStatus::default()
        };
        let stats = Stats { automatic: vec![auto], ..Stats::default() };
        let text = crate::metrics::encode(stats).unwrap();
        for line in [
            "fordway_clat_state{translator=\"clat0\",state=\"aside\"} 1",
            "fordway_clat_state{translator=\"clat0\",state=\"active\"} 0",
            "fordway_clat_prefixes{translator=\"clat0\",source=\"dns\"} 2",
            "fordway_clat_prefixes{translator=\"clat0\",source=\"configured\"} 0",
            "fordway_clat_failed{translator=\"clat0\"} 1",
            "fordway_clat_changes_total{translator=\"clat0\"} 7",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
    }
}
