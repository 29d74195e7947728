//! NAT64 by Jool in two boxes: an instance in each one's namespace, and a joold beside each, which sends its instance's sessions to the other joold by UDP
//! multicast on the link between them, and writes those of the other one into its instance.

use fordway_data::spec::Kind;
use serde_json::{Value, json};

use super::{JOINED, vrrp};
use crate::backend::{Place, must};
use crate::error::{LabError, Result};
use crate::mechanism::jool::{self, INSTANCE, Jool};
use crate::mechanism::{Availability, Context, Deployed, Mechanism, Memory, no_middle};
use crate::process::{self, Output, find_program};

/// The program; it is in the package of Jool's commands.
const JOOLD: &str = "joold";
/// Group and port of both: a documentation address (RFC 6676). joold cannot bind to one of the link's scope, because it names no interface there.
const GROUP: [&str; 2] = ["ff08::db8:64:64", "6464"];
/// Each translated packet queues its session. The queue is sent when it fills a datagram and joold has acknowledged the last one, and with the next packet
/// when the last one is so many ms old. By default that is 2000, and with few packets the standby would know nothing of the last 2 s.
const SETTINGS: [[&str; 2]; 2] = [["ss-enabled", "true"], ["ss-flush-deadline", "10"]];
/// What each instance derives ports from, beside a secret that is the module's: the default, and fewer fields. Two machines have two secrets. With one, the
/// standby would give most sessions that it was not told of the port that they had.
const F_ARGS: [&str; 2] = ["11", "9"];

/// Both boxes.
pub(in crate::mechanism) struct Joold;

/// Which way sessions go from one box; `number`: which.
fn network(number: usize) -> Value {
    let device = ["to-standby", "to-host"][number];
    json!({
        "multicast address": GROUP[0],
        "multicast port": GROUP[1],
        "in interface": device,
        "out interface": device,
        "reuseaddr": 1,
        "ttl": 1,
    })
}

/// Which instance they are of.
fn instance() -> Value {
    json!({ "instance": INSTANCE })
}

/// The command that prints sessions of ICMP, one a line.
fn echoes() -> Vec<String> {
    let argv = ["jool", "-i", INSTANCE, "session", "display", "--icmp"];
    argv.into_iter().chain(["--numeric", "--csv", "--no-headers"]).map(str::to_owned).collect()
}

impl Joold {
    fn one(context: Context<'_>, place: &Place, number: usize) -> Result<Deployed> {
        let name = format!("{}-{number}", context.name);
        let (_, mut config) = jool::add(context.backend, place, context.spec.kind)?;
        for [key, value] in SETTINGS.into_iter().chain([["f-args", F_ARGS[number]]]) {
            let argv = ["jool", "-i", INSTANCE, "global", "update", key, value];
            must(context.backend, place, &argv)?;
            config += &format!("\n{}", argv.join(" "));
        }
        let mut argv = vec![JOOLD.to_owned()];
        for (what, value) in [("net", network(number)), ("instance", instance())] {
            let text = value.to_string();
            let file =
                context.backend.deploy(&format!("{name}-joold-{what}.json"), text.as_bytes())?;
            argv.push(file.display().to_string());
            config += &format!("\n{text}");
        }
        config.push('\n');
        let log = context.logs.join(format!("{name}-joold.log"));
        let daemon = context.backend.run(Some(place), &argv, Output::Log(&log))?;
        Ok(Deployed { config, argv, daemon: Some(daemon), ..Deployed::default() })
    }

    /// Waits until the standby knows a session that it has not carried: of a ping through the other box.
    fn joined(context: Context<'_>, standby: &Place, parts: &mut [Deployed]) -> Result<()> {
        let network = context.network;
        let target = network.target.to_string();
        let probe = ["ping", "-n", "-q", "-c", "1", "-W", "0.5", &target];
        let argv = echoes();
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let ready = process::poll(JOINED, || {
            // The session is what counts, whether an answer comes or not.
            drop(must(context.backend, &network.app, &probe));
            let known = must(context.backend, standby, &argv);
            let known = known.is_ok_and(|said| !said.stdout.trim().is_empty());
            (known || parts.iter_mut().any(Deployed::gone)).then_some(known)
        })?;
        if ready == Some(true) {
            return Ok(());
        }
        let why = match ready {
            Some(_) => "joold or keepalived has ended",
            None => "the standby's Jool is told of no session",
        };
        Err(LabError::NotReady { mechanism: context.spec.name.clone(), why: why.into() })
    }
}

impl Mechanism for Joold {
    fn availability(&self, kind: Kind) -> Availability {
        let needs = [(JOOLD, "jool-tools jool-dkms"), (vrrp::KEEPALIVED, vrrp::KEEPALIVED)];
        match needs.into_iter().find(|(program, _)| find_program(program).is_none()) {
            Some((_, packages)) => {
                Availability::Missing { hint: format!("apt-get install {packages}") }
            }
            None => Jool.availability(kind),
        }
    }

    fn deploy(&self, context: Context<'_>) -> Result<Deployed> {
        let none = || no_middle(context.spec);
        let host = context.network.host.as_ref().ok_or_else(none)?;
        let beside = context.network.standby.as_ref().ok_or_else(none)?;
        let mut parts = vec![Self::one(context, host, 0)?, Self::one(context, beside, 1)?];
        parts.extend(vrrp::start(context, [host, beside])?);
        Self::joined(context, beside, &mut parts)?;
        let config = parts.iter().map(|part| part.config.as_str()).collect();
        let argv = parts[0].argv.clone();
        Ok(Deployed { config, argv, parts, ..Deployed::default() })
    }

    fn memory(&self, deployed: &Deployed) -> Option<Memory> {
        Jool.memory(deployed)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    #[test]
    fn the_standby_chooses_ports_in_its_own_way() {
        // RFC 6056 section 3.3.3: fields of the connection, here a bit for each, and a secret give the first port that is tried.
        let [host, standby] = F_ARGS.map(|fields| fields.parse::<u8>().unwrap());
        assert!(host != standby && host < 16 && standby < 16 && standby > 0);
    }

    #[test]
    fn both_boxes_speak_in_one_group_on_the_link_between_them() {
        let [host, standby] = [0, 1].map(network);
        for key in ["multicast address", "multicast port"] {
            assert!(host[key].is_string() && host[key] == standby[key], "{host} {standby}");
        }
        for (own, device) in [(&host, "to-standby"), (&standby, "to-host")] {
            assert_eq!([&own["in interface"], &own["out interface"]], [device, device]);
        }
        let group: Ipv6Addr = GROUP[0].parse().unwrap();
        assert_eq!(group.segments()[..6], [0xff08, 0, 0, 0, 0, 0xdb8], "{group}");
    }
}
