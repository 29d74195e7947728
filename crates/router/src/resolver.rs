//! Encrypted DNS resolvers (RFC 9463) as options of router advertisements and of DHCPv6 describe them.

use std::net::Ipv6Addr;

use hickory_proto::rr::Name;

/// An encrypted DNS resolver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolver {
    /// The name that its certificate has (authentication-domain-name).
    pub name: Name,
    /// The lowest number comes first; 1 at least.
    pub priority: u16,
    /// Its addresses. Without any, hosts look its name up, and are told nothing else (ADN-only mode).
    pub addresses: Vec<Ipv6Addr>,
    /// Protocols: `dot`, `doq`, `h2`, `h3`.
    pub alpn: Vec<String>,
    /// Port; by default that of the protocol.
    pub port: Option<u16>,
    /// URI template of DNS over HTTPS (RFC 9461 section 5).
    pub dohpath: Option<String>,
    /// In seconds; by default three times the interval.
    pub lifetime: Option<u32>,
}

/// Most addresses, so that any resolver fits into the least message.
const MOST_ADDRESSES: usize = 16;
/// Longest template, for the same reason.
const LONGEST_PATH: usize = 255;

/// Keys of service parameters (RFC 9460 section 14.3.2, RFC 9461 section 5).
const ALPN: u16 = 1;
const PORT: u16 = 3;
const DOHPATH: u16 = 7;

impl Resolver {
    /// Whether it can be told: it has a name; with addresses, a protocol (RFC 9463 section 3.1.5), and with one of HTTP
    /// a template (RFC 9461 section 5.1).
    #[must_use]
    pub fn is_possible(&self) -> bool {
        let unicast =
            |it: &Ipv6Addr| !it.is_multicast() && !it.is_unspecified() && !it.is_loopback();
        let names = |it: &String| (1..=16).contains(&it.len());
        !self.name.is_root()
            && self.priority > 0
            && self.addresses.len() <= MOST_ADDRESSES
            && self.addresses.iter().all(unicast)
            && (self.addresses.is_empty() || !self.alpn.is_empty())
            && self.alpn.len() <= 8
            && self.alpn.iter().all(names)
            && (self.dohpath.is_some() || !self.speaks_http())
            && self.dohpath.iter().all(|it| (1..=LONGEST_PATH).contains(&it.len()))
    }

    fn speaks_http(&self) -> bool {
        self.alpn.iter().any(|it| it == "h2" || it == "h3")
    }

    /// Service parameters in wire format (RFC 9460 section 2.2): keys in rising order. None in ADN-only mode.
    pub(super) fn params(&self) -> Vec<u8> {
        let mut params = Vec::new();
        if self.addresses.is_empty() {
            return params;
        }
        let mut put = |key: u16, value: &[u8]| {
            params.extend(key.to_be_bytes());
            params.extend(length(value));
            params.extend(value);
        };
        let of = |it: &String| [&[it.len() as u8], it.as_bytes()].concat();
        put(ALPN, &self.alpn.iter().flat_map(of).collect::<Vec<u8>>());
        if let Some(port) = self.port {
            put(PORT, &port.to_be_bytes());
        }
        if let Some(path) = self.dohpath.as_ref().filter(|_| self.speaks_http()) {
            put(DOHPATH, path.as_bytes());
        }
        params
    }

    /// The content of the DHCPv6 option, in octets (RFC 9463 section 4.1). Unlike the option of Neighbor Discovery, it is not
    /// padded: in ADN-only mode it ends behind the name.
    #[must_use]
    pub fn dhcpv6(&self) -> Vec<u8> {
        let name = labels(&self.name);
        let mut octets = self.priority.to_be_bytes().to_vec();
        octets.extend(length(&name));
        octets.extend(name);
        if !self.addresses.is_empty() {
            let addresses: Vec<u8> = self.addresses.iter().flat_map(Ipv6Addr::octets).collect();
            octets.extend(length(&addresses));
            octets.extend(addresses);
            octets.extend(self.params());
        }
        octets
    }
}

/// How many octets there are, in two. Settings have far fewer than these can tell.
fn length(octets: &[u8]) -> [u8; 2] {
    (octets.len() as u16).to_be_bytes()
}

/// A name as RFC 1035 section 3.1 has it, not compressed.
pub(super) fn labels(name: &Name) -> Vec<u8> {
    let mut octets = Vec::new();
    for label in name {
        octets.push(label.len() as u8);
        octets.extend(label);
    }
    octets.push(0);
    octets
}

#[cfg(test)]
pub(crate) mod tests;
