//! From the file's configuration to the core's.

use std::net::Ipv4Addr;

use fordway_xlat::nat64::{
    Dynamic4 as CoreDynamic4, Filtering, Lifetimes, Pool as CorePool, Range, Settings, Sizes,
};

use super::{Dynamic4, Nat64, Pool, Pool4, Pool4Source};
use crate::name::InterfaceName;

impl Nat64 {
    /// The core's settings. `addresses`: the IPv4 addresses of a device, at this moment.
    #[must_use]
    pub fn settings(&self, addresses: impl Fn(&InterfaceName) -> Vec<Ipv4Addr>) -> Settings {
        Settings {
            pools: self.pools.iter().map(|pool| pool.core(&addresses)).collect(),
            filtering: self.filtering,
            accept_v4_syn: self.accept_v4_syn,
            refresh_from_v4: self.refresh_from_v4,
            // Entries in hold-down must not fill the table.
            lifetimes: Lifetimes {
                hold_down_most: self.sizes.bibs / 2,
                dynamic4: self.nat_pt.as_ref().map_or(self.lifetimes.dynamic4, |it| it.idle),
                ..self.lifetimes
            },
            subscriber_len: self.subscriber_len,
            quotas: self.quotas,
            bib: self.bib.clone(),
            dynamic4: None,
            algs: self.gateways.core(),
            more_left_ports: Vec::new(),
            dns: None,
            // Where there is no pool of ports, hosts send from addresses of their own.
            addresses: self.nat_pt.as_ref().and_then(|it| it.core(self.pools.is_empty())),
            sizes: self.table_sizes(),
            shards: None,
        }
    }

    /// With address-dependent filtering each session may need a permission, which is an entry of the same table.
    fn table_sizes(&self) -> Sizes {
        let sessions = match self.filtering {
            Filtering::EndpointIndependent => self.sizes.sessions,
            Filtering::AddressDependent => self.sizes.sessions.saturating_mul(2).min(Sizes::MAX),
        };
        Sizes { sessions, ..self.sizes }
    }

    /// Whether some pool is for packets with a mark.
    #[must_use]
    pub fn has_marks(&self) -> bool {
        self.pools.iter().any(|pool| pool.mark.is_some())
    }

    /// The devices whose addresses are pools, each once.
    #[must_use]
    pub fn interfaces(&self) -> Vec<&InterfaceName> {
        let entries = self.pools.iter().flat_map(|pool| &pool.pool4);
        let mut names: Vec<&InterfaceName> = Vec::new();
        for entry in entries {
            match &entry.source {
                Pool4Source::Interface(name) if !names.contains(&name) => names.push(name),
                _ => {}
            }
        }
        names
    }
}

impl Dynamic4 {
    /// The core's settings.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let addresses: u64 = self.pool.iter().map(|net| 1 << (32 - net.prefix_len())).sum();
        // Room for a mapping of each address, and for some that are being made or taken away. There are
        // no sessions and no subscribers.
        let bibs = u32::try_from(addresses).unwrap_or(Sizes::MAX);
        let bibs = bibs.saturating_add(bibs / 16 + 64).min(Sizes::MAX);
        Settings {
            dynamic4: Some(CoreDynamic4 { pool: self.pool.clone(), clients: self.clients.clone() }),
            lifetimes: Lifetimes { dynamic4: self.idle, ..Lifetimes::default() },
            sizes: Sizes { bibs, sessions: 1, subscribers: 1 },
            ..Settings::default()
        }
    }
}

impl Pool {
    fn core(&self, addresses: &impl Fn(&InterfaceName) -> Vec<Ipv4Addr>) -> CorePool {
        CorePool {
            ranges: self.pool4.iter().flat_map(|entry| entry.ranges(addresses)).collect(),
            clients: self.clients.clone(),
            mark: self.mark,
            allocation: self.allocation,
        }
    }
}

impl Pool4 {
    fn ranges(&self, addresses: &impl Fn(&InterfaceName) -> Vec<Ipv4Addr>) -> Vec<Range> {
        let range = |first, last| Range { first, last, low: self.ports.low, high: self.ports.high };
        match &self.source {
            Pool4Source::Addresses { first, last } => vec![range(*first, *last)],
            Pool4Source::Interface(name) => {
                addresses(name).into_iter().map(|address| range(address, address)).collect()
            }
        }
    }
}
