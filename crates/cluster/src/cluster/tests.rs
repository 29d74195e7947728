//! What a member does for one input or few.

use super::*;
use crate::placement::ranking;
use crate::record::{Digest, Incarnation, LeaseRecord, Record, Step};
use crate::settings::{Fencing, Timing};

const MS: Nanos = 1_000_000;

fn settings() -> Settings {
    Settings {
        me: Member(1),
        host: 1,
        process: 11,
        weight: 100,
        shards: 2,
        key: [1, 2],
        config: 7,
        fencing: Fencing::Any,
        timing: Timing::default(),
        queue: 100,
        moves: 1,
        mutant: None,
    }
}

/// A member and the store, which takes whatever is written unless `is_down`.
struct Single {
    cluster: Cluster,
    now: Nanos,
    revision: Revision,
    is_down: bool,
    done: Vec<Action>,
}

impl Single {
    fn new(settings: Settings) -> Single {
        let cluster = Cluster::new(settings).expect("times");
        Single { cluster, now: 1000 * MS, revision: 0, is_down: false, done: Vec::new() }
    }

    fn give(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let mut out = Vec::new();
            self.cluster.handle(self.now, input, &mut out);
            for action in &out {
                match action {
                    Action::Write { key, value, .. } if !self.is_down => {
                        self.revision += 1;
                        let (key, revision, value) = (*key, self.revision, Some(value.clone()));
                        inputs.push(Input::Entry { key, revision, value });
                    }
                    Action::Stop { shard, ticket } => {
                        inputs.push(Input::Stopped { shard: *shard, ticket: *ticket });
                    }
                    _ => {}
                }
            }
            self.done.extend(out);
        }
    }

    /// Another gateway's lease, which the store has.
    fn lease(&mut self, member: u16, record: LeaseRecord) {
        self.revision += 1;
        let (key, revision) = (Key::Lease(Member(member)), self.revision);
        self.give(Input::Entry { key, revision, value: Some(Value::Lease(record)) });
    }

    /// A shard's record, which the store has.
    fn shard(&mut self, shard: Shard, (owner, incarnation): (Member, Incarnation)) {
        self.revision += 1;
        let (key, revision) = (Key::Shard(shard), self.revision);
        let value = Value::Shard(ShardRecord { epoch: 1, owner, incarnation, wish: None });
        self.give(Input::Entry { key, revision, value: Some(value) });
    }

    fn pass(&mut self, time: Nanos) {
        let end = self.now + time;
        while self.cluster.wakeup() <= end {
            self.now = self.now.max(self.cluster.wakeup());
            self.give(Input::Tick);
        }
        self.now = end;
    }

    fn owned(&self) -> usize {
        self.cluster.shards(self.now).filter(|shard| shard.role == Role::Owner).count()
    }

    fn writes(&self, wanted: Key) -> usize {
        let is = |action: &&Action| matches!(action, Action::Write { key, .. } if *key == wanted);
        self.done.iter().filter(is).count()
    }
}

fn lease(host: u128, status: Status) -> LeaseRecord {
    let peers = Peers::from([(Member(1), 1)]);
    LeaseRecord { incarnation: 4, process: 99, host, status, sent: 5, weight: 100, peers }
}

#[test]
fn the_first_member_owns_everything() {
    let mut single = Single::new(settings());
    single.give(Input::Tick);
    assert_eq!(single.done, [], "nothing before the store is known");
    single.give(Input::Synced);
    assert_eq!((single.cluster.phase(), single.owned()), (Phase::Member, 2));
    assert!(single.cluster.lease(single.now).0 > single.now);
}

#[test]
fn a_renewal_every_tenth_of_a_second_keeps_the_lease() {
    let mut single = Single::new(settings());
    single.give(Input::Synced);
    let before = single.writes(Key::Lease(Member(1)));
    single.pass(10_000 * MS);
    let renewals = single.writes(Key::Lease(Member(1))) - before;
    assert!((100..=115).contains(&renewals), "{renewals}");
    assert!(single.cluster.lease(single.now).0 > single.now + 300 * MS);
}

