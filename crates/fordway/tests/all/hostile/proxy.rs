//! Clients of a proxy in front of a site.

use std::io::{Read, Write};
use std::net::TcpStream;

use fordway_testhost::{can_use_tun, has_programs, poll};

use super::super::proxy::world::Network;
use super::{connection, descriptors, size};
use crate::common::daemon::Daemon;

const SITE: &str = "[2001:db8:1::1]:80";
const ATTACKER: &str = "2001:db8:1::5";

/// What every connection of HTTP/2 begins with (RFC 9113 section 3.4), and a SETTINGS frame without settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A site, whose clients count by their whole address.
fn site(more: &str) -> String {
    format!(
        "[[proxy]]\nname = 'site'\nmode = 'reverse'\nlisten = ['2001:db8:1::1']\n\
         upstream = ['203.0.113.10']\nclient_len = 128\n{more}\n"
    )
}

/// Somebody else gets a page of the site.
#[track_caller]
fn others_are_served(network: &Network) {
    let page = network
        .curl("--interface 2001:db8:1::6 --connect-to ::[2001:db8:1::1]: http://www.example.net/");
    assert!(page.contains("you are 203.0.113.1<"), "{page}");
}

fn open(network: &Network, daemon: &Daemon<'_>) -> u64 {
    network.count(daemon, "connections")
}

#[test]
fn connections_of_http2_that_say_nothing() {
    if !can_use_tun() || !has_programs(&["curl"]) {
        return;
    }
    let network = Network::new();
    let all = size(96, 4096);
    let most = all - 8;
    let daemon = network.start(&site(&format!(
        "connections = {all}\nconnections_per_client = {most}\nheader_time = '1s'\nkeep_alive = '1s'"
    )));
    let attack = || {
        let streams: Vec<TcpStream> = (0..all)
            .map(|_| {
                let mut stream = connection(&network.client, ATTACKER, SITE);
                // One that is too many may have been closed already.
                let _closed = stream.write_all(PREFACE);
                stream
            })
            .collect();
        others_are_served(&network);
        streams
    };
    // Each of them has its time and no more: the second time there is room again.
    for refused in [1, 2] {
        let streams = attack();
        poll("all are let go", || (open(&network, &daemon) == 0).then_some(()));
        assert!(network.count(&daemon, "connections_refused") >= refused * 8);
        drop(streams);
    }
    daemon.stop();
}

/// A frame of HTTP/2 (RFC 9113 section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const END_STREAM_AND_HEADERS: u8 = 5;
const CANCEL: [u8; 4] = [0, 0, 0, 8];

/// The fields of a request for `/halves`, which takes the site a while (RFC 7541): GET and http by their index, path and
/// authority by their names' indices, as they are.
const FIELDS: &[u8] = b"\x82\x86\x04\x07/halves\x01\x0fwww.example.net";

#[test]
fn requests_that_are_reset() {
    if !can_use_tun() || !has_programs(&["curl"]) {
        return;
    }
    let network = Network::new();
    let daemon = network.start(&site("server_connections = 32"));
    others_are_served(&network);
    let before = descriptors(daemon.pid());
    let asked = || network.count(&daemon, "requests_http2");
    for _ in 0..size(6, 100) {
        let before = asked();
        let mut attacker = connection(&network.client, ATTACKER, SITE);
        let streams = || (0..10).map(|number| 2 * number + 1);
        let frames = |kind, flags, payload| {
            streams().flat_map(|stream| frame(kind, flags, stream, payload)).collect::<Vec<u8>>()
        };
        let requests = frames(HEADERS, END_STREAM_AND_HEADERS, FIELDS);
        attacker.write_all(&[PREFACE, &requests].concat()).unwrap();
        poll("they are under way", || (asked() >= before + 10).then_some(()));
        attacker.write_all(&frames(RST_STREAM, 0, &CANCEL)).unwrap();
        // Faster than anybody can look at: the library ends such a connection.
        let mut flood = connection(&network.client, ATTACKER, SITE);
        let at_once: Vec<u8> = streams()
            .chain(streams().map(|stream| stream + 20))
            .chain(streams().map(|stream| stream + 40))
            .flat_map(|stream| {
                let ask = frame(HEADERS, END_STREAM_AND_HEADERS, stream, FIELDS);
                [ask, frame(RST_STREAM, 0, stream, &CANCEL)].concat()
            })
            .collect();
        let _ended = flood.write_all(&[PREFACE, &at_once].concat());
        let _ended = flood.read_to_end(&mut Vec::new());
        others_are_served(&network);
    }
    poll("nothing is kept for them", || {
        let now = descriptors(daemon.pid());
        (now <= before + 2).then_some(())
    });
    let log = daemon.stop();
    assert!(!log.contains("recv_reset"), "nothing that strangers can repeat: {log}");
}

#[test]
fn clients_that_go_away() {
    if !can_use_tun() || !has_programs(&["curl"]) {
        return;
    }
    let network = Network::new();
    let daemon = network.start(&site("server_connections = 32"));
    others_are_served(&network);
    let before = descriptors(daemon.pid());
    let request = "GET /halves HTTP/1.1\r\nHost: www.example.net\r\n\r\n";
    for _ in 0..size(64, 2000) {
        let mut attacker = connection(&network.client, ATTACKER, SITE);
        attacker.write_all(request.as_bytes()).unwrap();
        // Octets that are not read make the end a reset.
        attacker.read_exact(&mut [0]).unwrap();
    }
    others_are_served(&network);
    poll("nothing is kept for them", || {
        let now = descriptors(daemon.pid());
        (now <= before + 2).then_some(())
    });
    daemon.stop();
}
