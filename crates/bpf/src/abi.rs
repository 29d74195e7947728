//! Mirror of the headers in `c/include`: what the programs and the loader share.
//!
//! Structures are written to and read from octets field by field, in the host's byte order. Sizes and
//! offsets are asserted here; the tests hold every structure and number against the objects' BTF.

use std::mem::offset_of;

/// Version of the maps' layout.
pub(crate) const ABI_VERSION: u32 = 5;

/// The most translation prefixes.
pub(crate) const MAX_POOL6: usize = 16;
/// The most explicit mappings that lie in the configuration itself.
pub(crate) const MAX_INLINE_EAM: usize = 8;
/// The most devices that take redirected frames.
pub(crate) const MAX_DEVICES: usize = 64;
/// The most interfaces of pods.
pub(crate) const MAX_PODS: u32 = 4096;
/// Octets of a container's name in a pod's entry.
pub(crate) const POD_NAME: usize = 96;
/// The most ranges of pool4.
pub(crate) const MAX_POOL4: usize = 64;

/// Bits of the networks of which destinations share an answer of the kernel's routing.
pub(crate) const CELL4: u8 = 24;
pub(crate) const CELL6: u8 = 96;
/// Bits of the hash of such a network.
pub(crate) const FINE_BITS: u32 = 16;
/// Words of the bits by this hash.
pub(crate) const FINE_WORDS: usize = 1 << FINE_BITS >> 6;
/// Pairs of hosts that stateless translation at XDP keeps for each processor, as a power of two.
pub(crate) const PAIRS_BITS: u8 = 12;

/// The most shards of a cluster.
pub(crate) const MAX_SHARDS: usize = 1024;

/// Ports that the programs leave to the user engine.
pub(crate) const LEFT_PORTS: usize = 8;
/// Octets of a packet in an event.
pub(crate) const TRACE_SNAP: usize = 128;

/// `enum fw_outcome`.
pub(crate) mod outcome {
    pub(crate) const TRANSLATED: u8 = 1;
    pub(crate) const PASSED_ON: u8 = 2;
    pub(crate) const DROPPED: u8 = 3;
    pub(crate) const UNMATCHED: u8 = 4;
    pub(crate) const HANDED_OVER: u8 = 5;
}

/// `enum fw_udp_checksum_zero`.
pub(crate) mod udp_checksum_zero {
    pub(crate) const COMPUTE: u8 = 0;
    pub(crate) const DROP: u8 = 1;
    pub(crate) const PASS: u8 = 2;
}

/// `enum fw_softwire_role`.
pub(crate) mod softwire_role {
    pub(crate) const TEP: u8 = 0;
    pub(crate) const CLIENT: u8 = 1;
}

/// `enum fw_nat64_mode`.
pub(crate) mod nat64_mode {
    pub(crate) const STATEFUL: u32 = 1;
    pub(crate) const DYNAMIC4: u32 = 2;
}

/// A value with one representation in octets and no padding.
pub(crate) trait Abi: Sized {
    const SIZE: usize;

    /// Writes the value to the first [`SIZE`](Abi::SIZE) octets.
    fn write(&self, octets: &mut [u8]);

    /// Reads a value from the first [`SIZE`](Abi::SIZE) octets.
    fn read(octets: &[u8]) -> Self;

    fn to_octets(&self) -> Vec<u8> {
        let mut octets = vec![0; Self::SIZE];
        self.write(&mut octets);
        octets
    }

    /// `None`: too few octets.
    fn from_octets(octets: &[u8]) -> Option<Self> {
        (octets.len() >= Self::SIZE).then(|| Self::read(octets))
    }

    fn zeroed() -> Self {
        Self::read(&vec![0; Self::SIZE])
    }
}

macro_rules! abi_integers {
    ($($type:ty)*) => {$(
        impl Abi for $type {
            const SIZE: usize = size_of::<$type>();

            fn write(&self, octets: &mut [u8]) {
                octets[..Self::SIZE].copy_from_slice(&self.to_ne_bytes());
            }

            fn read(octets: &[u8]) -> Self {
                let mut own = [0; size_of::<$type>()];
                own.copy_from_slice(&octets[..Self::SIZE]);
                <$type>::from_ne_bytes(own)
            }
        }
    )*};
}

abi_integers! { u8 u16 u32 u64 }

