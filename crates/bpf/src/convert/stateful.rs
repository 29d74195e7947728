//! From the settings of stateful translation to the programs' configuration.

use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;

use fordway_xlat::Config;
use fordway_xlat::addr::EamTable;
use fordway_xlat::nat64::{Addresses, Division, Filtering, Memory, Part, Settings, Shards};

use crate::abi::{Abi, FwNat64Config, FwPart, FwPool4Range, LEFT_PORTS, MAX_POOL4, nat64_mode};
use crate::{Result, Stateful, Unsupported};

/// The configuration as far as it counts: explicit mappings have no meaning for stateful translation.
pub(crate) fn relevant<'a>(config: &'a Config, stateful: Option<&Stateful>) -> Cow<'a, Config> {
    let by_state = stateful.is_some_and(|stateful| stateful.settings.dynamic4.is_none());
    if !by_state || config.eam.is_empty() {
        return Cow::Borrowed(config);
    }
    Cow::Owned(Config { eam: EamTable::default(), ..config.clone() })
}

/// The programs' configuration of stateful translation.
pub(crate) fn convert_stateful(stateful: &Stateful) -> Result<FwNat64Config> {
    let Stateful { settings, maps, gates } = stateful;
    let meta = maps.regions().meta;
    let mut fw = FwNat64Config {
        secret: [0, 1].map(|word: usize| meta.secret[word].load(Relaxed)),
        masks: [0, 1, 2, 3].map(|mask: usize| meta.masks[mask].load(Relaxed)),
        entries: [0, 1, 2].map(|kind: usize| meta.entries[kind].load(Relaxed)),
        mode: if settings.dynamic4.is_some() { nat64_mode::DYNAMIC4 } else { nat64_mode::STATEFUL },
        subscriber_len: u32::from(settings.subscriber_len),
        max_ports: settings.quotas.ports,
        max_sessions: settings.quotas.sessions,
        max_new_per_second: settings.quotas.new_per_second,
        address_dependent: u8::from(settings.filtering == Filtering::AddressDependent),
        by_mark: u8::from(settings.pools.iter().any(|pool| pool.mark.is_some())),
        accept_v4_syn: u8::from(settings.accept_v4_syn),
        refresh_from_v4: u8::from(settings.refresh_from_v4),
        v4_restricted: u8::from(
            settings.addresses.as_ref().is_some_and(Addresses::restrict_initiators),
        ),
        ..FwNat64Config::zeroed()
    };
    let (ranges, pools) = pool4(settings);
    if ranges.len() > MAX_POOL4 {
        let refused = Unsupported::with_hint(
            format!(
                "the kernel engine knows {MAX_POOL4} ranges of pool4 at most, and there are {}",
                ranges.len()
            ),
            "use engine = \"user\", or fewer ranges",
        );
        return Err(refused.into());
    }
    let left = settings.left_ports();
    if left.len() > LEFT_PORTS {
        let refused = Unsupported::with_hint(
            format!("the kernel engine leaves {LEFT_PORTS} ports to gateways at most"),
            "use engine = \"user\", or fewer ports",
        );
        return Err(refused.into());
    }
    for (slot, port) in fw.left_ports.iter_mut().zip(left) {
        *slot = port;
    }
    fw.pool4_count = ranges.len() as u32;
    fw.pool4_pools = pools as u32;
    for (slot, range) in fw.pool4.iter_mut().zip(ranges) {
        *slot = range;
    }
    if fw.by_mark != 0 {
        maps.keep_marks()?;
    }
    if let Some(shards) = &settings.shards {
        divide(&mut fw, shards, gates.is_some())?;
    }
    Ok(fw)
}

/// Adds what the programs know of shards.
fn divide(fw: &mut FwNat64Config, shards: &Shards, has_gates: bool) -> Result<()> {
    let division = shards.partition().division().filter(|_| has_gates);
    let Division { key, parts } = division
        .ok_or_else(|| Unsupported::new("programs can't tell the shards of this cluster"))?;
    if parts.len() > MAX_POOL4 {
        let reason = format!(
            "the kernel engine knows {MAX_POOL4} ranges of a cluster's pool4 at most, and there are {}",
            parts.len()
        );
        let hint = "use engine = \"user\", or fewer ranges";
        return Err(Unsupported::with_hint(reason, hint).into());
    }
    fw.shards = u32::from(shards.number());
    fw.shard_key = key;
    fw.part_count = parts.len() as u32;
    for (slot, part) in fw.parts.iter_mut().zip(parts) {
        let Part { first, last, slots, base, low, high, shift } = part;
        *slot = FwPart { first, last, slots, base, low, high, shift, reserved: [0; 11] };
    }
    Ok(())
}

