extern crate std;

mod designated;

use core::net::Ipv6Addr;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// An option as a test draws it.
#[derive(Clone, Debug)]
enum Drawn {
    Source(Vec<u8>),
    Target(Vec<u8>),
    Prefix(PrefixInformation),
    Mtu(u32),
    Route(RouteInformation),
    Rdnss(u32, Vec<Ipv6Addr>),
    Dnssl(u32, Vec<Vec<Vec<u8>>>),
    Pref64(Pref64),
    CaptivePortal(String),
    EncryptedDns(u16, u32, Vec<Vec<u8>>, Vec<Ipv6Addr>, Vec<u8>),
}

impl Drawn {
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Drawn::Source(address) => writer.source_link_layer(address),
            Drawn::Target(address) => writer.target_link_layer(address),
            Drawn::Prefix(info) => writer.prefix(info),
            Drawn::Mtu(mtu) => writer.mtu(*mtu),
            Drawn::Route(route) => writer.route(route),
            Drawn::Rdnss(lifetime, addresses) => writer.rdnss(*lifetime, addresses),
            Drawn::Dnssl(lifetime, names) => {
                writer.dnssl(*lifetime, names.iter().map(|n| n.iter().map(Vec::as_slice)))
            }
            Drawn::Pref64(pref64) => writer.pref64(pref64),
            Drawn::CaptivePortal(uri) => writer.captive_portal(uri),
            Drawn::EncryptedDns(priority, lifetime, name, addresses, params) => {
                let name = name.iter().map(Vec::as_slice);
                writer.encrypted_dns(*priority, *lifetime, name, addresses, params)
            }
        }
    }

    fn assert_is(&self, read: &NdOption<'_>) {
        match (self, read) {
            (Drawn::Source(a), NdOption::SourceLinkLayer(b))
            | (Drawn::Target(a), NdOption::TargetLinkLayer(b)) => {
                assert!(b.starts_with(a) && b[a.len()..].iter().all(|&o| o == 0));
            }
            (Drawn::Prefix(a), NdOption::Prefix(b)) => assert_eq!(a, b),
            (Drawn::Mtu(a), NdOption::Mtu(b)) => assert_eq!(a, b),
            (Drawn::Route(a), NdOption::Route(b)) => assert_eq!(a, b),
            (Drawn::Rdnss(lifetime, a), NdOption::Rdnss(b)) => {
                assert_eq!((*lifetime, a), (b.lifetime, &b.addresses().collect()));
            }
            (Drawn::Dnssl(lifetime, a), NdOption::Dnssl(b)) => {
                let names: Vec<Vec<Vec<u8>>> =
                    b.names().map(|n| n.labels().map(<[u8]>::to_vec).collect()).collect();
                assert_eq!((*lifetime, a), (b.lifetime, &names));
            }
            (Drawn::Pref64(a), NdOption::Pref64(b)) => assert_eq!(a, b),
            (Drawn::CaptivePortal(a), NdOption::CaptivePortal(b)) => assert_eq!(a, b),
            (Drawn::EncryptedDns(priority, lifetime, name, addresses, params), read) => {
                let NdOption::EncryptedDns(b) = read else {
                    panic!("{self:?} was read as {read:?}")
                };
                let labels: Vec<Vec<u8>> = b.name.labels().map(<[u8]>::to_vec).collect();
                assert_eq!((*priority, *lifetime), (b.priority, b.lifetime));
                assert_eq!((name, addresses), (&labels, &b.addresses().collect()));
                assert_eq!(params, b.params);
            }
            _ => panic!("{self:?} was read as {read:?}"),
        }
    }
}

fn prefix_of(bits: u128, len: u8) -> Ipv6Addr {
    option::mask(Ipv6Addr::from_bits(bits), len)
}

