//! The programs, the objects that they are compiled in, and where they run.

use std::sync::OnceLock;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{DataSec, Var};

macro_rules! programs {
    ($($program:ident = $name:literal in $file:ident, $doc:literal;)*) => {
        /// One of the programs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Program {
            $(#[doc = $doc] $program,)*
        }

        impl Program {
            /// All of them.
            pub const ALL: [Program; [$($name),*].len()] = [$(Program::$program,)*];

            /// The program's name in its object.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Program::$program => $name,)* }
            }

            /// The object that it is in.
            pub(crate) const fn file(self) -> ObjectFile {
                match self { $(Program::$program => ObjectFile::$file,)* }
            }
        }
    };
}

programs! {
    Interface = "fordway_interface" in TC, "At the egress of the TUN device.";
    UplinkInterface = "fordway_uplink_interface" in TC,
        "At the egress of the TUN device of a translator at an uplink: against loops.";
    UplinkEgress = "fordway_uplink_egress" in TC, "At the egress of the uplink: IPv4 to IPv6.";
    UplinkIngress = "fordway_uplink_ingress" in TC, "At the ingress of the uplink: IPv6 to IPv4.";
    Ingress = "fordway_ingress" in TC, "At the ingress of a gateway's devices.";
    PodEgress = "fordway_pod_egress" in TC, "At the egress of a pod's device: IPv4 to IPv6.";
    PodIngress = "fordway_pod_ingress" in TC, "At the ingress of a pod's device: IPv6 to IPv4.";
    Xdp = "fordway_xdp" in XDP, "XDP, without tables of stateful translation.";
    XdpNat64 = "fordway_xdp_nat64" in XDP_NAT64, "XDP of a stateful translator.";
    SoftwireInterface = "fordway_softwire_interface" in SOFTWIRE,
        "Of softwires, at the egress of the TUN device.";
    SoftwireUplinkInterface = "fordway_softwire_uplink_interface" in SOFTWIRE,
        "Of a softwire's client at its uplink, at the egress of the TUN device: against loops.";
    SoftwireUplinkEgress = "fordway_softwire_uplink_egress" in SOFTWIRE,
        "Of a softwire's client, at the egress of the uplink: into the tunnel.";
    SoftwireUplinkIngress = "fordway_softwire_uplink_ingress" in SOFTWIRE,
        "Of a softwire's client, at the ingress of the uplink: out of the tunnel.";
    SoftwireIngress = "fordway_softwire_ingress" in SOFTWIRE,
        "Of softwires, at the ingress of a gateway's devices.";
}

impl Program {
    /// Whether it runs at XDP.
    #[must_use]
    pub const fn is_xdp(self) -> bool {
        matches!(self, Program::Xdp | Program::XdpNat64)
    }

    /// Whether many pods share it.
    pub(crate) const fn is_of_pods(self) -> bool {
        matches!(self, Program::PodEgress | Program::PodIngress)
    }

    /// Whether it stands in front of routing, at a gateway's devices.
    pub(crate) const fn is_in_front(self) -> bool {
        matches!(self, Program::Ingress | Program::SoftwireIngress) || self.is_xdp()
    }
}

/// Where at a device a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// On what the host sends.
    Egress,
    /// On what the host receives.
    Ingress,
    /// On what the driver receives.
    Xdp,
}

impl Place {
    /// The name in status.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Place::Egress => "egress",
            Place::Ingress => "ingress",
            Place::Xdp => "xdp",
        }
    }
}

/// A compiled object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObjectFile {
    pub(crate) name: &'static str,
    pub(crate) octets: &'static [u8],
    constants: &'static OnceLock<Vec<(String, usize)>>,
}

/// ELF structures are read where they lie.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

/// The map of constants, by the end of its name.
pub(crate) const CONSTANTS: &str = ".rodata";

macro_rules! objects {
    ($($name:ident = $file:literal;)*) => {
        impl ObjectFile {
            $(pub(crate) const $name: ObjectFile = {
                static OBJECT: &Aligned<[u8]> =
                    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/fordway_", $file, ".o")));
                static CONSTANTS: OnceLock<Vec<(String, usize)>> = OnceLock::new();
                ObjectFile { name: $file, octets: &OBJECT.0, constants: &CONSTANTS }
            };)*
        }
    };
}

objects! {
    TC = "tc";
    XDP = "xdp";
    XDP_NAT64 = "xdp_nat64";
    SOFTWIRE = "softwire";
    PATH = "path";
}

impl ObjectFile {
    /// Where a variable lies among the constants.
    pub(crate) fn constant(self, name: &str) -> Option<usize> {
        let all = self.constants.get_or_init(|| self.read_constants().unwrap_or_default());
        all.iter().find(|(found, _)| found == name).map(|&(_, offset)| offset)
    }

    /// Names and places of the constants.
    fn read_constants(self) -> Option<Vec<(String, usize)>> {
        let btf = Btf::from_raw(self.name, self.octets).ok()??;
        let section: DataSec<'_> = btf.type_by_name(CONSTANTS)?;
        let variables = section.iter().filter_map(|variable| {
            let var: Var<'_> = btf.type_by_id(variable.ty)?;
            Some((var.name()?.to_string_lossy().into_owned(), variable.offset as usize))
        });
        Some(variables.collect())
    }
}
