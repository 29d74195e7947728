//! Another machine as the device under test: what starts it and empties its tables, and its counters.

use std::collections::BTreeMap;
use std::path::Path;

use fordway_data::spec::{Device as Spec, DeviceCounters, Kind};
use serde_json::Value;

use super::{Availability, Context, Counted, Deployed, Mechanism, run_dir};
use crate::error::{LabError, Result};
use crate::process::{COMMAND_LIMIT, Finished, Output, run_all, run_str, start};
use crate::snmp::{Access, Agent, Packets};
use crate::state::Down;

/// Names the community of its SNMP agent.
const COMMUNITY: &str = "FORDWAY_SNMP_COMMUNITY";

/// The other machine.
pub(super) struct Device {
    pub(super) spec: Spec,
    pub(super) kind: Kind,
}

/// What is read of both interfaces.
type Both = BTreeMap<String, Packets>;

/// Why a network device of this machine can't be an end.
fn unfit(device: &str, take: bool) -> Option<String> {
    let folder = Path::new("/sys/class/net").join(device);
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    if !folder.exists() {
        return Some(format!("this machine has no network device {device}: see `ip link`"));
    }
    if read("carrier").trim() != "1" {
        return Some(format!("{device} has no carrier: ip link set {device} up, and cable it"));
    }
    if !take {
        return None;
    }
    if folder.join("master").exists() {
        return Some(format!(
            "{device} belongs to a bridge or a bond, which would lose it (`take`)"
        ));
    }
    let show = ["ip", "-j", "addr", "show", "dev", device, "scope", "global"];
    match run_str(&show).and_then(Finished::ok) {
        Ok(shown) if !shown.stdout.contains("\"local\"") => None,
        Ok(_) => Some(format!(
            "{device} has addresses, which it would lose (`take`): ip addr flush dev {device} scope global"
        )),
        Err(error) => Some(format!("nobody knows whether {device} has addresses: {error}")),
    }
}

impl Mechanism for Device {
    fn availability(&self, _kind: Kind) -> Availability {
        let Spec { client, server, take, version, .. } = &self.spec;
        match [client, server].into_iter().find_map(|device| unfit(device, *take)) {
            Some(hint) => Availability::Missing { hint },
            None => Availability::Ready { version: version.clone(), program: None },
        }
    }

    fn deploy(&self, context: Context<'_>) -> Result<Deployed> {
        let Spec { up, down, .. } = &self.spec;
        let folder = run_dir(context);
        let mut deployed = Deployed { run_dir: Some(folder.clone()), ..Deployed::default() };
        if !down.is_empty() {
            std::fs::create_dir_all(&folder).map_err(LabError::file(&folder))?;
            deployed.down = Some(Down::note(down, &folder)?);
        }
        run_all(up)?;
        deployed.argv = up.join(&";".to_owned());
        Ok(deployed)
    }

    fn counters(&self, _deployed: &Deployed) -> Result<Option<Value>> {
        let Some(counters) = &self.spec.counters else { return Ok(None) };
        let both = match &counters.snmp {
            Some(agent) => by_snmp(agent, counters)?,
            None => by_command(counters)?,
        };
        let bad = |error: serde_json::Error| LabError::Parse {
            tool: "the device's counters",
            why: error.to_string(),
        };
        serde_json::to_value(both).map(Some).map_err(bad)
    }

    /// What left its far interface, and what it dropped on either.
    fn read(&self, before: &Value, after: &Value, to_v6: bool) -> Option<Counted> {
        let of = |value: &Value| serde_json::from_value::<Both>(value.clone()).ok();
        let (before, after) = (of(before)?, of(after)?);
        // Clients of a stateless translator have IPv4, those of a stateful one IPv6.
        let is_up = to_v6 == matches!(self.kind, Kind::Siit);
        let name = if is_up { "server" } else { "client" };
        let (then, now) = (before.get(name)?, after.get(name)?);
        let drops = ["client", "server"].into_iter().filter_map(|name| {
            let new = after.get(name)?.dropped.saturating_sub(before.get(name)?.dropped);
            (new > 0).then(|| (format!("on the interface towards the {name}"), new))
        });
        Some(Counted {
            octets: now.sent_octets.saturating_sub(then.sent_octets),
            packets: now.sent.saturating_sub(then.sent),
            drops: drops.collect(),
        })
    }
}

