//! Random packets at an owner, and records on their way to a standby: what the standby has is what the owner told.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    /// A packet from a host.
    V6 { host: u16, port: u16, protocol: Protocol, remote: u8, segment: Segment, pool6: u8 },
    /// A packet to the binding of a place in the BIB.
    V4 { place: usize, remote: u8, segment: Segment },
    /// So many seconds later.
    Later(u64),
    /// The owner's sweeper looks at so many entries, and frees them.
    Sweep(u32),
    /// The owner looks for changes in so many entries.
    Scan(u32),
    /// So many changes arrive.
    Apply(usize),
    /// The owner looks at some of the sessions that are noted as changed.
    LookAtChanged(u32),
    /// A stop waits until all of them are told.
    Stop,
    /// The standby's sweeper looks at everything.
    StandbySweeps,
    /// The operator removes a binding.
    Remove(usize),
    /// An ALG changes a connection's sequence numbers.
    Shift(usize, u32),
    /// The stream begins anew, with an empty standby or one that has old records.
    Restart { clear: bool },
    /// The next so many records of the snapshot.
    Chunk(usize),
}

fn segments() -> impl Strategy<Value = Segment> {
    use Segment::{Fin, Other, Rst, Syn, SynAck};
    prop::sample::select(vec![Syn, Syn, SynAck, SynAck, Other, Fin, Fin, Rst])
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let v6 = (0_u16..6, 0_u16..4, 0_usize..5, 0_u8..3, segments(), 0_u8..2).prop_map(
        |(host, port, protocol, remote, segment, pool6)| Step::V6 {
            host,
            port: 5000 + port,
            protocol: Protocol::ALL[protocol.saturating_sub(2)],
            remote,
            segment,
            pool6,
        },
    );
    let v4 = (0_usize..16, 0_u8..3, segments()).prop_map(|(place, remote, segment)| Step::V4 {
        place,
        remote,
        segment,
    });
    let step = prop_oneof![
        8 => v6,
        8 => v4,
        2 => prop::sample::select(vec![1_u64, 61, 125, 250, 301, 1801, 4000]).prop_map(Step::Later),
        3 => prop::sample::select(vec![5_u32, 40, u32::MAX]).prop_map(Step::Sweep),
        4 => prop::sample::select(vec![3_u32, 30, u32::MAX]).prop_map(Step::Scan),
        4 => (1_usize..30).prop_map(Step::Apply),
        3 => prop::sample::select(vec![1_u32, 3, u32::MAX]).prop_map(Step::LookAtChanged),
        2 => Just(Step::Stop),
        1 => Just(Step::StandbySweeps),
        1 => (0_usize..8).prop_map(Step::Remove),
        1 => (0_usize..8, any::<u32>()).prop_map(|(place, by)| Step::Shift(place, by)),
        1 => any::<bool>().prop_map(|clear| Step::Restart { clear }),
        3 => (1_usize..9).prop_map(Step::Chunk),
    ];
    prop::collection::vec(step, 1..120)
}

/// Where a session's value says what is left of its lifetime.
const LEFT_AT: usize = 2;

type Records = BTreeMap<RecordKey, Vec<u8>>;

/// A stream as the cluster sends it, without its numbers.
struct Stream {
    owner: Gateway,
    standby: Gateway,
    now: u64,
    /// What the owner told, and what arrived.
    sent: Records,
    received: Records,
    confirmed: HashSet<RecordKey>,
    queue: Vec<Owned>,
    /// What the snapshot has sent; `None`: it is complete.
    snapshot: Option<Option<RecordKey>>,
}

impl Stream {
    fn now(&self) -> Duration {
        at(self.now)
    }

    fn told(&mut self, changes: Vec<Owned>) {
        for (shard, key, value) in changes {
            let before = match &value {
                Some(value) => self.sent.insert(key, value.clone()),
                None => {
                    assert!(self.sent.contains_key(&key), "it was told");
                    self.sent.remove(&key)
                }
            };
            assert_ne!(before, value, "no change is told twice");
            self.assert_parents(&key, value.is_some());
            self.queue.push((shard, key, value));
        }
    }

    /// Subscribers come before BIB entries, and these before sessions.
    fn assert_parents(&self, key: &RecordKey, is_there: bool) {
        let sessions =
            |bib: &RecordKey| self.sent.keys().any(|it| it[0] == 3 && it[1..8] == bib[1..8]);
        match (key[0], is_there) {
            (3, true) => assert!(
                sessions(key) && self.sent.keys().any(|it| it[0] == 2 && it[1..8] == key[1..8])
            ),
            (2, false) => assert!(!sessions(key), "its sessions go first"),
            (2, true) => {
                let host = &self.sent[key][..16];
                assert!(self.sent.keys().any(|it| it[0] == 1 && &it[1..17] == host));
            }
            (1, false) => {
                let mut bibs = self.sent.iter().filter(|(it, _)| it[0] == 2);
                assert!(bibs.all(|(_, value)| value[..16] != key[1..17]), "its entries go first");
            }
            _ => {}
        }
    }

