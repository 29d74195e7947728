//! Whatever comes, the server goes on.

use std::io::Write;

use fordway_testhost::poll;
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType;

use super::world::*;

/// A little random number generator: the same numbers each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn octets(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Queries of clients, with some octets changed, cut or longer; and now and then nothing but noise.
fn damaged(random: &mut Random) -> Vec<u8> {
    let seeds = [
        query("host.example.net.", RecordType::AAAA),
        with_edns(query("native.example.net.", RecordType::AAAA), 4096),
        query("1.2.0.192.in-addr.arpa.", RecordType::PTR),
    ];
    let mut octets = match random.next() % 8 {
        0 => {
            let len = random.next() as usize % 600;
            random.octets(len)
        }
        seed => seeds[seed as usize % seeds.len()].to_vec().unwrap(),
    };
    for _ in 0..random.next() % 6 {
        if !octets.is_empty() {
            let at = random.next() as usize % octets.len();
            octets[at] = random.next() as u8;
        }
    }
    match random.next() % 8 {
        0 => octets.truncate(random.next() as usize % (octets.len() + 1)),
        1 => {
            let len = random.next() as usize % 40;
            octets.extend(random.octets(len));
        }
        _ => {}
    }
    octets
}

#[test]
fn noise_and_damaged_queries_by_udp() {
    let upstream = Upstream::start();
    let server = serve(&settings(&upstream));
    let address = server.local_addrs()[0];
    let noisy = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (mut random, mut sent) = (Random(0x1234_5678_9abc_def1), 0u64);
    for _ in 0..200 {
        for _ in 0..100 {
            sent += u64::from(noisy.send_to(&damaged(&mut random), address).is_ok());
        }
        // So that what is sent is also taken.
        poll("taken", || (server.stats().udp_queries >= sent).then_some(()));
    }
    let answer = ask(&client(address), &query("host.example.net.", RecordType::AAAA));
    assert_eq!(addresses(&answer), synthetic(POOL6));
    let stats = server.stats();
    assert!(stats.dropped.malformed > 0 && stats.answers.formerr > 0, "{stats:?}");
}

#[test]
fn noise_and_damaged_queries_by_tcp() {
    let upstream = Upstream::start();
    let server = serve(&settings(&upstream));
    let address = server.local_addrs()[0];
    let mut random = Random(0xfedc_ba98_7654_3211);
    for _ in 0..40 {
        let mut stream = connect(address);
        for _ in 0..10 {
            let octets = damaged(&mut random);
            let mut framed = (octets.len() as u16).to_be_bytes().to_vec();
            framed.extend(octets);
            if random.next().is_multiple_of(10) {
                framed[0] ^= random.next() as u8;
            }
            if stream.write_all(&framed).is_err() {
                break;
            }
        }
    }
    poll("all are gone", || (server.stats().connections == 0).then_some(()));
    let answer = ask_tcp(address, &query("host.example.net.", RecordType::AAAA));
    assert_eq!(addresses(&answer), synthetic(POOL6));
}

#[test]
fn a_response_gets_no_answer() {
    let upstream = Upstream::start();
    let server = serve(&settings(&upstream));
    let client = client(server.local_addrs()[0]);
    let mut response = query("host.example.net.", RecordType::A);
    response.metadata.message_type = hickory_proto::op::MessageType::Response;
    client.send(&response.to_vec().unwrap()).unwrap();
    client.send(&[]).unwrap();
    client.send(&[0; 11]).unwrap();
    // What comes first is the answer to what was sent last.
    let mut last = query("host.example.net.", RecordType::A);
    last.metadata.id = 0x2002;
    assert_eq!(ask(&client, &last).metadata.id, 0x2002);
    assert_eq!(server.stats().dropped.malformed, 3);
}

#[test]
fn tiny_and_huge_datagrams() {
    let upstream = Upstream::start();
    let server = serve(&settings(&upstream));
    let client = client(server.local_addrs()[0]);
    let mut huge = query("host.example.net.", RecordType::A).to_vec().unwrap();
    huge.resize(60_000, 0);
    // What comes after the question is ignored; so is that there is more of it than there is room for.
    let answer = Message::from_vec(&exchange(&client, &huge)).unwrap();
    assert_eq!(addresses(&answer).len(), 1);
    // A query that is cut within the question is none.
    huge.truncate(20);
    let answer = Message::from_vec(&exchange(&client, &huge)).unwrap();
    assert_eq!(answer.metadata.response_code, ResponseCode::FormErr);
    assert_eq!(answer.metadata.id, 0x1001);
}

#[test]
fn operations_and_versions_that_it_does_not_have() {
    let upstream = Upstream::start();
    let server = serve(&settings(&upstream));
    let client = client(server.local_addrs()[0]);
    let mut notify = query("example.net.", RecordType::SOA).to_vec().unwrap();
    notify[2] |= 4 << 3;
    let answer = Message::from_vec(&exchange(&client, &notify)).unwrap();
    assert_eq!(answer.metadata.response_code, ResponseCode::NotImp);

    let mut version = with_edns(query("host.example.net.", RecordType::A), 1232);
    version.edns.as_mut().unwrap().set_version(1);
    let answer = ask(&client, &version);
    assert_eq!(u16::from(answer.metadata.response_code), 16, "BADVERS");
    assert_eq!(answer.edns.unwrap().version(), 0);

    let mut two = query("host.example.net.", RecordType::A);
    two.add_query(two.queries[0].clone());
    let answer = Message::from_vec(&exchange(&client, &two.to_vec().unwrap())).unwrap();
    assert_eq!(answer.metadata.response_code, ResponseCode::FormErr);
    let stats = server.stats();
    assert_eq!((stats.answers.notimp, stats.answers.formerr, stats.answers.other), (1, 1, 1));
    assert_eq!(stats.errors, 3);
}
