//! Jool's JSON files (`jool file handle`, `jool_siit file handle`), Jool 4.1.

use std::collections::BTreeMap;
use std::time::Duration;

use fordway_daemon::failure::Failure;
use serde_json::{Map, Value as Json};
use toml::{Table, Value};

use super::Draft;

const HELP: &str = "Jool's documentation of Atomic Configuration has the format";

/// Ports of a pool4 entry without "port range", and of an instance without pool4.
const DEFAULT_PORTS: &str = "61001-65535";

/// RFC 1191 section 7, as Jool and Fordway have them.
const PLATEAUS: [u64; 11] = [65_535, 32_000, 17_914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68];

/// A flag without a counterpart, the value that needs a note, and the note.
type Note = (&'static str, bool, &'static str);

/// Notes on flags of all instances.
const NOTES: [Note; 2] = [
    ("manually-enabled", false, "a translator that is running translates; do not start it"),
    ("logging-debug", true, "fordway trace shows what becomes of packets, while it runs"),
];

/// Notes on flags of stateful instances.
const STATEFUL_NOTES: [Note; 4] = [
    ("drop-icmpv6-info", true, "pings are translated; a rule of nftables can drop them"),
    ("source-icmpv6-errors-better", false, "always true here"),
    ("handle-rst-during-fin-rcv", false, "always true here"),
    ("ss-enabled", true, "sessions are not sent to another gateway"),
];

/// An object of the file, and where it stands.
struct Object<'a> {
    file: &'a str,
    place: String,
    map: &'a Map<String, Json>,
}

impl<'a> Object<'a> {
    fn wrong(&self, key: &str, what: &str) -> Failure {
        Failure::usage(format!("{}: {}{key}: {what}", self.file, self.place), HELP)
    }

    /// The values of the object; comments are none.
    fn values(&self) -> impl Iterator<Item = (&'a str, &'a Json)> + use<'a> {
        self.map
            .iter()
            .map(|(key, value)| (key.as_str(), value))
            .filter(|(key, _)| *key != "comment")
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>, Failure> {
        match self.map.get(key) {
            None | Some(Json::Null) => Ok(None),
            Some(Json::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(key, "this is no text")),
        }
    }

    fn needed(&self, key: &str) -> Result<&'a str, Failure> {
        self.text(key)?.ok_or_else(|| self.wrong(key, "this is needed"))
    }

    fn flag(&self, key: &str) -> Result<Option<bool>, Failure> {
        match self.map.get(key) {
            None | Some(Json::Null) => Ok(None),
            Some(Json::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(self.wrong(key, "this is not true or false")),
        }
    }

    fn number(&self, key: &str) -> Result<Option<u32>, Failure> {
        match self.map.get(key) {
            None | Some(Json::Null) => Ok(None),
            Some(value) => match value.as_u64().and_then(|number| u32::try_from(number).ok()) {
                Some(number) => Ok(Some(number)),
                None => Err(self.wrong(key, "this is no number")),
            },
        }
    }

    /// The objects of a list.
    fn objects(&self, key: &str) -> Result<Vec<Object<'a>>, Failure> {
        let items = match self.map.get(key) {
            None | Some(Json::Null) => return Ok(Vec::new()),
            Some(Json::Array(items)) => items,
            Some(_) => return Err(self.wrong(key, "this is no list")),
        };
        let object = |(number, item): (usize, &'a Json)| match item {
            Json::Object(map) => Ok(Object {
                file: self.file,
                place: format!("{}{key}[{number}].", self.place),
                map,
            }),
            _ => Err(self.wrong(&format!("{key}[{number}]"), "this is no object")),
        };
        items.iter().enumerate().map(object).collect()
    }
}

fn parsed(file: &str, text: &str) -> Result<Map<String, Json>, Failure> {
    match serde_json::from_str(text) {
        Ok(Json::Object(map)) => Ok(map),
        Ok(_) => Err(Failure::usage(format!("{file}: this is no JSON object"), HELP)),
        Err(error) => {
            let at = format!("{file}:{}:{}", error.line(), error.column());
            Err(Failure::usage(format!("{at}: this is no JSON: {error}"), HELP))
        }
    }
}

/// Notes a flag without a counterpart. `false`: the key is none of `notes`.
fn noted(
    notes: &[Note],
    global: &Object<'_>,
    key: &str,
    draft: &mut Draft,
) -> Result<bool, Failure> {
    let Some((_, value, note)) = notes.iter().find(|(known, ..)| *known == key) else {
        return Ok(false);
    };
    if global.flag(key)? == Some(*value) {
        draft.note(format!("global.{key}"), note);
    }
    Ok(true)
}