#[test]
fn another_configuration_is_refused() {
    let mut single = Single::new(settings());
    let entry = |hash, revision| Input::Entry {
        key: Key::Config,
        revision,
        value: Some(Value::Config(hash)),
    };
    single.give(entry(8, 1));
    single.give(Input::Synced);
    single.pass(1000 * MS);
    assert_eq!((single.cluster.phase(), single.done.len()), (Phase::WrongConfig, 0));
}

#[test]
fn a_configuration_that_changes_ends_the_translation() {
    let mut single = Single::new(settings());
    single.give(Input::Synced);
    single.done.clear();
    let value = Some(Value::Config(8));
    single.give(Input::Entry { key: Key::Config, revision: 99, value });
    assert_eq!(single.done[0], Action::Lease { until: 0 });
    assert_eq!((single.cluster.phase(), single.owned()), (Phase::WrongConfig, 0));
}

#[test]
fn a_name_in_use_on_another_host_waits_for_its_end() {
    let mut single = Single::new(settings());
    single.lease(1, lease(2, Status::Active));
    single.give(Input::Synced);
    single.pass(5000 * MS);
    assert_eq!(
        (single.cluster.phase(), single.writes(Key::Lease(Member(1)))),
        (Phase::NameInUse, 0)
    );
    single.lease(1, lease(2, Status::Ended));
    assert_eq!((single.cluster.phase(), single.owned()), (Phase::Member, 2));
    assert_eq!(single.cluster.lease.incarnation, 5);
}

#[test]
fn a_later_process_of_the_host_takes_over_at_once() {
    let mut single = Single::new(settings());
    single.lease(1, lease(1, Status::Active));
    single.give(Input::Synced);
    assert_eq!((single.cluster.phase(), single.cluster.lease.incarnation), (Phase::Member, 5));
    // And the earlier one, which still runs, ends.
    single.lease(1, LeaseRecord { process: 100, incarnation: 6, ..lease(1, Status::Active) });
    assert_eq!((single.cluster.phase(), single.owned()), (Phase::Replaced, 0));
    single.done.clear();
    single.pass(1000 * MS);
    assert_eq!(single.done, []);
}

#[test]
fn own_shards_are_taken_again_with_their_records() {
    for (epoch, is_cleared) in [(3, false), (2, true)] {
        let mut single = Single::new(settings());
        let records = vec![Record { key: [1; 24], value: Some([1].into()) }];
        single.give(Input::Loaded { shard: Shard(0), epoch, records });
        single.lease(1, lease(1, Status::Active));
        let record = ShardRecord { epoch: 3, owner: Member(1), incarnation: 4, wish: None };
        single.revision += 1;
        let (key, revision) = (Key::Shard(Shard(0)), single.revision);
        single.give(Input::Entry { key, revision, value: Some(Value::Shard(record)) });
        single.give(Input::Synced);
        single.pass(1000 * MS);
        let clears = single.done.contains(&Action::Clear { shard: Shard(0) });
        assert_eq!((single.owned(), clears), (2, is_cleared), "epoch {epoch}");
    }
}

#[test]
fn a_shard_that_was_given_before_the_lease_is_known_is_taken() {
    let mut single = Single::new(settings());
    let record = ShardRecord { epoch: 9, owner: Member(1), incarnation: 1, wish: None };
    let value = Some(Value::Shard(record));
    single.give(Input::Entry { key: Key::Shard(Shard(0)), revision: 50, value });
    single.give(Input::Synced);
    assert_eq!((single.owned(), single.writes(Key::Shard(Shard(0)))), (2, 0));
}

#[test]
fn leaving_stops_everything_before_the_lease_ends() {
    let mut single = Single::new(settings());
    single.give(Input::Synced);
    single.done.clear();
    single.give(Input::Command(Command::Leave));
    single.pass(1000 * MS);
    assert_eq!(single.cluster.phase(), Phase::Left);
    let place = |wanted: fn(&Action) -> bool| single.done.iter().rposition(wanted).expect("one");
    let ends = |action: &Action| matches!(action, Action::Write { value: Value::Lease(record), .. } if record.status == Status::Ended);
    let ended = single.done.iter().position(ends).expect("the end");
    assert!(place(|action| matches!(action, Action::Stop { .. })) < ended);
    assert!(single.done[..ended].contains(&Action::Lease { until: 0 }));
    single.give(Input::Command(Command::Join));
    single.pass(1000 * MS);
    assert_eq!((single.cluster.phase(), single.owned()), (Phase::Member, 2));
}

