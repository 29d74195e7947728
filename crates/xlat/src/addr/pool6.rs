//! IPv4-embedded IPv6 addresses (RFC 6052).

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use ipnet::Ipv6Net;

/// A translation prefix (pool6, pref64): an IPv6 prefix of 32, 40, 48, 56, 64 or 96 bits.
///
/// ```text
/// +--+---+---+---+---+---+---+---+---+---+---+---+---+---+---+---+---+
/// |PL| 0-------------32--40--48--56--64--72--80--88--96--104---------|
/// +--+---+---+---+---+---+---+---+---+---+---+---+---+---+---+---+---+
/// |32|     prefix    |v4(32)         | u | suffix                    |
/// |40|     prefix        |v4(24)     | u |(8)| suffix                |
/// |48|     prefix            |v4(16) | u | (16)  | suffix            |
/// |56|     prefix                |(8)| u |  v4(24)   | suffix        |
/// |64|     prefix                    | u |   v4(32)      | suffix    |
/// |96|     prefix                                    |    v4(32)     |
/// +--+---+---+---+---+---+---+---+---+---+---+---+---+---+---+---+---+
/// ```
///
/// Source: RFC 6052 section 2.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pool6 {
    bits: u128,
    len: u8,
}

/// Why a prefix can't be a translation prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Pool6Error {
    /// Not `ADDRESS/LENGTH`.
    #[error("not an IPv6 prefix; write ADDRESS/LENGTH, such as 64:ff9b::/96")]
    Syntax,
    /// The length is none of those that RFC 6052 allows.
    #[error(
        "a translation prefix has 32, 40, 48, 56, 64 or 96 bits, not {0} (RFC 6052 section 2.2)"
    )]
    Length(u8),
    /// Host bits.
    #[error("bits are set behind the prefix length")]
    HostBits,
    /// The octet "u" is not zero.
    #[error("bits 64 to 71 of a /96 must be zero (RFC 6052 section 2.2)")]
    ReservedOctet,
    /// A multicast, link-local, loopback or unspecified prefix.
    #[error("not a unicast prefix of global or local use")]
    NotUnicast,
}

/// Bits 64 to 71, the octet "u".
const RESERVED_OCTET: u128 = 0xff << 56;

impl Pool6 {
    /// The Well-Known Prefix, 64:ff9b::/96 (RFC 6052 section 2.1).
    pub const WELL_KNOWN: Pool6 = Pool6 { bits: 0x0064_ff9b << 96, len: 96 };

    /// A translation prefix of this value.
    pub fn new(net: Ipv6Net) -> Result<Pool6, Pool6Error> {
        let (addr, len) = (net.addr(), net.prefix_len());
        if !matches!(len, 32 | 40 | 48 | 56 | 64 | 96) {
            return Err(Pool6Error::Length(len));
        }
        if net.network() != addr {
            return Err(Pool6Error::HostBits);
        }
        if addr.to_bits() & RESERVED_OCTET != 0 {
            return Err(Pool6Error::ReservedOctet);
        }
        if addr.is_multicast() || addr.is_unicast_link_local() || addr.to_bits() >> 96 == 0 {
            return Err(Pool6Error::NotUnicast);
        }
        Ok(Pool6 { bits: addr.to_bits(), len })
    }

    /// Prefix length in bits.
    #[allow(clippy::len_without_is_empty, reason = "a prefix length, not a container's")]
    pub fn len(self) -> u8 {
        self.len
    }

    /// The prefix as a network.
    pub fn net(self) -> Ipv6Net {
        // The length is one of six constants, all valid.
        Ipv6Net::new(Ipv6Addr::from_bits(self.bits), self.len).unwrap_or_default()
    }

    /// Whether this is 64:ff9b::/96.
    #[inline]
    pub fn is_well_known(self) -> bool {
        self == Pool6::WELL_KNOWN
    }

    /// Whether `addr` begins with the prefix.
    #[inline]
    pub fn contains(self, addr: Ipv6Addr) -> bool {
        (addr.to_bits() ^ self.bits) >> (128 - self.len) == 0
    }

