//! Which client may reach which server, and from which address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fordway_xlat::addr::{Pool6, classify};

use super::settings::Settings;
use fordway_serve::{ClientLen, Network};

/// Why something is not relayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the client is not allowed")]
    Client,
    /// The destination is not in a prefix, reserved bits are set, or it belongs to no host (loopback, multicast,
    /// link-local).
    #[error("no address of a server")]
    Address,
    /// The destination is not global, and 64:ff9b::/96 must not represent it.
    #[error("not a global address")]
    Private,
    #[error("an address of this host")]
    Own,
    #[error("refused by the configuration")]
    Listed,
}

impl Settings {
    /// The IPv4 address behind a destination, if this client may reach it.
    pub(super) fn destination(
        &self,
        client: Ipv6Addr,
        destination: Ipv6Addr,
    ) -> Result<Ipv4Addr, Refusal> {
        if !self.allow.contains(IpAddr::V6(client)) {
            return Err(Refusal::Client);
        }
        let pool6 = self.pool6_of(destination).ok_or(Refusal::Address)?;
        let v4 = pool6.extract(destination).ok_or(Refusal::Address)?;
        if classify::illegal_v4(v4).is_some() {
            return Err(Refusal::Address);
        }
        if !self.may_stand_for(pool6, v4) {
            return Err(Refusal::Private);
        }
        if !self.allow_own && self.own4.contains(&v4) {
            return Err(Refusal::Own);
        }
        if self.refuse4.contains(IpAddr::V4(v4)) {
            return Err(Refusal::Listed);
        }
        Ok(v4)
    }

    /// The longest prefix that an address is in.
    fn pool6_of(&self, address: Ipv6Addr) -> Option<Pool6> {
        let covering = self.pool6.iter().filter(|pool6| pool6.contains(address));
        covering.max_by_key(|pool6| pool6.len()).copied()
    }

    fn may_stand_for(&self, pool6: Pool6, v4: Ipv4Addr) -> bool {
        !pool6.is_well_known() || self.allow_private || classify::is_global_v4(v4)
    }

    /// The IPv6 address of an IPv4 router that sends an error about a packet to `destination`; `destination` itself if
    /// the router has none.
    pub(super) fn embedded(&self, router: Option<Ipv4Addr>, destination: Ipv6Addr) -> Ipv6Addr {
        match (self.pool6_of(destination), router) {
            (Some(pool6), Some(router)) if self.may_stand_for(pool6, router) => pool6.embed(router),
            _ => destination,
        }
    }

    /// The network of clients that share limits and an IPv4 address.
    pub(super) fn network(&self, client: Ipv6Addr) -> Network {
        let len = ClientLen { v6: self.limits.client_len, ..ClientLen::default() };
        Network::of(client.into(), len)
    }