impl<T: Abi, const N: usize> Abi for [T; N] {
    const SIZE: usize = N * T::SIZE;

    fn write(&self, octets: &mut [u8]) {
        for (value, octets) in self.iter().zip(octets.chunks_exact_mut(T::SIZE)) {
            value.write(octets);
        }
    }

    fn read(octets: &[u8]) -> Self {
        std::array::from_fn(|index| T::read(&octets[index * T::SIZE..]))
    }
}

macro_rules! abi_struct {
    ($(#[$doc:meta])* $name:ident = $c_name:literal, $size:expr; $($field:ident: $type:ty,)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $type,)* }

        impl $name {
            #[cfg(test)]
            pub(crate) const C_NAME: &'static str = $c_name;

            /// Name, offset and size of each field.
            #[allow(dead_code, reason = "not every structure's are asked for")]
            pub(crate) const FIELDS: &'static [(&'static str, usize, usize)] =
                &[$((stringify!($field), offset_of!($name, $field), size_of::<$type>()),)*];
        }

        const _: () = {
            assert!(size_of::<$name>() == $size);
            // No padding: what the fields hold is all there is.
            assert!(0 $(+ <$type as Abi>::SIZE)* == $size);
        };

        impl Abi for $name {
            const SIZE: usize = $size;

            fn write(&self, octets: &mut [u8]) {
                $(self.$field.write(&mut octets[offset_of!($name, $field)..]);)*
            }

            fn read(octets: &[u8]) -> Self {
                $name { $($field: <$type>::read(&octets[offset_of!($name, $field)..]),)* }
            }
        }
    };
}

abi_struct! {
    /// A translation prefix.
    FwPool6 = "fw_pool6", 24;
    hi: u64,
    lo: u64,
    len: u8,
    global_only: u8,
    number: u8,
    place: u8,
    reserved: [u8; 4],
}

abi_struct! {
    /// An explicit mapping.
    FwEam = "fw_eam", 24;
    v6_hi: u64,
    v6_lo: u64,
    v4: u32,
    v4_len: u8,
    v6_len: u8,
    reserved: [u8; 2],
}

abi_struct! {
    /// Key of map `eam4`.
    FwEamKey4 = "fw_eam_key4", 8;
    prefix_len: u32,
    addr: [u8; 4],
}

abi_struct! {
    /// Key of map `eam6`.
    FwEamKey6 = "fw_eam_key6", 20;
    prefix_len: u32,
    addr: [u8; 16],
}

abi_struct! {
    /// The configuration of the programs.
    FwConfig = "fw_config", 24 * (MAX_POOL6 + 2 * MAX_INLINE_EAM) + 88;
    pool6: [FwPool6; MAX_POOL6],
    eam4: [FwEam; MAX_INLINE_EAM],
    eam6: [FwEam; MAX_INLINE_EAM],
    icmp_source6_hi: u64,
    icmp_source6_lo: u64,
    identification_secret: u64,
    pool6_count: u32,
    pool6_first: u32,
    eam_count: u32,
    icmp_source4: u32,
    mtu4: u32,
    mtu6: u32,
    lowest_ipv6_mtu: u32,
    tun_ifindex: u32,
    link_layer_len: u32,
    trace_rate: u32,
    pass_interval_ns: u32,
    eam_in_maps: u8,
    decrement_hop_limit: [u8; 2],
    set_traffic_class: u8,
    traffic_class: u8,
    udp_checksum_zero: u8,
    ipv4_translatable: u8,
    hairpin: u8,
    mss_clamp: u8,
    measure: u8,
    trace: u8,
    keep_order: u8,
    icmp_node_id: u8,
    direct: u8,
    by_pod: u8,
    routes_bits: u8,
    in_place: u8,
    reserved: [u8; 3],
}

abi_struct! {
    /// Transport addresses of pool4.
    FwPool4Range = "fw_pool4_range", 12;
    first: u32,
    last: u32,
    low: u16,
    high: u16,
}

abi_struct! {
    /// A range of a pool, of which shards of a cluster have parts.
    FwPart = "fw_part", 32;
    first: u32,
    last: u32,
    slots: u32,
    base: u32,
    low: u16,
    high: u16,
    shift: u8,
    reserved: [u8; 11],
}

