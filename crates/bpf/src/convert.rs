//! From the translator's configuration to the programs'.

use std::cmp::Reverse;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::Ipv4Addr;

use fordway_xlat::addr::Eam;
use fordway_xlat::config::HopCount;
use fordway_xlat::{Config, Direction, TrafficClass, UdpChecksumZero};

pub(crate) use self::stateful::{convert_stateful, relevant};
pub(crate) use self::tunnels::{convert_tunnels, softwire_config};
use crate::{Forwarding, Unsupported};

use crate::abi::{Abi, FwConfig, FwEam, FwPool6, MAX_INLINE_EAM, MAX_POOL6, udp_checksum_zero};

/// Settings that the loader adds to the translator's configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extra {
    pub(crate) tun: u32,
    pub(crate) link_layer_len: u32,
    pub(crate) decrement_hop_limit: HopCount,
    pub(crate) measure: bool,
    pub(crate) trace: Option<u32>,
    pub(crate) pass_rate: Option<u32>,
    pub(crate) keep_order: bool,
    pub(crate) forward: Forwarding,
}

/// The programs' configuration.
pub(crate) fn convert(config: &Config, extra: Extra) -> Result<FwConfig, Unsupported> {
    let mut fw = FwConfig {
        pool6_count: config.pool6.len() as u32,
        icmp_source4: config.icmp_source4.map_or(0, Ipv4Addr::to_bits),
        mtu4: config.mtu4,
        mtu6: config.mtu6,
        lowest_ipv6_mtu: config.lowest_ipv6_mtu,
        eam_in_maps: u8::from(eam_in_maps(config)),
        decrement_hop_limit: Direction::ALL
            .map(|direction| u8::from(extra.decrement_hop_limit.counts(direction))),
        udp_checksum_zero: match config.udp_checksum_zero {
            UdpChecksumZero::Compute => udp_checksum_zero::COMPUTE,
            UdpChecksumZero::Drop => udp_checksum_zero::DROP,
            UdpChecksumZero::Pass => udp_checksum_zero::PASS,
        },
        ipv4_translatable: u8::from(config.ipv4_translatable),
        hairpin: u8::from(config.hairpin),
        mss_clamp: u8::from(config.mss_clamp),
        icmp_node_id: u8::from(config.icmp_node_id),
        ..common(extra, config.traffic_class)
    };
    if let Some(source6) = config.icmp_source6 {
        (fw.icmp_source6_hi, fw.icmp_source6_lo) = halves(source6.to_bits());
    }
    set_pool6(&mut fw, config)?;
    if !eam_in_maps(config) {
        set_eam(&mut fw, config);
    }
    Ok(fw)
}

/// Nanoseconds of a second.
const NS: u32 = 1_000_000_000;

/// What programs of all kinds know.
fn common(extra: Extra, traffic_class: TrafficClass) -> FwConfig {
    let mut fw = FwConfig {
        tun_ifindex: extra.tun,
        link_layer_len: extra.link_layer_len,
        identification_secret: random(),
        trace_rate: extra.trace.unwrap_or(0),
        pass_interval_ns: extra.pass_rate.map_or(0, |rate| NS / rate.clamp(1, NS)),
        measure: u8::from(extra.measure),
        trace: u8::from(extra.trace.is_some()),
        keep_order: u8::from(extra.keep_order),
        direct: u8::from(extra.forward == Forwarding::Direct),
        in_place: u8::from(extra.forward == Forwarding::InPlace),
        routes_bits: routes_bits(libbpf_rs::num_possible_cpus().unwrap_or(1)),
        ..FwConfig::zeroed()
    };
    if let TrafficClass::Set(octet) = traffic_class {
        fw.set_traffic_class = 1;
        fw.traffic_class = octet;
    }
    fw
}

/// Places of the cache of routing answers for each processor, as a power of two: some 7 MB on all processors together, since
/// each has its share of the hosts as well, but no fewer than serve a gateway with few hosts.
fn routes_bits(processors: usize) -> u8 {
    const LEAST: u32 = 12;
    const MOST: u32 = 15;
    const ALL: u32 = 16;
    (ALL - processors.clamp(1, 1 << ALL).next_power_of_two().ilog2().min(ALL)).clamp(LEAST, MOST)
        as u8
}

/// A random number: a hash of nothing, with the library's random key.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Whether the explicit mappings go into maps, being too many for the configuration.
pub(crate) fn eam_in_maps(config: &Config) -> bool {
    config.eam.entries().len() > MAX_INLINE_EAM
}

pub(crate) fn fw_eam(eam: &Eam) -> FwEam {
    let (v6_hi, v6_lo) = halves(eam.v6().addr().to_bits());
    FwEam {
        v6_hi,
        v6_lo,
        v4: eam.v4().addr().to_bits(),
        v4_len: eam.v4().prefix_len(),
        v6_len: eam.v6().prefix_len(),
        reserved: [0; 2],
    }
}

fn set_pool6(fw: &mut FwConfig, config: &Config) -> Result<(), Unsupported> {
    if config.pool6.len() > MAX_POOL6 {
        return Err(Unsupported::with_hint(
            format!(
                "the kernel engine knows {MAX_POOL6} translation prefixes at most, and pool6 has {}",
                config.pool6.len()
            ),
            "use engine = \"user\", or fewer prefixes",
        ));
    }
    // The first match is the longest. Among prefixes of one length at most one matches.
    let mut order: Vec<usize> = (0..config.pool6.len()).collect();
    order.sort_by_key(|&index| Reverse(config.pool6[index].len()));
    for (slot, &index) in fw.pool6.iter_mut().zip(&order) {
        let prefix = config.pool6[index];
        let (hi, lo) = halves(prefix.net().addr().to_bits());
        let global_only = prefix.is_well_known() && !config.allow_private;
        *slot = FwPool6 {
            hi,
            lo,
            len: prefix.len(),
            global_only: u8::from(global_only),
            number: index as u8,
            place: 0,
            reserved: [0; 4],
        };
    }
    for (place, &index) in order.iter().enumerate() {
        fw.pool6[index].place = place as u8;
    }
    fw.pool6_first = order.iter().position(|&index| index == 0).unwrap_or(0) as u32;
    Ok(())
}

fn set_eam(fw: &mut FwConfig, config: &Config) {
    let mut entries = config.eam.entries().to_vec();
    fw.eam_count = entries.len() as u32;
    entries.sort_by_key(|eam| Reverse(eam.v4().prefix_len()));
    for (slot, eam) in fw.eam4.iter_mut().zip(&entries) {
        *slot = fw_eam(eam);
    }
    entries.sort_by_key(|eam| Reverse(eam.v6().prefix_len()));
    for (slot, eam) in fw.eam6.iter_mut().zip(&entries) {
        *slot = fw_eam(eam);
    }
}

fn halves(bits: u128) -> (u64, u64) {
    ((bits >> 64) as u64, bits as u64)
}

mod stateful;
#[cfg(test)]
mod tests;
mod tunnels;
