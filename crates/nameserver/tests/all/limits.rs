//! Who may ask, how often, and how much at once.

use std::num::NonZeroU32;

use fordway_nameserver::Rate;
use fordway_testhost::poll;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;

use super::world::*;

fn rate(per_second: u32, burst: u32) -> Option<Rate> {
    let value = |value| NonZeroU32::new(value).unwrap();
    Some(Rate { per_second: value(per_second), burst: value(burst) })
}

#[test]
fn those_who_may_not_ask_are_refused() {
    let upstream = Upstream::start();
    let mut settings = settings(&upstream);
    settings.allow = acl(&["192.0.2.0/24", "2001:db8::/32"]);
    let server = serve(&settings);
    let address = server.local_addrs()[0];
    let client = client(address);
    let asked = query("host.example.net.", RecordType::AAAA);
    let refused = ask(&client, &with_edns(asked.clone(), 1232));
    assert_eq!(refused.metadata.response_code, ResponseCode::Refused);
    assert_eq!(ede(&refused), [18]);
    assert_eq!(refused.queries, asked.queries);
    assert_eq!(refused.edns.as_ref().unwrap().max_payload(), 1232);
    assert_eq!(ask(&client, &asked).metadata.response_code, ResponseCode::Refused);
    assert!(receive(&mut connect(address)).is_none(), "no connection for them");
    // Many refusals in a moment are not all sent: nobody's forged queries make much of them.
    for _ in 0..200 {
        client.send(&asked.to_vec().unwrap()).unwrap();
    }
    let stats = poll("taken", || {
        let stats = server.stats();
        (stats.refused + stats.dropped.refused == 202).then_some(stats)
    });
    assert!(stats.dropped.refused > 0, "{stats:?}");
    assert_eq!(stats.answers.refused, stats.refused);
    assert_eq!(stats.connections_refused, 1);
    assert_eq!(upstream.count("host.example.net.", RecordType::AAAA), 0);
}

#[test]
fn over_the_rate_there_is_tcp() {
    on_own_host(|| {
        let upstream = Upstream::start();
        let mut settings = settings(&upstream);
        settings.listen = vec!["192.0.2.1:53".parse().unwrap()];
        settings.rate = rate(1, 20);
        let server = serve(&settings);
        let address = server.local_addrs()[0];
        let asked = query("host.example.net.", RecordType::AAAA);
        let flood = client_at(address, "192.0.2.2".parse().unwrap());
        for _ in 0..200 {
            flood.send(&asked.to_vec().unwrap()).unwrap();
        }
        let stats = poll("taken", || {
            let stats = server.stats();
            (stats.udp_queries == 200 && stats.waiting == 0).then_some(stats)
        });
        let answered = 200 - stats.limited - stats.dropped.limited;
        // Twenty at once, and one for each second that it took.
        assert!((20..150).contains(&answered), "{stats:?}");
        assert!(stats.limited.abs_diff(stats.dropped.limited) <= 2, "every other one: {stats:?}");
        let (mut whole, mut cut) = (0, 0);
        for _ in 0..answered + stats.limited {
            let mut octets = [0; 512];
            let len = flood.recv(&mut octets).expect("an answer");
            let answer = hickory_proto::op::Message::from_vec(&octets[..len]).unwrap();
            match answer.metadata.truncation {
                true => cut += 1,
                false => whole += 1,
            }
        }
        assert_eq!((whole, cut), (answered, stats.limited));
        // By TCP, and for others, nothing has changed.
        assert_eq!(addresses(&ask_tcp(address, &asked)), synthetic(POOL6));
        let other = client_at(address, "198.51.100.1".parse().unwrap());
        assert_eq!(addresses(&ask(&other, &asked)), synthetic(POOL6));
    });
}

#[test]
fn the_host_itself_is_not_limited() {
    let upstream = Upstream::start();
    let mut settings = settings(&upstream);
    settings.rate = rate(1, 1);
    let server = serve(&settings);
    let client = client(server.local_addrs()[0]);
    for _ in 0..100 {
        let answer = ask(&client, &query("host.example.net.", RecordType::AAAA));
        assert_eq!(addresses(&answer), synthetic(POOL6));
    }
}

#[test]
fn so_many_may_wait() {
    let upstream = Upstream::start();
    let mut settings = settings(&upstream);
    // A client has at most a third of the places.
    settings.limits.queries = 9;
    let server = serve(&settings);
    let client = client(server.local_addrs()[0]);
    for number in 0..3 {
        let mut slow = query(&format!("slow{number}.example.net."), RecordType::A);
        slow.metadata.id = number;
        client.send(&slow.to_vec().unwrap()).unwrap();
    }
    poll("they wait", || (server.stats().waiting == 3).then_some(()));
    let more = ask(&client, &with_edns(query("other.example.net.", RecordType::A), 1232));
    assert_eq!(more.metadata.response_code, ResponseCode::ServFail);
    assert_eq!(ede(&more), [0]);
    assert_eq!(server.stats().overload, 1);
    upstream.release();
    for _ in 0..3 {
        let mut octets = [0; 512];
        let len = client.recv(&mut octets).expect("an answer");
        let answer = hickory_proto::op::Message::from_vec(&octets[..len]).unwrap();
        assert_eq!(addresses(&answer).len(), 1);
    }
    poll("nobody waits", || (server.stats().waiting == 0).then_some(()));
    let again = ask(&client, &query("other.example.net.", RecordType::A));
    assert_eq!(addresses(&again).len(), 1, "the failure was not kept");
}