/// Fences of gateway 2.
fn fences(single: &Single) -> usize {
    single.writes(Key::Lease(Member(2)))
}

#[test]
fn a_silent_gateway_is_fenced_after_its_lease_and_not_before() {
    let mut single = Single::new(settings());
    single.give(Input::Synced);
    single.lease(2, lease(2, Status::Active));
    single.pass(499 * MS);
    assert_eq!(fences(&single), 0);
    single.pass(2 * MS);
    assert_eq!(fences(&single), 1);
}

#[test]
fn nobody_is_fenced_by_one_that_the_store_does_not_answer() {
    let mut single = Single::new(settings());
    single.give(Input::Synced);
    single.lease(2, lease(2, Status::Active));
    single.is_down = true;
    single.pass(5000 * MS);
    assert_eq!(fences(&single), 0);
}

#[test]
fn one_that_is_no_peer_fences_after_an_outage_or_when_the_operator_says_so() {
    for is_declared in [false, true] {
        let mut single = Single::new(settings());
        single.give(Input::Synced);
        single.lease(2, LeaseRecord { peers: Peers::new(), ..lease(2, Status::Active) });
        if is_declared {
            single.give(Input::Command(Command::Declare(Member(2))));
        }
        single.pass(499 * MS);
        assert_eq!(fences(&single), 0);
        single.pass(1000 * MS);
        assert_eq!(fences(&single) > 0, is_declared);
        single.pass(900_000 * MS);
        assert!(fences(&single) > 0);
    }
}

#[test]
fn who_has_voted_does_not_promise_and_who_has_promised_does_not_vote() {
    let mut single = Single::new(settings());
    single.give(Input::Synced);
    let of = |single: &mut Single, message: Message| {
        single.done.clear();
        single.give(Input::Received { from: Member(2), message });
        single.done.iter().any(|action| {
            let Action::Send { message, .. } = action else { return false };
            matches!(message, Message::Promise { .. } | Message::Vote { .. })
        })
    };
    single.lease(2, lease(2, Status::Active));
    let ask = Message::Ask { incarnation: 4, sent: 1 };
    let vote =
        |single: &Single| Message::VoteRequest { member: Member(2), revision: single.revision };
    let (first, other) = (vote(&single), Message::Ask { incarnation: 3, sent: 1 });
    assert!(!of(&mut single, other), "another incarnation");
    assert!(of(&mut single, ask.clone()));
    assert!(!of(&mut single, first.clone()));
    single.now += 501 * MS;
    assert!(of(&mut single, first));
    assert!(!of(&mut single, ask.clone()));
    single.lease(2, lease(2, Status::Active));
    assert!(of(&mut single, ask), "the lease was renewed");
}

#[test]
fn a_shard_is_taken_at_once_by_who_is_ready_and_should_and_by_others_later() {
    let mut single = Single::new(Settings { shards: 64, ..settings() });
    single.lease(2, lease(2, Status::Active));
    single.lease(3, lease(3, Status::Active));
    // Shards of gateway 2; of those, which gateway comes next.
    let order = |shard| ranking([1, 2], Shard(shard), [(Member(1), 100), (Member(3), 100)])[0].0;
    let next = |wanted: u16| (0..64).filter(move |shard| order(*shard) == wanted);
    let [ready, released, empty] = [0, 1, 2].map(|n| next(1).nth(n).expect("about half"));
    let other = next(3).next().expect("about half");
    for shard in [ready, released, empty, other].map(Shard) {
        single.shard(shard, (Member(2), 4));
    }
    single.give(Input::Synced);
    let mut say = |shard, number, step| {
        let (shard, digest) = (Shard(shard), Digest::default());
        let message = Message::Replicate { shard, epoch: 1, number, digest, step };
        single.give(Input::Received { from: Member(2), message });
    };
    [ready, released, other].into_iter().for_each(|shard| say(shard, 1, Step::Begin));
    say(released, 0, Step::Release);
    single.lease(2, lease(2, Status::Ended));
    let taken = |single: &Single| {
        [ready, other, released, empty].map(|shard| single.writes(Key::Shard(Shard(shard))) > 0)
    };
    assert_eq!(taken(&single), [true, false, false, false]);
    single.pass(49 * MS);
    assert_eq!(taken(&single), [true, false, false, false]);
    // The other gateway does not take it: perhaps it can't.
    single.pass(2 * MS);
    assert_eq!(taken(&single), [true, true, false, false]);
    single.pass(440 * MS);
    assert_eq!(taken(&single), [true, true, false, false]);
    single.pass(20 * MS);
    assert_eq!(taken(&single), [true; 4]);
}

