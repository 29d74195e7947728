use std::time::Duration;

use fordway_control::{
    AutoStatus, ClusterState, Nat44Count, Nat44Stats, Nat64Stats, OccupancyStats, PoolStats,
    Totals, TrtStats,
};
use fordway_counters::trt;

use super::*;

fn totals(packets: u64) -> Totals {
    let v4_to_v6 =
        DirectionStats { packets, segments: 3 * packets, octets: 1000 * packets, fragments: 0 };
    let v6_to_v4 = DirectionStats { segments: packets, octets: 500 * packets, ..v4_to_v6 };
    let drops = [("loop", packets), ("pool_exhausted", 2 * packets), ("no_route", 0)];
    let drops = drops.map(|(label, count)| (label.to_owned(), count)).into();
    Totals { v4_to_v6, v6_to_v4, drops, ..Totals::default() }
}

/// A daemon that has carried `packets` at a moment.
pub(crate) fn sample(at: Instant, pid: u32, packets: u64) -> Sample {
    let of = |name: &str, count: u64| (name.to_owned(), count);
    let nat64 = Nat64Stats {
        tables: [("bib".to_owned(), OccupancyStats { used: packets, size: 65_536 })].into(),
        sessions: [of("tcp", packets), of("udp", 7)].into(),
        sessions_created: [of("tcp", 4 * packets), of("udp", 7)].into(),
        pools: vec![PoolStats {
            pool4: vec!["192.0.2.1".to_owned()],
            ports: 64_512,
            bib: [of("tcp", 60_000), of("udp", 62_000), of("all", 5)].into(),
            blocks: Some(OccupancyStats { used: 12, size: 126 }),
            ..PoolStats::default()
        }],
        ..Nat64Stats::default()
    };
    let translator = |name: &str, mode: &str, nat64: Option<Nat64Stats>| TranslatorStats {
        name: name.to_owned(),
        mode: mode.to_owned(),
        totals: if nat64.is_some() { totals(packets) } else { Totals::default() },
        nat64,
        ..TranslatorStats::default()
    };
    let counters = [("out", packets), ("in", packets), ("invalid", packets / 2)];
    let counters = counters
        .map(|(name, packets)| (name.to_owned(), Nat44Count { packets, octets: 100 * packets }));
    let stats = Stats {
        automatic: vec![AutoStatus {
            name: "clat0".to_owned(),
            state: "waiting".to_owned(),
            reason: Some("the network has no translation prefix".to_owned()),
            ..AutoStatus::default()
        }],
        translators: vec![
            translator("nat64", "nat64", Some(nat64)),
            translator("siit0", "siit", None),
        ],
        nat44: vec![Nat44Stats {
            name: "nat44".to_owned(),
            counters: counters.into(),
            conntrack: None,
        }],
        trt: vec![TrtStats {
            name: "trt".to_owned(),
            counters: trt::Stats {
                connections: 3,
                sessions: 2,
                tcp_accepted: packets,
                tcp_octets_down: 1_000_000 * packets,
                refused_client: packets / 2,
                ..trt::Stats::default()
            },
        }],
        cluster: Some(ClusterStats {
            state: ClusterState {
                name: "gw1.example".to_owned(),
                phase: ClusterPhase::Member,
                lease_ms: 480,
                store_connected: true,
                shards_by_role: ShardCounts {
                    owner: 30,
                    moving: 2,
                    ready: 31,
                    other: 1,
                    uncovered: 1,
                },
                ..ClusterState::default()
            },
            records: RecordStats { own: 1234, lag: 5, ..RecordStats::default() },
            ..ClusterStats::default()
        }),
        ..Stats::default()
    };
    let status = Status {
        version: "1.2.3".to_owned(),
        pid,
        config: "/etc/fordway/fordway.toml".to_owned(),
        uptime_seconds: 3725,
        ..Status::default()
    };
    Sample { at, status, stats }
}

/// The view of two seconds in which 20 packets came.
pub(crate) fn two_seconds() -> DaemonView {
    let began = Instant::now();
    let before = sample(began, 7, 10);
    let now = sample(began + Duration::from_secs(2), 7, 30);
    DaemonView::between(Path::new("/run/fordway/control.sock"), Some(&before), &now)
}

