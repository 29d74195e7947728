use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::resolver::tests::resolver;

const DUID: [u8; 10] = [0, 3, 0, 1, 2, 0, 0, 0, 0, 1];

fn servers() -> Vec<Ipv6Addr> {
    vec!["2001:db8::53".parse().unwrap()]
}

fn names() -> Vec<Name> {
    vec!["a.example.net.".parse().unwrap(), "b.example.net.".parse().unwrap()]
}

fn ask(request: &[u8]) -> Result<Vec<u8>, Ignored> {
    let told = Told { servers: &servers(), names: &names(), ..Told::default() };
    reply(request, &DUID, told)
}

/// INFORMATION-REQUEST with options.
fn request(options: &[(u16, &[u8])]) -> Vec<u8> {
    let mut message = vec![11, 7, 8, 9];
    for (code, data) in options {
        message.extend(code.to_be_bytes());
        message.extend((data.len() as u16).to_be_bytes());
        message.extend(*data);
    }
    message
}

/// The options of a reply, by code.
fn options(reply: &[u8]) -> Vec<(u16, Vec<u8>)> {
    assert_eq!(&reply[..4], &[7, 7, 8, 9]);
    let (mut rest, mut found) = (&reply[4..], Vec::new());
    while let [a, b, c, d, behind @ ..] = rest {
        let (data, next) = behind.split_at(usize::from(u16::from_be_bytes([*c, *d])));
        found.push((u16::from_be_bytes([*a, *b]), data.to_vec()));
        rest = next;
    }
    found
}

#[test]
fn names_are_not_compressed() {
    let found = options(&ask(&request(&[(6, &[0, 24])])).unwrap());
    let plain = b"\x01a\x07example\x03net\0\x01b\x07example\x03net\0".to_vec();
    assert_eq!(found, [(2, DUID.to_vec()), (24, plain)]);
}

#[test]
fn what_is_asked_for_is_answered_and_nothing_more() {
    let codes = |message: &[u8]| -> Vec<u16> {
        options(&ask(message).unwrap()).into_iter().map(|(code, _)| code).collect()
    };
    assert_eq!(codes(&request(&[])), [2, 23, 24, 32]);
    assert_eq!(codes(&request(&[(6, &[0, 23])])), [2, 23]);
    assert_eq!(codes(&request(&[(6, &[0, 32, 0, 99])])), [2, 32]);
    assert_eq!(codes(&request(&[(6, &[0, 99]), (1, &[0, 3, 9])])), [1, 2]);
    // Options that nobody knows are passed over.
    assert_eq!(codes(&request(&[(999, &[1, 2, 3]), (6, &[0, 23])])), [2, 23]);
    // Also where they can't be what they are: the library would not survive these.
    assert_eq!(codes(&request(&[(16, &[]), (13, &[1]), (7, &[]), (6, &[0, 23])])), [2, 23]);
    // At least ten minutes.
    let all = options(&ask(&request(&[])).unwrap());
    assert_eq!(all[3], (32, 3600u32.to_be_bytes().to_vec()));
    let none = reply(&request(&[]), &DUID, Told::default()).unwrap();
    assert_eq!(options(&none).iter().map(|it| it.0).collect::<Vec<_>>(), [2, 32]);
}

#[test]
fn encrypted_resolvers_and_a_captive_portal_are_told() {
    let resolvers = [resolver("a.example."), resolver("b.example.")];
    let uri = "https://portal.example.net/api";
    let told = Told { resolvers: &resolvers, captive_portal: Some(uri), ..Told::default() };
    let of = |wanted: &[u8]| options(&reply(&request(&[(6, wanted)]), &DUID, told).unwrap());
    let found = of(&[0, 103, 0, 144]);
    assert_eq!(found[..2], [(2, DUID.to_vec()), (103, uri.as_bytes().to_vec())]);
    // Priorities say which comes first, not their order here.
    assert!(resolvers.iter().all(|it| found[2..].contains(&(144, it.dhcpv6()))));
    assert_eq!(found.len(), 4);
    assert_eq!(of(&[0, 103]).len(), 2);
    assert_eq!(of(&[0, 24]).len(), 1);
}

#[test]
fn what_is_ignored() {
    assert_eq!(ask(&[]), Err(Ignored::Malformed));
    assert_eq!(ask(&[1, 2, 3, 4]), Err(Ignored::Type));
    assert_eq!(ask(&[12; 60]), Err(Ignored::Type));
    assert_eq!(ask(&[11, 0]), Err(Ignored::Malformed));
    assert_eq!(ask(&[11, 0, 0, 0, 0]), Err(Ignored::Malformed));
    assert_eq!(ask(&[11, 0, 0, 0, 0, 6, 0, 9, 0]), Err(Ignored::Malformed));
    assert_eq!(ask(&request(&[(2, &[0, 3, 0, 1, 9])])), Err(Ignored::Server));
    assert!(ask(&request(&[(2, &DUID)])).is_ok());
    assert_eq!(ask(&request(&[(3, &[0; 12])])), Err(Ignored::Association));
    assert_eq!(ask(&request(&[(4, &[0; 4])])), Err(Ignored::Association));
    assert_eq!(ask(&request(&[(25, &[0; 12])])), Err(Ignored::Association));
    assert_eq!(ask(&request(&[(1, &[0; 131])])), Err(Ignored::Malformed));
}

#[test]
fn an_identifier_is_the_same_at_every_start() {
    assert_eq!(duid(Some([2, 0, 0, 0, 0, 1]), [0; 16]), DUID);
    let random = duid(None, [9; 16]);
    assert_eq!((random.len(), &random[..3]), (18, &[0, 4, 9][..]));
}

#[test]
fn the_rate_holds_over_time() {
    let start = Instant::now();
    let mut rate = Bucket::default();
    let mut admitted = 0;
    // A thousand a second, for four seconds.
    for at in 0..4000 {
        admitted += u32::from(admit(&mut rate, start + Duration::from_millis(at)));
    }
    assert!(
        (BURST + 4 * PER_SECOND - 2..=BURST + 4 * PER_SECOND).contains(&admitted),
        "{admitted}"
    );
    // A pause gives the burst back, and no more.
    let later = start + Duration::from_secs(3600);
    let again = (0..500).filter(|_| admit(&mut rate, later)).count();
    assert_eq!(again, BURST as usize);
}

proptest! {
    /// Any octets are answered or ignored; an answer has the transaction and this server's name.
    #[test]
    fn any_request_is_survived(
        octets in prop::collection::vec(any::<u8>(), 0..300),
        options in prop::collection::vec(
            (prop_oneof![0u16..40, any::<u16>()], prop::collection::vec(any::<u8>(), 0..40)), 0..6),
    ) {
        let _any = ask(&octets);
        let options: Vec<(u16, &[u8])> = options.iter().map(|(c, d)| (*c, d.as_slice())).collect();
        if let Ok(reply) = ask(&request(&options)) {
            prop_assert!(super::tests::options(&reply).contains(&(2, DUID.to_vec())));
        }
    }
}