/// It may have the records, and not hear of the owner's end yet.
#[test]
fn who_has_no_records_is_patient_with_a_living_gateway_that_comes_before() {
    let mut single = Single::new(Settings { shards: 64, ..settings() });
    single.lease(2, lease(2, Status::Active));
    let order = |shard| ranking([1, 2], Shard(shard), [(Member(1), 100), (Member(3), 100)])[0].0;
    let shard = Shard((0..64).find(|shard| order(*shard) == 3).expect("about half"));
    single.shard(shard, (Member(2), 4));
    single.give(Input::Synced);
    single.lease(2, lease(2, Status::Ended));
    for n in 0..101 {
        single.lease(3, LeaseRecord { sent: 5 + n * 100 * MS, ..lease(3, Status::Active) });
        assert_eq!(single.writes(Key::Shard(shard)), 0, "after {n} tenths of a second");
        single.pass(100 * MS);
    }
    assert_eq!(single.writes(Key::Shard(shard)), 1);
}

/// The owner's machine runs the store's leader as well: nobody hears of either, until the store has another one.
#[test]
fn a_standby_is_ready_as_long_as_its_owner_was_not_heard_of_any_more() {
    for (silence, is_store_up, is_ready) in
        [(20_000, false, true), (20_000, true, false), (31_000, false, false)]
    {
        let mut single = Single::new(Settings { shards: 1, ..settings() });
        single.lease(2, lease(2, Status::Active));
        single.shard(Shard(0), (Member(2), 4));
        single.give(Input::Synced);
        let (digest, step) = (Digest::default(), Step::Begin);
        let message = Message::Replicate { shard: Shard(0), epoch: 1, number: 1, digest, step };
        single.give(Input::Received { from: Member(2), message });
        single.is_down = !is_store_up;
        let renewed = |sent| LeaseRecord { sent, ..lease(2, Status::Active) };
        for n in 1..=silence / 250 {
            single.pass(250 * MS);
            if is_store_up {
                single.lease(2, renewed(5 + n * 250 * MS));
            }
        }
        if !is_store_up {
            // The owner's last word, which the store tells only now.
            single.lease(2, renewed(5 + 90 * MS));
        }
        single.is_down = false;
        single.lease(2, lease(2, Status::Ended));
        single.pass(MS);
        let taken = single.writes(Key::Shard(Shard(0)));
        assert_eq!(taken > 0, is_ready, "{silence} ms, the store is up: {is_store_up}");
    }
}

