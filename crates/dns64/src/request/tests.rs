use hickory_proto::op::Edns;

use super::*;
use crate::tests::{query, show};

const ASKED: &str = "AAAA www.example.net. edns";

fn rejected(octets: &[u8]) -> Option<Message> {
    match parse(octets) {
        Ok(query) => panic!("{query}"),
        Err(Rejected::Ignore) => None,
        Err(Rejected::Answer(message)) => {
            // What is sent can be read by whoever gets it.
            let read = Message::from_vec(&message.to_vec().unwrap()).unwrap();
            assert_eq!(read.metadata.message_type, MessageType::Response);
            assert_eq!(read.metadata.id, u16::from_be_bytes([octets[0], octets[1]]));
            Some(*message)
        }
    }
}

/// The octets of [`ASKED`] with some of the header's changed.
fn changed(changes: &[(usize, u8)]) -> Vec<u8> {
    let mut octets = query(ASKED).to_vec().unwrap();
    changes.iter().for_each(|(at, value)| octets[*at] = *value);
    octets
}

#[test]
fn a_query_is_read() {
    let asked = query("AAAA wWw.Example.net. do cd");
    let read = parse(&asked.to_vec().unwrap()).unwrap();
    assert_eq!(read, asked);
    assert!(read.queries[0].name.eq_case(&asked.queries[0].name));
}

#[test]
fn what_is_no_query_has_no_answer() {
    assert!(rejected(&[]).is_none());
    assert!(rejected(&query(ASKED).to_vec().unwrap()[..11]).is_none());
    assert!(rejected(&changed(&[(2, 0x81)])).is_none(), "a response is never answered");
}

#[test]
fn other_opcodes_are_not_implemented() {
    for opcode in [1, 2, 4, 5, 6, 15] {
        let message = rejected(&changed(&[(2, opcode << 3 | 1)])).unwrap();
        assert_eq!(message.metadata.response_code, ResponseCode::NotImp);
        assert_eq!(u8::from(message.metadata.op_code), opcode);
    }
}

#[test]
fn exactly_one_question_and_no_answers() {
    for changes in [
        [(4, 0), (5, 0)],
        [(4, 0), (5, 2)],
        [(4, 255), (5, 255)],
        [(6, 0), (7, 1)],
        [(8, 0), (9, 1)],
    ] {
        let message = rejected(&changed(&changes)).unwrap();
        assert_eq!(message.metadata.response_code, ResponseCode::FormErr, "{changes:?}");
    }
    assert_eq!(show(&rejected(&[0; 12]).unwrap()), "1");
}

#[test]
fn what_is_cut_short_is_malformed() {
    let octets = query(ASKED).to_vec().unwrap();
    for len in 12..octets.len() {
        let message = rejected(&octets[..len]).unwrap();
        assert_eq!(message.metadata.response_code, ResponseCode::FormErr);
        // The question is given back if it came whole: 12 octets of header, 17 + 4 of question.
        assert_eq!(message.queries.len(), usize::from(len >= 33), "{len}");
    }
}

#[test]
fn compression_that_runs_in_circles_is_malformed() {
    for pointer in [[0xc0, 12], [0xc0, 14], [0xff, 0xff], [0x40, 0], [0x80, 0]] {
        let octets = [&[0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], &pointer, &[0, 28, 0, 1]].concat();
        let message = rejected(&octets).unwrap();
        assert_eq!(message.metadata.response_code, ResponseCode::FormErr);
    }
}

#[test]
fn one_opt_record_of_version_0() {
    let mut twice = query(ASKED).to_vec().unwrap();
    let opt = twice[twice.len() - 11..].to_vec();
    twice.extend(opt);
    twice[11] = 2;
    assert_eq!(rejected(&twice).unwrap().metadata.response_code, ResponseCode::FormErr);
    let mut asked = query(ASKED);
    asked.edns.as_mut().unwrap().set_version(1);
    let message = rejected(&asked.to_vec().unwrap()).unwrap();
    assert_eq!(message.metadata.response_code, ResponseCode::BADVERS);
    let edns = message.edns.unwrap();
    assert_eq!(edns.version(), 0, "the version that is spoken here");
    assert_eq!(message.queries, asked.queries);
}

#[test]
fn types_that_are_none_are_refused() {
    for (kind, expected) in [
        ("TYPE0", "1 ede=30"),
        ("TYPE41", "1 ede=30"),
        ("TYPE128", "1 ede=30"),
        ("TYPE249", "1 ede=30"),
        ("TYPE250", "1 ede=30"),
        ("TYPE251", "5 ede=21"),
        ("TYPE252", "5 ede=21"),
        ("TYPE253", "4 ede=21"),
        ("TYPE254", "4 ede=21"),
    ] {
        let asked = query(&format!("{kind} www.example.net. edns"));
        assert_eq!(show(&rejected(&asked.to_vec().unwrap()).unwrap()), expected, "{kind}");
    }
    for kind in ["TYPE1", "TYPE255", "TYPE129", "TYPE65535"] {
        assert!(parse(&query(&format!("{kind} www.example.net.")).to_vec().unwrap()).is_ok());
    }
}

#[test]
fn signed_queries_have_no_key_here() {
    let mut octets = query("A www.example.net.").to_vec().unwrap();
    octets[11] = 1;
    let algorithm = b"\x0bhmac-sha256\0";
    let rdata =
        [&algorithm[..], &[0, 0, 0, 0, 0, 1, 0, 5, 0, 2, 7, 7, 0x12, 0x34, 0, 0, 0, 0]].concat();
    octets.extend([3, b'k', b'e', b'y', 0, 0, 250, 0, 255, 0, 0, 0, 0, 0, rdata.len() as u8]);
    octets.extend(rdata);
    assert_eq!(rejected(&octets).unwrap().metadata.response_code, ResponseCode::NotAuth);
}

#[test]
fn udp_sizes() {
    let limit = |client: Option<u16>, server| {
        let mut asked = query("A www.example.net.");
        if let Some(client) = client {
            let mut edns = Edns::new();
            edns.set_max_payload(client);
            asked.set_edns(edns);
        }
        udp_limit(&asked, server)
    };
    assert_eq!(limit(None, 1232), 512);
    assert_eq!(limit(Some(0), 1232), 512);
    assert_eq!(limit(Some(1000), 1232), 1000);
    assert_eq!(limit(Some(4096), 1232), 1232);
    assert_eq!(limit(Some(4096), 100), 512);
}
