//! Single segments, of which one knows what they become.

use alloc::sync::Arc;

use super::super::store::{Entry, Store};
use super::*;
use fordway_wire::tcp::flag;

/// A connection with numbers that are easy to read: from IPv6 octets begin at 1001, from IPv4 at 5001.
pub(super) fn begun() -> Connection {
    let mut connection = editor();
    let syn = TcpFields { seq: 1000, flags: flag::SYN, mss: Some(1440), ..TcpFields::default() };
    pass(&mut connection, Side::V6, syn, b"");
    let flags = flag::SYN | flag::ACK;
    let answer = TcpFields { seq: 5000, ack: 1001, flags, mss: Some(1460), ..TcpFields::default() };
    pass(&mut connection, Side::V4, answer, b"");
    connection
}

pub(super) fn data(seq: u32, ack: u32) -> TcpFields {
    TcpFields { seq, ack, flags: flag::ACK, window: 1000, ..TcpFields::default() }
}

#[test]
fn a_line_in_two_segments_waits_for_its_end() {
    let mut connection = begun();
    let (fields, octets) = pass(&mut connection, Side::V6, data(1001, 5001), b"li");
    assert_eq!((fields.seq, &octets[..]), (1001, &b""[..]));
    let (fields, octets) = pass(&mut connection, Side::V6, data(1003, 5001), b"ne\n");
    assert_eq!((fields.seq, &octets[..]), (1001, &b"<line\n-and-longer>line\n"[..]));
    // The first half again: its sender has heard nothing yet.
    let (fields, octets) = pass(&mut connection, Side::V6, data(1001, 5001), b"li");
    assert_eq!((fields.seq, &octets[..]), (1001, &b"<line\n-and-longer>line\n"[..]));
    // An acknowledgement of part of it is none, and of all is of all.
    let (fields, _) = pass(&mut connection, Side::V4, data(5001, 1010), b"");
    assert_eq!(fields.ack, 1001);
    let (fields, _) = pass(&mut connection, Side::V4, data(5001, 1024), b"");
    assert_eq!(fields.ack, 1006);
    let (fields, octets) = pass(&mut connection, Side::V6, data(1006, 5001), b"more\n");
    assert_eq!((fields.seq, &octets[..]), (1024, &b"more\n"[..]));
}

#[test]
fn octets_that_vanish_are_acknowledged_by_the_other_end() {
    let mut connection = begun();
    let (fields, octets) = pass(&mut connection, Side::V6, data(1001, 5001), b"drop\n");
    assert_eq!((fields.seq, octets.len()), (1000, 0), "one before what is expected");
    let (fields, _) = pass(&mut connection, Side::V4, data(5001, 1001), b"");
    assert_eq!(fields.ack, 1006);
}

#[test]
fn a_window_ends_where_the_other_end_can_take_no_more() {
    let mut connection = begun();
    pass(&mut connection, Side::V6, data(1001, 5001), b"line\n");
    let fields = TcpFields { window: 50, ..data(5001, 1001) };
    // 23 octets in the place of 5: 27 are left behind them.
    let (fields, _) = pass(&mut connection, Side::V4, fields, b"");
    assert_eq!((fields.ack, fields.window), (1001, 32));
}

#[test]
fn selective_acknowledgements_follow() {
    let mut connection = begun();
    pass(&mut connection, Side::V6, data(1001, 5001), b"a\nline\nb\n");
    let mut fields = data(5001, 1001);
    // `b` alone, and part of what was changed.
    fields.sack = [Some((1026, 1028)), Some((1010, 1012)), None, None];
    let (fields, _) = pass(&mut connection, Side::V4, fields, b"");
    assert_eq!(fields.sack, [Some((1008, 1010)), None, None, None]);
}

#[test]
fn urgent_data_stay_urgent() {
    let mut connection = begun();
    pass(&mut connection, Side::V6, data(1001, 5001), b"line\n");
    let mut fields = data(1006, 5001);
    fields.flags |= flag::URG;
    fields.urgent = 2;
    let (fields, _) = pass(&mut connection, Side::V6, fields, b"abc\n");
    assert_eq!((fields.seq, fields.urgent), (1024, 2));
    assert!(fields.has(flag::URG));
    // The pointer is in a segment before that of the octet, and there are changes in between.
    let mut fields = data(1010, 5001);
    fields.flags |= flag::URG;
    fields.urgent = 6;
    let (fields, _) = pass(&mut connection, Side::V6, fields, b"line\na\n");
    assert_eq!((fields.seq, fields.urgent), (1028, 24));
}

