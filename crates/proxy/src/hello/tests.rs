use std::sync::Arc;

use proptest::prelude::*;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::*;

/// What a client of rustls that asks for `name` sends first.
fn of_rustls(name: &str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = name.to_owned().try_into().unwrap();
    let mut octets = Vec::new();
    ClientConnection::new(Arc::new(config), name).unwrap().write_tls(&mut octets).unwrap();
    octets
}

/// A field with its length in front, in so many octets.
fn sized(octets: usize, field: &[u8]) -> Vec<u8> {
    let len = field.len().to_be_bytes();
    [&len[len.len() - octets..], field].concat()
}

fn record(fragment: &[u8]) -> Vec<u8> {
    [&[22, 3, 1][..], &sized(2, fragment)].concat()
}

/// A ClientHello as of TLS 1.0, with what is behind the compression methods.
fn message(behind: &[u8]) -> Vec<u8> {
    let body = [&[3, 1][..], &[7; 32], &[0], &sized(2, &[0, 47]), &[1, 0], behind].concat();
    [&[1][..], &sized(3, &body)].concat()
}

/// An extension that names a host.
fn names(name: &[u8]) -> Vec<u8> {
    let entry = [&[0][..], &sized(2, name)].concat();
    [&[0, 0][..], &sized(2, &sized(2, &entry))].concat()
}

fn whole(name: &str) -> Result<Hello, Malformed> {
    Ok(Hello::Whole(Some(name.to_owned())))
}

#[test]
fn every_part_of_one_is_a_part() {
    let octets = of_rustls("WWW.example.net");
    for len in 0..octets.len() {
        assert_eq!(read(&octets[..len]), Ok(Hello::Partial), "{len}");
    }
    assert_eq!(read(&octets), whole("www.example.net"));
    assert_eq!(read(&[&octets[..], b"behind it"].concat()), whole("www.example.net"));
    // Clients name no address.
    assert_eq!(read(&of_rustls("192.0.2.1")), Ok(Hello::Whole(None)));
}

#[test]
fn clients_without_newer_extensions_are_understood() {
    let hello = message(&sized(2, &names(b"old.example")));
    assert_eq!(read(&record(&hello)), whole("old.example"));
    // In records of an octet each.
    let pieces: Vec<u8> = hello.chunks(1).flat_map(record).collect();
    assert_eq!(read(&pieces), whole("old.example"));
    assert_eq!(read(&pieces[..pieces.len() - 1]), Ok(Hello::Partial));
    // Without extensions; without a name; with one that DNS can't have.
    for behind in [Vec::new(), sized(2, &[0, 23, 0, 0]), sized(2, &names(b"\xff.example"))] {
        assert_eq!(read(&record(&message(&behind))), Ok(Hello::Whole(None)), "{behind:?}");
    }
}

#[test]
fn what_is_none_is_told_at_once() {
    for octets in [
        b"GET / HTTP/1.1\r\n".to_vec(),
        vec![22, 2],
        // A record without content, and one that is too long; a ServerHello.
        vec![22, 3, 1, 0, 0],
        vec![22, 3, 1, 0x40, 1],
        record(&[2]),
        // Two names of hosts; lengths that lead beyond the end.
        record(&message(&sized(2, &[names(b"a.example"), names(b"b.example")].concat()))),
        record(&message(&[0, 9, 0, 0])),
        record(&message(&sized(2, &[0, 0, 0, 1, 9]))),
    ] {
        assert_eq!(read(&octets), Err(Malformed), "{octets:?}");
    }
}

proptest! {
    #[test]
    fn whatever_comes_has_an_outcome(
        octets in proptest::collection::vec(any::<u8>(), 0..200), at in 0_usize..200, value: u8
    ) {
        let _ = read(&octets);
        let _ = read(&record(&message(&octets)));
        let mut hello = record(&message(&sized(2, &names(b"www.example.net"))));
        let at = at % hello.len();
        hello[at] = value;
        let _ = read(&hello);
    }
}
