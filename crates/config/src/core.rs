//! From the file's configuration to the core's.

use std::net::Ipv6Addr;

use fordway_softwire::{Bindings, Role, Settings, SettingsError, Softwire};
use fordway_xlat::addr::{Eam, EamError, EamTable};
use fordway_xlat::{Config as CoreConfig, ConfigError, HopCount, IcmpErrors};
use ipnet::{Ipv4Net, Ipv6Net};

use crate::engine::Attach;
use crate::mode::Mode;
use crate::translator::Translator;

/// What the host decides where the file leaves it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// IPv6 path MTU, in octets.
    pub mtu6: u32,
    /// Source of ICMPv6 errors, if there is one.
    pub icmp_source6: Option<Ipv6Addr>,
    /// The IPv6 address of a CLAT, or of a softwire's client; not used elsewhere.
    pub clat_v6: Option<Ipv6Addr>,
    /// Queues; each has an equal part of the rate of ICMP errors.
    pub queues: usize,
    /// Where packets are taken; [`Attach::Auto`] stands for the interface.
    pub attach: Attach,
}

/// Why there is no core configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoreError {
    /// A CLAT without an IPv6 address.
    #[error("the CLAT has no IPv6 address")]
    NoClatAddress,
    /// The CLAT's own mapping and `eam` don't go together.
    #[error(transparent)]
    Eam(#[from] EamError),
    /// The core refuses the rest.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The softwires' core refuses the rest.
    #[error(transparent)]
    Softwire(#[from] SettingsError),
}

impl Translator {
    /// The configuration of this translator for the core in the user engine.
    ///
    /// # Errors
    ///
    /// What the file alone can't tell: [`CoreError`].
    pub fn core(&self, resolved: &Resolved) -> Result<CoreConfig, CoreError> {
        let mut eam = self.eam.clone();
        if let Mode::Clat(clat) = &self.mode {
            // RFC 6877 section 6.3: without an IPv6 prefix for the IPv4 hosts, one IPv6 address
            // stands for all of them; here it stands for the host's one IPv4 address.
            let v6 = resolved.clat_v6.ok_or(CoreError::NoClatAddress)?;
            eam.push(Eam::new(Ipv4Net::from(clat.v4), Ipv6Net::from(v6))?);
        }
        let config = CoreConfig {
            pool6: self.pool6().to_vec(),
            eam: EamTable::new(eam)?,
            icmp_source4: self.icmp_source4,
            icmp_node_id: self.icmp_node_id,
            icmp_source6: resolved.icmp_source6,
            // The IPv4 side is limited by its routes; the kernel answers for them.
            mtu4: CoreConfig::default().mtu4,
            mtu6: resolved.mtu6,
            lowest_ipv6_mtu: self.lowest_ipv6_mtu.min(resolved.mtu6),
            decrement_hop_limit: hops(resolved.attach),
            traffic_class: self.traffic_class,
            udp_checksum_zero: self.udp_checksum_zero,
            allow_private: self.allow_private,
            ipv4_translatable: self.ipv4_translatable,
            hairpin: self.hairpin,
            mss_clamp: self.mss_clamp,
            icmp_errors: share(self.icmp_errors, resolved.queues),
            pass_unmatched: false,
        };
        Ok(config)
    }
}

impl Translator {
    /// The core of a softwire in the user engine, with these bindings; `None` in other modes. `flow_secret`: random
    /// numbers that make flow labels.
    ///
    /// # Errors
    ///
    /// What the file alone can't tell: [`CoreError`].
    pub fn softwire_core(
        &self,
        resolved: &Resolved,
        flow_secret: [u64; 2],
        bindings: Bindings,
    ) -> Result<Option<Softwire>, CoreError> {
        let Some(softwire) = self.softwire() else { return Ok(None) };
        let settings = Settings {
            role: if softwire.client().is_some() { Role::Client } else { Role::Tep },
            hop_limit: softwire.hop_limit,
            traffic_class: self.traffic_class,
            mtu6: resolved.mtu6,
            flow_secret,
            icmp_source4: self.icmp_source4,
            icmp_errors: share(self.icmp_errors, resolved.queues),
            // The node that forwards a packet into a tunnel decrements its hop limit (RFC 2473 section 3.1), as does the
            // node that forwards it out of the tunnel: at every attach point that is the host's routing.
            hop_count: HopCount::NONE,
            mss_clamp: self.mss_clamp,
            hairpin: self.hairpin,
            pass_unmatched: false,
        };
        Ok(Some(Softwire::new(settings, bindings)?))
    }
}

/// What the user engine has to count.
fn hops(attach: Attach) -> HopCount {
    match attach {
        // Routing into the interface and out of it are the two hops of this attach point. What
        // programs on other devices leave to the stack goes this way too.
        Attach::Auto | Attach::Interface | Attach::Ingress | Attach::Xdp => HopCount::NONE,
        // What the programs at the uplink leave is handed to the interface past routing: from there
        // IPv6 is routed on, which counts, and IPv4 is at its goal.
        Attach::Uplink => HopCount { v4_to_v6: false, v6_to_v4: true },
    }
}

/// One queue's part of a rate; at least one error per second.
fn share(errors: IcmpErrors, queues: usize) -> IcmpErrors {
    let queues = u32::try_from(queues.max(1)).unwrap_or(u32::MAX);
    match errors {
        IcmpErrors::Limited { per_second, burst } => IcmpErrors::Limited {
            per_second: (per_second / queues).max(1),
            burst: (burst / queues).max(1),
        },
        other => other,
    }
}
