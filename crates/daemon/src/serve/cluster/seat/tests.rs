//! A member as it could be, as clients see it, and what it can be asked to do.

use fordway_cluster::{Command, GatewayStatus, Member, Phase, Role, Shard, ShardStatus, Status};
use fordway_control::{GatewayState, ShardCounts, ShardRole};
use fordway_counters::cluster::{ChannelStats, ShardStats, StoreStats, TablesStats};

use super::*;

const MS: u64 = 1_000_000;

/// Gateways 1 to 3; this is the first one.
fn gateways() -> Gateways {
    let names = [(1, "gw-a"), (2, "gw-b"), (3, "gw-c")];
    let names = names.map(|(number, name)| (Member(number), name.to_owned())).into();
    Gateways { me: Member(1), names }
}

fn shard(number: u16, owner: Option<u16>, role: Role) -> ShardStatus {
    let owns = matches!(role, Role::Owner | Role::Moving);
    ShardStatus {
        shard: Shard(number),
        owner: owner.map(|owner| (Member(owner), 5)),
        role,
        standby: owns.then_some(Member(2)),
        is_covered: role == Role::Owner,
        lag: if owns { (3, u64::from(number + 1) * MS) } else { (0, 0) },
        dropped: 0,
        records: 100,
        wish: None,
    }
}

/// Shard 0 is gateway 1's, 1 moves away from it, 2 is gateway 2's and ready here, 3 is gateway 2's, 4 is nobody's. Gateway 3 has
/// never joined; gateway 9 is in no configuration.
fn overview() -> Overview {
    let gateway = |number, status, unseen| GatewayStatus {
        member: Member(number),
        status,
        weight: 100,
        unseen: unseen * MS,
    };
    Overview {
        now: 1_000 * MS,
        phase: Phase::Member,
        until: 1_489 * MS - 5,
        is_silent: false,
        peers: 1,
        is_store_open: true,
        store_error: None,
        gateways: vec![
            gateway(1, Status::Active, 20),
            gateway(2, Status::Active, 42),
            gateway(9, Status::Ended, 70_000),
        ],
        shards: vec![
            shard(0, Some(1), Role::Owner),
            shard(1, Some(1), Role::Moving),
            shard(2, Some(2), Role::Ready),
            ShardStatus { wish: Some(Member(3)), ..shard(3, Some(2), Role::Other) },
            shard(4, None, Role::Other),
        ],
        moves: ShardStats { taken_over: 1, ..ShardStats::default() },
        store: StoreStats { written: 7, ..StoreStats::default() },
        channel: ChannelStats { sent: 8, ..ChannelStats::default() },
    }
}

fn shown(overview: &Overview) -> ClusterStatus {
    shown::status(overview, &gateways(), TablesStats { scans: 9, ..TablesStats::default() })
}

#[test]
fn roles_records_and_lag_are_added_up() {
    let ClusterStatus { stats, .. } = shown(&overview());
    let expected = ShardCounts { owner: 1, moving: 1, ready: 1, other: 2, uncovered: 1 };
    assert_eq!(stats.state.shards_by_role, expected);
    assert_eq!((stats.records.own, stats.records.others), (200, 300));
    assert_eq!((stats.records.lag, stats.records.lag_ms), (6, 2));
    assert_eq!((stats.moves.taken_over, stats.store.written), (1, 7));
    assert_eq!((stats.channel.sent, stats.tables.scans), (8, 9));
}

#[test]
fn a_lease_lasts_until_its_last_nanosecond() {
    let of = |until| {
        let ClusterStatus { stats, .. } = shown(&Overview { until, ..overview() });
        (stats.state.lease_ms, stats.state.translates())
    };
    assert_eq!(of(1_489 * MS - 5), (489, true));
    assert_eq!(of(1_000 * MS + 1), (1, true));
    assert_eq!(of(1_000 * MS), (0, false));
    assert_eq!(of(0), (0, false));
}

#[test]
fn gateways_of_the_configuration_and_strangers_in_the_store_are_there() {
    let rows = shown(&overview()).gateways;
    let told: Vec<_> =
        rows.iter().map(|it| (it.name.as_str(), it.state, it.unseen_ms, it.shards)).collect();
    let expected = [
        ("gw-a", GatewayState::Active, Some(20), 2),
        ("gw-b", GatewayState::Active, Some(42), 2),
        ("gw-c", GatewayState::Unknown, None, 0),
        ("number 9", GatewayState::Ended, Some(70_000), 0),
    ];
    assert_eq!(told, expected);
    assert_eq!(rows.iter().map(|it| it.this).collect::<Vec<_>>(), [true, false, false, false]);
}

#[test]
fn shards_have_names_of_gateways() {
    let shards = shown(&overview()).shards;
    let moving = &shards[1];
    assert_eq!((moving.role, moving.owner.as_deref()), (ShardRole::Moving, Some("gw-a")));
    assert_eq!((moving.standby.as_deref(), moving.covered), (Some("gw-b"), false));
    assert_eq!((shards[3].wish.as_deref(), shards[3].standby.as_deref()), (Some("gw-c"), None));
    assert_eq!((shards[4].owner.as_deref(), shards[4].epoch), (None, 0));
}

