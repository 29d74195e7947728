//! Router advertisements and solicitations: any octets are refused or read, and what was read can be
//! written again and reads the same.

use fordway_dns64::ndp::{Advertisement, NdOption, NoRoom, Writer, solicitation};

/// Longest message that is tried; what was read fits into twice as much when it is written.
const LONGEST: usize = 4096;

/// Any octets as the ICMPv6 message of a router or a host. The first octet chooses: an advertisement
/// (even) or a solicitation (odd).
pub fn router(data: &[u8]) {
    let [chooses, message @ ..] = data else {
        return;
    };
    if message.len() > LONGEST {
        return;
    }
    let mut buffer = [0; 2 * LONGEST];
    if chooses & 1 == 0 {
        let mut message = message.to_vec();
        front(&mut message, 134);
        let Ok((fields, options)) = Advertisement::parse(&message) else {
            return;
        };
        let read: Vec<NdOption<'_>> = options.collect();
        let mut writer = Writer::advertisement(&mut buffer, &fields).expect("room for the front");
        write(&read, &mut writer);
        let again = writer.finish([0; 16].into(), [0; 16].into());
        let (fields_again, options_again) = Advertisement::parse(again).expect("what was written");
        assert_eq!(fields, fields_again);
        same(&read, &options_again.collect::<Vec<_>>());
    } else {
        let mut message = message.to_vec();
        front(&mut message, 133);
        let Ok(options) = solicitation::parse(&message) else {
            return;
        };
        let read: Vec<NdOption<'_>> = options.collect();
        let mut writer = Writer::solicitation(&mut buffer).expect("room for the front");
        write(&read, &mut writer);
        let again = writer.finish([0; 16].into(), [0; 16].into());
        let again: Vec<_> = solicitation::parse(again).expect("what was written").collect();
        same(&read, &again);
    }
}

/// Type and code, which nearly no mutation would leave right.
fn front(message: &mut [u8], kind: u8) {
    if let [first, code, ..] = message {
        (*first, *code) = (kind, 0);
    }
}

/// Writes what can be written: all that was read but unknown and malformed options.
fn write(read: &[NdOption<'_>], writer: &mut Writer<'_>) {
    for option in read {
        let written = match option {
            NdOption::SourceLinkLayer(address) => writer.source_link_layer(address),
            NdOption::TargetLinkLayer(address) => writer.target_link_layer(address),
            NdOption::Prefix(info) => writer.prefix(info),
            NdOption::Mtu(mtu) => writer.mtu(*mtu),
            NdOption::Route(route) => writer.route(route),
            NdOption::Rdnss(rdnss) => {
                writer.rdnss(rdnss.lifetime, &rdnss.addresses().collect::<Vec<_>>())
            }
            NdOption::Dnssl(dnssl) => {
                // Their text is made for every name, too.
                let text: usize = dnssl.names().map(|name| name.to_string().len()).sum();
                assert!(text > 0);
                writer.dnssl(dnssl.lifetime, dnssl.names().map(|name| name.labels()))
            }
            NdOption::Pref64(pref64) => writer.pref64(pref64),
            NdOption::CaptivePortal(uri) => writer.captive_portal(uri),
            NdOption::EncryptedDns(it) => {
                let addresses: Vec<_> = it.addresses().collect();
                let labels = it.name.labels();
                writer.encrypted_dns(it.priority, it.lifetime, labels, &addresses, it.params)
            }
            NdOption::Unknown { .. } | NdOption::Malformed { .. } => Ok(()),
        };
        assert_eq!(written, Ok::<(), NoRoom>(()), "{option:?}");
    }
}

/// Whether both say the same, in the same order.
fn same(read: &[NdOption<'_>], again: &[NdOption<'_>]) {
    let known: Vec<&NdOption<'_>> = read
        .iter()
        .filter(|it| !matches!(it, NdOption::Unknown { .. } | NdOption::Malformed { .. }))
        .collect();
    assert_eq!(known.len(), again.len(), "{read:?} became {again:?}");
    for (one, two) in known.into_iter().zip(again) {
        match (one, two) {
            (NdOption::Dnssl(a), NdOption::Dnssl(b)) => {
                assert_eq!(a.lifetime, b.lifetime);
                assert!(a.names().eq(b.names()), "{a:?} became {b:?}");
            }
            // A preferred lifetime beyond the valid one is cut down to it.
            (NdOption::Prefix(a), NdOption::Prefix(b)) => {
                let preferred_lifetime = a.preferred_lifetime.min(a.valid_lifetime);
                let expected = fordway_dns64::ndp::PrefixInformation { preferred_lifetime, ..*a };
                assert_eq!(expected, *b);
            }
            // Addresses that no resolver has are left out.
            (NdOption::EncryptedDns(a), NdOption::EncryptedDns(b)) => {
                assert_eq!((a.priority, a.lifetime, a.name), (b.priority, b.lifetime, b.name));
                assert!(a.addresses().eq(b.addresses()) && a.params == b.params);
            }
            (a, b) => assert_eq!(a, b),
        }
    }
}
