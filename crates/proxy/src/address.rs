//! What an address stands for, and whether a stranger may have the proxy connect to it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fordway_xlat::addr::Pool6;

/// Networks of one host, one link or one site, and those that are no unicast: value and prefix length.
const SPECIAL_V4: &[(u32, u8)] = &[
    (0x0000_0000, 8),  // 0.0.0.0/8: this network; Linux connects to itself
    (0x0a00_0000, 8),  // 10.0.0.0/8: private (RFC 1918)
    (0x6440_0000, 10), // 100.64.0.0/10: shared (RFC 6598)
    (0x7f00_0000, 8),  // 127.0.0.0/8: loopback
    (0xa9fe_0000, 16), // 169.254.0.0/16: link-local; clouds' metadata
    (0xa83f_8110, 32), // 168.63.129.16: a cloud's own, which no list of networks has
    (0xac10_0000, 12), // 172.16.0.0/12: private
    (0xc000_0000, 24), // 192.0.0.0/24: protocol assignments (RFC 6890); a CLAT's own
    (0xc0a8_0000, 16), // 192.168.0.0/16: private
    (0xc612_0000, 15), // 198.18.0.0/15: between devices of one site (RFC 2544)
    (0xe000_0000, 4),  // 224.0.0.0/4: multicast
    (0xf000_0000, 4),  // 240.0.0.0/4: reserved, broadcast
];

const SPECIAL_V6: &[(u128, u8)] = &[
    (0, 128),                     // ::
    (1, 128),                     // ::1
    (0x0064_ff9b_0001 << 80, 48), // 64:ff9b:1::/48: translation within a site, of whatever (RFC 8215)
    (0x0100 << 112, 64),          // 100::/64: discard (RFC 6666)
    (0xfc00 << 112, 7),           // fc00::/7: unique local
    (0xfe80 << 112, 10),          // fe80::/10: link-local
    (0xfec0 << 112, 10),          // fec0::/10: site-local, once
    (0xff00 << 112, 8),           // ff00::/8: multicast
];

/// An address and the IPv4 address in it, if there is one: a connection to the one may reach the other.
///
/// Looked through are IPv4-mapped and IPv4-compatible addresses (RFC 4291 section 2.5.5), NAT64 with the well-known
/// prefix and with `pref64` (RFC 6052), 6to4 (RFC 3056), Teredo (RFC 4380) and ISATAP (RFC 5214).
pub(super) fn forms(address: IpAddr, pref64: &[Pool6]) -> [Option<IpAddr>; 2] {
    let IpAddr::V6(v6) = address else { return [Some(address), None] };
    [Some(address), embedded(v6, pref64).map(IpAddr::V4)]
}

fn embedded(address: Ipv6Addr, pref64: &[Pool6]) -> Option<Ipv4Addr> {
    let bits = address.to_bits();
    let low = Ipv4Addr::from_bits(bits as u32);
    let prefixes = pref64.iter().copied().chain([Pool6::WELL_KNOWN]);
    for prefix in prefixes {
        if prefix.contains(address) {
            return prefix.extract(address);
        }
    }
    match bits >> 96 {
        // ::ffff:0:0/96; ::/96, where :: and ::1 mean something else.
        0 if bits >> 32 == 0xffff || (bits >> 32 == 0 && bits > 1) => Some(low),
        // ::ffff:0:0:0/96, IPv4-translated (RFC 2765).
        0 if bits >> 32 == 0xffff_0000 => Some(low),
        top if top >> 16 == 0x2002 => Some(Ipv4Addr::from_bits((bits >> 80) as u32)),
        0x2001_0000 => Some(Ipv4Addr::from_bits(!(bits as u32))),
        // ISATAP: the interface identifier is 0000:5efe or 0200:5efe and an IPv4 address.
        _ if (bits >> 32) as u32 & !0x0200_0000 == 0x0000_5efe => Some(low),
        _ => None,
    }
}

/// Whether an address, taken as it is, belongs to one host, one link or one site, or is no unicast address.
pub(super) fn is_special(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            SPECIAL_V4.iter().any(|(net, len)| (v4.to_bits() ^ net) >> (32 - len) == 0)
        }
        IpAddr::V6(v6) => {
            SPECIAL_V6.iter().any(|(net, len)| (v6.to_bits() ^ net) >> (128 - len) == 0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any_special(text: &str) -> bool {
        let pref64 = ["2001:db8:64::/96".parse().unwrap(), "2001:db8:65::/48".parse().unwrap()];
        let forms = forms(text.parse().unwrap(), &pref64);
        forms.into_iter().flatten().any(is_special)
    }

    #[test]
    fn addresses_of_this_host_link_and_site_are_special() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.31.255.255",
            "192.0.0.1",
            "192.168.1.1",
            "168.63.129.16",
            "198.19.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "100::1",
            "fd00::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "64:ff9b:1::1",
        ] {
            assert!(any_special(text), "{text}");
        }
    }

    #[test]
    fn whatever_way_they_are_written() {
        for text in [
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::169.254.169.254",
            "2001:db8:64::192.168.1.1",
            // 127.0.0.1 in a /48.
            "2001:db8:65:7f00:0:100::",
            "2002:7f00:1::1",
            "2002:c0a8:101::1",
            // Teredo: !127.0.0.1 at the end.
            "2001:0:c000:201::80ff:fffe",
            "2001:db8::5efe:127.0.0.1",
            "2001:db8::200:5efe:127.0.0.1",
        ] {
            assert!(any_special(text), "{text}");
        }
    }

    #[test]
    fn hosts_of_the_internet_are_not() {
        for text in [
            "192.0.2.1",
            "198.51.100.1",
            "172.32.0.1",
            "100.128.0.1",
            "2001:db8::1",
            "64:ff9b::192.0.2.1",
            "2002:c000:201::1",
            "::ffff:192.0.2.1",
            "2001:db8:64::192.0.2.1",
        ] {
            assert!(!any_special(text), "{text}");
        }
    }
}