    fn arrives(&mut self, change: &Owned) {
        match &change.2 {
            Some(value) => {
                self.confirmed.insert(change.1);
                self.received.insert(change.1, value.clone());
            }
            None => {
                self.received.remove(&change.1);
            }
        }
        self.standby.apply(self.now(), change).unwrap();
        self.standby.assert_sound();
    }

    fn flush(&mut self, most: usize) {
        let most = most.min(self.queue.len());
        for change in self.queue.drain(..most).collect::<Vec<_>>() {
            self.arrives(&change);
        }
    }

    fn chunk(&mut self, most: usize) {
        let Some(after) = self.snapshot else { return };
        self.flush(usize::MAX);
        let mut chunk = Vec::new();
        let tell = &mut |change: Change<'_>| chunk.push(owned(change));
        let is_last = self.owner.replica.chunk(0, after.as_ref(), most, tell);
        for record in &chunk {
            assert_eq!(self.sent.get(&record.1), record.2.as_ref(), "as it was told last");
            self.arrives(record);
        }
        self.snapshot = Some(chunk.last().map(|record| record.1).or(after));
        if is_last {
            self.snapshot = None;
            let others = self.received.keys().filter(|key| !self.confirmed.contains(*key));
            for key in others.copied().collect::<Vec<_>>() {
                self.arrives(&(0, key, None));
            }
        }
    }

    fn step(&mut self, step: &Step) {
        let now = self.now();
        let remote = |number: u8| (Ipv4Addr::new(198, 51, 100, number), 80);
        let bound = |place: usize| {
            let bibs: Vec<_> = self.owner.nat.bib(now).collect();
            (!bibs.is_empty()).then(|| bibs[place % bibs.len()].binding)
        };
        let nat = &self.owner.nat;
        match *step {
            Step::V6 { host: number, port, protocol, remote: far, segment, pool6 } => {
                let far = remote(far);
                let far = if protocol == Protocol::Icmp { (far.0, 0) } else { far };
                let tuple = from_v6(protocol, (host(number), port), segment);
                let _ = nat.from_v6(&Tuple { remote: far, pool6, ..tuple }, now, 0);
            }
            Step::V4 { place, remote: far, segment } => {
                let Some(binding) = bound(place) else { return };
                let Some(protocol) = binding.protocol else { return };
                let tuple = from_v6(protocol, binding.v6, segment);
                let far = if protocol == Protocol::Icmp { (remote(far).0, 0) } else { remote(far) };
                let tuple = Tuple { remote: far, ..answer(&tuple, binding.v4, segment) };
                let _ = nat.from_v4(&tuple, now, 0);
            }
            Step::Later(seconds) => self.now += seconds,
            Step::Sweep(most) => {
                self.owner.sweeper.slice(&self.owner.nat, now, most, &mut |_| {});
                self.owner.sweeper.release(&self.owner.nat);
            }
            Step::Scan(most) => {
                let changes = self.owner.scan(now, most).0;
                self.told(changes);
            }
            Step::LookAtChanged(most) => {
                let mut changes = Vec::new();
                let tell = &mut |change: Change<'_>| changes.push(owned(change));
                self.owner.replica.look_at_changed(&self.owner.nat, now, most, tell);
                self.told(changes);
            }
            Step::Stop => self.stop(),
            Step::Apply(most) => self.flush(most),
            Step::StandbySweeps => {
                let (_, events) = self.standby.sweep(now);
                assert_eq!(events, [], "nothing ages, and nothing is reported twice");
            }
            Step::Remove(place) => {
                if let Some((protocol, v4)) =
                    bound(place).and_then(|it| Some((it.protocol?, it.v4)))
                {
                    let _ = nat.remove_bib(protocol, v4, now);
                }
            }
            Step::Shift(place, by) => {
                let sessions: Vec<_> = nat.sessions(now).filter(|it| it.tcp.is_some()).collect();
                if !sessions.is_empty() {
                    let session = &sessions[place % sessions.len()];
                    nat.keep_shift((session.binding.v4, session.remote), [by, 1]);
                }
            }
            Step::Restart { clear } => {
                self.queue.clear();
                self.confirmed.clear();
                if clear {
                    self.standby.clear(0);
                    self.received.clear();
                    // What the sweeper has not looked at yet, it frees.
                    self.standby.sweep(now);
                    self.standby.assert_empty();
                }
                self.snapshot = Some(None);
            }
            Step::Chunk(most) => self.chunk(most),
        }
    }

