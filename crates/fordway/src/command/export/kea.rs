//! kea-dhcp6.conf: stateless DHCPv6.

use fordway_daemon::failure::Failure;
use fordway_router::Device;
use serde_json::{Value, json};

use super::{Plan, joined, servers};

pub(super) fn write(plan: &Plan) -> Result<String, Failure> {
    let serving: Vec<&Device> = plan.devices.iter().filter(|it| it.dhcpv6).collect();
    if serving.is_empty() && !plan.devices.is_empty() {
        return Err(Failure::failed(
            "no [[advertise]] has dhcpv6 = true: there is nothing to export",
        ));
    }
    let names: Vec<&str> = serving.iter().map(|it| it.device.as_str()).collect();
    // What a client gets depends on the device that it asks at, not on a subnet: it has only a
    // link-local address, and prefixes may change.
    let classes: Vec<Value> = serving.iter().map(|device| class(device)).collect();
    let config = json!({
        "Dhcp6": {
            "interfaces-config": { "interfaces": names, "re-detect": true },
            "lease-database": { "type": "memfile", "persist": false },
            "client-classes": classes,
            "loggers": [{
                "name": "kea-dhcp6",
                "output_options": [{ "output": "stdout" }],
                "severity": "INFO",
            }],
        }
    });
    let text = serde_json::to_string_pretty(&config)?;
    let mut comments = "// Written by fordway export kea.\n".to_owned();
    for device in serving.iter().filter(|it| servers(it).1) {
        let line = format!(
            "// [dns64] listens on all addresses: add {}'s own to its dns-servers.\n",
            device.device
        );
        comments.push_str(&line);
    }
    Ok(format!("{comments}{text}\n"))
}

fn class(device: &Device) -> Value {
    let mut options = Vec::new();
    let mut option = |name: &str, data: String| {
        if !data.is_empty() {
            options.push(json!({ "name": name, "data": data }));
        }
    };
    option("dns-servers", joined(servers(device).0, ", "));
    option("domain-search", joined(device.dnssl.iter().map(super::name), ", "));
    option("information-refresh-time", "3600".to_owned());
    option("v6-captive-portal", device.captive_portal.clone().unwrap_or_default());
    // By its code, which every version takes: RFC 9463.
    let dnr = device.dnr.iter().map(|it| {
        let octets: String = it.dhcpv6().iter().map(|it| format!("{it:02x}")).collect();
        json!({ "code": 144, "space": "dhcp6", "csv-format": false, "data": octets })
    });
    options.extend(dnr);
    json!({
        "name": device.device,
        "test": format!("pkt.iface == '{}'", device.device),
        "option-data": options,
    })
}