#[test]
fn a_fin_waits_for_what_is_missing_and_lets_go_what_is_held() {
    let mut connection = begun();
    let mut fields = data(1004, 5001);
    fields.flags |= flag::FIN;
    let (early, octets) = pass(&mut connection, Side::V6, fields, b"li");
    assert!(!early.has(flag::FIN) && octets.is_empty());
    pass(&mut connection, Side::V6, data(1001, 5001), b"ab\n");
    let (last, octets) = pass(&mut connection, Side::V6, fields, b"li");
    assert!(last.has(flag::FIN));
    assert_eq!((last.seq, &octets[..]), (1004, &b"li"[..]));
}

#[test]
fn what_came_early_is_kept() {
    let mut connection = begun();
    let (fields, octets) = pass(&mut connection, Side::V6, data(1004, 5001), b"line\n");
    assert_eq!((fields.seq, octets.len()), (1000, 0));
    let (fields, octets) = pass(&mut connection, Side::V6, data(1001, 5001), b"ab\n");
    assert_eq!((fields.seq, &octets[..]), (1001, &b"ab\n<line\n-and-longer>line\n"[..]));
}

#[test]
fn too_much_to_hold_lets_go() {
    let mut connection = begun();
    let long = [b"l".repeat(HELD_MAX), b"l".to_vec()].concat();
    let (_, octets) = pass(&mut connection, Side::V6, data(1001, 5001), &long[..HELD_MAX]);
    assert!(octets.is_empty());
    let next = 1001 + HELD_MAX as u32;
    let (_, octets) = pass(&mut connection, Side::V6, data(next, 5001), &long[HELD_MAX..]);
    assert_eq!(octets, long);
    let (_, octets) = pass(&mut connection, Side::V6, data(next + 1, 5001), b"\nline\n");
    assert_eq!(octets, b"\nline\n");
}

#[test]
fn fields_are_read_and_written() {
    let mut segment = [0_u8; 40];
    segment[12] = 0xa0;
    segment[13] = flag::ACK;
    segment[4..12].copy_from_slice(&[0, 1, 2, 3, 4, 5, 6, 7]);
    segment[14..20].copy_from_slice(&[8, 9, 0, 0, 10, 11]);
    segment[20..24].copy_from_slice(&[1, 1, 5, 18]);
    segment[24..40].copy_from_slice(&[0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 20, 0, 0, 0, 30]);
    let (mut fields, len) = TcpFields::parse(&segment).unwrap();
    assert_eq!(len, 40);
    assert_eq!((fields.seq, fields.ack, fields.flags), (0x0001_0203, 0x0405_0607, flag::ACK));
    assert_eq!((fields.window, fields.urgent), (0x0809, 0x0a0b));
    assert_eq!(fields.sack, [Some((1, 9)), Some((20, 30)), None, None]);
    assert_eq!((fields.mss, fields.scale), (None, None));
    fields.sack[0] = None;
    fields.write(&mut segment);
    assert_eq!(segment[20..40], [1, 1, 5, 10, 0, 0, 0, 20, 0, 0, 0, 30, 1, 1, 1, 1, 1, 1, 1, 1]);
    fields.sack[1] = None;
    fields.write(&mut segment);
    assert_eq!(segment[20..32], [1; 12]);
    assert_eq!(segment[4..14], [0, 1, 2, 3, 4, 5, 6, 7, 0xa0, flag::ACK]);
    assert_eq!(segment[14..20], [8, 9, 0, 0, 10, 11]);
}

#[test]
fn options_of_a_syn_are_read() {
    let mut segment = [0_u8; 28];
    segment[12] = 0x70;
    segment[13] = flag::SYN;
    segment[20..28].copy_from_slice(&[2, 4, 5, 180, 1, 3, 3, 7]);
    let (fields, len) = TcpFields::parse(&segment).unwrap();
    assert_eq!((fields.mss, fields.scale, len), (Some(1460), Some(7), 28));
}

