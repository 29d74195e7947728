use proptest::prelude::*;

use super::*;

const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

fn ends(v6: bool) -> [IpAddr; 2] {
    if v6 { ["2001:2::1", "64:ff9b::c613:1"] } else { ["198.18.0.1", "198.19.0.1"] }
        .map(|address| address.parse().unwrap())
}

fn tag(sequence: u32, time: u64) -> Tag {
    let stream = Stream { class: Class::Native, direction: Direction::Reverse, pair: 255 };
    Tag { trial: 0x1234, stream, sequence, time }
}

fn written(v6: bool, size: u16, ports: [u16; 2], tag: Tag) -> Vec<u8> {
    let template = Template::new(MACS, ends(v6), payload(size, v6).unwrap()).unwrap();
    let mut frame = vec![0; template.length()];
    template.write(ports, tag, &mut frame);
    frame
}

#[test]
fn every_field_stands_where_the_table_says() {
    let frame = written(false, 64, [0x1111, 0x2222], tag(0xa1a2_a3a4, 0xb1b2_b3b4_b5b6_b7b8));
    assert_eq!(frame.len(), 60);
    assert_eq!(frame[..14], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    assert_eq!(frame[14..24], [0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17]);
    assert_eq!(frame[26..34], [198, 18, 0, 1, 198, 19, 0, 1]);
    assert_eq!(frame[34..40], [0x11, 0x11, 0x22, 0x22, 0, 26]);
    assert_eq!(frame[42..48], [0xf0, 0x8d, 0x12, 0x34, 0xc0, 0xff]);
    assert_eq!(frame[48..52], [0xa1, 0xa2, 0xa3, 0xa4]);
    assert_eq!(frame[52..], [0xb1, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8]);
    let frame = written(true, 84, [1, 2], tag(3, 4));
    assert_eq!(frame.len(), 80);
    assert_eq!(frame[12..22], [0x86, 0xdd, 0x60, 0, 0, 0, 0, 26, 17, 64]);
    assert_eq!(frame[62..64], [0xf0, 0x8d]);
}

#[test]
fn sizes_that_hold_no_tag_are_refused() {
    assert_eq!(payload(64, false).unwrap(), 18);
    assert_eq!(payload(84, true).unwrap(), 18);
    // The same payload: the IPv4 side is 20 octets shorter.
    assert_eq!(payload(1518, true).unwrap(), payload(1498, false).unwrap());
    for (size, v6) in [(63, false), (83, true), (LARGEST + 1, false), (9216, true)] {
        assert!(matches!(payload(size, v6), Err(Error::Unfit(_))), "{size}");
    }
    let mixed = [ends(true)[0], ends(false)[0]];
    assert!(matches!(Template::new(MACS, mixed, 18), Err(Error::Unfit(_))));
}

#[test]
fn a_checksum_of_zero_is_sent_as_ones() {
    // Whatever the tag is, some port makes the sum zero.
    let all = (0..=u16::MAX).map(|port| written(false, 64, [port, 9], tag(1, 2)));
    let ones = all.filter(|frame| {
        assert_ne!(frame[40..42], [0, 0]);
        frame[40..42] == [0xff, 0xff]
    });
    let frames: Vec<Vec<u8>> = ones.collect();
    assert!(!frames.is_empty());
    assert!(frames.iter().all(|frame| parse(frame).unwrap().intact));
}

#[test]
fn what_lies_behind_the_datagram_is_padding() {
    let mut frame = written(false, 128, [1024, 1], tag(1, 2));
    frame.extend([9; 30]);
    assert_eq!(parse(&frame).unwrap().payload, 82);
}

proptest! {
    #[test]
    fn a_frame_is_read_as_it_was_written(
        v6: bool, size in 84u16..=LARGEST, ports: [u16; 2], sequence: u32, time: u64,
    ) {
        let frame = written(v6, size, ports, tag(sequence, time));
        prop_assert_eq!(frame.len(), usize::from(size) - 4);
        let arrived = parse(&frame).unwrap();
        prop_assert_eq!(arrived.tag, tag(sequence, time));
        prop_assert_eq!(arrived.payload, payload(size, v6).unwrap());
        prop_assert!(arrived.intact);
        let [source, target] = ends(v6);
        let [source_port, target_port] = ports;
        prop_assert_eq!(arrived.tuple, Tuple { source, source_port, target, target_port });
    }

    #[test]
    fn header_checksums_of_ipv4_are_right(size in 84u16..=LARGEST, ports: [u16; 2]) {
        let frame = written(false, size, ports, tag(0, 0));
        prop_assert_eq!(folded(sum(&frame[14..34])), 0xffff);
    }

    /// What a translator does to the payload it must not: one changed octet is seen, but for changes that a
    /// checksum of ones' complement can't see (0x0000 against 0xffff), which one octet can't make.
    #[test]
    fn a_changed_octet_is_seen(v6: bool, at in 0usize..400, change in 1u8..) {
        let mut frame = written(v6, 400, [1024, 9], tag(77, 88));
        let udp = if v6 { 54 } else { 34 };
        // Not the length, by which the frame is refused, nor the magic, without which it is none.
        let places: Vec<usize> =
            (udp..frame.len()).filter(|at| ![4, 5, 8, 9].contains(&(at - udp))).collect();
        frame[places[at % places.len()]] ^= change;
        prop_assert!(!parse(&frame).unwrap().intact);
    }

    #[test]
    fn octets_from_outside_never_panic(octets in proptest::collection::vec(any::<u8>(), 0..200), v6: bool) {
        parse(&octets);
        let mut frame = written(v6, 128, [1, 1], tag(0, 0));
        for (place, octet) in octets.iter().enumerate() {
            let at = place * 7 % frame.len();
            frame[at] = *octet;
            parse(&frame);
        }
        for end in 0..frame.len() {
            parse(&frame[..end]);
        }
    }
}