/// What both kinds of instances have.
fn instance(top: &Object<'_>, mode: &str, fallback: &str) -> Result<Draft, Failure> {
    let mut draft = Draft::new(mode, top.text("instance")?.unwrap_or(fallback), fallback);
    if top.text("framework")? == Some("iptables") {
        draft.note(
            "framework",
            "what is routed into the interface is translated: rules with the targets JOOL and JOOL_SIIT can go",
        );
    }
    Ok(draft)
}

/// Settings of `global` that both kinds have. `false`: this is none of them.
fn common(
    global: &Object<'_>,
    key: &str,
    value: &Json,
    draft: &mut Draft,
) -> Result<bool, Failure> {
    let place = format!("global.{key}");
    if noted(&NOTES, global, key, draft)? {
        return Ok(true);
    }
    match key {
        "pool6" => {
            if let Some(pool6) = global.text(key)? {
                draft.put("pool6", vec![pool6]);
            }
        }
        "lowest-ipv6-mtu" => {
            if let Some(mtu) = global.number(key)? {
                draft.put("lowest_ipv6_mtu", mtu);
            }
        }
        "mtu-plateaus" => {
            let same = value
                .as_array()
                .is_some_and(|plateaus| plateaus.iter().map(Json::as_u64).eq(PLATEAUS.map(Some)));
            if !same {
                draft.note(place, "the plateaus are those of RFC 1191");
            }
        }
        // By both together, see octet().
        "zeroize-traffic-class" | "override-tos" | "tos" => {}
        _ => return Ok(false),
    }
    Ok(true)
}

/// Traffic Class towards IPv6 and Type of Service towards IPv4, which are one setting here.
fn octet(global: &Object<'_>, draft: &mut Draft) -> Result<(), Failure> {
    let to_v6 = global.flag("zeroize-traffic-class")?.unwrap_or(false).then_some(0);
    let tos = global.number("tos")?.unwrap_or(0);
    let to_v4 = global.flag("override-tos")?.unwrap_or(false).then_some(tos);
    match (to_v6, to_v4) {
        (None, None) => {}
        (Some(v6), Some(v4)) if v6 == v4 => draft.put("traffic_class", v4),
        _ => draft.note(
            "global.zeroize-traffic-class, override-tos",
            "`traffic_class` is one octet for both directions; it is copied",
        ),
    }
    Ok(())
}

fn global<'a>(top: &Object<'a>) -> Result<Option<Object<'a>>, Failure> {
    match top.map.get("global") {
        None | Some(Json::Null) => Ok(None),
        Some(Json::Object(map)) => {
            Ok(Some(Object { file: top.file, place: "global.".to_owned(), map }))
        }
        Some(_) => Err(top.wrong("global", "this is no object")),
    }
}

/// Notes keys that are unknown.
fn unknown(top: &Object<'_>, known: &[&str], draft: &mut Draft) {
    for (key, _) in top.values().filter(|(key, _)| !known.contains(key)) {
        draft.note(key, "there is no such setting here");
    }
}

/// An instance of `jool`.
pub(super) fn nat64(file: &str, text: &str, uplink: Option<&str>) -> Result<Draft, Failure> {
    let map = parsed(file, text)?;
    let top = Object { file, place: String::new(), map: &map };
    let mut draft = instance(&top, "nat64", "nat64")?;
    pool4(&top, uplink, &mut draft)?;
    let mut bib = Vec::new();
    for entry in top.objects("bib")? {
        let protocol = entry.needed("protocol")?.to_ascii_lowercase();
        let (v4, v6) = (entry.needed("ipv4 address")?, entry.needed("ipv6 address")?);
        let Some((v4, v4_port)) = v4.split_once('#') else {
            return Err(entry.wrong("ipv4 address", "there is no '#'"));
        };
        let Some((v6, v6_port)) = v6.split_once('#') else {
            return Err(entry.wrong("ipv6 address", "there is no '#'"));
        };
        let ends = [format!("{v4}:{v4_port}"), format!("[{v6}]:{v6_port}")];
        bib.push(Value::from(vec![protocol, ends[0].clone(), ends[1].clone()]));
    }
    draft.list("bib", bib);
    if let Some(global) = global(&top)? {
        stateful(&global, &mut draft)?;
        octet(&global, &mut draft)?;
    }
    unknown(&top, &["instance", "framework", "global", "pool4", "bib"], &mut draft);
    Ok(draft)
}

