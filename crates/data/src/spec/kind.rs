//! What a mechanism is for: where it stands, and what of an application's traffic it carries.

use serde::{Deserialize, Serialize};

use super::Family;
use super::group::{Load, Transact};

/// What a mechanism is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Plain forwarding.
    Native,
    /// Plain forwarding of both families that a program sets up.
    DualStack,
    /// A client-side translator.
    Clat,
    /// A stateless translator in the box between an IPv4 client and an IPv6 server.
    Siit,
    /// A stateful translator in the box between IPv6 clients and an IPv4 server.
    Nat64,
    /// The same with addresses for IPv6 hosts, and a gateway for DNS in the path (RFC 2766).
    NatPt,
    /// A relay of TCP and UDP in the same box (RFC 3142).
    Trt,
    /// An HTTP proxy in the same box, which clients know.
    Proxy,
    /// An HTTP proxy in the same box, which stands in the place of the server.
    ReverseProxy,
    /// A tunnel of IPv4 over IPv6 between the client and the box in the middle, which knows the client's
    /// address beforehand (RFC 2473, RFC 7596).
    Softwire,
    /// The same tunnel, with an address on lease from a server in the box in the middle (DSTM).
    Dstm,
    /// The same box between IPv4 clients and an IPv4 server, which hides the clients behind itself.
    Nat44,
    /// An IPv6-only network whole: a client-side translator, the stateful one in the box in the middle, and
    /// DNS64 there, between an IPv4 application and an IPv4 server.
    #[serde(rename = "464xlat")]
    Xlat464,
    /// A DNS64 server in the box in the middle.
    Dns64,
}

/// What of an application's traffic gets through a mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carries {
    /// Packets, whatever is in them.
    Packets,
    /// What is in TCP connections and UDP datagrams: both ends talk to a relay.
    Transport,
    /// What is in HTTP messages, or in TCP connections that are asked for in one.
    Http,
}

impl Carries {
    /// Whether a load gets through.
    pub(super) fn bears(self, load: Load) -> bool {
        // The generator of many connections asks no proxy.
        let held = load == Load::Transactions(Transact::Held);
        let web = matches!(load, Load::Fetch(_) | Load::Exchange(_) | Load::Transactions(_));
        let http = (web && !held) || matches!(load, Load::Initiation | Load::Start);
        match self {
            Self::Packets => true,
            Self::Transport => {
                http || held
                    || matches!(
                        load,
                        Load::Flow(_) | Load::Probe | Load::Simplex | Load::Streams | Load::Own(_)
                    )
            }
            Self::Http => http,
        }
    }
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 14] = [
        Self::Native,
        Self::DualStack,
        Self::Clat,
        Self::Siit,
        Self::Nat64,
        Self::NatPt,
        Self::Trt,
        Self::Proxy,
        Self::ReverseProxy,
        Self::Softwire,
        Self::Dstm,
        Self::Nat44,
        Self::Xlat464,
        Self::Dns64,
    ];

    /// Its name for people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Native => "Baseline",
            Self::DualStack => "Dual stack",
            Self::Clat => "CLAT",
            Self::Siit => "SIIT",
            Self::Nat64 => "NAT64",
            Self::NatPt => "NAT-PT",
            Self::Trt => "TRT",
            Self::Proxy => "Proxy",
            Self::ReverseProxy => "Reverse proxy",
            Self::Softwire => "Softwire",
            Self::Dstm => "DSTM",
            Self::Nat44 => "NAT44",
            Self::Xlat464 => "464XLAT",
            Self::Dns64 => "DNS64",
        }
    }

    /// Its name in an experiment file.
    pub fn name(self) -> String {
        // A unit variant is always a text.
        serde_json::to_value(self)
            .ok()
            .and_then(|name| name.as_str().map(str::to_owned))
            .unwrap_or_default()
    }

    /// What applications behind it speak; `None`: either.
    pub fn family(self) -> Option<Family> {
        match self {
            Self::Native | Self::DualStack => None,
            Self::Clat | Self::Siit | Self::Softwire | Self::Dstm | Self::Nat44 | Self::Xlat464 => {
                Some(Family::V4)
            }
            Self::Nat64
            | Self::NatPt
            | Self::Trt
            | Self::Proxy
            | Self::ReverseProxy
            | Self::Dns64 => Some(Family::V6),
        }
    }

    /// What it carries.
    pub fn carries(self) -> Carries {
        match self {
            Self::Trt => Carries::Transport,
            Self::Proxy | Self::ReverseProxy => Carries::Http,
            _ => Carries::Packets,
        }
    }

    /// Whether its process runs in the box in the middle, and there alone.
    pub fn in_the_middle(self) -> bool {
        !matches!(self, Self::Native | Self::Clat | Self::Softwire | Self::Dstm | Self::Xlat464)
    }

    /// Whether it has an end in the client's box and one in the box in the middle.
    pub fn in_two_boxes(self) -> bool {
        matches!(self, Self::Softwire | Self::Dstm | Self::Xlat464)
    }

    /// Whether there has to be exactly one box between the ends.
    pub(crate) fn stands_between(self) -> bool {
        !matches!(self, Self::Native | Self::Clat) && !self.has_hosts_behind()
    }

    /// Whether its client's end can serve hosts on a link of their own: with two hops.
    pub fn has_hosts_behind(self) -> bool {
        matches!(self, Self::Softwire | Self::Xlat464)
    }

    /// Whether it keeps a session for each connection of hosts that share an address.
    pub fn is_stateful(self) -> bool {
        matches!(self, Self::Nat64 | Self::NatPt | Self::Nat44 | Self::Xlat464)
    }

    /// Whether the server has IPv4 alone, and the way to the client has none but the mechanism's.
    pub fn joins_v6_to_v4(self) -> bool {
        !matches!(self, Self::Native | Self::DualStack | Self::Clat | Self::Siit | Self::Nat44)
    }

    /// Whether the server can send to the client first.
    pub(crate) fn opens_back(self) -> bool {
        matches!(
            self,
            Self::Native
                | Self::DualStack
                | Self::Clat
                | Self::Siit
                | Self::NatPt
                | Self::Softwire
                | Self::Dstm
        )
    }

    /// Whether hosts behind it find servers by addresses that a DNS64 has made.
    pub fn needs_dns64(self) -> bool {
        matches!(self, Self::Nat64 | Self::Trt | Self::Xlat464)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_joins_the_families_stands_between_them() {
        use Kind::{Clat, DualStack, Nat44, Native, Proxy, Softwire, Trt};
        for kind in [Native, DualStack, Clat, Nat44] {
            assert!(!kind.joins_v6_to_v4() && !kind.needs_dns64(), "{kind:?}");
        }
        assert!(Trt.in_the_middle() && Trt.needs_dns64() && Trt.carries() == Carries::Transport);
        assert!(!Softwire.stands_between() && Kind::Dstm.stands_between());
        assert!(Softwire.opens_back() && !Nat44.opens_back() && !Trt.opens_back());
        assert!(Proxy.joins_v6_to_v4() && !Proxy.needs_dns64());
        assert!(Softwire.joins_v6_to_v4() && !Softwire.in_the_middle());
        assert_eq!(serde_json::to_value(Kind::ReverseProxy).unwrap(), "reverse-proxy");
        assert_eq!(serde_json::to_value(Kind::NatPt).unwrap(), "nat-pt");
    }
}