    /// The IPv6 address that embeds `v4`, suffix zero (RFC 6052 section 2.3).
    #[inline]
    pub fn embed(self, v4: Ipv4Addr) -> Ipv6Addr {
        let v4 = u128::from(v4.to_bits());
        let bits = match self.len {
            96 => v4,
            // The 32 bits that follow the prefix, written as if there were no octet u; then
            // everything that lies behind bit 64 moves 8 bits down to make room for it.
            len => {
                let plain = v4 << (96 - len);
                let high = plain >> 64 << 64;
                high | ((plain ^ high) >> 8)
            }
        };
        Ipv6Addr::from_bits(self.bits | bits)
    }

    /// The IPv4 address embedded in `addr`; `None` when the octet u is not zero.
    ///
    /// The suffix is ignored (RFC 6052 section 2.2). The caller has checked [`Pool6::contains`].
    #[inline]
    pub fn extract(self, addr: Ipv6Addr) -> Option<Ipv4Addr> {
        let bits = addr.to_bits();
        if bits & RESERVED_OCTET != 0 {
            return None;
        }
        let v4 = match self.len {
            96 => bits,
            len => {
                let high = bits >> 64 << 64;
                let plain = high | ((bits ^ high) << 8);
                plain >> (96 - len)
            }
        };
        Some(Ipv4Addr::from_bits(v4 as u32))
    }
}

impl FromStr for Pool6 {
    type Err = Pool6Error;

    fn from_str(text: &str) -> Result<Pool6, Pool6Error> {
        Pool6::new(text.parse::<Ipv6Net>().map_err(|_| Pool6Error::Syntax)?)
    }
}

impl fmt::Display for Pool6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.net())
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    /// RFC 6052 section 2.4, tables 1 and 2.
    #[test]
    fn rfc6052_text_representation() {
        let v4 = Ipv4Addr::new(192, 0, 2, 33);
        for (prefix, embedded) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
            ("64:ff9b::/96", "64:ff9b::192.0.2.33"),
        ] {
            let pool6: Pool6 = prefix.parse().unwrap();
            let embedded: Ipv6Addr = embedded.parse().unwrap();
            assert_eq!(pool6.embed(v4), embedded, "{prefix}");
            assert!(pool6.contains(embedded));
            assert_eq!(pool6.extract(embedded), Some(v4), "{prefix}");
        }
    }

    #[test]
    fn suffix_is_ignored_and_octet_u_is_checked() {
        let pool6: Pool6 = "2001:db8:122::/48".parse().unwrap();
        let suffix: Ipv6Addr = "2001:db8:122:c000:2:21ff:ffff:ffff".parse().unwrap();
        assert_eq!(pool6.extract(suffix), Some(Ipv4Addr::new(192, 0, 2, 33)));
        let octet: Ipv6Addr = "2001:db8:122:c000:102:2100::".parse().unwrap();
        assert_eq!(pool6.extract(octet), None);
    }

    #[test]
    fn a_prefix_is_what_it_was_made_of() {
        for text in ["2001:db8::/32", "2001:db8:122:344::/96", "64:ff9b::/96"] {
            let pool6: Pool6 = text.parse().unwrap();
            assert_eq!(pool6.to_string(), text);
            assert_eq!(pool6.net(), text.parse().unwrap());
            assert_eq!(pool6.len(), pool6.net().prefix_len());
            assert_eq!(pool6.is_well_known(), text.starts_with("64:"));
        }
        let error = "64:ff9b::/95".parse::<Pool6>().unwrap_err().to_string();
        assert!(error.ends_with("not 95 (RFC 6052 section 2.2)"), "{error}");
    }

    #[test]
    fn refuses_what_is_no_translation_prefix() {
        for (text, error) in [
            ("64:ff9b::", Pool6Error::Syntax),
            ("64:ff9b::/95", Pool6Error::Length(95)),
            ("2001:db8::1/96", Pool6Error::HostBits),
            ("2001:db8:0:0:100::/96", Pool6Error::ReservedOctet),
            ("ff02::/96", Pool6Error::NotUnicast),
            ("::/96", Pool6Error::NotUnicast),
        ] {
            assert_eq!(text.parse::<Pool6>(), Err(error), "{text}");
        }
    }
}