#[test]
fn one_that_has_ended_says_how() {
    let of = |how: Option<Result<Ended, String>>| {
        let ClusterStatus { stats, gateways, shards } = over(&gateways(), how.as_ref());
        assert_eq!((gateways.len(), shards.len(), stats.state.translates()), (3, 0, false));
        (stats.state.phase, stats.state.error)
    };
    assert_eq!(of(Some(Ok(Ended::Left))), (ClusterPhase::Left, None));
    assert_eq!(of(Some(Ok(Ended::Replaced))), (ClusterPhase::Replaced, None));
    let failed = of(Some(Err("no alarm".to_owned())));
    assert_eq!(failed, (ClusterPhase::Failed, Some("no alarm".to_owned())));
}

/// The command, or the failure in a line.
fn decide(change: &ClusterChange, overview: &Overview) -> Result<Command, String> {
    let decided = decide::command(change, overview, &gateways());
    decided.map(|(command, _)| command).map_err(|failure| failure.line())
}

fn to(shard: u16, gateway: Option<&str>) -> ClusterChange {
    ClusterChange::Move { shard, gateway: gateway.map(str::to_owned) }
}

#[test]
fn only_the_owner_moves_a_shard() {
    let overview = overview();
    let wish = |shard, to: Option<u16>| Ok(Command::Wish(Shard(shard), to.map(Member)));
    assert_eq!(decide(&to(0, Some("gw-b")), &overview), wish(0, Some(2)));
    assert_eq!(decide(&to(0, None), &overview), wish(0, None));
    for (change, said) in [
        (to(1, Some("gw-b")), "shard 1 is moving already"),
        (
            to(2, Some("gw-a")),
            "owned by gw-b, and only its owner can move it (run this command on gw-b)",
        ),
        (to(4, Some("gw-b")), "nobody translates shard 4"),
        (to(5, Some("gw-b")), "there is no shard 5, only 0 to 4"),
        (to(0, Some("gw-d")), "no gateway is called gw-d (the configuration has gw-a, gw-b, gw-c)"),
    ] {
        let failure = decide(&change, &overview).unwrap_err();
        assert!(failure.contains(said), "{failure}");
    }
}

#[test]
fn a_move_to_a_gateway_that_is_not_active_says_that_it_waits() {
    let text = |name| decide::command(&to(0, Some(name)), &overview(), &gateways()).unwrap().1;
    assert_eq!(text("gw-b"), "shard 0 moves to gw-b");
    assert!(text("gw-c").contains("when that gateway is active"), "{}", text("gw-c"));
}

#[test]
fn what_the_store_has_to_take_is_refused_without_it_and_the_rest_is_not() {
    let away =
        Overview { is_store_open: false, store_error: Some("gone".to_owned()), ..overview() };
    let joining = Overview { phase: Phase::Joining, ..overview() };
    let declare = ClusterChange::Declare { gateway: "gw-b".to_owned() };
    for change in [to(0, Some("gw-b")), declare] {
        let failure = decide(&change, &away).unwrap_err();
        assert!(failure.contains("the store can't be reached: gone"), "{failure}");
        let failure = decide(&change, &joining).unwrap_err();
        assert!(failure.contains("holds no lease"), "{failure}");
    }
    for (change, command) in [
        (ClusterChange::Drain, Command::Drain),
        (ClusterChange::Join, Command::Join),
        (ClusterChange::Leave, Command::Leave),
    ] {
        assert_eq!(decide(&change, &away), Ok(command));
        let (_, text) = decide::command(&change, &away, &gateways()).unwrap();
        assert!(text.ends_with("as soon as the store is there again"), "{text}");
    }
}

#[test]
fn only_another_gateway_with_a_lease_can_be_declared_off() {
    let declare = |name: &str, overview: &Overview| {
        decide(&ClusterChange::Declare { gateway: name.to_owned() }, overview)
    };
    let mut overview = overview();
    assert_eq!(declare("gw-b", &overview), Ok(Command::Declare(Member(2))));
    assert!(declare("gw-a", &overview).unwrap_err().contains("this gateway"));
    assert!(declare("gw-c", &overview).unwrap_err().contains("never joined"));
    overview.gateways[1].status = Status::Ended;
    assert!(declare("gw-b", &overview).unwrap_err().contains("has ended"));
}

#[test]
fn a_fault_and_a_successor_end_the_daemon_and_an_operator_does_not() {
    let of = |how: Result<Ended, String>| has_failed(Some(&how));
    assert_eq!([of(Err("a fault".to_owned())), of(Ok(Ended::Replaced))], [true; 2]);
    assert_eq!([of(Ok(Ended::Left)), of(Ok(Ended::Released)), has_failed(None)], [false; 3]);
}

#[test]
fn who_tells_no_end_has_panicked() {
    let ended = Arc::new(OnceLock::new());
    drop(End(Arc::clone(&ended)));
    assert!(has_failed(ended.get()));
    let ended = Arc::new(OnceLock::new());
    End(Arc::clone(&ended)).tell(&Ok(Ended::Left));
    assert_eq!(ended.get(), Some(&Ok(Ended::Left)));
}
