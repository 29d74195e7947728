//! Naive TCP ends over a bad network.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use fordway_wire::tcp::flag;

/// Longest segment.
const MSS: usize = 60;

/// A number that depends on nothing but its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound.max(1)
    }

    fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }
}

/// One end: what it has to say, and what it has heard.
struct End {
    side: Side,
    says: Vec<u8>,
    iss: u32,
    /// Acknowledged: octets of `says`, and one more for the FIN.
    acknowledged: usize,
    sent: usize,
    sacked: Vec<bool>,
    peer_window: usize,
    peer_first: u32,
    window: usize,
    scale: u8,
    heard: BTreeMap<u32, u8>,
    next: usize,
    fin_at: Option<u32>,
}

impl End {
    fn new(side: Side, says: Vec<u8>, iss: u32, window: usize, scale: u8) -> End {
        let sacked = vec![false; says.len()];
        End {
            side,
            says,
            iss,
            acknowledged: 0,
            sent: 0,
            sacked,
            peer_window: 0,
            peer_first: 0,
            window,
            scale,
            heard: BTreeMap::new(),
            next: 0,
            fin_at: None,
        }
    }

    fn heard(&self) -> Vec<u8> {
        let octets = (0..self.next as u32).filter_map(|at| self.heard.get(&at));
        octets.copied().collect()
    }

    fn has_fin(&self) -> bool {
        self.fin_at.is_some_and(|fin| fin as usize == self.next)
    }

    /// What an empty segment says.
    fn fields(&self) -> TcpFields {
        let mut sack = [None; 4];
        let (mut at, mut blocks) = (self.next as u32, 0);
        while blocks < sack.len()
            && let Some((left, _)) = self.heard.range(at..).next()
        {
            let mut right = *left;
            while self.heard.contains_key(&right) {
                right += 1;
            }
            let number = |at: u32| self.peer_first.wrapping_add(at);
            sack[blocks] = (*left > self.next as u32).then(|| (number(*left), number(right)));
            blocks += usize::from(sack[blocks].is_some());
            at = right;
        }
        TcpFields {
            seq: self.iss.wrapping_add(1 + self.sent as u32),
            ack: self.peer_first.wrapping_add(self.next as u32 + u32::from(self.has_fin())),
            flags: flag::ACK,
            window: (self.window >> self.scale) as u16,
            sack,
            ..TcpFields::default()
        }
    }

    /// So many octets from `at` on, with the FIN if they are the last.
    fn segment(&mut self, at: usize, len: usize) -> (TcpFields, Vec<u8>) {
        // What was acknowledged is forgotten, and what was acknowledged selectively need not be sent.
        let at = at.clamp(self.acknowledged.min(self.says.len()), self.says.len());
        let mut end = (at + len).min(self.says.len());
        if let Some(known) = (at..end).find(|place| self.sacked[*place]) {
            end = known;
        }
        let mut fields = self.fields();
        fields.seq = self.iss.wrapping_add(1 + at as u32);
        if end == self.says.len() {
            fields.flags |= flag::FIN;
        }
        self.sent = self.sent.max(end);
        (fields, self.says[at..end].to_vec())
    }

