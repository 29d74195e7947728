//! How connections begin and end, and what changes nothing about that.

use super::steps::{begun, data};
use super::*;
use fordway_wire::tcp::flag;

#[test]
fn who_does_not_know_the_numbers_ends_and_begins_nothing() {
    let mut connection = editor();
    let syn = TcpFields { seq: 1000, flags: flag::SYN, mss: Some(1440), ..TcpFields::default() };
    pass(&mut connection, Side::V6, syn, b"");
    // An answer to another SYN, and a refusal of one.
    let both = flag::SYN | flag::ACK;
    pass(&mut connection, Side::V4, TcpFields { seq: 70, ack: 7, flags: both, ..syn }, b"");
    let refusal = TcpFields { ack: 7, flags: flag::RST | flag::ACK, ..TcpFields::default() };
    pass(&mut connection, Side::V4, refusal, b"");
    assert!(!connection.is_over());
    pass(&mut connection, Side::V4, TcpFields { seq: 5000, ack: 1001, flags: both, ..syn }, b"");
    // Both have begun: neither begins anew, but by what it has said before.
    pass(&mut connection, Side::V6, TcpFields { seq: 3000, ..syn }, b"");
    pass(&mut connection, Side::V4, TcpFields { seq: 70, ack: 7, flags: both, ..syn }, b"");
    pass(&mut connection, Side::V4, TcpFields { seq: 90, ..syn }, b"");
    let (_, octets) = pass(&mut connection, Side::V6, data(1001, 5001), b"line\n");
    assert_eq!(octets, b"<line\n-and-longer>line\n");
    for seq in [1001, 1005, 1007, 3000] {
        let reset = TcpFields { seq, flags: flag::RST, ..TcpFields::default() };
        pass(&mut connection, Side::V6, reset, b"");
        assert!(!connection.is_over(), "{seq}");
    }
    let reset = TcpFields { seq: 1006, flags: flag::RST, ..TcpFields::default() };
    pass(&mut connection, Side::V6, reset, b"");
    assert!(connection.is_over());
}

#[test]
fn a_refusal_ends_it() {
    let mut connection = editor();
    let syn = TcpFields { seq: 1000, flags: flag::SYN, ..TcpFields::default() };
    pass(&mut connection, Side::V6, syn, b"");
    let refusal = TcpFields { ack: 1001, flags: flag::RST | flag::ACK, ..TcpFields::default() };
    pass(&mut connection, Side::V4, refusal, b"");
    assert!(connection.is_over());
}

#[test]
fn who_begins_again_before_an_answer_has_other_numbers() {
    let mut connection = editor();
    for seq in [1000, 3000, 3000] {
        let syn = TcpFields { seq, flags: flag::SYN, mss: Some(1440), ..TcpFields::default() };
        pass(&mut connection, Side::V6, syn, b"");
    }
    let flags = flag::SYN | flag::ACK;
    let answer = TcpFields { seq: 5000, ack: 3001, flags, ..TcpFields::default() };
    pass(&mut connection, Side::V4, answer, b"");
    let (fields, octets) = pass(&mut connection, Side::V6, data(3001, 5001), b"line\n");
    assert_eq!((fields.seq, &octets[..]), (3001, &b"<line\n-and-longer>line\n"[..]));
}

#[test]
fn who_answers_anew_before_any_octet_has_other_numbers() {
    let mut connection = begun();
    let flags = flag::SYN | flag::ACK;
    let answer = TcpFields { seq: 7000, ack: 1001, flags, mss: Some(1460), ..TcpFields::default() };
    pass(&mut connection, Side::V4, answer, b"");
    let (fields, octets) = pass(&mut connection, Side::V4, data(7001, 1001), b"line\n");
    assert_eq!((fields.seq, &octets[..]), (7001, &b"<line\n-and-longer>line\n"[..]));
}