abi_struct! {
    /// What the programs know of stateful translation.
    FwNat64Config = "fw_nat64_config", 128 + 44 * MAX_POOL4;
    secret: [u64; 2],
    masks: [u32; 4],
    entries: [u32; 3],
    mode: u32,
    pool4_count: u32,
    pool4_pools: u32,
    subscriber_len: u32,
    max_ports: [u32; 3],
    max_sessions: u32,
    max_new_per_second: u32,
    address_dependent: u8,
    by_mark: u8,
    accept_v4_syn: u8,
    refresh_from_v4: u8,
    left_ports: [u16; LEFT_PORTS],
    pool4: [FwPool4Range; MAX_POOL4],
    v4_restricted: u8,
    clock: u8,
    reserved: [u8; 2],
    shards: u32,
    part_count: u32,
    shard_key: [u64; 2],
    parts: [FwPart; MAX_POOL4],
}

abi_struct! {
    /// What the programs know of softwires.
    FwSoftwireConfig = "fw_softwire_config", 24;
    secret: [u64; 2],
    role: u8,
    hop_limit: u8,
    hairpin: u8,
    reserved: [u8; 5],
}

abi_struct! {
    /// Value of map `softwire_addresses`.
    FwSoftwireAddress = "fw_softwire_address", 4;
    offset_bits: u8,
    psid_len: u8,
    reserved: [u8; 2],
}

abi_struct! {
    /// Key of map `softwire_bindings`.
    FwSoftwireKey = "fw_softwire_key", 8;
    v4: u32,
    psid: u32,
}

abi_struct! {
    /// Value of map `softwire_bindings`.
    FwSoftwireTunnel = "fw_softwire_tunnel", 56;
    here_hi: u64,
    here_lo: u64,
    there_hi: u64,
    there_lo: u64,
    mtu_until_ns: u64,
    mtu: u32,
    v4: u32,
    psid: u32,
    reserved: u32,
}

abi_struct! {
    /// Value of map `softwire_here`.
    FwSoftwireHere = "fw_softwire_here", 16;
    hi: u64,
    lo: u64,
}

abi_struct! {
    /// What one direction carried.
    FwDirectionCounters = "fw_direction_counters", 24;
    packets: u64,
    segments: u64,
    octets: u64,
}

abi_struct! {
    /// A processor's counters.
    FwCounters = "fw_counters", 48 + 1024 + 256 + 56 + 48 + 32;
    directions: [FwDirectionCounters; 2],
    drops: [u64; 128],
    passed_on: [u64; 32],
    unmatched: u64,
    measured_packets: u64,
    measured_ns: u64,
    trace_lost: u64,
    trace_second: u64,
    trace_events: u64,
    identification: u64,
    bibs_created: [u64; 3],
    sessions_created: [u64; 3],
    elsewhere: u64,
    tagged: u64,
    routed: u64,
    handed_over: u64,
}

abi_struct! {
    /// Value of map `routing`.
    FwRouting = "fw_routing", 32 + FINE_WORDS * 8;
    generation: u64,
    until: u64,
    by_destination: u64,
    life: u64,
    fine: [u64; FINE_WORDS],
}

abi_struct! {
    /// Value of map `pods`.
    FwPod = "fw_pod", 72 + 1024 + 256 + POD_NAME + 16;
    clat_hi: u64,
    clat_lo: u64,
    pod_hi: u64,
    pod_lo: u64,
    network: u64,
    programs: u64,
    translated: [u64; 2],
    foreign: u64,
    drops: [u64; 128],
    passed_on: [u64; 32],
    container: [u8; POD_NAME],
    interface: [u8; 16],
}

abi_struct! {
    /// Key of map `virtual_macs`.
    FwVirtualMac = "fw_virtual_mac", 16;
    mac: u64,
    ifindex: u32,
    reserved: u32,
}

abi_struct! {
    /// An event.
    FwEvent = "fw_event", 24 + 2 * TRACE_SNAP;
    ns: u64,
    len: u32,
    gso_size: u32,
    ifindex: u32,
    outcome: u8,
    reason: u8,
    before_len: u8,
    after_len: u8,
    before: [u8; TRACE_SNAP],
    after: [u8; TRACE_SNAP],
}

abi_struct! {
    /// Value of map `path_totals`.
    FwPathTotals = "fw_path_totals", 40;
    calls: u64,
    super_packets: u64,
    segments: u64,
    octets: u64,
    ns: u64,
}

#[cfg(test)]
mod tests;
