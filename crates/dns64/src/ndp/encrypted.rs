//! The Encrypted DNS option (RFC 9463 section 6.1).

use core::net::Ipv6Addr;

use super::name::DomainName;
use super::option::address;
use fordway_wire::{get_u16, get_u32};

/// An encrypted DNS resolver.
///
/// ```text
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |   Type 144    |    Length     |        Service Priority       |
/// |                           Lifetime                            |
/// |          ADN Length           |  authentication-domain-name   ~
/// |          Addr Length          |        ipv6-address(es)       ~
/// |       SvcParams Length        |           SvcParams           ~
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
///
/// Lengths are in octets, numbers in network byte order. Only a name (ADN-only mode) is an option that ends behind the
/// name, or whose two other lengths are zero, as its padding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncryptedDns<'a> {
    /// Service Priority: the lowest number comes first (RFC 9460 section 2.4.1).
    pub priority: u16,
    /// Seconds; 0 withdraws the name, [`super::INFINITY`] never ends.
    pub lifetime: u32,
    /// The name that the resolver's certificate has.
    pub name: DomainName<'a>,
    /// Keys in rising order, each of 2 octets, with 2 octets of a value's length and the value (RFC 9460 section 2.2).
    pub params: &'a [u8],
    addresses: &'a [u8],
}

impl<'a> EncryptedDns<'a> {
    pub(super) fn read(body: &'a [u8]) -> Option<EncryptedDns<'a>> {
        let (name, rest) = part(body.get(6..)?)?;
        let (addresses, rest) = part(rest)?;
        let (params, _) = part(rest)?;
        let (name, behind) = DomainName::read(name)?;
        let whole = behind.is_empty() && addresses.len().is_multiple_of(16) && are_params(params);
        whole.then(|| EncryptedDns {
            priority: get_u16(body, 0),
            lifetime: get_u32(body, 2),
            name,
            params,
            addresses,
        })
    }

    /// Its addresses, without multicast and loopback ones, which a host discards (RFC 9463 section 3.1.8).
    pub fn addresses(&self) -> impl Iterator<Item = Ipv6Addr> + Clone + use<'a> {
        let all = self.addresses.chunks_exact(16).map(|octets| address(Some(octets)));
        all.filter(|it| !it.is_multicast() && !it.is_loopback() && !it.is_unspecified())
    }
}

/// What stands behind its length at the start of `bytes`, and the rest. Octets that are too few for a length are padding.
fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    match bytes.split_at_checked(2) {
        None => Some((&[], &[])),
        Some((len, rest)) => rest.split_at_checked(usize::from(get_u16(len, 0))),
    }
}

/// Whether `bytes` are service parameters in wire format (RFC 9460 section 2.2).
fn are_params(bytes: &[u8]) -> bool {
    let (mut rest, mut before) = (bytes, None);
    while let [a, b, behind @ ..] = rest {
        let key = u16::from_be_bytes([*a, *b]);
        if behind.len() < 2 || before.is_some_and(|before| before >= key) {
            return false;
        }
        let Some((_, behind)) = part(behind) else { return false };
        (rest, before) = (behind, Some(key));
    }
    rest.is_empty()
}
