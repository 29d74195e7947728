//! Wildcard addresses: an answer comes from the address that was asked.

use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};

use fordway_testhost::PATIENCE;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;

use super::world::*;
use fordway_testhost::namespace::{add_address, ip};

fn listen(settings: &mut fordway_nameserver::Settings, addresses: &[&str]) {
    settings.listen = addresses.iter().map(|text| text.parse().unwrap()).collect();
}

#[test]
fn both_wildcards_answer_from_the_address_asked() {
    on_own_host(|| {
        let upstream = Upstream::start();
        let mut settings = settings(&upstream);
        listen(&mut settings, &["[::]:53", "0.0.0.0:53"]);
        let _server = serve(&settings);
        for asked in ["192.0.2.1", "192.0.2.2", "127.0.0.1", "2001:db8::1", "2001:db8::2", "::1"] {
            let asked: IpAddr = asked.parse().unwrap();
            // The kernel itself would answer from another address: the one nearest to the client.
            let from: IpAddr = match asked {
                IpAddr::V4(v4) if v4.is_loopback() => asked,
                IpAddr::V4(_) => "198.51.100.1".parse().unwrap(),
                IpAddr::V6(v6) if v6.is_loopback() => asked,
                IpAddr::V6(_) => "2001:db8::2".parse().unwrap(),
            };
            // A connected socket hears only the address that it asked.
            let client = client_at(SocketAddr::new(asked, 53), from);
            let text = format!("host-{}.example.net.", u8::from(asked.is_ipv4()));
            // The second answer comes from the cache, in a batch.
            for _ in 0..2 {
                let answer = ask(&client, &query(&text, RecordType::AAAA));
                assert_eq!(addresses(&answer), synthetic(POOL6), "{asked}");
            }
            let answer = ask_tcp(SocketAddr::new(asked, 53), &query(&text, RecordType::AAAA));
            assert_eq!(addresses(&answer), synthetic(POOL6), "{asked}");
        }
    });
}

#[test]
fn the_ipv6_wildcard_is_ipv6_alone() {
    on_own_host(|| {
        let upstream = Upstream::start();
        let mut settings = settings(&upstream);
        listen(&mut settings, &["[::]:53"]);
        let _server = serve(&settings);
        let v4 = client_at("192.0.2.1:53".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let _ = v4.send(b"anybody?");
        let heard = v4.recv(&mut [0; 8]).expect_err("nobody");
        assert_eq!(heard.kind(), std::io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn link_local_addresses_of_two_links() {
    on_own_host(|| {
        ip("link add one type veth peer name two");
        for (device, address) in [("one", "fe80::1"), ("two", "fe80::2")] {
            ip(&format!("link set {device} up"));
            add_address(&format!("{address}/64"), device);
        }
        let upstream = Upstream::start();
        let mut settings = settings(&upstream);
        listen(&mut settings, &["[::]:53"]);
        settings.allow = acl(&["fe80::/10"]);
        let _server = serve(&settings);
        let index = nix::net::if_::if_nametoindex("one").unwrap();
        let address = |ip: &str, port| SocketAddrV6::new(ip.parse().unwrap(), port, 0, index);
        let client = UdpSocket::bind(address("fe80::1", 0)).unwrap();
        client.connect(address("fe80::1", 53)).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let answer = ask(&client, &query("host.example.net.", RecordType::AAAA));
        assert_eq!(answer.metadata.response_code, ResponseCode::NoError);
        assert_eq!(addresses(&answer), synthetic(POOL6));
    });
}

#[test]
fn an_address_that_comes_later() {
    on_own_host(|| {
        let upstream = Upstream::start();
        let mut settings = settings(&upstream);
        listen(&mut settings, &["[2001:db8::99]:53", "203.0.113.99:53"]);
        let _server = serve(&settings);
        add_address("2001:db8::99/128", "lo");
        add_address("203.0.113.99/32", "lo");
        for listen in &settings.listen {
            let from = match listen {
                SocketAddr::V4(_) => "192.0.2.1".parse().unwrap(),
                SocketAddr::V6(_) => "2001:db8::1".parse().unwrap(),
            };
            let answer =
                ask(&client_at(*listen, from), &query("host.example.net.", RecordType::AAAA));
            assert_eq!(addresses(&answer), synthetic(POOL6), "{listen}");
        }
    });
}
