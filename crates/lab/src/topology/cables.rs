//! The way through another machine: this machine's devices, to which it is cabled.

use std::path::Path;

use fordway_data::addresses::*;
use fordway_data::spec::{Device, Kind, MechanismSpec};

use super::boxes::addresses;
use super::{Shape, batch};
use crate::backend::{Backend, Place};
use crate::error::{LabError, Result};
use crate::state::{Down, notes};

/// Devices that lead to another machine, in the boxes of client and server. Dropping it puts back what was taken.
#[derive(Debug)]
pub(crate) struct Cables {
    /// Mbit/s of the slower one, where both tell.
    pub(super) speed: Option<u32>,
    _back: Down,
}

impl Cables {
    /// Gives both boxes their `uplink`: the device itself, or a macvlan device on top of it.
    pub(super) fn lay(
        backend: &dyn Backend,
        prefix: &str,
        device: &Device,
        ends: [&Place; 2],
    ) -> Result<Self> {
        let both = || ends.into_iter().zip([&device.client, &device.server]);
        // Before they are elsewhere.
        let speed = Self::speed(device);
        let folder = notes().join(format!("{prefix}devices"));
        std::fs::create_dir_all(&folder).map_err(LabError::file(&folder))?;
        let lines: Vec<Vec<String>> = both()
            .flat_map(
                |(place, own)| if device.take { returned(place, own) } else { removed(place) },
            )
            .collect();
        // From here on a failure, or a later run, undoes it.
        let back = Down::note(&lines, &folder)?;
        for (place, own) in both() {
            let lines = if device.take { taken(place, own) } else { stacked(place, own)? };
            batch(backend, place, &format!("{}-links", place.0), true, &lines)?;
        }
        Ok(Self { speed, _back: back })
    }

    /// Mbit/s of the slower device, where both tell.
    pub(crate) fn speed(device: &Device) -> Option<u32> {
        let of = |name: &str| {
            let file = Path::new("/sys/class/net").join(name).join("speed");
            std::fs::read_to_string(file)
                .ok()?
                .trim()
                .parse::<u32>()
                .ok()
                .filter(|speed| *speed > 0)
        };
        of(&device.client).zip(of(&device.server)).map(|(one, other)| one.min(other))
    }
}

fn stacked(place: &Place, own: &str) -> Result<Vec<String>> {
    let file = Path::new("/sys/class/net").join(own).join("address");
    let address = std::fs::read_to_string(&file).map_err(LabError::file(&file))?;
    let address = beside(address.trim()).ok_or_else(|| LabError::Parse {
        tool: "a device's link address",
        why: format!("{own} has {}", address.trim()),
    })?;
    let place = &place.0;
    Ok(vec![format!(
        "link add link {own} name uplink address {address} netns {place} type macvlan mode bridge"
    )])
}

/// The link address of what is stacked on a device of this one: locally administered, and the same at each deployment, as the
/// other machine remembers it.
fn beside(own: &str) -> Option<String> {
    let (first, rest) = own.split_once(':')?;
    let first = u8::from_str_radix(first, 16).ok()?;
    Some(format!("{:02x}:{rest}", (first ^ 0x40) | 0x02))
}

fn taken(place: &Place, own: &str) -> Vec<String> {
    vec![format!("link set {own} down"), format!("link set {own} netns {} name uplink", place.0)]
}

/// The command that removes a stacked device. A namespace that goes would do so only later, and its link address is used again.
fn removed(place: &Place) -> Vec<Vec<String>> {
    vec![["ip", "-n", &place.0, "link", "del", "uplink"].map(str::to_owned).into()]
}

/// Commands that put a device back into the namespace of who runs them.
fn returned(place: &Place, own: &str) -> Vec<Vec<String>> {
    // The shell's process is in that namespace.
    let back =
        r#"ip -n "$1" link set uplink down && ip -n "$1" link set uplink netns $$ name "$2""#;
    vec![
        ["sh", "-c", back, "sh", &place.0, own].map(str::to_owned).into(),
        ["ip", "link", "set", own, "up"].map(str::to_owned).into(),
    ]
}

/// What another machine has to be, as the `ip` commands that make a Linux machine it, and in words what it translates. Nothing
/// for an arm that runs here.
pub(crate) fn needs(arm: &MechanismSpec) -> Option<(Vec<String>, String)> {
    let device = arm.device.as_ref()?;
    let names = device.counters.as_ref().map(|counters| (&*counters.client, &*counters.server));
    let (client, server) = names.unwrap_or(("to-client", "to-iperf"));
    let named = |line: String| {
        format!("ip {line}").replace("to-client", client).replace("to-iperf", server)
    };
    let mut lines: Vec<String> =
        addresses("host", Shape::of(arm, true)).into_iter().skip(1).map(named).collect();
    lines.push("sysctl -w net.ipv6.conf.all.forwarding=1 net.ipv4.ip_forward=1".into());
    Some((lines, duty(arm.kind)))
}

/// What a machine does between both links.
fn duty(kind: Kind) -> String {
    match kind {
        Kind::Siit => format!(
            "{SERVER_V4} is {SERVER_V6}; all other IPv4 addresses are those in {SIIT_POOL6} (RFC 6052)"
        ),
        Kind::Nat64 => format!("{NAT64_POOL6} is IPv4; all IPv6 hosts share {POOL4}"),
        Kind::NatPt => format!(
            "{NAT64_POOL6} is IPv4; all IPv6 hosts share {POOL4_FIRST}, and {CLIENT_V6} is {BOUND_V4}"
        ),
        Kind::Nat44 => format!("all hosts of the client's side are hidden behind {HOST_V4}"),
        _ => "it forwards".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    /// An arm of another machine.
    fn arm(kind: &str, family: &str) -> MechanismSpec {
        let text = format!(
            "name = 'router'\nlabel = 'A router'\nimplementation = 'device'\nkind = '{kind}'\nfamily = '{family}'\nhops = 1\n\
             [device]\nclient = 'eth1'\nserver = 'eth2'\nversion = '1'\n\
             counters = {{ client = 'ge-0', server = 'ge-1', via = ['ssh', 'router'] }}\n"
        );
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn a_link_address_of_its_own_stays_the_same() {
        assert_eq!(beside("00:1b:21:aa:bb:cc").as_deref(), Some("42:1b:21:aa:bb:cc"));
        assert_eq!(beside("42:1b:21:aa:bb:cc").as_deref(), Some("02:1b:21:aa:bb:cc"));
        assert_eq!(beside(""), None);
    }

    #[test]
    fn another_machine_is_told_its_addresses_by_its_own_names() {
        let kinds =
            [("native", "v6"), ("siit", "v4"), ("nat64", "v6"), ("nat-pt", "v6"), ("nat44", "v4")];
        for (kind, family) in kinds {
            let (lines, duty) = needs(&arm(kind, family)).unwrap();
            let text = lines.join("\n");
            assert!(text.contains("ip addr add fe80::1/64 dev ge-0 nodad"), "{text}");
            assert!(text.contains("ip link set ge-1 up"), "{text}");
            assert!(!text.contains("to-client") && !text.contains("to-iperf"), "{text}");
            assert!(!duty.is_empty());
        }
        let (lines, _) = needs(&arm("nat44", "v4")).unwrap();
        assert!(
            lines.contains(&"ip route add 198.18.0.0/15 via 192.0.2.2".to_owned()),
            "{lines:?}"
        );
    }
}
