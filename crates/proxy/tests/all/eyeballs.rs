//! Names, and servers with addresses of both families (RFC 8305).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fordway_proxy::{Eyeballs, Settings};
use fordway_resolver as upstream;
use fordway_testhost::PATIENCE;
use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA};
use hickory_proto::rr::{RData, Record, RecordType};
use socket2::{Domain, Socket, Type};

use super::world::{OK, RawServer, World, forward};
use fordway_testhost::namespace::{add_address, in_namespace, ip};

/// A DNS server; `None`: it does not answer.
fn resolver(
    answer: impl Fn(&str, RecordType) -> Option<Vec<IpAddr>> + Send + 'static,
) -> (upstream::Settings, Arc<Mutex<Vec<RecordType>>>) {
    let socket = UdpSocket::bind("[::1]:0").unwrap();
    let address = socket.local_addr().unwrap();
    let asked: Arc<Mutex<Vec<RecordType>>> = Arc::default();
    let list = Arc::clone(&asked);
    thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            let mut message = Message::from_vec(&buffer[..len]).unwrap();
            let query = message.queries[0].clone();
            list.lock().unwrap().push(query.query_type());
            let name = query.name().to_lowercase().to_ascii();
            let Some(addresses) = answer(&name, query.query_type()) else { continue };
            message.metadata.message_type = MessageType::Response;
            message.metadata.recursion_available = true;
            message.metadata.response_code = match name.starts_with("nobody") {
                true => ResponseCode::NXDomain,
                false => ResponseCode::NoError,
            };
            for address in addresses {
                let data = match address {
                    IpAddr::V4(v4) => RData::A(A(v4)),
                    IpAddr::V6(v6) => RData::AAAA(AAAA(v6)),
                };
                message.add_answer(Record::from_rdata(query.name().clone(), 60, data));
            }
            let _ = socket.send_to(&message.to_vec().unwrap(), from);
        }
    });
    // However busy the machine is, an answer that comes is in time.
    let settings = upstream::Settings {
        timeout: PATIENCE,
        deadline: PATIENCE,
        attempts: 1,
        ..upstream::Settings::new(vec![upstream::Server::udp(address)])
    };
    (settings, asked)
}

fn both(_: &str, kind: RecordType) -> Option<Vec<IpAddr>> {
    Some(match kind {
        RecordType::AAAA => vec![Ipv6Addr::LOCALHOST.into()],
        _ => vec![Ipv4Addr::LOCALHOST.into()],
    })
}

fn world(resolver: upstream::Settings) -> World {
    World::new(&Settings { resolver: Some(resolver), ..forward() })
}

fn get(world: &World, port: u16) -> String {
    let octets = format!("GET http://www.example:{port}/ HTTP/1.1\r\nHost: a\r\n\r\n");
    world.client().send(octets).response()
}

/// The same port in both families: a server of IPv4, and a socket of IPv6 that does not listen.
fn on_one_port() -> (RawServer, Socket) {
    loop {
        let v4 = RawServer::at("127.0.0.1:0", |_, _| Some(OK.as_bytes().to_vec()));
        let at: SocketAddr = (Ipv6Addr::LOCALHOST, v4.address.port()).into();
        let v6 = Socket::new(Domain::IPV6, Type::STREAM, None).unwrap();
        if v6.bind(&at.into()).is_ok() {
            return (v4, v6);
        }
    }
}

#[test]
fn ipv6_goes_first_where_both_work() {
    let v6 = RawServer::saying(OK);
    let port = v6.address.port();
    let (resolver, asked) = resolver(both);
    // However busy the machine is.
    let eyeballs = Eyeballs { attempt: PATIENCE, resolution: PATIENCE };
    let world = World::new(&Settings { resolver: Some(resolver), eyeballs, ..forward() });
    assert!(get(&world, port).starts_with("HTTP/1.1 200 "));
    let stats = world.server.stats();
    assert_eq!((stats.servers_v6, stats.servers_v4, stats.fell_back), (1, 0, 0));
    // Section 3: AAAA is asked first, A at once behind it.
    let asked = asked.lock().unwrap();
    assert_eq!(asked[..], [RecordType::AAAA, RecordType::A]);
}

#[test]
fn a_dead_ipv6_path_leaves_ipv4() {
    in_namespace(|| {
        // A neighbour that has never been there: what is sent to it vanishes.
        ip("link add near0 type veth peer name far0");
        ip("link set near0 up");
        ip("link set far0 up");
        add_address("2001:db8:1::1/64", "near0");
        ip("neigh add 2001:db8:1::99 lladdr 02:00:00:00:00:99 dev near0");
        let v4 = RawServer::at("127.0.0.1:0", |_, _| Some(OK.as_bytes().to_vec()));
        let (resolver, _) = resolver(|_, kind| {
            Some(match kind {
                RecordType::AAAA => vec!["2001:db8:1::99".parse().unwrap()],
                _ => vec![Ipv4Addr::LOCALHOST.into()],
            })
        });
        let world = world(resolver);
        assert!(get(&world, v4.address.port()).starts_with("HTTP/1.1 200 "));
        let stats = world.server.stats();
        assert_eq!((stats.servers_v6, stats.servers_v4, stats.fell_back), (0, 1, 1));
    });
}

#[test]
fn a_refusal_does_not_wait_for_the_delay() {
    let (v4, _v6) = on_one_port();
    let (resolver, _) = resolver(both);
    // Nobody would wait so long.
    let eyeballs = Eyeballs { attempt: Duration::from_secs(3600), resolution: Duration::ZERO };
    let world = World::new(&Settings { resolver: Some(resolver), eyeballs, ..forward() });
    assert!(get(&world, v4.address.port()).starts_with("HTTP/1.1 200 "));
    assert_eq!(world.server.stats().fell_back, 1);
}

#[test]
fn an_answer_for_aaaa_that_does_not_come_holds_nobody_up() {
    let v4 = RawServer::at("127.0.0.1:0", |_, _| Some(OK.as_bytes().to_vec()));
    let (resolver, _) = resolver(|name, kind| both(name, kind).filter(|_| kind == RecordType::A));
    let world = world(resolver);
    assert!(get(&world, v4.address.port()).starts_with("HTTP/1.1 200 "));
    assert_eq!(world.server.stats().servers_v4, 1);
}

#[test]
fn names_without_addresses_and_names_that_point_inside() {
    let (resolver, _) = resolver(|name, kind| match (name, kind) {
        ("inside.example.", RecordType::A) => Some(vec![[10, 0, 0, 1].into()]),
        ("inside.example.", _) => Some(vec!["64:ff9b::a00:1".parse().unwrap()]),
        _ => Some(Vec::new()),
    });
    let world = world(resolver);
    for (name, status, reason) in [
        ("nobody.example", "502", "no_such_name"),
        ("empty.example", "502", "no_such_name"),
        ("inside.example", "403", "destination_denied"),
    ] {
        refused(&world, name, status, reason);
    }
}

#[test]
fn a_name_that_nobody_says_anything_about() {
    let (resolver, _) = resolver(|_, _| None);
    let short = Duration::from_millis(100);
    let resolver = upstream::Settings { timeout: short, deadline: short, ..resolver };
    refused(&world(resolver), "silent.example", "504", "name_timeout");
}

fn refused(world: &World, name: &str, status: &str, reason: &str) {
    let octets = format!("GET http://{name}/ HTTP/1.1\r\nHost: a\r\n\r\n");
    let got = world.client().send(octets).response();
    assert!(got.starts_with(&format!("HTTP/1.1 {status} ")), "{name}: {got}");
    assert!(world.refused(reason) > 0, "{name}");
}
