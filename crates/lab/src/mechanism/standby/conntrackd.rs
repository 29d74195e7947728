//! NAT44 by nftables in two boxes: conntrackd tells the second one's connection tracking of the first one's, at once and without a copy of its
//! own in between (`DisableExternalCache`), which is the faster of its two ways.

use fordway_data::addresses::STANDBY_LINK_V4;
use fordway_data::spec::{Kind, MechanismSpec};
use serde_json::Value;

use super::vrrp;
use crate::backend::{Place, must};
use crate::error::Result;
use crate::mechanism::nftables::{self, Nftables};
use crate::mechanism::{Availability, Context, Deployed, Mechanism, no_middle};
use crate::process::{Output, find_program};
use crate::topology::Network;

/// The program, and Debian's package.
const CONNTRACKD: &str = "conntrackd";

/// Both boxes.
pub(in crate::mechanism) struct Pair;

/// Of one box; `number`: which.
fn configuration(number: usize, folder: &str) -> String {
    let own = STANDBY_LINK_V4[number];
    let other = STANDBY_LINK_V4[1 - number];
    let device = ["to-standby", "to-host"][number];
    format!(
        "Sync {{\n  Mode FTFW {{\n    DisableExternalCache On\n  }}\n  UDP {{\n    IPv4_address {own}\n    \
         IPv4_Destination_Address {other}\n    Port 3780\n    Interface {device}\n    SndSocketBuffer 1249280\n    \
         RcvSocketBuffer 1249280\n    Checksum on\n  }}\n}}\n\
         General {{\n  HashSize 32768\n  HashLimit 131072\n  LockFile {folder}/conntrackd{number}.lock\n  UNIX {{\n    \
         Path {folder}/conntrackd{number}.ctl\n  }}\n  NetlinkBufferSize 2097152\n  NetlinkBufferSizeMaxGrowth 8388608\n  \
         Filter From Kernelspace {{\n    Protocol Accept {{\n      TCP\n      UDP\n    }}\n    Address Ignore {{\n      \
         IPv4_address 127.0.0.1\n      IPv4_address {own}\n      IPv4_address {other}\n    }}\n  }}\n}}\n"
    )
}

impl Pair {
    fn one(context: Context<'_>, place: &Place, number: usize) -> Result<Deployed> {
        let name = format!("{}-{number}", context.name);
        let rules = nftables::masquerade(context.backend, place, "to-iperf", &name)?;
        // Windows of connections that another box has seen so far are not known here.
        let liberal = ["sysctl", "-qw", "net.netfilter.nf_conntrack_tcp_be_liberal=1"];
        must(context.backend, place, &liberal)?;
        let folder = crate::mechanism::run_dir(context);
        std::fs::create_dir_all(&folder).map_err(crate::error::LabError::file(&folder))?;
        let text = configuration(number, &folder.display().to_string());
        let file = context.backend.deploy(&format!("{name}-conntrackd.conf"), text.as_bytes())?;
        let argv = [CONNTRACKD, "-C", &file.display().to_string()].map(str::to_owned);
        let log = context.logs.join(format!("{name}-conntrackd.log"));
        let daemon = context.backend.run(Some(place), &argv, Output::Log(&log))?;
        let config = rules + &text;
        Ok(Deployed { config, argv: argv.into(), daemon: Some(daemon), ..Deployed::default() })
    }
}

impl Mechanism for Pair {
    fn availability(&self, kind: Kind) -> Availability {
        let needs = [CONNTRACKD, vrrp::KEEPALIVED];
        match needs.into_iter().find(|program| find_program(program).is_none()) {
            Some(package) => Availability::Missing { hint: format!("apt-get install {package}") },
            None => Nftables.availability(kind),
        }
    }

    fn deploy(&self, context: Context<'_>) -> Result<Deployed> {
        let none = || no_middle(context.spec);
        let host = context.network.host.as_ref().ok_or_else(none)?;
        let beside = context.network.standby.as_ref().ok_or_else(none)?;
        let mut parts = vec![Self::one(context, host, 0)?, Self::one(context, beside, 1)?];
        parts.extend(vrrp::start(context, [host, beside])?);
        let config = parts.iter().map(|part| part.config.as_str()).collect();
        let argv = parts[0].argv.clone();
        let reader = nftables::reader(context.backend, host);
        Ok(Deployed { config, argv, reader, parts, ..Deployed::default() })
    }

    fn counters(&self, deployed: &Deployed) -> Result<Option<Value>> {
        nftables::counters(deployed)
    }

    fn created(&self, before: &Value, after: &Value) -> Option<u64> {
        nftables::created(before, after)
    }

    fn tracks_connections(&self, _kind: Kind) -> bool {
        true
    }

    fn tracks_at<'a>(&self, _spec: &MechanismSpec, network: &'a Network) -> Option<&'a Place> {
        network.host.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_boxes_speak_to_each_other_and_not_of_themselves() {
        let both = [0, 1].map(|number| configuration(number, "/run/x"));
        for (own, other) in [(0, 1), (1, 0)] {
            let own_address = format!("IPv4_address {}\n", STANDBY_LINK_V4[own]);
            let to = format!("IPv4_Destination_Address {}\n", STANDBY_LINK_V4[other]);
            assert!(both[own].contains(&own_address) && both[own].contains(&to), "{}", both[own]);
        }
    }
}
