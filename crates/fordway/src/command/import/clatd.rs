//! clatd.conf: `key=value`, as clatd(8) has them.

use fordway_daemon::failure::Failure;

use super::{Draft, wrong};

const HELP: &str = "clatd(8) has the settings, of the form key=value";

/// Settings without a counterpart, and what to know about them.
const NOTES: [(&str, &str); 5] = [
    ("v4-defaultroute-advmss", "the advertised MSS follows `mtu`"),
    ("dns64-servers", "the network's own servers are asked; write `pref64` to have another prefix"),
    (
        "plat-fallback-prefix",
        "there is no second choice; write it as `pref64` if the network tells none",
    ),
    ("script-up", NO_SCRIPT),
    ("script-down", NO_SCRIPT),
];

const NO_SCRIPT: &str = "no script is run; ExecStartPost= and ExecStopPost= of the service do that";

/// What clatd takes without plat-prefix: whatever the network tells.
const AUTO: &str = "auto";

fn flag(file: &str, line: usize, key: &str, value: &str) -> Result<bool, Failure> {
    match value {
        "yes" | "1" | "true" | "on" => Ok(true),
        "no" | "0" | "false" | "off" => Ok(false),
        _ => Err(wrong(file, line, &format!("{key} is yes or no"), HELP)),
    }
}

fn number(file: &str, line: usize, key: &str, value: &str) -> Result<i64, Failure> {
    value.parse().map_err(|_| wrong(file, line, &format!("{key} is a number"), HELP))
}

pub(super) fn read(file: &str, text: &str) -> Result<Draft, Failure> {
    let mut settings = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let Some((key, value)) = text.split_once('=') else {
            return Err(wrong(file, line, "there is no '='", HELP));
        };
        settings.push((line, key.trim(), value.trim()));
    }
    let value_of =
        |wanted: &str| settings.iter().rfind(|(_, key, _)| *key == wanted).map(|it| it.2);
    let is_auto = value_of("plat-prefix").is_none();
    let mut draft = Draft::new("clat", value_of("clat-dev").unwrap_or("clat"), "clat0");
    draft.put("pref64", value_of("plat-prefix").unwrap_or(AUTO));
    for &(line, key, value) in &settings {
        let place = format!("{line}: {key}");
        match key {
            "clat-dev" | "plat-prefix" => {}
            "clat-v4-addr" => draft.put("v4", value),
            "clat-v6-addr" => draft.put("v6", value),
            "plat-dev" => draft.put("uplink", value),
            "tayga-v4-addr" => draft.put("icmp_source4", value),
            "v4-defaultroute-metric" => draft.put("metric", number(file, line, key, value)?),
            // The MTU of routes is 20 less than the IPv6 path's.
            "v4-defaultroute-mtu" => draft.put("mtu", number(file, line, key, value)? + 20),
            "v4-defaultroute-enable" => {
                if !flag(file, line, key, value)? {
                    draft.put("routes4", Vec::<String>::new());
                }
            }
            "v4-conncheck-enable" => {
                if !flag(file, line, key, value)? && is_auto {
                    draft.put("always", true);
                }
            }
            "v4-defaultroute-replace" => {
                if flag(file, line, key, value)? {
                    draft.note(
                        place,
                        "no route of others is removed; a low `metric` lets this one win",
                    );
                }
            }
            "proxynd-enable" | "forwarding-enable" => {
                if !flag(file, line, key, value)? {
                    draft.note(
                        place,
                        "always done where it is needed; `manage = false` leaves all of it to you",
                    );
                }
            }
            "v4-conncheck-delay" | "quiet" | "debug" | "tayga-conffile" => {}
            _ if key.starts_with("cmd-") => {}
            _ => {
                let known = NOTES.iter().find(|(known, _)| *known == key);
                draft.note(place, known.map_or("there is no such setting here", |(_, note)| note));
            }
        }
    }
    if !is_auto && value_of("v4-conncheck-enable").is_none_or(|value| value != "no") {
        draft.note("v4-conncheck-enable", "with a prefix that is written the CLAT is always there, behind native IPv4 by its metric");
    }
    Ok(draft)
}