#[test]
fn an_answer_to_a_syn_that_comes_again_changes_no_numbers() {
    let mut connection = begun();
    let (fields, octets) = pass(&mut connection, Side::V4, data(5001, 1001), b"line\n");
    assert_eq!((fields.seq, octets.len()), (5001, 23));
    let flags = flag::SYN | flag::ACK;
    let answer = TcpFields { seq: 5000, ack: 1001, flags, mss: Some(1460), ..TcpFields::default() };
    pass(&mut connection, Side::V4, answer, b"");
    let (fields, octets) = pass(&mut connection, Side::V4, data(5006, 1001), b"more\n");
    assert_eq!((fields.seq, &octets[..]), (5024, &b"more\n"[..]));
}

#[test]
fn both_sides_last_words_end_it() {
    let mut connection = begun();
    let fin = |seq, ack| TcpFields { flags: flag::FIN | flag::ACK, ..data(seq, ack) };
    pass(&mut connection, Side::V6, fin(1001, 5001), b"");
    pass(&mut connection, Side::V6, data(1002, 5001), b"");
    assert!(!connection.is_over());
    pass(&mut connection, Side::V4, data(5001, 1002), b"more\n");
    assert!(!connection.is_over(), "one of them still speaks");
    pass(&mut connection, Side::V4, fin(5006, 1002), b"");
    assert!(connection.is_over());
}

#[test]
fn who_forges_an_answer_changes_no_numbers() {
    let mut connection = begun();
    let answer = |seq, ack| {
        let (flags, mss) = (flag::SYN | flag::ACK, Some(1460));
        TcpFields { seq, ack, flags, mss, ..TcpFields::default() }
    };
    // To another SYN, before any octet has come.
    pass(&mut connection, Side::V4, answer(8000, 7), b"");
    assert!(connection.is_begun_by(Side::V4, &answer(5000, 1001)));
    assert!(!connection.is_begun_by(Side::V4, &answer(8000, 1001)));
    // To the right one, but octets have come.
    pass(&mut connection, Side::V4, data(5001, 1001), b"line\n");
    pass(&mut connection, Side::V4, answer(8000, 1001), b"");
    let (fields, octets) = pass(&mut connection, Side::V4, data(5006, 1001), b"more\n");
    assert_eq!((fields.seq, &octets[..]), (5024, &b"more\n"[..]));
}

#[test]
fn an_answer_to_another_syn_begins_nothing() {
    let mut connection = editor();
    let syn = TcpFields { seq: 1000, flags: flag::SYN, mss: Some(1440), ..TcpFields::default() };
    pass(&mut connection, Side::V6, syn, b"");
    let flags = flag::SYN | flag::ACK;
    let answer = |seq, ack| TcpFields { seq, ack, flags, ..TcpFields::default() };
    pass(&mut connection, Side::V4, answer(8000, 7), b"");
    assert!(connection.is_begun_by(Side::V4, &answer(5000, 1001)), "no number is known yet");
}

#[test]
fn what_is_resumed_keeps_its_numbers() {
    let mut connection = Connection::resumed(Box::<Editor>::default(), [7, 18]);
    assert_eq!(connection.shift(), [7, 18]);
    let (fields, octets) = pass(&mut connection, Side::V6, data(1001, 5008), b"line\n");
    assert_eq!((fields.seq, fields.ack, &octets[..]), (1019, 5001, &b"line\n"[..]));
    assert_eq!(connection.shift(), [7, 18]);
}

#[test]
fn a_connection_without_a_beginning_is_not_read() {
    let mut connection = editor();
    let syn = TcpFields { seq: 1000, flags: flag::SYN, ..TcpFields::default() };
    pass(&mut connection, Side::V6, syn, b"");
    let (fields, octets) = pass(&mut connection, Side::V6, data(1001, 5001), b"line\n");
    assert_eq!((fields.seq, &octets[..]), (1001, &b"line\n"[..]));
}

#[test]
fn a_reset_stands_where_its_receiver_expects_it() {
    let mut connection = begun();
    pass(&mut connection, Side::V6, data(1001, 5001), b"line\nli");
    let mut fields = data(1008, 5001);
    fields.flags = flag::RST | flag::ACK;
    let (fields, _) = pass(&mut connection, Side::V6, fields, b"");
    assert_eq!(fields.seq, 1024, "behind what went out: the rest is held");
}