/// The translator's IPv4 transport addresses: the ranges of the pools, whose number is returned, then those that the
/// operator bound beside them. Of dynamic 1:1 mappings, the addresses that hosts get, with all their ports.
fn pool4(settings: &Settings) -> (Vec<FwPool4Range>, usize) {
    let dynamic = settings.dynamic4.iter().flat_map(|dynamic4| &dynamic4.pool);
    let dynamic = dynamic.map(|net| FwPool4Range {
        first: net.network().to_bits(),
        last: net.broadcast().to_bits(),
        low: 0,
        high: u16::MAX,
    });
    let pools = settings.pools.iter().flat_map(|pool| &pool.ranges).map(|range| FwPool4Range {
        first: range.first.to_bits(),
        last: range.last.to_bits(),
        low: range.low,
        high: range.high,
    });
    let pools = pools.filter(|_| settings.dynamic4.is_none()).chain(dynamic);
    let mut ranges: Vec<FwPool4Range> = Vec::new();
    for range in pools {
        let same_ports = |other: &FwPool4Range| (other.low, other.high) == (range.low, range.high);
        match ranges
            .iter_mut()
            .find(|other| other.last.checked_add(1) == Some(range.first) && same_ports(other))
        {
            Some(other) => other.last = range.last,
            None => ranges.push(range),
        }
    }
    let number = ranges.len();
    // The user engine decides to which host they are bound; its entries are like all others.
    let bound = settings.addresses.iter().flat_map(Addresses::ranges);
    ranges.extend(bound.map(|(first, last)| {
        let (first, last) = (first.to_bits(), last.to_bits());
        FwPool4Range { first, last, low: 0, high: u16::MAX }
    }));
    let fixed = settings
        .bib
        .iter()
        .filter(|bib| !settings.pools.iter().any(|pool| pool.contains(bib.v4.0, bib.v4.1)));
    ranges.extend(fixed.map(|bib| {
        let (addr, port) = (bib.v4.0.to_bits(), bib.v4.1);
        FwPool4Range { first: addr, last: addr, low: port, high: port }
    }));
    (ranges, number)
}

#[cfg(test)]
mod tests {
    use fordway_xlat::nat64::{Dynamic4, Pool, Protocol, Range, StaticBib};

    use super::*;

    fn range(first: [u8; 4], last: [u8; 4], low: u16) -> Range {
        Range { first: first.into(), last: last.into(), low, high: 65_535 }
    }

    #[test]
    fn neighbouring_ranges_are_one() {
        let ranges = vec![
            range([192, 0, 2, 1], [192, 0, 2, 1], 1024),
            range([192, 0, 2, 2], [192, 0, 2, 9], 1024),
            range([192, 0, 2, 10], [192, 0, 2, 10], 2048),
        ];
        let bib = |port| StaticBib {
            protocol: Protocol::Tcp,
            v6: ("2001:db8::1".parse().unwrap(), 80),
            v4: ([192, 0, 2, 10].into(), port),
        };
        let settings = Settings {
            pools: vec![Pool { ranges, ..Pool::default() }],
            bib: vec![bib(80), bib(4096)],
            ..Settings::default()
        };
        let (ranges, pools) = pool4(&settings);
        assert_eq!(pools, 2);
        let found: Vec<(u32, u32, u16)> =
            ranges.iter().map(|range| (range.first & 0xff, range.last & 0xff, range.low)).collect();
        assert_eq!(found, [(1, 9, 1024), (10, 10, 2048), (10, 10, 80)]);
    }

    #[test]
    fn addresses_for_hosts_are_whole() {
        let pool = ["192.0.2.0/25", "192.0.2.128/25", "203.0.113.4/31"];
        let pool = pool.map(|net| net.parse().unwrap()).to_vec();
        let dynamic4 = Some(Dynamic4 { pool, clients: Vec::new() });
        let (ranges, pools) = pool4(&Settings { dynamic4, ..Settings::default() });
        assert_eq!(pools, 2);
        let found: Vec<(u32, u32, u16, u16)> = ranges
            .iter()
            .map(|range| (range.first & 0xff, range.last & 0xff, range.low, range.high))
            .collect();
        assert_eq!(found, [(0, 255, 0, 65_535), (4, 5, 0, 65_535)]);
    }
}