fn preference() -> impl Strategy<Value = Preference> {
    prop::sample::select(vec![Preference::Low, Preference::Medium, Preference::High])
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let unicast = any::<u128>().prop_map(|bits| Ipv6Addr::from_bits(bits >> 3 | 1 << 125));
    let label = prop::collection::vec(any::<u8>(), 1..20);
    let name = prop::collection::vec(label, 1..6);
    let one_name = name.clone();
    let some = prop::collection::vec(unicast.clone(), 0..4);
    let params =
        prop::collection::btree_map(any::<u16>(), prop::collection::vec(any::<u8>(), 0..9), 0..4)
            .prop_map(|all| {
                let one = |(key, value): (u16, Vec<u8>)| {
                    [&key.to_be_bytes()[..], &(value.len() as u16).to_be_bytes(), &value].concat()
                };
                all.into_iter().flat_map(one).collect::<Vec<u8>>()
            });
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20).prop_map(Drawn::Source),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(Drawn::Target),
        (any::<u128>(), 0..=128u8, any::<(bool, bool, u32, u32)>()).prop_map(
            |(bits, len, rest)| {
                let (on_link, autonomous, a, b) = rest;
                Drawn::Prefix(PrefixInformation {
                    prefix: prefix_of(bits, len),
                    prefix_len: len,
                    on_link,
                    autonomous,
                    valid_lifetime: a.max(b),
                    preferred_lifetime: a.min(b),
                })
            }
        ),
        any::<u32>().prop_map(Drawn::Mtu),
        (any::<u128>(), 0..=128u8, preference(), any::<u32>()).prop_map(
            |(bits, len, preference, lifetime)| Drawn::Route(RouteInformation {
                prefix: prefix_of(bits, len),
                prefix_len: len,
                preference,
                lifetime,
            })
        ),
        (any::<u32>(), prop::collection::vec(unicast, 1..6)).prop_map(|(l, a)| Drawn::Rdnss(l, a)),
        (any::<u32>(), prop::collection::vec(name, 1..4)).prop_map(|(l, n)| Drawn::Dnssl(l, n)),
        (any::<u128>(), prop::sample::select(vec![96u8, 64, 56, 48, 40, 32]), any::<u16>())
            .prop_map(|(bits, len, seconds)| {
                let lifetime = ScaledLifetime::from_seconds(u32::from(seconds));
                Drawn::Pref64(
                    Pref64::new(bits.into(), len, lifetime).expect("a length of RFC 6052"),
                )
            }),
        "https://[a-z]{1,20}/[a-z?=]{0,40}".prop_map(Drawn::CaptivePortal),
        (any::<u16>(), any::<u32>(), one_name, some, params)
            .prop_map(|(p, l, n, a, s)| Drawn::EncryptedDns(p, l, n, a, s)),
    ]
}

fn advertisement() -> impl Strategy<Value = Advertisement> {
    (any::<(u8, bool, bool, u16, u32, u32)>(), preference()).prop_map(|(rest, preference)| {
        let (cur_hop_limit, managed, other, router_lifetime, reachable_time, retrans_timer) = rest;
        let preference = if router_lifetime == 0 { Preference::Medium } else { preference };
        Advertisement {
            cur_hop_limit,
            managed,
            other,
            preference,
            router_lifetime,
            reachable_time,
            retrans_timer,
        }
    })
}

fn build<'b>(
    buffer: &'b mut [u8],
    advertisement: &Advertisement,
    options: &[Drawn],
) -> Result<&'b [u8], NoRoom> {
    let mut writer = Writer::advertisement(buffer, advertisement)?;
    for option in options {
        option.write(&mut writer)?;
    }
    Ok(writer.finish(ROUTER, ALL_NODES))
}

/// Reads everything there is to read.
fn exhaust(options: Options<'_>) -> usize {
    let mut seen = 0;
    for option in options {
        seen += match option {
            NdOption::Rdnss(rdnss) => rdnss.addresses().count(),
            NdOption::Dnssl(dnssl) => {
                dnssl.names().map(|n| n.to_string().len() + n.labels().count()).sum()
            }
            _ => 1,
        };
    }
    seen
}