/// Servers of the store that disagree: the one that told everything so far had higher revisions.
#[test]
fn who_was_told_by_a_server_of_another_opinion_joins_anew() {
    let mut single = Single::new(settings());
    single.lease(2, lease(2, Status::Ended));
    single.give(Input::Synced);
    assert_eq!((single.cluster.phase(), single.owned()), (Phase::Member, 2));
    let before = single.writes(Key::Lease(Member(1)));
    (single.revision, single.is_down) = (1, true);
    single.done.clear();
    single.give(Input::Forget);
    assert!(single.done.contains(&Action::Lease { until: 0 }));
    assert_eq!((single.cluster.phase(), single.owned()), (Phase::Joining, 0));
    assert_eq!((single.cluster.lease(single.now).0, single.cluster.peers()), (0, 0));
    single.pass(5000 * MS);
    assert_eq!(single.writes(Key::Lease(Member(1))), 0, "before it is told everything anew");
    single.lease(2, lease(2, Status::Active));
    // Its own lease, as the process that it was has written it, and a shard that it has owned.
    let record = LeaseRecord { process: 11, incarnation: 1, ..lease(1, Status::Active) };
    single.lease(1, record);
    single.shard(Shard(0), (Member(1), 1));
    single.is_down = false;
    single.give(Input::Synced);
    assert_eq!(single.cluster.phase(), Phase::Member);
    let mut incarnations = single.done.iter().filter_map(|action| match action {
        Action::Write { value: Value::Lease(record), .. } => Some(record.incarnation),
        _ => None,
    });
    assert_eq!((before > 0, incarnations.next_back()), (true, Some(2)));
    // It begins again after others could have, and in the next epoch.
    single.pass(400 * MS);
    assert_eq!(single.writes(Key::Shard(Shard(0))), 0);
    single.pass(200 * MS);
    let takes = |action: &Action| {
        matches!(action, Action::Translate { shard: Shard(0), epoch: 2, is_quiet: true })
    };
    assert!(single.done.iter().any(takes), "{:?}", single.done);
}

/// Both sides of a planned move, when the store has its outcome.
#[test]
fn the_next_owner_says_that_it_knows() {
    let shard = Shard(0);
    let record = |owner, epoch| ShardRecord { epoch, owner, incarnation: 4, wish: None };
    let mut single = Single::new(settings());
    single.give(Input::Synced);
    let message = Message::Written { shard, revision: 7, record: record(Member(1), 2) };
    single.give(Input::Received { from: Member(2), message });
    let says = Message::Known { shard, revision: 7 };
    assert!(single.done.contains(&Action::Send { to: Member(2), message: says }));

    let mut entry = |revision, owner, epoch| {
        let (key, value) = (Key::Shard(shard), Some(Value::Shard(record(owner, epoch))));
        single.give(Input::Entry { key, revision, value });
        let mut hears = |from, revision| {
            single.done.clear();
            let message = Message::Known { shard, revision };
            single.give(Input::Received { from, message });
            single.done.contains(&Action::Known { shard, owner: from })
        };
        [hears(Member(2), 108), hears(Member(3), 109), hears(Member(2), 109)]
    };
    assert_eq!(entry(108, Member(2), 3), [true, false, false]);
    assert_eq!(entry(109, Member(2), 5), [false, false, true], "and not of an earlier move");
}

#[test]
fn gateways_are_shown_as_the_store_has_them_with_the_time_since() {
    let mut single = Single::new(settings());
    single.give(Input::Synced);
    single.lease(0, LeaseRecord { weight: 50, ..lease(3, Status::Draining) });
    single.lease(2, lease(2, Status::Active));
    single.is_down = true;
    single.pass(300 * MS);
    single.lease(2, lease(2, Status::Ended));
    let all: Vec<_> = single.cluster.gateways(single.now).collect();
    let told: Vec<_> = all.iter().map(|it| (it.member.0, it.status, it.weight)).collect();
    let expected = [(0, Status::Draining, 50), (1, Status::Active, 100), (2, Status::Ended, 100)];
    assert_eq!(told, expected);
    assert_eq!((all[0].unseen, all[2].unseen), (300 * MS, 0));
    assert!(all[1].unseen >= 300 * MS, "the store has no later record of its own");
}

#[test]
fn a_shard_is_shown_with_its_wish_and_its_records() {
    let mut single = Single::new(settings());
    single.give(Input::Synced);
    let record = |n| Record { key: [n; 24], value: Some([n].into()) };
    let records = vec![record(1), record(2)];
    single.give(Input::Changed { shard: Shard(1), records });
    single.give(Input::Command(Command::Wish(Shard(0), Some(Member(2)))));
    let shards: Vec<_> = single.cluster.shards(single.now).collect();
    assert_eq!([shards[0].wish, shards[1].wish], [Some(Member(2)), None]);
    assert_eq!([shards[0].records, shards[1].records], [0, 2]);
    single.give(Input::Command(Command::Wish(Shard(0), None)));
    assert_eq!(single.cluster.shards(single.now).next().expect("a shard").wish, None);
}