/// Settings of a stateful instance.
fn stateful(global: &Object<'_>, draft: &mut Draft) -> Result<(), Failure> {
    let mut lifetimes = Lifetimes::default();
    for (key, value) in global.values() {
        let place = format!("global.{key}");
        if common(global, key, value, draft)?
            || lifetimes.take(global, key)?
            || noted(&STATEFUL_NOTES, global, key, draft)?
        {
            continue;
        }
        match key {
            "address-dependent-filtering" => {
                if global.flag(key)? == Some(true) {
                    draft.put("filtering", "address-dependent");
                }
            }
            "drop-externally-initiated-tcp" => {
                if global.flag(key)? == Some(true) {
                    draft.put("accept_v4_syn", false);
                }
            }
            "logging-bib" | "logging-session" => {
                if global.flag(key)? == Some(true) {
                    let what = if key == "logging-bib" { "bindings" } else { "sessions" };
                    let mut log = Table::new();
                    log.insert("what".to_owned(), Value::from(vec![what]));
                    log.insert("to".to_owned(), "syslog:unix:/dev/log".into());
                    draft.tables.push(("log", log));
                }
            }
            "maximum-simultaneous-opens" => {
                if global.number(key)? != Some(10) {
                    draft.note(place, "SYNs that wait for an answer are bounded by memory here");
                }
            }
            "f-args" => {
                if global.number(key)? != Some(11) {
                    draft.note(place, "ports do not depend on the remote address (RFC 4787 REQ-1)");
                }
            }
            _ if key.starts_with("ss-") => {}
            _ => draft.note(place, "there is no such setting here"),
        }
    }
    lifetimes.put_into(draft);
    Ok(())
}