#[test]
fn nothing_is_kept_beyond_what_all_may_hold() {
    let store = Store::default();
    let key = |number| ((ENDS.local.0, number), ENDS.remote);
    let early = [b'a'; 2000];
    for number in 0..2097 {
        let (connection, counters) = (begun(), Arc::default());
        let entry = Entry { connection, label: "editor", counters, network: u64::from(number) };
        assert!(store.put(key(number), entry));
        let kept = store.with(&key(number), |entry, may_keep| {
            for place in 1..=8 {
                let fields = data(1001 + 2000 * place, 5001);
                pass(&mut entry.connection, Side::V6, fields, &early);
            }
            (may_keep, entry.connection.octets())
        });
        assert_eq!(kept, Some((true, 16_000)), "{number}");
    }
    // With 2,432 octets more there are 32 MiB.
    let entry =
        Entry { connection: begun(), label: "editor", counters: Arc::default(), network: 1 };
    assert!(store.put(key(2999), entry));
    for (place, len) in [(1, 2000), (2, 431), (3, 1)] {
        let kept = store.with(&key(2999), |entry, may_keep| {
            let fields = data(1001 + 2000 * place, 5001);
            pass(&mut entry.connection, Side::V6, fields, &early[..len]);
            may_keep
        });
        assert_eq!(kept, Some(true));
    }
    assert_eq!(store.with(&key(1), |_, may_keep| may_keep), Some(false));
    store.remove(&key(2999));
    // 2,098 times 16,000 octets are more.
    store.with(&key(0), |entry, _| entry.connection.release()).unwrap();
    assert_eq!(store.with(&key(1), |_, may_keep| may_keep), Some(true));
    for number in 3000..3002 {
        let entry =
            Entry { connection: begun(), label: "editor", counters: Arc::default(), network: 1 };
        store.put(key(number), entry);
        store.with(&key(number), |entry, _| {
            for place in 1..=8 {
                let fields = data(1001 + 2000 * place, 5001);
                pass(&mut entry.connection, Side::V6, fields, &early);
            }
        });
    }
    assert_eq!(store.with(&key(1), |_, may_keep| may_keep), Some(false));
    store.remove(&key(1));
    assert_eq!(store.with(&key(2), |_, may_keep| may_keep), Some(true));
}

#[test]
fn one_network_has_a_quarter_of_the_places() {
    let store = Store::default();
    let key = |number| ((ENDS.local.0, number), ENDS.remote);
    let put = |number, network| {
        let (connection, counters) = (editor(), Arc::default());
        store.put(key(number), Entry { connection, label: "editor", counters, network })
    };
    assert!((0..4096).all(|number| put(number, 1)));
    assert!(!put(4096, 1) && put(4096, 2));
    // One in the place of another is no more.
    assert!(put(7, 1) && !put(4097, 1));
    store.remove(&key(7));
    assert!(put(4097, 1) && !put(4098, 1));
    assert_eq!(store.number(), 4097);
}

#[test]
fn urgent_data_that_vanished_are_not_urgent() {
    let mut connection = begun();
    pass(&mut connection, Side::V6, data(1001, 5001), b"drop\n");
    let fields = TcpFields { flags: flag::ACK | flag::URG, urgent: 0, ..data(1006, 5001) };
    let (fields, _) = pass(&mut connection, Side::V6, fields, b"a\n");
    assert_eq!((fields.seq, fields.urgent, fields.has(flag::URG)), (1001, 0, false));
}

#[test]
fn much_is_changed_before_an_acknowledgement_and_not_without_end() {
    let mut connection = begun();
    let line = [b"r".repeat(511), b"\n".to_vec()].concat();
    let (mut seq, mut lines) = (1001, 0);
    for _ in 0..40 {
        let (_, octets) = pass(&mut connection, Side::V6, data(seq, 5001), &line);
        if octets == edited(&line) {
            lines += 1;
            seq += 512;
        }
    }
    assert_eq!(lines, 16 * 1024 / 512, "from 16,384 octets on none are taken");
    pass(&mut connection, Side::V4, data(5001, seq), b"");
    let (_, octets) = pass(&mut connection, Side::V6, data(seq, 5001), &line);
    assert_eq!(octets, edited(&line), "and then they are");
}

#[test]
fn eight_segments_may_come_early() {
    let mut connection = begun();
    for number in 1..=9 {
        let seq = 1001 + number * 3;
        for _ in 0..2 {
            let (_, octets) = pass(&mut connection, Side::V6, data(seq, 5001), b"ab\n");
            assert!(octets.is_empty());
        }
        assert_eq!(connection.octets(), 3 * number.min(8) as usize);
    }
    let (_, octets) = pass(&mut connection, Side::V6, data(1001, 5001), b"ab\n");
    assert_eq!(octets, b"ab\n".repeat(9), "the ninth is left to its sender");
}