#[test]
fn rates_are_differences_by_the_time_between_samples() {
    let view = two_seconds();
    let nat64 = &view.translators[0];
    assert_eq!(nat64.v4_to_v6.packets_per_second, Some(30.0), "segments");
    assert_eq!(nat64.v4_to_v6.bits_per_second, Some(80_000.0));
    assert_eq!(nat64.v6_to_v4.packets_per_second, Some(10.0));
    assert_eq!(nat64.dropped_per_second, Some(30.0));
    assert_eq!((nat64.sessions, nat64.sessions_created_per_second), (Some(37), Some(40.0)));
    let siit = &view.translators[1];
    assert_eq!((siit.sessions, siit.v4_to_v6.packets_per_second), (None, Some(0.0)));
    let names: Vec<&str> = view.translators.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["nat64", "siit0", "clat0"]);
    assert_eq!(
        view.translators[2].waiting.as_deref(),
        Some("the network has no translation prefix")
    );
    let drops: Vec<(&str, u64, Option<f64>)> =
        view.drops.iter().map(|it| (it.reason.as_str(), it.packets, it.per_second)).collect();
    let expected =
        [("pool_exhausted", 60, Some(20.0)), ("loop", 30, Some(10.0)), ("invalid", 15, Some(5.0))];
    assert_eq!(drops, expected, "the highest rate first, and none without a packet");
    assert!(view.drops.iter().all(|it| !it.text.is_empty()));
    let [nat44, relay] = &view.servers[..] else { panic!("{:?}", view.servers) };
    assert_eq!((nat44.per_second, nat44.bits_per_second), (Some(20.0), Some(16_000.0)));
    assert_eq!((relay.per_second, relay.bits_per_second), (Some(10.0), Some(80e6)));
    assert_eq!((relay.open, relay.refused_per_second), (5, Some(5.0)));
    let used: Vec<(&str, u64, u64)> =
        view.occupancy.iter().map(|it| (it.what.as_str(), it.used, it.size)).collect();
    let expected = [
        ("bib table", 30, 65_536),
        ("pool4 192.0.2.1 tcp", 60_000, 64_512),
        ("pool4 192.0.2.1 udp", 62_000, 64_512),
        ("pool4 192.0.2.1 blocks", 12, 126),
    ];
    assert_eq!(used, expected);
}

#[test]
fn another_process_has_no_rates_at_first() {
    let began = Instant::now();
    let socket = Path::new("/run/fordway/control.sock");
    let now = sample(began + Duration::from_secs(2), 8, 5);
    for before in [None, Some(&sample(began, 7, 10))] {
        let view = DaemonView::between(socket, before, &now);
        assert_eq!(view.translators[0].v4_to_v6.packets_per_second, None);
        assert_eq!(view.drops[0].per_second, None);
        assert_eq!(view.servers[0].per_second, None);
    }
    // A translator that has been added since the sample before began at zero.
    let mut before = sample(began, 8, 1);
    before.stats.translators.clear();
    let view = DaemonView::between(socket, Some(&before), &now);
    assert_eq!(view.translators[0].v4_to_v6.packets_per_second, Some(7.5));
}

#[test]
fn views_are_as_the_schema_says() {
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    compiler.add_resource("top.json", schema()).unwrap();
    let index = compiler.compile("top.json", &mut schemas).unwrap();
    let gone = DaemonView::unreachable(Path::new("/run/other.sock"), "no daemon".to_owned());
    let first = DaemonView::between(Path::new("/run/a.sock"), None, &sample(Instant::now(), 7, 1));
    let view = View { time: String::new(), daemons: vec![two_seconds(), first, gone] };
    let value = serde_json::to_value(&view).unwrap();
    schemas.validate(&value, index).unwrap();
    // Each field of a view is described.
    let told = schema().to_string();
    for (name, _) in value["daemons"][0].as_object().unwrap() {
        assert!(told.contains(&format!("\"{name}\"")), "{name}");
    }
    let wrong = serde_json::json!({ "time": 1, "daemons": [] });
    schemas.validate(&wrong, index).unwrap_err();
}