proptest! {
    /// What is written is read back, and its checksum is right.
    #[test]
    fn an_advertisement_goes_round(
        fields in advertisement(),
        options in prop::collection::vec(drawn(), 0..8),
    ) {
        let mut buffer = [0xa5; 8192];
        let message = build(&mut buffer, &fields, &options).expect("room for all");
        prop_assert!(checksum_is_valid(ROUTER, ALL_NODES, message));
        let written = u16::from_be_bytes([message[2], message[3]]);
        prop_assert_eq!(checksum(ROUTER, ALL_NODES, message), written);
        let (read, rest) = Advertisement::receive(ROUTER, 255, message).expect("well formed");
        prop_assert_eq!(read, fields);
        let read: Vec<NdOption<'_>> = rest.collect();
        prop_assert_eq!(read.len(), options.len());
        for (option, read) in options.iter().zip(&read) {
            option.assert_is(read);
        }
    }

    /// A buffer that is too short makes the option that does not fit leave no trace.
    #[test]
    fn no_room_leaves_no_trace(
        options in prop::collection::vec(drawn(), 0..6),
        room in 16..400usize,
    ) {
        let mut buffer = [0xa5; 400];
        let mut writer =
            Writer::advertisement(&mut buffer[..room], &Advertisement::default()).expect("16 fit");
        let mut fitting = Vec::new();
        for option in &options {
            let before = writer.len();
            match option.write(&mut writer) {
                Ok(()) => fitting.push(option),
                Err(NoRoom) => prop_assert_eq!(writer.len(), before),
            }
        }
        let message = writer.finish(ROUTER, ALL_NODES);
        let (_, rest) = Advertisement::parse(message).expect("well formed");
        let read: Vec<NdOption<'_>> = rest.collect();
        prop_assert_eq!(read.len(), fitting.len());
        for (option, read) in fitting.iter().zip(&read) {
            option.assert_is(read);
        }
    }

    /// A message with octets changed, cut or made longer is refused or read, and never panics.
    #[test]
    fn mutations_never_panic(
        options in prop::collection::vec(drawn(), 0..6),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        keep in any::<prop::sample::Index>(),
        more in prop::collection::vec(any::<u8>(), 0..24),
    ) {
        let mut buffer = [0; 8192];
        let message = build(&mut buffer, &Advertisement::default(), &options).expect("room");
        let mut message = message.to_vec();
        for (at, octet) in changes {
            let at = at.index(message.len());
            message[at] = octet;
        }
        message.extend(more);
        message.truncate(keep.index(message.len()) + 1);
        if let Ok((_, options)) = Advertisement::parse(&message) {
            exhaust(options);
        }
        message[0] = ROUTER_SOLICITATION;
        if let Ok(options) = solicitation::receive(Ipv6Addr::UNSPECIFIED, 255, &message) {
            exhaust(options);
        }
    }

    /// Octets from nowhere, behind a front that lets the options be looked at.
    #[test]
    fn random_options_never_panic(kind in any::<u8>(), len in 1..5u8, body in prop::collection::vec(any::<u8>(), 40)) {
        let mut message = [0u8; 16].to_vec();
        message[0] = ROUTER_ADVERTISEMENT;
        message.extend([kind, len]);
        message.extend(&body[..usize::from(len) * 8 - 2]);
        let (_, options) = Advertisement::parse(&message).expect("one option");
        prop_assert_eq!(options.clone().count(), 1);
        exhaust(options);
    }
}

fn options_of(octets: &[u8]) -> Result<Vec<NdOption<'_>>, NdpError> {
    Options::new(octets).map(Iterator::collect)
}