    /// Hears a segment. `true`: it has to be answered.
    fn hear(&mut self, fields: &TcpFields, octets: &[u8], is_from_other: &End) -> bool {
        let base = self.iss.wrapping_add(1);
        // One that is late may speak of what is long known, with a number from before the beginning.
        let since = |number: u32| (number.wrapping_sub(base) as i32).max(0) as usize;
        let acknowledged = since(fields.ack);
        assert!(
            acknowledged <= self.sent + 1,
            "{:?} hears that {acknowledged} octets came, of {}",
            self.side,
            self.sent
        );
        if acknowledged >= self.acknowledged {
            self.acknowledged = acknowledged;
            let scale = is_from_other.scale;
            self.peer_window = usize::from(fields.window) << scale;
        }
        for (left, right) in fields.sack.iter().flatten() {
            let range = since(*left)..since(*right);
            assert!(range.start <= range.end && range.end <= self.sent, "{range:?}");
            self.sacked[range].fill(true);
        }
        let at = fields.seq.wrapping_sub(self.peer_first);
        for (place, octet) in octets.iter().enumerate() {
            let at = at.wrapping_add(place as u32);
            // What came before, and what is beyond the window.
            if at < (self.next + self.window) as u32 {
                let known = *self.heard.entry(at).or_insert(*octet);
                assert!(
                    known == *octet || (at as usize) < self.next,
                    "octet {at} is {octet} and was {known}"
                );
            }
        }
        while self.heard.contains_key(&(self.next as u32)) {
            self.next += 1;
        }
        if fields.flags & flag::FIN != 0 {
            let fin = at.wrapping_add(octets.len() as u32);
            assert!(self.fin_at.is_none_or(|known| known == fin), "the FIN has moved");
            self.fin_at = Some(fin);
        }
        let is_old = (at as i32) < self.next as i32;
        !octets.is_empty() || fields.flags & flag::FIN != 0 || is_old
    }
}

/// A segment on its way.
struct Flying {
    from: Side,
    fields: TcpFields,
    octets: Vec<u8>,
    /// It has passed the gateway.
    has_passed: bool,
}

struct World {
    ends: [End; 2],
    connection: Connection,
    flying: Vec<Flying>,
}

impl World {
    fn end(&mut self, side: Side) -> &mut End {
        &mut self.ends[usize::from(side == Side::V4)]
    }

    fn send(&mut self, from: Side, (fields, octets): (TcpFields, Vec<u8>)) {
        self.flying.push(Flying { from, fields, octets, has_passed: false });
    }

    /// The segment of that place arrives: at the gateway, or at the other end.
    fn arrive(&mut self, place: usize) {
        let Flying { from, fields, octets, has_passed } = self.flying.remove(place);
        if !has_passed {
            let (fields, octets) = pass(&mut self.connection, from, fields, &octets);
            self.flying.push(Flying { from, fields, octets, has_passed: true });
            return;
        }
        let [v6, v4] = &mut self.ends;
        let (own, other) = if from == Side::V6 { (v4, v6) } else { (v6, v4) };
        if own.hear(&fields, &octets, other) {
            let (side, answer) = (own.side, own.fields());
            self.send(side, (answer, Vec::new()));
        }
    }

    fn chaos(&mut self, random: &mut Random) {
        let side = if random.percent(50) { Side::V6 } else { Side::V4 };
        match random.below(10) {
            0..4 => {
                let end = self.end(side);
                let (at, len) = (end.sent, 1 + random.below(MSS));
                if at < end.acknowledged + end.peer_window.min(400) {
                    let segment = end.segment(at, len);
                    self.send(side, segment);
                }
            }
            // Again, from where it likes.
            4 => {
                let end = self.end(side);
                let unknown = end.sent.saturating_sub(end.acknowledged);
                let at = end.acknowledged + random.below(unknown + 1);
                let len = random.below(end.sent.saturating_sub(at).min(MSS) + 1);
                let segment = end.segment(at, len);
                self.send(side, segment);
            }
            5 if !self.flying.is_empty() => {
                let place = random.below(self.flying.len());
                self.flying.remove(place);
            }
            6 if !self.flying.is_empty() => {
                let place = random.below(self.flying.len());
                let Flying { from, fields, ref octets, has_passed } = self.flying[place];
                let twice = Flying { from, fields, octets: octets.clone(), has_passed };
                self.flying.push(twice);
            }
            _ if !self.flying.is_empty() => {
                let place = random.below(self.flying.len());
                self.arrive(place);
            }
            _ => {}
        }
    }

    /// Nothing is lost any more, and all is repeated until it is known.
    fn calm(&mut self) {
        for _ in 0..2000 {
            while !self.flying.is_empty() {
                self.arrive(0);
            }
            let done = |end: &End| end.acknowledged > end.says.len();
            if self.ends.iter().all(done) {
                return;
            }
            for side in [Side::V6, Side::V4] {
                let end = self.end(side);
                if !done(end) {
                    // One octet into a closed window.
                    let len = end.peer_window.clamp(1, MSS);
                    let from = (end.acknowledged..end.says.len()).find(|place| !end.sacked[*place]);
                    let segment = end.segment(from.unwrap_or(end.says.len()), len);
                    self.send(side, segment);
                }
            }
        }
        let [v6, v4] = &self.ends;
        panic!(
            "no end: {} of {}, {} of {}; {:?}",
            v6.acknowledged,
            v6.says.len(),
            v4.acknowledged,
            v4.says.len(),
            self.connection
        );
    }
}

