//! Reads a network device on the wire between two hosts.

use fordway_data::environment::Nic;

use crate::error::{LabError, Result};
use crate::process::run_str;

/// Reads a device of this machine; an error when it is missing or down.
pub(crate) fn nic(name: &str) -> Result<Nic> {
    let said = run_str(&["ip", "-d", "-j", "link", "show", "dev", name])?;
    if !said.status.success() {
        return Err(LabError::Usage(format!(
            "there is no device {name}; it has: {}. Name in the hosts file the one on the wire to the other host",
            devices().join(", ")
        )));
    }
    let bad = |e: serde_json::Error| LabError::Parse { tool: "ip -j link", why: e.to_string() };
    let links: serde_json::Value = serde_json::from_str(&said.stdout).map_err(bad)?;
    let link = &links[0];
    let up = link["flags"].as_array().is_some_and(|all| all.iter().any(|flag| flag == "LOWER_UP"));
    if !up {
        return Err(LabError::Usage(format!(
            "device {name} is down, or has no carrier: `ip link set {name} up`, and look at the cable"
        )));
    }
    let number = |key: &str| link[key].as_u64().unwrap_or(0);
    let ethtool = |flag: &[&str]| {
        let said = run_str(&[&["ethtool"], flag, &[name]].concat());
        said.map(|f| f.stdout).unwrap_or_default()
    };
    let (general, driver) = (ethtool(&[]), ethtool(&["-i"]));
    let on = ethtool(&["-k"]);
    let on = on.lines().filter(|line| line.contains(": on"));
    Ok(Nic {
        device: name.to_owned(),
        driver: driver_words(&driver),
        speed: field(&general, "Speed").unwrap_or_else(|| "unknown".into()),
        mtu: number("mtu"),
        queues: (number("num_tx_queues"), number("num_rx_queues")),
        offloads: on.filter_map(|l| Some(l.split(':').next()?.trim().to_owned())).collect(),
    })
}

fn devices() -> Vec<String> {
    let said = run_str(&["ip", "-j", "link", "show"]).map(|f| f.stdout).unwrap_or_default();
    let links: Vec<serde_json::Value> = serde_json::from_str(&said).unwrap_or_default();
    links.iter().filter_map(|link| Some(link["ifname"].as_str()?.to_owned())).collect()
}

fn field(text: &str, name: &str) -> Option<String> {
    let value = |line: &str| {
        line.trim().strip_prefix(name)?.strip_prefix(':').map(str::trim).map(str::to_owned)
    };
    text.lines().find_map(value).filter(|text| !text.is_empty())
}

fn driver_words(text: &str) -> String {
    let words =
        ["driver", "version", "firmware-version"].into_iter().filter_map(|name| field(text, name));
    let words: Vec<String> = words.filter(|word| word != "N/A").collect();
    if words.is_empty() { "unknown".into() } else { words.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_named_with_what_it_tells() {
        let said = "driver: igb\nversion: 6.1.0-18-amd64\nfirmware-version: 3.25, 0x800005cf\nbus-info: x\n";
        assert_eq!(driver_words(said), "igb 6.1.0-18-amd64 3.25, 0x800005cf");
        assert_eq!(driver_words("driver: veth\nversion: 1.0\nfirmware-version: N/A\n"), "veth 1.0");
        assert_eq!(driver_words(""), "unknown");
        assert_eq!(
            field("Settings for eth1:\n\tSpeed: 1000Mb/s\n", "Speed").as_deref(),
            Some("1000Mb/s")
        );
    }

    #[test]
    fn a_device_that_is_not_there_is_told_with_those_that_are() {
        let why = nic("no-such-device").unwrap_err().to_string();
        assert!(why.contains("no device no-such-device") && why.contains("lo"), "{why}");
    }
}
