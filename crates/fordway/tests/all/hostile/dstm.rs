//! Datagrams to a server that lends addresses.

use std::net::UdpSocket;

use fordway_dstmd::protocol::{Body, ClientId, Key, Message};
use fordway_testhost::{can_use_tun, poll};

use super::super::dstm::{Net, leases, ping_once, server_count};
use super::size;
use crate::common::daemon::{Daemon, RunDir};

#[test]
fn forged_and_malformed_datagrams() {
    if !can_use_tun() {
        return;
    }
    let net = Net::new();
    let (tep_dir, client_dir) = (RunDir::new(), RunDir::new());
    let tep = Daemon::start(&tep_dir, &net.tep, &net.lender("192.0.2.0/28", ""));
    let socket = net.other.inside(|| UdpSocket::bind("[::]:0").unwrap());
    let wrong = Key::from_hex(&"33".repeat(32)).unwrap();
    let forge = |number: u64| {
        let id = ClientId::new(if number.is_multiple_of(2) { "one" } else { "nobody" }).ok();
        let body =
            Body::Request { id, cookie: None, v4: None, sharing: false, lifetime: 0, tunnel: None };
        Message { transaction: number, number, body }.seal(&wrong)
    };
    let attack = || {
        for number in 0..size(5_000, 200_000) as u64 {
            let mut octets = forge(number);
            if number.is_multiple_of(3) {
                octets.truncate(octets.len() / 2);
            }
            // What there is no room for is lost, as on the way.
            let _full = socket.send_to(&octets, "[2001:db8:2::2]:13653");
        }
    };
    attack();
    let borrower = Daemon::start(&client_dir, &net.client, &net.borrower("one", ""));
    attack();
    let ping = ping_once(&net.client, "198.51.100.2");
    assert!(ping.contains("1 received"), "{ping}\n{}", borrower.log());
    attack();
    assert_eq!(leases(&net, &tep_dir).len(), 1);
    for what in ["forged", "unknown", "malformed"] {
        poll("they are counted", || (server_count(&tep, what) > 0).then_some(()));
    }
    assert_eq!((server_count(&tep, "granted"), server_count(&tep, "leases")), (1, 1));
    borrower.stop();
    tep.stop();
}