fn syn(iss: u32, ack: Option<u32>, scale: u8) -> TcpFields {
    let flags = flag::SYN | if ack.is_some() { flag::ACK } else { 0 };
    let ack = ack.unwrap_or(0);
    let (mss, scale) = (Some(MSS as u16), Some(scale));
    TcpFields { seq: iss, ack, flags, window: 400, mss, scale, ..TcpFields::default() }
}

fn world(says: [Vec<u8>; 2], isses: [u32; 2], windows: [usize; 2], scales: [u8; 2]) -> World {
    let [one, two] = says;
    let mut v6 = End::new(Side::V6, one, isses[0], windows[0], scales[0]);
    let mut v4 = End::new(Side::V4, two, isses[1], windows[1], scales[1]);
    (v6.peer_first, v4.peer_first) = (isses[1].wrapping_add(1), isses[0].wrapping_add(1));
    (v6.peer_window, v4.peer_window) = (windows[1], windows[0]);
    let mut connection = editor();
    pass(&mut connection, Side::V6, syn(isses[0], None, scales[0]), &[]);
    let answer = syn(isses[1], Some(isses[0].wrapping_add(1)), scales[1]);
    pass(&mut connection, Side::V4, answer, &[]);
    World { ends: [v6, v4], connection, flying: Vec::new() }
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop::sample::select(b"lsdrabc".to_vec());
    (kind, prop::collection::vec(prop::sample::select(b"efgh".to_vec()), 0..30)).prop_map(
        |(kind, rest)| {
            let mut line = vec![kind];
            line.extend(rest);
            line.push(b'\n');
            line
        },
    )
}

fn lines() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(line(), 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_lost_everything_arrives(
        lines in [lines(), lines()],
        isses in any::<[u32; 2]>(),
        windows in [60_usize..2000, 60_usize..2000],
        scales in [0_u8..4, 0_u8..4],
        seed in 1_u64..,
        steps in 0_usize..600,
    ) {
        let said = lines.each_ref().map(|lines| lines.concat());
        let edit = |lines: &Vec<Vec<u8>>| -> Vec<u8> {
            lines.iter().flat_map(|line| edited(line)).collect()
        };
        let expected = lines.each_ref().map(edit);
        let mut world = world(said, isses, windows, scales);
        let mut random = Random(seed);
        (0..steps).for_each(|_| world.chaos(&mut random));
        world.calm();
        let [v6, v4] = &world.ends;
        prop_assert_eq!(v4.heard(), &expected[0][..]);
        prop_assert_eq!(v6.heard(), &expected[1][..]);
        prop_assert!(v4.has_fin() && v6.has_fin());
        prop_assert!(world.connection.octets() <= 16 * 1024, "{}", world.connection.octets());
    }

    #[test]
    fn one_that_was_let_go_passes_and_its_numbers_still_follow(
        first in lines(),
        then in lines(),
        isses in any::<[u32; 2]>(),
        seed in 1_u64..,
        steps in 0_usize..600,
    ) {
        let edit: Vec<u8> = first.iter().flat_map(|line| edited(line)).collect();
        let said = [&first.concat()[..], b"x\n", &then.concat()].concat();
        let expected = [&edit[..], b"x\n", &then.concat()].concat();
        let answer = b"as it is\n".repeat(30);
        let mut world = world([said, answer.clone()], isses, [1000, 1000], [0, 0]);
        let mut random = Random(seed);
        (0..steps).for_each(|_| world.chaos(&mut random));
        world.calm();
        prop_assert_eq!(world.ends[1].heard(), expected);
        prop_assert_eq!(world.ends[0].heard(), answer);
    }
}
