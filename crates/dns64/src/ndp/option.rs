//! The options of a router solicitation or advertisement.

use core::iter::FusedIterator;
use core::net::Ipv6Addr;

use super::encrypted::EncryptedDns;
use super::name::DomainName;
use super::{NdpError, Preference};
use fordway_wire::{get_u8, get_u16, get_u32};

/// Octets that the Length field of an option counts in.
pub(super) const UNIT: usize = 8;

/// Option types (IANA "IPv6 Neighbor Discovery Option Formats").
pub(super) mod kind {
    pub(crate) const SOURCE_LINK_LAYER: u8 = 1;
    pub(crate) const TARGET_LINK_LAYER: u8 = 2;
    pub(crate) const PREFIX_INFORMATION: u8 = 3;
    pub(crate) const MTU: u8 = 5;
    pub(crate) const ROUTE_INFORMATION: u8 = 24;
    pub(crate) const RDNSS: u8 = 25;
    pub(crate) const DNSSL: u8 = 31;
    pub(crate) const CAPTIVE_PORTAL: u8 = 37;
    pub(crate) const PREF64: u8 = 38;
    pub(crate) const ENCRYPTED_DNS: u8 = 144;
}

/// The options of one message, in their order.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    rest: &'a [u8],
}

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NdOption<'a> {
    /// Source Link-Layer Address, with the padding that some link layers have behind it.
    SourceLinkLayer(&'a [u8]),
    /// Target Link-Layer Address, with padding.
    TargetLinkLayer(&'a [u8]),
    /// Prefix Information (RFC 4861 section 4.6.2).
    Prefix(PrefixInformation),
    /// MTU, in octets (RFC 4861 section 4.6.4).
    Mtu(u32),
    /// Route Information (RFC 4191 section 2.3).
    Route(RouteInformation),
    /// Recursive DNS servers (RFC 8106 section 5.1).
    Rdnss(Rdnss<'a>),
    /// DNS search list (RFC 8106 section 5.2).
    Dnssl(Dnssl<'a>),
    /// NAT64 prefix (RFC 8781 section 4).
    Pref64(Pref64),
    /// URI of the API of a captive portal, or the name that says that there is none (RFC 8910 section 2.3).
    CaptivePortal(&'a str),
    /// Encrypted DNS resolver (RFC 9463 section 6.1).
    EncryptedDns(EncryptedDns<'a>),
    /// A type that is none of these: ignored (RFC 4861 section 4.6).
    Unknown {
        /// Its type.
        kind: u8,
        /// Its octets behind type and length.
        body: &'a [u8],
    },
    /// One of these types with a length or content that its RFC has ignored.
    Malformed {
        /// Its type.
        kind: u8,
    },
}

/// Prefix Information: a prefix of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixInformation {
    /// The prefix; bits behind `prefix_len` are zero.
    pub prefix: Ipv6Addr,
    /// Bits of the prefix, 0 to 128.
    pub prefix_len: u8,
    /// L: on-link.
    pub on_link: bool,
    /// A: hosts make addresses of it.
    pub autonomous: bool,
    /// Valid Lifetime in seconds; [`super::INFINITY`] never ends.
    pub valid_lifetime: u32,
    /// Preferred Lifetime in seconds; [`super::INFINITY`] never ends.
    pub preferred_lifetime: u32,
}

/// Route Information: a prefix that is reached by this router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteInformation {
    /// The prefix; bits behind `prefix_len` are zero.
    pub prefix: Ipv6Addr,
    /// Bits of the prefix, 0 to 128.
    pub prefix_len: u8,
    /// Preference of the route.
    pub preference: Preference,
    /// Route Lifetime in seconds; [`super::INFINITY`] never ends.
    pub lifetime: u32,
}

/// Recursive DNS servers with one lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rdnss<'a> {
    /// Seconds; 0 withdraws, [`super::INFINITY`] never ends.
    pub lifetime: u32,
    addresses: &'a [u8],
}

/// Domain names with one lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dnssl<'a> {
    /// Seconds; 0 withdraws, [`super::INFINITY`] never ends.
    pub lifetime: u32,
    names: &'a [u8],
}

/// PREF64: the prefix by which this network's NAT64 is reached.
///
/// ```text
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |   Type 38     |   Length 2    |     Scaled Lifetime     | PLC |
/// |               Highest 96 bits of the prefix                   |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pref64 {
    prefix: Ipv6Addr,
    prefix_len: u8,
    lifetime: ScaledLifetime,
}

/// A lifetime in units of 8 seconds, 13 bits (RFC 8781 section 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScaledLifetime(u16);