/// Both interfaces, as a Linux machine shows them.
fn by_command(counters: &DeviceCounters) -> Result<Both> {
    let argv = [&counters.via[..], &["cat".to_owned(), "/proc/net/dev".to_owned()]].concat();
    let shown = start(&argv, Output::Keep)?.wait(COMMAND_LIMIT)?.ok()?.stdout;
    let names = [("client", &counters.client), ("server", &counters.server)];
    let of = |(side, name): (&str, &String)| {
        let missing = || LabError::Parse {
            tool: "/proc/net/dev of the device under test",
            why: format!("it has no interface {name}"),
        };
        Ok((side.to_owned(), interface(&shown, name).ok_or_else(missing)?))
    };
    names.into_iter().map(of).collect()
}

/// One line of /proc/net/dev: octets, packets, errors and drops received, then the same sent.
fn interface(text: &str, name: &str) -> Option<Packets> {
    let own = |line: &str| {
        let (own, rest) = line.split_once(':')?;
        (own.trim() == name).then(|| rest.to_owned())
    };
    let rest = text.lines().find_map(own)?;
    let all: Vec<u64> = rest.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let at = |place: usize| all.get(place).copied();
    Some(Packets {
        received: at(1)?,
        sent: at(9)?,
        sent_octets: at(8)?,
        dropped: at(2)? + at(3)? + at(10)? + at(11)?,
    })
}

/// Both interfaces, as its agent shows them.
fn by_snmp(agent: &str, counters: &DeviceCounters) -> Result<Both> {
    let community = std::env::var(COMMUNITY).unwrap_or_else(|_| "public".into());
    let access = Access::Community(community);
    let mut agent = Agent::connect(agent, &access)?;
    let names = [("client", &counters.client), ("server", &counters.server)];
    names.into_iter().map(|(side, name)| Ok((side.to_owned(), agent.packets(name)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(kind: Kind) -> Device {
        let spec = Spec {
            client: "none0".into(),
            server: "none1".into(),
            take: false,
            version: "a router".into(),
            up: Vec::new(),
            down: Vec::new(),
            counters: None,
        };
        Device { spec, kind }
    }

    #[test]
    fn interfaces_are_read_from_the_files_of_linux() {
        let text = "Inter-|   Receive\n face |bytes\n  eth1: 1000 10 1 2 0 0 0 0 2000 20 3 4 0 0 0 0\neth10: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n";
        let passed = Packets { received: 10, sent: 20, sent_octets: 2000, dropped: 10 };
        assert_eq!(interface(text, "eth1"), Some(passed));
        assert_eq!(interface(text, "eth"), None);
        assert_eq!(interface("eth1: 5 x", "eth1"), None);
    }

    #[test]
    fn what_leaves_the_far_interface_was_carried() {
        let of = |client: u64, server: u64| {
            let passed = |sent| Packets { sent, sent_octets: 100 * sent, ..Packets::default() };
            serde_json::to_value(Both::from([
                ("client".to_owned(), passed(client)),
                ("server".to_owned(), Packets { dropped: server, ..passed(server) }),
            ]))
            .unwrap()
        };
        let (before, after) = (of(5, 7), of(9, 17));
        // Up: to IPv6 through a stateless translator, to IPv4 through a stateful one.
        for (kind, up) in [(Kind::Siit, true), (Kind::Nat64, false), (Kind::Native, false)] {
            let of = |to_v6| device(kind).read(&before, &after, to_v6).unwrap();
            assert_eq!((of(up).packets, of(up).octets, of(!up).packets), (10, 1000, 4));
            assert_eq!(of(up).drops, [("on the interface towards the server".to_owned(), 10)]);
        }
        assert_eq!(device(Kind::Siit).read(&Value::Null, &after, true), None);
    }

    #[test]
    fn a_device_that_is_not_there_is_a_skip_and_failing_commands_are_told() {
        let Availability::Missing { hint } = device(Kind::Nat64).availability(Kind::Nat64) else {
            panic!("there is no such device");
        };
        assert!(hint.contains("no network device none0"), "{hint}");
        let run = |argv: &[&str]| run_all(&[argv.iter().map(ToString::to_string).collect()]);
        assert!(run(&["true"]).is_ok());
        let told = run(&["sh", "-c", "echo no such router >&2; exit 3"]).unwrap_err().to_string();
        assert!(told.contains("no such router"), "{told}");
    }
}