/// Lifetimes that are written, by our names.
#[derive(Default)]
struct Lifetimes(BTreeMap<&'static str, Duration>);

impl Lifetimes {
    /// `false`: the key is no lifetime.
    fn take(&mut self, global: &Object<'_>, key: &str) -> Result<bool, Failure> {
        let name = match key {
            "udp-timeout" => "udp",
            "icmp-timeout" => "icmp",
            "tcp-est-timeout" => "tcp_est",
            "tcp-trans-timeout" => "tcp_trans",
            _ => return Ok(false),
        };
        if let Some(text) = global.text(key)? {
            let time =
                time(text).ok_or_else(|| global.wrong(key, "this is not [[HH:]MM:]SS[.mmm]"))?;
            self.0.insert(name, time);
        }
        Ok(true)
    }

    fn put_into(self, draft: &mut Draft) {
        let of =
            |name, default: u64| self.0.get(name).copied().unwrap_or(Duration::from_secs(default));
        let minutes = |number: u64| Duration::from_secs(60 * number);
        let (est, trans) = (of("tcp_est", 7200), of("tcp_trans", 240));
        let is_short = of("udp", 300) < minutes(2)
            || of("icmp", 60) < minutes(1)
            || trans < minutes(4)
            || est < minutes(120);
        if is_short {
            draft.put("allow_short_lifetimes", true);
            draft.note(
                "global",
                "lifetimes below those of RFC 4787, 5382 and 5508 are kept, with a warning",
            );
        }
        if !self.0.is_empty() {
            let text = |time: Duration| Value::from(humantime::format_duration(time).to_string());
            let table = self.0.into_iter().map(|(name, time)| (name.to_owned(), text(time)));
            draft.put("lifetimes", Value::Table(table.collect()));
        }
    }
}

/// `[[HH:]MM:]SS[.mmm]`.
fn time(text: &str) -> Option<Duration> {
    let (whole, thousandths) = text.split_once('.').unwrap_or((text, "0"));
    let mut seconds = 0_u64;
    let parts: Vec<&str> = whole.split(':').collect();
    if parts.len() > 3 || thousandths.len() > 3 {
        return None;
    }
    for part in parts {
        seconds = seconds.checked_mul(60)?.checked_add(part.parse::<u32>().ok()?.into())?;
    }
    let millis: u64 = format!("{thousandths:0<3}").parse().ok()?;
    Some(Duration::from_secs(seconds) + Duration::from_millis(millis))
}

/// Addresses and ports: here those of a pool are for all protocols.
fn pool4(top: &Object<'_>, uplink: Option<&str>, draft: &mut Draft) -> Result<(), Failure> {
    let entries = top.objects("pool4")?;
    if entries.is_empty() {
        let Some(uplink) = uplink else {
            let message =
                format!("{}: without pool4, Jool takes the host's own addresses", top.file);
            return Err(Failure::usage(message, "say of which device: --uplink eth0"));
        };
        draft.put("pool4", vec![format!("interface:{uplink}:{DEFAULT_PORTS}")]);
        return Ok(());
    }
    // By mark, and by address with ports: which protocols have it.
    let mut pools: BTreeMap<u32, Vec<(String, Vec<&'static str>)>> = BTreeMap::new();
    for entry in entries {
        let protocol = match entry.needed("protocol")?.to_ascii_uppercase().as_str() {
            "TCP" => "TCP",
            "UDP" => "UDP",
            // Identifiers are as many as ports.
            "ICMP" => continue,
            _ => return Err(entry.wrong("protocol", "this is not TCP, UDP or ICMP")),
        };
        let prefix = entry.needed("prefix")?;
        let prefix = prefix.strip_suffix("/32").unwrap_or(prefix);
        let ports = entry.text("port range")?.unwrap_or(DEFAULT_PORTS);
        let ports = if ports.contains('-') { ports.to_owned() } else { format!("{ports}-{ports}") };
        let addresses = format!("{prefix}:{ports}");
        let pool = pools.entry(entry.number("mark")?.unwrap_or(0)).or_default();
        match pool.iter_mut().find(|(known, _)| *known == addresses) {
            Some((_, protocols)) => protocols.push(protocol),
            None => pool.push((addresses, vec![protocol])),
        }
        if entry.map.contains_key("max-iterations") {
            draft.note(
                format!("{}max-iterations", entry.place),
                "a free port is found, if there is one",
            );
        }
    }
    for (mark, pool) in pools {
        for (addresses, protocols) in &pool {
            if let [one] = protocols.as_slice() {
                draft.note(
                    "pool4",
                    format!("{addresses} was for {one} alone; it is for all protocols here"),
                );
            }
        }
        let addresses: Vec<String> = pool.into_iter().map(|(addresses, _)| addresses).collect();
        if mark == 0 {
            draft.put("pool4", addresses);
            continue;
        }
        let mut table = Table::new();
        table.insert("mark".to_owned(), mark.into());
        table.insert("pool4".to_owned(), Value::from(addresses));
        draft.tables.push(("pool", table));
    }
    Ok(())
}

/// An instance of `jool_siit`.
pub(super) fn siit(file: &str, text: &str) -> Result<Draft, Failure> {
    let map = parsed(file, text)?;
    let top = Object { file, place: String::new(), map: &map };
    let mut draft = instance(&top, "siit", "siit0")?;
    let mut eam = Vec::new();
    for entry in top.objects("eamt")? {
        eam.push(Value::from(vec![entry.needed("ipv4 prefix")?, entry.needed("ipv6 prefix")?]));
    }
    draft.list("eam", eam);
    // Jool's default; see udp_checksum_zero in docs/configuration.md.
    draft.put("udp_checksum_zero", "drop");
    if let Some(global) = global(&top)? {
        stateless(&global, &mut draft)?;
        octet(&global, &mut draft)?;
    }
    for name in ["denylist4", "blacklist4"] {
        if let Some(Json::Array(networks)) =
            map.get(name).filter(|list| **list != Json::Array(Vec::new()))
        {
            let networks: Vec<String> = networks.iter().map(Json::to_string).collect();
            draft.note(
                name,
                format!("only what is routed into the interface is translated: leave {} out of `routes4`", networks.join(", ")),
            );
        }
    }
    unknown(
        &top,
        &["instance", "framework", "global", "eamt", "denylist4", "blacklist4"],
        &mut draft,
    );
    Ok(draft)
}

/// Settings of a stateless instance.
fn stateless(global: &Object<'_>, draft: &mut Draft) -> Result<(), Failure> {
    for (key, value) in global.values() {
        let place = format!("global.{key}");
        if common(global, key, value, draft)? {
            continue;
        }
        match key {
            "amend-udp-checksum-zero" => {
                let computes = global.flag(key)? == Some(true);
                draft.put("udp_checksum_zero", if computes { "compute" } else { "drop" });
            }
            "eam-hairpin-mode" => match global.text(key)? {
                Some("off") => draft.put("hairpin", false),
                Some("simple") => draft.note(place, "hairpinning is RFC 7757's intrinsic one here"),
                _ => {}
            },
            "rfc6791v4-prefix" | "rfc6791v6-prefix" => {
                let Some(prefix) = global.text(key)? else { continue };
                let (address, len) = prefix.split_once('/').unwrap_or((prefix, "all"));
                let (name, all) = match key {
                    "rfc6791v4-prefix" => ("icmp_source4", "32"),
                    _ => ("icmp_source6", "128"),
                };
                draft.put(name, address);
                if len != all && len != "all" {
                    draft.note(place, format!("errors come from one address, {address}"));
                }
            }
            // Of one address there is nothing to choose.
            "randomize-rfc6791-addresses" => {}
            _ => draft.note(place, "there is no such setting here"),
        }
    }
    Ok(())
}