impl<'a> Options<'a> {
    /// Checks that `bytes` is a row of options of lengths other than zero, and nothing else.
    pub(super) fn new(bytes: &'a [u8]) -> Result<Options<'a>, NdpError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (_, _, behind) = split(rest).ok_or(NdpError::OptionLength)?;
            rest = behind;
        }
        Ok(Options { rest: bytes })
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = NdOption<'a>;

    fn next(&mut self) -> Option<NdOption<'a>> {
        let (kind, body, rest) = split(self.rest)?;
        self.rest = rest;
        Some(NdOption::read(kind, body))
    }
}

impl FusedIterator for Options<'_> {}

/// Type, content, and what is behind the first option of `bytes`.
fn split(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let &[kind, len, ..] = bytes else {
        return None;
    };
    let (option, rest) = bytes.split_at_checked(usize::from(len) * UNIT)?;
    Some((kind, option.get(2..)?, rest))
}

impl<'a> NdOption<'a> {
    fn read(kind: u8, body: &'a [u8]) -> NdOption<'a> {
        let known = match kind {
            kind::SOURCE_LINK_LAYER => Some(NdOption::SourceLinkLayer(body)),
            kind::TARGET_LINK_LAYER => Some(NdOption::TargetLinkLayer(body)),
            kind::PREFIX_INFORMATION => PrefixInformation::read(body).map(NdOption::Prefix),
            kind::MTU => (body.len() == UNIT - 2).then(|| NdOption::Mtu(get_u32(body, 2))),
            kind::ROUTE_INFORMATION => RouteInformation::read(body).map(NdOption::Route),
            kind::RDNSS => Rdnss::read(body).map(NdOption::Rdnss),
            kind::DNSSL => Dnssl::read(body).map(NdOption::Dnssl),
            kind::PREF64 => Pref64::read(body).map(NdOption::Pref64),
            kind::CAPTIVE_PORTAL => captive_portal(body).map(NdOption::CaptivePortal),
            kind::ENCRYPTED_DNS => EncryptedDns::read(body).map(NdOption::EncryptedDns),
            _ => Some(NdOption::Unknown { kind, body }),
        };
        known.unwrap_or(NdOption::Malformed { kind })
    }
}

impl PrefixInformation {
    fn read(body: &[u8]) -> Option<PrefixInformation> {
        let (prefix_len, flags) = (get_u8(body, 0), get_u8(body, 1));
        (body.len() == 4 * UNIT - 2 && prefix_len <= 128).then(|| PrefixInformation {
            prefix: mask(address(body.get(14..)), prefix_len),
            prefix_len,
            on_link: flags & 0x80 != 0,
            autonomous: flags & 0x40 != 0,
            valid_lifetime: get_u32(body, 2),
            preferred_lifetime: get_u32(body, 6),
        })
    }
}

impl RouteInformation {
    fn read(body: &[u8]) -> Option<RouteInformation> {
        let prefix_len = get_u8(body, 0);
        let units = (body.len() + 2) / UNIT;
        // The Length field may be more than the prefix needs, never less.
        let fits = prefix_len <= 128 && (Self::units(prefix_len)..=3).contains(&units);
        let preference = Preference::from_bits(get_u8(body, 1) >> 3)?;
        fits.then(|| RouteInformation {
            prefix: mask(address(body.get(6..)), prefix_len),
            prefix_len,
            preference,
            lifetime: get_u32(body, 2),
        })
    }

    /// What the Length field is at least for a prefix of so many bits.
    pub(super) fn units(prefix_len: u8) -> usize {
        match prefix_len {
            0 => 1,
            1..=64 => 2,
            _ => 3,
        }
    }
}

impl<'a> Rdnss<'a> {
    fn read(body: &'a [u8]) -> Option<Rdnss<'a>> {
        let addresses = body.get(6..)?;
        let rdnss = Rdnss { lifetime: get_u32(body, 2), addresses };
        // RFC 8106 section 5.3.1: whole addresses, one at least, all unicast.
        let whole = !addresses.is_empty() && addresses.len().is_multiple_of(16);
        let unicast = |a: Ipv6Addr| !a.is_multicast() && !a.is_unspecified();
        (whole && rdnss.addresses().all(unicast)).then_some(rdnss)
    }

    /// The servers, the preferred one first.
    pub fn addresses(&self) -> impl Iterator<Item = Ipv6Addr> + Clone + use<'a> {
        self.addresses.chunks_exact(16).map(|octets| address(Some(octets)))
    }
}

impl<'a> Dnssl<'a> {
    fn read(body: &'a [u8]) -> Option<Dnssl<'a>> {
        let names = body.get(6..)?;
        let mut rest = names;
        // A zero where a name would begin is padding; a list of padding alone is none.
        while rest.first().is_some_and(|&len| len != 0) {
            (_, rest) = DomainName::read(rest)?;
        }
        (rest.len() < names.len()).then_some(Dnssl { lifetime: get_u32(body, 2), names })
    }

    /// The names, in their order.
    pub fn names(&self) -> impl Iterator<Item = DomainName<'a>> + use<'a> {
        let mut rest = self.names;
        core::iter::from_fn(move || {
            let (name, behind) = DomainName::read(rest)?;
            rest = behind;
            Some(name)
        })
    }
}

impl Pref64 {
    /// A prefix of 32, 40, 48, 56, 64 or 96 bits; `None` for another length. Bits behind them are cleared.
    pub fn new(prefix: Ipv6Addr, prefix_len: u8, lifetime: ScaledLifetime) -> Option<Pref64> {
        plc(prefix_len)?;
        Some(Pref64 { prefix: mask(prefix, prefix_len), prefix_len, lifetime })
    }