#[test]
fn zero_length_refuses_the_whole_message() {
    let mut message = [0u8; 24].to_vec();
    message[0] = ROUTER_ADVERTISEMENT;
    message[16..].copy_from_slice(&[1, 1, 0, 0, 0, 0, 0, 1]);
    assert!(Advertisement::parse(&message).is_ok());
    message.extend([200, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Advertisement::parse(&message).err(), Some(NdpError::OptionLength));
    // One that goes beyond the end, and one octet that is no option.
    message[25] = 2;
    assert_eq!(Advertisement::parse(&message).err(), Some(NdpError::OptionLength));
    assert_eq!(Advertisement::parse(&message[..25]).err(), Some(NdpError::OptionLength));
}

#[test]
fn received_messages_are_checked() {
    let mut buffer = [0; 64];
    let message = build(&mut buffer, &Advertisement::default(), &[]).expect("room").to_vec();
    let global = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    let refused = |src, hops, message: &[u8]| Advertisement::receive(src, hops, message).err();
    assert_eq!(refused(ROUTER, 255, &message), None);
    assert_eq!(refused(ROUTER, 254, &message), Some(NdpError::HopLimit));
    assert_eq!(refused(global, 255, &message), Some(NdpError::Source));
    assert_eq!(refused(Ipv6Addr::UNSPECIFIED, 255, &message), Some(NdpError::Source));
    assert_eq!(refused(ROUTER, 255, &message[..15]), Some(NdpError::Truncated));
    let with = |at: usize, octet| {
        let mut changed = message.clone();
        changed[at] = octet;
        changed
    };
    assert_eq!(refused(ROUTER, 255, &with(0, 133)), Some(NdpError::Type));
    assert_eq!(refused(ROUTER, 255, &with(1, 1)), Some(NdpError::Code));

    let mut buffer = [0; 64];
    let writer = Writer::solicitation(&mut buffer).expect("room");
    let bare = writer.finish(ROUTER, ALL_ROUTERS).to_vec();
    let mut buffer = [0; 64];
    let mut writer = Writer::solicitation(&mut buffer).expect("room");
    writer.source_link_layer(&[2, 0, 0, 0, 0, 1]).expect("room");
    let named = writer.finish(ROUTER, ALL_ROUTERS).to_vec();
    let refused = |src, hops, message: &[u8]| solicitation::receive(src, hops, message).err();
    assert_eq!(refused(Ipv6Addr::UNSPECIFIED, 255, &bare), None);
    assert_eq!(refused(global, 255, &named), None);
    assert_eq!(refused(Ipv6Addr::UNSPECIFIED, 255, &named), Some(NdpError::LinkLayerWithoutSource));
    assert_eq!(refused(ALL_NODES, 255, &named), Some(NdpError::Source));
    assert_eq!(refused(ROUTER, 64, &bare), Some(NdpError::HopLimit));
    assert_eq!(refused(ROUTER, 255, &bare[..7]), Some(NdpError::Truncated));
    assert_eq!(refused(ROUTER, 255, &message), Some(NdpError::Type));
}

#[test]
fn preference_of_no_default_router_is_medium() {
    let mut octets = [0u8; 16];
    octets[0] = ROUTER_ADVERTISEMENT;
    for (flags, lifetime, expected) in [
        (0b0000_1000, 1800u16, Preference::High),
        (0b0001_1000, 1800, Preference::Low),
        (0b0001_0000, 1800, Preference::Medium),
        (0b0000_1000, 0, Preference::Medium),
    ] {
        octets[5] = flags;
        octets[6..8].copy_from_slice(&lifetime.to_be_bytes());
        let (read, _) = Advertisement::parse(&octets).expect("well formed");
        assert_eq!(read.preference, expected, "flags {flags:08b}, lifetime {lifetime}");
    }
    // Nor is it sent.
    let mut buffer = [0; 16];
    let fields = Advertisement { preference: Preference::High, ..Advertisement::default() };
    assert_eq!(build(&mut buffer, &fields, &[]).expect("room")[5], 0);
}

#[test]
fn pref64_of_every_length() {
    for (plc, len) in [(0u8, 96u8), (1, 64), (2, 56), (3, 48), (4, 40), (5, 32)] {
        // Scaled Lifetime 225 is 1800 seconds.
        let first = (225u16 << 3 | u16::from(plc)).to_be_bytes();
        let mut octets = vec![38, 2, first[0], first[1]];
        octets.extend([0x20, 0x01, 0x0d, 0xb8, 0x11, 0x22, 0x33, 0x44, 0x00, 0x55, 0x66, 0x77]);
        let read = options_of(&octets).expect("one option");
        let NdOption::Pref64(pref64) = read[0] else { panic!("{read:?}") };
        assert_eq!((pref64.prefix_len(), pref64.lifetime().seconds()), (len, 1800));
        let whole = "2001:db8:1122:3344:55:6677::".parse::<Ipv6Addr>().expect("an address");
        assert_eq!(pref64.prefix(), option::mask(whole, len), "/{len}");
    }
    for plc in [6, 7] {
        let mut octets = vec![38, 2, 0, plc];
        octets.extend([0; 12]);
        assert_eq!(options_of(&octets), Ok(vec![NdOption::Malformed { kind: 38 }]));
    }
    // A length other than 2.
    let octets: Vec<u8> = [38, 3].into_iter().chain([0; 22]).collect();
    assert_eq!(options_of(&octets), Ok(vec![NdOption::Malformed { kind: 38 }]));
    assert_eq!(Pref64::new(ROUTER, 65, ScaledLifetime::MAX), None);
}

#[test]
fn scaled_lifetimes_round_up() {
    for (seconds, scaled) in [
        (0, 0),
        (1, 8),
        (7, 8),
        (8, 8),
        (9, 16),
        (1800, 1800),
        (65528, 65528),
        (65529, 65528),
        (u32::MAX, 65528),
    ] {
        assert_eq!(ScaledLifetime::from_seconds(seconds).seconds(), scaled, "{seconds} s");
    }
    assert_eq!(ScaledLifetime::of_interval(600).seconds(), 1800);
    assert_eq!(ScaledLifetime::of_interval(5).seconds(), 16);
    assert_eq!(ScaledLifetime::of_interval(u16::MAX), ScaledLifetime::MAX);
}

#[test]
fn options_with_wrong_lengths_are_ignored_alone() {
    let of = |kind: u8, units: u8| {
        let mut octets = vec![0u8; usize::from(units) * 8];
        octets[0] = kind;
        octets[1] = units;
        octets
    };
    for (kind, wrong) in [
        (3, &[1u8, 2, 3, 5][..]),
        (5, &[2, 3]),
        (24, &[4]),
        (25, &[1, 2, 4]),
        (31, &[1]),
        (38, &[1, 3]),
    ] {
        for &units in wrong {
            let octets = of(kind, units);
            assert_eq!(
                options_of(&octets),
                Ok(vec![NdOption::Malformed { kind }]),
                "length {units}"
            );
        }
    }
    // A route longer than its option, and one with the reserved preference.
    for (units, prefix_len, flags, good) in [
        (1, 0, 0, true),
        (1, 1, 0, false),
        (2, 64, 0, true),
        (2, 65, 0, false),
        (3, 128, 0x08, true),
        (3, 129, 0, false),
        (3, 0, 0x18, true),
        (3, 64, 0x10, false),
    ] {
        let mut octets = of(24, units);
        octets[2] = prefix_len;
        octets[3] = flags;
        let read = options_of(&octets).expect("one option");
        assert_eq!(matches!(read[0], NdOption::Route(_)), good, "{units} {prefix_len} {flags:02x}");
    }
    let mut octets = of(3, 4);
    octets[2] = 129;
    assert_eq!(options_of(&octets), Ok(vec![NdOption::Malformed { kind: 3 }]));
    assert_eq!(
        options_of(&[77, 1, 1, 2, 3, 4, 5, 6]),
        Ok(vec![NdOption::Unknown { kind: 77, body: &[1, 2, 3, 4, 5, 6] }])
    );
}

#[test]
fn rdnss_of_a_multicast_address_is_none() {
    for address in [ALL_NODES, Ipv6Addr::UNSPECIFIED] {
        let mut octets = vec![25, 3, 0, 0, 0, 0, 7, 8];
        octets.extend(address.octets());
        assert_eq!(options_of(&octets), Ok(vec![NdOption::Malformed { kind: 25 }]));
    }
}

fn dnssl(names: &[u8]) -> Vec<u8> {
    let mut octets = vec![31, 0, 0, 0, 0, 0, 7, 8];
    octets.extend(names);
    octets.resize(octets.len().next_multiple_of(8), 0);
    octets[1] = (octets.len() / 8) as u8;
    octets
}

#[test]
fn dnssl_labels() {
    let octets = dnssl(b"\x07example\x03net\0\x04with\x03d.t\0");
    let read = options_of(&octets).expect("one option");
    let NdOption::Dnssl(list) = read[0] else { panic!("{read:?}") };
    let names: Vec<String> = list.names().map(|n| n.to_string()).collect();
    assert_eq!(names, ["example.net", "with.d\\046t"]);
    assert_eq!(list.lifetime, 1800);

    let label = "\x3f".to_string() + &"a".repeat(63);
    let long = label.clone() + "\0";
    let four = label.repeat(4) + "\0";
    let just = label.repeat(3) + "\x3d" + &"a".repeat(61) + "\0";
    for (name, good) in [
        (long.as_bytes(), true),
        (just.as_bytes(), true),
        (four.as_bytes(), false),
        // Compression, a label that goes beyond the option, a name without an end, nothing.
        (b"\x07example\xc0\x00".as_slice(), false),
        (b"\x20example", false),
        (b"\x07example\x03net\x03com", false),
        (b"\0\0\0\0\0\0\0\0", false),
    ] {
        let octets = dnssl(name);
        let read = options_of(&octets).expect("one option");
        assert_eq!(matches!(read[0], NdOption::Dnssl(_)), good, "{name:02x?}");
    }
}

#[test]
fn names_that_cannot_be_written() {
    let mut buffer = [0; 1024];
    let mut writer = Writer::solicitation(&mut buffer).expect("room");
    let label = [b'a'; 64];
    let long = [&label[..63]; 4];
    assert_eq!(writer.dnssl(1, [[&label[..]]]), Err(NoRoom));
    assert_eq!(writer.dnssl(1, [[&b""[..]]]), Err(NoRoom));
    assert_eq!(writer.dnssl(1, [[&b""[..]; 0]]), Err(NoRoom));
    assert_eq!(writer.dnssl(1, [long]), Err(NoRoom));
    assert_eq!(writer.len(), SOLICITATION_LEN);
    assert_eq!(writer.dnssl(1, [[&b"example"[..], b"net"]]), Ok(()));
    assert_eq!(writer.len(), SOLICITATION_LEN + 8 + 16);
    // Too many for one option, whose length counts to 255.
    let mut large = [0; 4096];
    let mut writer = Writer::solicitation(&mut large).expect("room");
    assert_eq!(writer.rdnss(1, &[ROUTER; 128]), Err(NoRoom));
    assert_eq!(writer.rdnss(1, &[ROUTER; 127]), Ok(()));
    assert_eq!(writer.rdnss(1, &[]), Ok(()));
    assert_eq!(writer.len(), SOLICITATION_LEN + 255 * 8);
}
