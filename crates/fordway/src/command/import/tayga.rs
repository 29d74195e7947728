//! tayga.conf: directives of tayga.conf(5), TAYGA 0.9.2 to 0.9.6.

use fordway_daemon::failure::Failure;
use toml::Value;

use super::{Draft, wrong};

const HELP: &str = "tayga.conf(5) has the directives and their arguments";

/// A directive: its line, its name and its arguments.
struct Directive<'a> {
    line: usize,
    name: &'a str,
    arguments: Vec<&'a str>,
}

impl<'a> Directive<'a> {
    fn one(&self, file: &str) -> Result<&'a str, Failure> {
        match self.arguments.as_slice() {
            [one] => Ok(one),
            _ => Err(wrong(file, self.line, &format!("{} has one argument", self.name), HELP)),
        }
    }

    fn flag(&self, file: &str) -> Result<bool, Failure> {
        match self.one(file)? {
            "on" | "true" | "1" => Ok(true),
            "off" | "false" | "0" => Ok(false),
            _ => Err(wrong(file, self.line, &format!("{} is on or off", self.name), HELP)),
        }
    }
}

fn directives(text: &str) -> impl Iterator<Item = Directive<'_>> {
    (1..).zip(text.lines()).filter_map(|(line, text)| {
        let text = text.split('#').next().unwrap_or_default();
        let mut words = text.split_whitespace();
        let name = words.next()?;
        Some(Directive { line, name, arguments: words.collect() })
    })
}

pub(super) fn read(file: &str, text: &str) -> Result<Draft, Failure> {
    let device = directives(text).find(|it| it.name == "tun-device");
    let name = device.map(|it| it.one(file)).transpose()?.unwrap_or("siit0");
    let mut draft = Draft::new("siit", name, "siit0");
    let mut eam = Vec::new();
    for directive in directives(text) {
        let Directive { line, name, .. } = directive;
        match name {
            "tun-device" => {}
            "prefix" => draft.put("pool6", vec![directive.one(file)?]),
            "ipv4-addr" => draft.put("icmp_source4", directive.one(file)?),
            "ipv6-addr" => draft.put("icmp_source6", directive.one(file)?),
            "dynamic-pool" => draft.put("dynamic4", vec![directive.one(file)?]),
            "map" => match directive.arguments.as_slice() {
                [v4, v6] => eam.push(Value::from(vec![*v4, *v6])),
                _ => return Err(wrong(file, line, "map has two arguments", HELP)),
            },
            "data-dir" => draft.note(
                format_args!("{line}: {name}"),
                "dynamic mappings are kept in /var/lib/fordway (dynamic4_file); those of dynamic.map are not taken over",
            ),
            "wkpf-strict" => {
                if !directive.flag(file)? {
                    draft.put("allow_private", true);
                }
            }
            "udp-cksum-mode" => {
                let mode = match directive.one(file)? {
                    "drop" => "drop",
                    "calc" => "compute",
                    "fwd" => "pass",
                    _ => return Err(wrong(file, line, "udp-cksum-mode is drop, calc or fwd", HELP)),
                };
                draft.put("udp_checksum_zero", mode);
            }
            "offlink-mtu" => {
                let mtu = directive.one(file)?.parse::<i64>();
                let mtu = mtu.map_err(|_| wrong(file, line, "offlink-mtu is a number", HELP))?;
                draft.put("lowest_ipv6_mtu", mtu);
            }
            "strict-frag-hdr" => {
                if directive.flag(file)? {
                    draft.note(
                        format_args!("{line}: {name}"),
                        "a Fragment Header is added to fragments alone (RFC 7915 section 4)",
                    );
                }
            }
            _ => draft.note(format_args!("{line}: {name}"), "there is no such setting here"),
        }
    }
    draft.list("eam", eam);
    Ok(draft)
}