    /// The prefix; bits behind its length are zero.
    pub fn prefix(&self) -> Ipv6Addr {
        self.prefix
    }

    /// Bits of the prefix.
    pub fn prefix_len(&self) -> u8 {
        self.prefix_len
    }

    /// How long it may be used; 0 withdraws it.
    pub fn lifetime(&self) -> ScaledLifetime {
        self.lifetime
    }

    /// RFC 8781 section 4: of another length, or with one of the two codes that mean nothing, the option is ignored.
    fn read(body: &[u8]) -> Option<Pref64> {
        const LENGTHS: [u8; 6] = [96, 64, 56, 48, 40, 32];
        let first = get_u16(body, 0);
        let &prefix_len = LENGTHS.get(usize::from(first & 0b111))?;
        let mut octets = [0u8; 16];
        octets.get_mut(..12)?.copy_from_slice(body.get(2..)?.first_chunk::<12>()?);
        let lifetime = ScaledLifetime(first >> 3);
        if body.len() == 2 * UNIT - 2 {
            Pref64::new(octets.into(), prefix_len, lifetime)
        } else {
            None
        }
    }

    /// Scaled Lifetime and PLC, as they lie together.
    pub(super) fn lifetime_and_plc(&self) -> u16 {
        self.lifetime.0 << 3 | plc(self.prefix_len).unwrap_or(0)
    }
}

/// Prefix Length Code (RFC 8781 section 4).
fn plc(prefix_len: u8) -> Option<u16> {
    match prefix_len {
        96 => Some(0),
        64 => Some(1),
        56 => Some(2),
        48 => Some(3),
        40 => Some(4),
        32 => Some(5),
        _ => None,
    }
}

impl ScaledLifetime {
    /// No longer to be used.
    pub const ZERO: ScaledLifetime = ScaledLifetime(0);
    /// The longest, 65528 seconds.
    pub const MAX: ScaledLifetime = ScaledLifetime(0x1fff);

    /// The lifetime for so many seconds, rounded up to whole units and never above the longest: only 0 is 0 (RFC 8781
    /// section 4.1).
    pub fn from_seconds(seconds: u32) -> ScaledLifetime {
        ScaledLifetime(seconds.div_ceil(8).min(u32::from(ScaledLifetime::MAX.0)) as u16)
    }

    /// The default of a router that advertises at least so often: the lesser of three times that and the longest (RFC
    /// 8781 section 4.1).
    pub fn of_interval(max_rtr_adv_interval: u16) -> ScaledLifetime {
        ScaledLifetime::from_seconds(3 * u32::from(max_rtr_adv_interval))
    }

    /// In seconds, a multiple of 8.
    pub fn seconds(self) -> u32 {
        u32::from(self.0) * 8
    }
}

/// RFC 8910 section 2.3: the URI is padded with zeros. Other control characters, and other octets than those of ASCII,
/// are not of a URI (RFC 3986 section 2).
fn captive_portal(body: &[u8]) -> Option<&str> {
    let uri = core::str::from_utf8(body).ok()?.trim_end_matches('\0');
    (!uri.is_empty() && uri.bytes().all(|it| it.is_ascii_graphic())).then_some(uri)
}

/// The address at the start of `bytes`; octets that are missing are zero.
pub(super) fn address(bytes: Option<&[u8]>) -> Ipv6Addr {
    let mut octets = [0u8; 16];
    for (to, from) in octets.iter_mut().zip(bytes.unwrap_or_default()) {
        *to = *from;
    }
    Ipv6Addr::from(octets)
}

/// Clears the bits behind a prefix's length, which a receiver ignores.
pub(super) fn mask(prefix: Ipv6Addr, prefix_len: u8) -> Ipv6Addr {
    let host_bits = 128 - u32::from(prefix_len.min(128));
    Ipv6Addr::from_bits(prefix.to_bits() & u128::MAX.checked_shl(host_bits).unwrap_or(0))
}
