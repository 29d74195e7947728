//! The file format.

use std::collections::BTreeMap;

use fordway_xlat::{ChecksumState, Gso, GsoKind};
use serde::Deserialize;

use super::config::ConfigSpec;
use super::softwire::SoftwireSpec;
use crate::packet::PacketSpec;

/// Counters by name: `v4_to_v6.packets`, `.segments`, `.octets`, `.fragments` (and `v6_to_v4`),
/// `drop.<label>`, `icmp_errors.v4_to_v6`, `suppressed`, `passed`.
pub type CounterMap = BTreeMap<String, u64>;

/// A vector file.
///
/// Either one packet (`input`, `offload`, `expect`) or several in turn (`step`).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vector {
    /// What is shown, in one line.
    pub title: String,
    /// The section that demands it.
    pub source: String,
    /// More for people, where the title is not enough.
    pub note: Option<String>,
    /// The translator's configuration.
    #[serde(default)]
    pub config: ConfigSpec,
    /// One end of softwires, instead of a translator.
    pub softwire: Option<SoftwireSpec>,
    /// The first identification that the translator's generator gives.
    #[serde(default = "first_identification")]
    pub identification: u16,
    /// Subjects to which the vector does not apply, and why.
    #[serde(default)]
    pub skip: BTreeMap<String, String>,
    /// The packet that comes in.
    pub input: Option<PacketSpec>,
    /// Its offload state.
    #[serde(default)]
    pub offload: OffloadSpec,
    /// What must come out.
    pub expect: Option<ExpectSpec>,
    /// Several packets in turn.
    #[serde(default)]
    pub step: Vec<StepSpec>,
}

/// One packet of several.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepSpec {
    /// When it arrives, in milliseconds.
    #[serde(default)]
    pub at: u64,
    /// The packet that comes in.
    pub input: PacketSpec,
    /// Its offload state.
    #[serde(default)]
    pub offload: OffloadSpec,
    /// What must come out.
    pub expect: ExpectSpec,
}

/// What must come out.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectSpec {
    /// The verdict.
    pub verdict: VerdictSpec,
    /// With `reply`: which ICMP error.
    pub error: Option<ErrorSpec>,
    /// With `reply` and `too_big`: the MTU.
    pub mtu: Option<u16>,
    /// With `reply` and `parameter_problem`: the pointer.
    pub pointer: Option<u32>,
    /// With `reply` and `drop`: the label of the drop reason.
    pub reason: Option<String>,
    /// The packets that leave.
    #[serde(default)]
    pub packet: Vec<PacketSpec>,
    /// The offload state of what leaves.
    #[serde(default)]
    pub offload: OffloadSpec,
    /// Counters that differ from what the verdict alone makes of them.
    #[serde(default)]
    pub counters: CounterMap,
}

/// A verdict's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VerdictSpec {
    /// Translated.
    Forward,
    /// Answered with an ICMP error.
    Reply,
    /// Dropped.
    Drop,
    /// Not the translator's.
    Pass,
    /// Kept, or what it said taken up: nothing comes of it now.
    Stored,
}

/// An ICMP error's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorSpec {
    /// Time exceeded.
    TimeExceeded,
    /// Fragmentation needed, packet too big.
    TooBig,
    /// Communication administratively prohibited.
    AdministrativelyProhibited,
    /// Source route failed.
    SourceRouteFailed,
    /// Parameter problem.
    ParameterProblem,
    /// Host or address unreachable.
    AddressUnreachable,
    /// Port unreachable.
    PortUnreachable,
    /// Protocol unreachable; port unreachable over IPv6.
    ProtocolUnreachable,
    /// Source address failed ingress or egress policy (ICMPv6).
    SourcePolicy,
}

/// Offload state.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OffloadSpec {
    /// The transport checksum.
    pub checksum: ChecksumSpec,
    /// The super-packet, if it is one.
    pub gso: Option<GsoSpec>,
}

/// State of the transport checksum: `"complete"`, `"verified"`, `"partial"` (the builder finds where
/// and writes the pseudo-header's sum), or where a partial one lies, whatever the packet says.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub enum ChecksumSpec {
    /// By name.
    Named(ChecksumName),
    /// A partial checksum at a place of its own.
    Place {
        /// First octet covered.
        start: u16,
        /// Where the field lies, from `start`.
        offset: u16,
    },
}

impl Default for ChecksumSpec {
    fn default() -> ChecksumSpec {
        ChecksumSpec::Named(ChecksumName::Complete)
    }
}

/// A checksum state by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChecksumName {
    /// Complete, nobody vouches for it.
    Complete,
    /// Complete and verified.
    Verified,
    /// Partial.
    Partial,
}

/// A super-packet.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GsoSpec {
    /// `tcp4`, `tcp6` or `udp`.
    pub kind: GsoName,
    /// Octets of payload per segment.
    pub size: u16,
    /// Octets of headers, instead of the true number.
    pub header_len: Option<u16>,
    /// ECN was negotiated.
    #[serde(default)]
    pub ecn: bool,
}

/// A kind of super-packet by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GsoName {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP.
    Udp,
}

impl OffloadSpec {
    /// Whether the builder writes a partial checksum.
    pub(super) fn is_partial(&self) -> bool {
        matches!(self.checksum, ChecksumSpec::Named(ChecksumName::Partial))
    }

    /// The state for a packet whose transport header, checksum field and headers lie as given.
    pub(super) fn resolve(
        &self,
        transport: usize,
        checksum: Option<usize>,
        headers: usize,
    ) -> fordway_xlat::Offload {
        let checksum = match self.checksum {
            ChecksumSpec::Named(ChecksumName::Complete) => ChecksumState::Complete,
            ChecksumSpec::Named(ChecksumName::Verified) => ChecksumState::Verified,
            ChecksumSpec::Named(ChecksumName::Partial) => ChecksumState::Partial {
                start: transport as u16,
                offset: checksum.unwrap_or(0) as u16,
            },
            ChecksumSpec::Place { start, offset } => ChecksumState::Partial { start, offset },
        };
        let gso = self.gso.map_or_else(Gso::default, |gso| Gso {
            kind: match gso.kind {
                GsoName::Tcp4 => GsoKind::TcpV4,
                GsoName::Tcp6 => GsoKind::TcpV6,
                GsoName::Udp => GsoKind::Udp,
            },
            ecn: gso.ecn,
            size: gso.size,
            header_len: gso.header_len.unwrap_or(headers as u16),
        });
        fordway_xlat::Offload { checksum, gso }
    }
}

fn first_identification() -> u16 {
    1
}
