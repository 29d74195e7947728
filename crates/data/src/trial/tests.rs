use super::*;
use crate::spec::Axis;

fn condition() -> Condition {
    Condition {
        clocksource: "tsc".into(),
        duration_s: 2,
        flow_octets: None,
        offloads: true,
        shares: None,
    }
}

fn parts(condition: &Condition) -> KeyParts<'_> {
    KeyParts {
        spec_hash: "s",
        mechanism: "native-v6",
        version: "1",
        condition,
        block: 1,
        seed: 7,
        metric: Metric::Rtt,
        point: None,
    }
}

#[test]
fn the_key_changes_with_every_part() {
    let c = condition();
    let other = Condition { duration_s: 3, ..condition() };
    let octets = Condition { flow_octets: Some(9), ..condition() };
    let point = Point::grid(&[(Axis::Flows, vec![10])]).remove(0);
    let base = key(parts(&c));
    assert_eq!(base, key(parts(&c)));
    let changed = [
        key(KeyParts { spec_hash: "t", ..parts(&c) }),
        key(KeyParts { mechanism: "m", ..parts(&c) }),
        key(KeyParts { version: "2", ..parts(&c) }),
        key(KeyParts { condition: &other, ..parts(&c) }),
        key(KeyParts { condition: &octets, ..parts(&c) }),
        key(KeyParts { block: 2, ..parts(&c) }),
        key(KeyParts { seed: 8, ..parts(&c) }),
        key(KeyParts { metric: Metric::TcpThroughputUp, ..parts(&c) }),
        key(KeyParts { point: Some(&point), ..parts(&c) }),
    ];
    let mut all: Vec<&String> = changed.iter().chain([&base]).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 10);
}

#[test]
fn a_line_cut_short_is_forgotten_and_a_bad_line_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::of(dir.path());
    std::fs::write(&ledger.path, "{\"key\":").unwrap();
    let experiment = Experiment::find("nat64").unwrap();
    assert!(ledger.read(&experiment).unwrap().is_empty());
    ledger.mend().unwrap();
    assert_eq!(std::fs::read(&ledger.path).unwrap(), b"");
    std::fs::write(&ledger.path, "{\"key\":\n").unwrap();
    assert!(ledger.read(&experiment).unwrap_err().to_string().contains("line 1"));
}