    /// After a round there is no session or BIB entry that a scan would add, nor one that has changed, but for what is left
    /// of lifetimes.
    fn stop(&mut self) {
        // The rest of a round that is under way, and one.
        let mut waits = false;
        for _ in 0..2 {
            let changes;
            (changes, waits) = self.owner.changed(self.now());
            self.told(changes);
        }
        let known = self.sent.clone();
        let changes = self.owner.changes(self.now());
        let told = changes.iter().filter(|(_, key, value)| key[0] >= 2 && value.is_some());
        for (_, key, value) in told.filter(|_| !waits) {
            let [known, value] = [known.get(key), value.as_ref()].map(|value| {
                let mut value = value.expect("it was noted when it got a record").clone();
                if key[0] == 3 {
                    value[LEFT_AT] = 0;
                }
                value
            });
            assert_eq!(known, value, "it was noted when it changed");
        }
        self.told(changes);
    }

    /// Everything has arrived.
    fn settle(&mut self) {
        // The rest of a sweep under way, one that finds what has died, and one that removes it.
        for _ in 0..3 {
            self.owner.sweep(self.now());
        }
        let changes = self.owner.changes(self.now());
        self.told(changes);
        while self.snapshot.is_some() {
            self.chunk(7);
        }
        self.flush(usize::MAX);
        assert_eq!(self.owner.changes(self.now()), [], "and nothing more");
        assert_eq!(self.standby.replica.unplaced(), 0);
        let records = self.owner.records(0, 5);
        assert_eq!(records, self.sent);
        assert_eq!(records, self.standby.records(0, 3));
        assert_eq!(records, self.received);
    }
}

/// What a gateway makes of a session's packets from IPv6 and from IPv4, and what it adds to sequence numbers.
type Translated =
    (Result<(Ipv4Addr, u16), DropReason>, Result<Outgoing6, Refusal>, Option<[u32; 2]>);

fn translated(
    Gateway { nat, .. }: &Gateway,
    session: &SessionEntry,
    pool6: u8,
    now: Duration,
) -> Translated {
    let SessionEntry { binding, remote, tcp, .. } = *session;
    let tuple = from_v6(binding.protocol.unwrap(), binding.v6, Segment::Other);
    let tuple = Tuple { remote, pool6, ..tuple };
    let down = nat.from_v4(&answer(&tuple, binding.v4, Segment::Other), now, 0);
    let shift = tcp.and_then(|_| nat.kept_shift((binding.v4, remote)));
    (nat.from_v6(&tuple, now, 0), down, shift)
}

fn is_replicated(session: &SessionEntry, replicated: Replicated) -> bool {
    match session.binding.protocol {
        Some(Protocol::Tcp) => session.tcp >= Some(TcpState::Established),
        Some(Protocol::Udp) => replicated.udp,
        _ => replicated.icmp,
    }
}

proptest! {

    #[test]
    fn a_standby_has_what_was_told(
        steps in steps(),
        blocks in any::<bool>(),
        filters in any::<bool>(),
        replicated in prop::sample::select(vec![ALL, ALL, Replicated::default()]),
        takes_over in any::<bool>(),
    ) {
        let allocation =
            if blocks { Allocation::Blocks { size: 4, most: 3 } } else { Allocation::Shared };
        let filtering =
            if filters { Filtering::AddressDependent } else { Filtering::EndpointIndependent };
        let sizes = Sizes { bibs: 16, sessions: 40, subscribers: 5 };
        let first = Settings { filtering, sizes, ..settings(dealt(allocation)) };
        // Entries of the standby are freed later than the owner's.
        let sizes = Sizes { bibs: 64, sessions: 160, subscribers: 40 };
        let second = Settings { sizes, ..first.clone() };
        let mut stream = Stream {
            owner: Gateway::owner(1, replicated, first),
            standby: Gateway::new(1, replicated, second),
            now: 0,
            sent: Records::new(),
            received: Records::new(),
            confirmed: HashSet::new(),
            queue: Vec::new(),
            snapshot: Some(None),
        };
        for step in &steps {
            stream.step(step);
        }
        stream.settle();
        if takes_over {
            let now = stream.now();
            prop_assert_eq!(stream.standby.take_over(0, now), []);
            let sessions: Vec<_> = stream.owner.nat.sessions(now).collect();
            for session in sessions.iter().filter(|it| is_replicated(it, replicated)) {
                let found = stream.standby.nat.sessions(now).find(|it| {
                    (it.binding, it.remote, it.tcp) == (session.binding, session.remote, session.tcp)
                });
                let found = found.expect("each live session");
                prop_assert!(found.remaining + Duration::from_millis(200) >= session.remaining);
                for pool6 in 0..2 {
                    let expected = translated(&stream.owner, session, pool6, now);
                    prop_assert_eq!(translated(&stream.standby, session, pool6, now), expected);
                }
            }
            stream.standby.assert_sound();
        } else {
            // Everything expires at the owner, and goes at the standby.
            for more in [7300, 300, 300, 700, 700] {
                stream.now += more;
                for _ in 0..2 {
                    stream.owner.sweep(stream.now());
                }
                stream.settle();
            }
            prop_assert!(stream.sent.is_empty());
            stream.owner.assert_empty();
            stream.standby.sweep(stream.now());
            stream.standby.assert_empty();
            prop_assert_eq!(stream.standby.replica.refused().map(|it| it.1).sum::<u64>(), 0);
        }
    }
}