#[test]
fn windows_are_scaled_where_both_sides_say_so() {
    // What a window of 100 becomes, which the host in IPv4 tells; what it can take is 18 octets more than what it is sent.
    let window = |scales: [Option<u8>; 2], flags, seq| {
        let mut connection = editor();
        let [scale, other] = scales;
        let syn = TcpFields { seq: 1000, flags: flag::SYN, scale, ..TcpFields::default() };
        pass(&mut connection, Side::V6, syn, b"");
        let (both, scale) = (flag::SYN | flag::ACK, other);
        let answer = TcpFields { seq: 5000, ack: 1001, flags: both, scale, ..TcpFields::default() };
        pass(&mut connection, Side::V4, answer, b"");
        pass(&mut connection, Side::V6, data(1001, 5001), b"line\n");
        let fields = TcpFields { flags, window: 100, ..data(seq, 1001) };
        pass(&mut connection, Side::V4, fields, b"").0.window
    };
    let told = |scales| window(scales, flag::ACK, 5001);
    assert_eq!(told([Some(7), Some(2)]), (400 - 18) >> 2);
    assert_eq!(told([None, Some(2)]), 100 - 18);
    assert_eq!(told([Some(7), None]), 100 - 18);
    // Not that of a SYN (RFC 7323 section 2.2).
    assert_eq!(window([Some(7), Some(2)], flag::SYN | flag::ACK, 5000), 100 - 18);
}

#[test]
fn what_is_acknowledged_stays_as_it_is_where_nothing_has_changed() {
    let mut connection = begun();
    pass(&mut connection, Side::V6, data(1001, 5001), b"a\nli");
    let sack = [Some((1003, 1003)), None, None, None];
    let told = TcpFields { sack, ..data(5001, 1003) };
    assert_eq!(pass(&mut connection, Side::V4, told, b"").0, told);
}

#[test]
fn sixty_four_changes_wait_for_an_acknowledgement() {
    let mut connection = begun();
    let mut heard = Vec::new();
    for number in 0..65 {
        let (_, octets) = pass(&mut connection, Side::V6, data(1001 + 3 * number, 5001), b"ra\n");
        heard.push(octets);
    }
    assert!(heard[..64].iter().all(|octets| octets == b"RA\n"));
    assert!(heard[64].is_empty(), "{:?}", heard[64]);
}

/// Keeps seven octets, whatever is said.
#[derive(Debug)]
struct Keeper;

impl Dialogue for Keeper {
    fn octets(
        &mut self,
        _from: Side,
        octets: &[u8],
        _ended: bool,
        _out: &mut Vec<u8>,
        _context: &mut Context<'_>,
    ) -> Advice {
        Advice::Pass(octets.len())
    }

    fn kept(&self) -> usize {
        7
    }
}

#[test]
fn all_memory_of_a_connection_counts() {
    assert_eq!(Connection::new(Box::new(Keeper)).octets(), 7);
    let mut connection = begun();
    pass(&mut connection, Side::V6, data(1001, 5001), b"li");
    assert_eq!(connection.octets(), 2, "what is held");
    pass(&mut connection, Side::V6, data(1010, 5001), b"abc");
    assert_eq!(connection.octets(), 5, "and what came early");
}

#[test]
fn who_announces_nothing_has_no_data_port() {
    #[derive(Debug)]
    struct Plain;

    impl Alg for Plain {
        fn label(&self) -> &'static str {
            "plain"
        }

        fn ports(&self) -> &[u16] {
            &[21]
        }

        fn open(&self, _ends: &Ends) -> Box<dyn Dialogue> {
            Box::new(Keeper)
        }
    }

    assert_eq!(Plain.data_port(21), None);
    // RFC 959 section 5.2.
    assert_eq!(Ftp::default().data_port(21), Some(20));
    assert_eq!(Ftp::default().data_port(0), None);
}

#[test]
fn counters_outlive_a_configuration() {
    let store = Store::default();
    let first = store.counters("ftp");
    first.count(Event::Session);
    assert_eq!(store.counters("dns").get(Event::Session), 0);
    assert!(Arc::ptr_eq(&first, &store.counters("ftp")));
}