    /// The address that connections of a client network come from; `None`: the one that routing chooses. `hash`: of the
    /// network.
    pub(super) fn source(&self, hash: u64) -> Option<Ipv4Addr> {
        let count = self.source4.len() as u64;
        (count > 0).then(|| self.source4[(hash % count) as usize])
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::HashSet;
    use std::num::NonZeroUsize;

    use super::super::settings::{Limits, Urgent};
    use super::*;
    use fordway_serve::Acl;
    use fordway_xlat::{IcmpErrors, TrafficClass};

    pub(in super::super) fn settings() -> Settings {
        Settings {
            name: "t".to_owned(),
            pool6: vec!["2001:db8:64::/96".parse().unwrap(), "64:ff9b::/96".parse().unwrap()],
            threads: NonZeroUsize::MIN,
            tcp: true,
            udp: true,
            allow: Acl::new(["2001:db8:1::/48".parse().unwrap()]),
            refuse4: Acl::new(["203.0.113.0/24".parse().unwrap()]),
            allow_private: false,
            allow_own: false,
            own4: HashSet::from([Ipv4Addr::new(192, 0, 2, 1)]),
            source4: Vec::new(),
            class: TrafficClass::Copy,
            urgent: Urgent::Carry,
            keepalive: None,
            icmp: IcmpErrors::Limited { per_second: 100, burst: 100 },
            limits: Limits::default(),
        }
    }

    #[test]
    fn who_may_reach_what() {
        let mut settings = settings();
        let client = "2001:db8:1::5".parse().unwrap();
        let asked =
            |settings: &Settings, to: &str| settings.destination(client, to.parse().unwrap());
        let v4 = |text: &str| Ok(text.parse().unwrap());
        assert_eq!(asked(&settings, "2001:db8:64::192.0.2.7"), v4("192.0.2.7"));
        assert_eq!(asked(&settings, "64:ff9b::8.8.8.8"), v4("8.8.8.8"));
        for (to, refusal) in [
            ("64:ff9b::192.0.2.7", Refusal::Private),
            ("2001:db8:64::127.0.0.1", Refusal::Address),
            ("2001:db8:64::0.0.0.0", Refusal::Address),
            ("2001:db8:64::169.254.1.1", Refusal::Address),
            ("2001:db8:64::224.0.0.1", Refusal::Address),
            ("2001:db8:64::255.255.255.255", Refusal::Address),
            ("2001:db8:65::192.0.2.7", Refusal::Address),
            ("::1", Refusal::Address),
            ("2001:db8:64::192.0.2.1", Refusal::Own),
            ("2001:db8:64::203.0.113.9", Refusal::Listed),
        ] {
            assert_eq!(asked(&settings, to), Err(refusal), "{to}");
        }
        let other = "2001:db8:2::5".parse().unwrap();
        let to = "2001:db8:64::192.0.2.7".parse().unwrap();
        assert_eq!(settings.destination(other, to), Err(Refusal::Client));
        settings.allow_private = true;
        settings.allow_own = true;
        assert_eq!(asked(&settings, "64:ff9b::192.0.2.1"), v4("192.0.2.1"));
        assert_eq!(asked(&settings, "2001:db8:64::127.0.0.1"), Err(Refusal::Address));
    }

    #[test]
    fn all_lengths_of_prefixes() {
        let mut settings = settings();
        let v4 = Ipv4Addr::new(198, 51, 100, 33);
        for length in [32, 40, 48, 56, 64, 96] {
            let pool6: Pool6 = format!("2001:db8::/{length}").parse().unwrap();
            settings.pool6 = vec![pool6];
            let client = "2001:db8:1::5".parse().unwrap();
            assert_eq!(settings.destination(client, pool6.embed(v4)), Ok(v4), "{length}");
        }
    }

    #[test]
    fn networks_and_their_addresses() {
        let mut settings = settings();
        let network = |settings: &Settings, client: &str| {
            settings.network(client.parse().unwrap()).address().to_string()
        };
        assert_eq!(network(&settings, "2001:db8:1:2:3::4"), "2001:db8:1:2::");
        settings.limits.client_len = 128;
        assert_eq!(network(&settings, "2001:db8:1:2:3::4"), "2001:db8:1:2:3::4");
        settings.limits.client_len = 0;
        assert_eq!(network(&settings, "2001:db8:1:2:3::4"), "::");
        assert_eq!(settings.source(7), None);
        let pool = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
        settings.source4 = pool.to_vec();
        assert_eq!([settings.source(6), settings.source(7)], pool.map(Some));
    }

    #[test]
    fn a_router_speaks_from_the_prefix_if_it_may() {
        let settings = settings();
        let embedded = |router: Option<&str>, to: &str| {
            let router = router.map(|router| router.parse().unwrap());
            settings.embedded(router, to.parse().unwrap()).to_string()
        };
        assert_eq!(embedded(Some("192.0.2.9"), "2001:db8:64::c000:207"), "2001:db8:64::c000:209");
        assert_eq!(embedded(Some("192.0.2.9"), "64:ff9b::808:808"), "64:ff9b::808:808");
        assert_eq!(embedded(None, "2001:db8:64::c000:207"), "2001:db8:64::c000:207");
    }
}
