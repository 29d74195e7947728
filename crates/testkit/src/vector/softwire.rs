//! The `softwire` table of a vector: one end of softwires instead of a translator.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use fordway_softwire::{
    Binding, BindingError, Bindings, Part, PortSet, PortSetError, Role, Settings, SettingsError,
    Softwire,
};
use fordway_xlat::reassembly::{BUFFER_LEN, Origin, Outcome, Reassembler};
use fordway_xlat::{DropReason, IcmpErrors, TrafficClass};
use serde::Deserialize;

use super::config::{Errors, icmp_errors};

/// Makes the flow labels of vectors.
pub const FLOW_SECRET: [u64; 2] = [1, 2];

/// Octets of an IPv6 header, and where its Payload Length and its Next Header lie.
const IPV6_HEADER: usize = 40;
const PAYLOAD_LEN_AT: usize = 4;
const NEXT_HEADER_AT: usize = 6;
const IPV4: u8 = 4;

/// One end of softwires. What is not set has the core's default.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SoftwireSpec {
    /// Which end it is; the tunnel end point, if missing.
    #[serde(default)]
    pub role: RoleSpec,
    /// The tunnel end point's address in bindings that name no other.
    pub local: Ipv6Addr,
    /// The bindings as the tunnel end point has them; a client has one, or none yet.
    #[serde(default)]
    pub bindings: Vec<BindingSpec>,
    /// Hop Limit of tunnel packets.
    pub hop_limit: Option<u8>,
    /// Their Traffic Class, instead of the packet's own.
    pub traffic_class: Option<u8>,
    /// MTU of the first link.
    pub mtu6: Option<u32>,
    /// Source of ICMPv4 errors; `"none"`: none.
    pub icmp_source4: Option<String>,
    /// Whether ICMP errors are sent.
    pub icmp_errors: Option<Errors>,
    /// Whether this end counts as a hop.
    pub decrement_hop_limit: Option<bool>,
    /// Lower the MSS of SYNs.
    pub mss_clamp: Option<bool>,
    /// Packets from one client to another.
    pub hairpin: Option<bool>,
    /// Pass packets that are none of the tunnels'.
    pub pass_unmatched: Option<bool>,
}

/// Which end it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RoleSpec {
    /// The tunnel end point.
    #[default]
    Tep,
    /// A client.
    Client,
}

/// A binding.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BindingSpec {
    /// The client's IPv4 address.
    pub v4: Ipv4Addr,
    /// Which of those that share it has these ports.
    pub psid: Option<u16>,
    /// Bits of the PSID.
    #[serde(default)]
    pub psid_len: u8,
    /// Bits in front of it.
    #[serde(default)]
    pub psid_offset: u8,
    /// The client's end of the tunnel.
    pub remote: Ipv6Addr,
    /// The tunnel end point's, if it is another than all have.
    pub local: Option<Ipv6Addr>,
}

/// A `softwire` table that makes none.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum SoftwireSpecError {
    /// Ports.
    #[error(transparent)]
    Ports(#[from] PortSetError),
    /// A binding beside the others.
    #[error(transparent)]
    Binding(#[from] BindingError),
    /// The settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// An address.
    #[error("`{0}` is no IPv4 address")]
    Address(String),
}

impl SoftwireSpec {
    /// The core with its bindings.
    pub fn softwire(&self) -> Result<Softwire, SoftwireSpecError> {
        let mut bindings = Bindings::default();
        for binding in &self.bindings {
            bindings.insert(binding.binding(self.local)?)?;
        }
        Ok(Softwire::new(self.settings()?, bindings)?)
    }

    fn settings(&self) -> Result<Settings, SoftwireSpecError> {
        let default = Settings::default();
        let source4 = |text: &str| {
            text.parse().map_err(|_| SoftwireSpecError::Address(text.to_owned())).map(Some)
        };
        Ok(Settings {
            role: match self.role {
                RoleSpec::Tep => Role::Tep,
                RoleSpec::Client => Role::Client,
            },
            hop_limit: self.hop_limit.unwrap_or(default.hop_limit),
            traffic_class: self.traffic_class.map_or(default.traffic_class, TrafficClass::Set),
            mtu6: self.mtu6.unwrap_or(default.mtu6),
            flow_secret: FLOW_SECRET,
            icmp_source4: match self.icmp_source4.as_deref() {
                None => default.icmp_source4,
                Some("none") => None,
                Some(text) => source4(text)?,
            },
            // One after the other in a moment, vectors are more than a network should have.
            icmp_errors: self.icmp_errors.map_or(IcmpErrors::Unlimited, icmp_errors),
            hop_count: self.decrement_hop_limit.map_or(default.hop_count, Into::into),
            mss_clamp: self.mss_clamp.unwrap_or(default.mss_clamp),
            hairpin: self.hairpin.unwrap_or(default.hairpin),
            pass_unmatched: self.pass_unmatched.unwrap_or(default.pass_unmatched),
        })
    }
}

impl BindingSpec {
    fn binding(&self, local: Ipv6Addr) -> Result<Binding, PortSetError> {
        let ports = self.psid.map(|psid| PortSet::new(self.psid_offset, self.psid_len, psid));
        let local = self.local.unwrap_or(local);
        Ok(Binding { v4: self.v4, ports: ports.transpose()?, remote: self.remote, local })
    }
}

/// What has become of a packet that may have to wait for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assembled {
    /// It is whole now.
    Whole(Vec<u8>),
    /// It waits, or was there before.
    Waits,
    /// It is dropped, and with it so many fragments in all.
    Dropped(DropReason, usize),
}

/// Puts the parts of packets together for a softwire, as an engine does.
pub fn assemble(
    softwire: &Softwire,
    waiting: &mut Reassembler,
    packet: &[u8],
    now: Duration,
) -> Assembled {
    let (front, origin) = match softwire.part(packet) {
        Part::Whole => return Assembled::Whole(packet.to_vec()),
        Part::Fragment => (0, Origin::Softwire),
        Part::Inside { at, remote } => (at, Origin::Inside(remote)),
    };
    let mut buffer = vec![0; BUFFER_LEN];
    match waiting.insert(origin, &packet[front..], now, &mut buffer) {
        Outcome::Whole => Assembled::Whole(packet.to_vec()),
        Outcome::Complete(range) if front == 0 => {
            // It may be a tunnel packet with a fragment in it.
            assemble(softwire, waiting, &buffer[range], now)
        }
        Outcome::Complete(range) => {
            let mut whole = [&packet[..IPV6_HEADER], &buffer[range.clone()]].concat();
            whole[NEXT_HEADER_AT] = IPV4;
            let len = (range.len() as u16).to_be_bytes();
            whole[PAYLOAD_LEN_AT..PAYLOAD_LEN_AT + 2].copy_from_slice(&len);
            Assembled::Whole(whole)
        }
        Outcome::Incomplete | Outcome::Duplicate => Assembled::Waits,
        Outcome::Dropped { reason, fragments } => Assembled::Dropped(reason, fragments),
    }
}
