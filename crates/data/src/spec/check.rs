//! What an experiment file says must fit together: names that name something, arms that can be.

mod device;
mod own;

use std::collections::BTreeMap;

use serde_json::Value;

use super::command::{PER_DEPLOYMENT, PLACEHOLDERS, fixed, placeholders};
use super::document::{Document, below};
use super::exclude::{Quantity, Rule};
use super::goals;
use super::hosts::Hosts;
use super::implementation::{IMPLEMENTATIONS, RESOLVERS, clat_hops, kinds};
use super::published;
use super::{
    Commands, End, Experiment, Family, Kind, Load, MechanismSpec, Metric, Profile, Standby,
};
use crate::findings::{Finding, nearest};

/// The names of profiles on the command line.
const PROFILES: [&str; 3] = ["quick", "standard", "strict"];

/// Collects what does not fit.
struct Check<'a> {
    document: &'a Document<'a>,
    all: Vec<Finding>,
}

impl Check<'_> {
    fn wrong(&mut self, pointer: &str, message: String, fix: impl Into<Option<String>>) {
        let span = self.document.value_at(pointer);
        self.all.push(Finding { span, message, fix: fix.into() });
    }

    /// A name that has to be one of those that are known.
    fn known(&mut self, pointer: &str, what: &str, known: &[&str]) {
        let value = &self.document.value;
        if let Some(name) = value.pointer(pointer).and_then(Value::as_str)
            && !known.contains(&name)
        {
            let fix = nearest(name, known.iter().copied(), "there are");
            self.wrong(pointer, format!("there is no {what} `{name}`"), fix);
        }
    }

    /// The texts of a list, each with its pointer.
    fn each(&self, pointer: &str) -> Vec<String> {
        let list = self.document.value.pointer(pointer).and_then(Value::as_array);
        (0..list.map_or(0, Vec::len)).map(|index| format!("{pointer}/{index}")).collect()
    }
}

/// All that does not fit in a document. What the schema refuses is none of its concern: a part that is not of
/// the right shape is passed over.
pub(super) fn misfits(document: &Document<'_>) -> Vec<Finding> {
    let mut check = Check { document, all: Vec::new() };
    let value = &document.value;
    let arms: Vec<(String, &Value)> = check
        .each("/mechanism")
        .into_iter()
        .filter_map(|pointer| value.pointer(&pointer).map(|arm| (pointer, arm)))
        .collect();
    let names: Vec<&str> = arms.iter().filter_map(|(_, arm)| arm["name"].as_str()).collect();
    check.known("/sentinel", "mechanism", &names);
    for pointer in check.each("/requires") {
        check.known(&pointer, "mechanism", &names);
    }
    for pointer in check.each("/difference") {
        for key in ["of", "minus"] {
            check.known(&format!("{pointer}/{key}"), "mechanism", &names);
        }
    }
    published(&mut check);
    check.known("/goals", "table of goals", &goals::names());
    profiles(&mut check);
    exclusions(&mut check);
    let metrics: Vec<Metric> = parse_each(&value["metrics"]);
    // Told once, not at every mechanism that names them.
    let mut missing: Vec<Metric> = Vec::new();
    own::loads(&mut check);
    own::metrics(&mut check);
    own::goals(&mut check, &names, &metrics);
    let metric_names = metric_names(value);
    for pointer in check.each("/metrics") {
        check.known(&pointer, "metric", &metric_names);
    }
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (number, (pointer, arm)) in arms.iter().enumerate() {
        let own = |key: &str| format!("{pointer}/{key}");
        if let Some(name) = arm["name"].as_str()
            && let Some(first) = seen.insert(name, number)
        {
            let message = format!("mechanism {} is called `{name}`, too", first + 1);
            check.wrong(&own("name"), message, "a name of its own".to_owned());
        }
        check.known(&own("base"), "mechanism", &names);
        check.known(&own("same_as"), "mechanism", &names);
        check.known(&own("implementation"), "implementation", IMPLEMENTATIONS);
        check.known(&own("resolver"), "name server", RESOLVERS);
        for key in ["base", "same_as"] {
            if arm[key].is_string() && arm[key] == arm["name"] {
                let message = format!("`{key}` is the mechanism itself");
                check.wrong(&own(key), message, "another one, or leave it out".to_owned());
            }
        }
        for one in check.each(&own("metrics")) {
            check.known(&one, "metric", &metric_names);
            let metric = value.pointer(&one).and_then(|v| serde_json::from_value(v.clone()).ok());
            let is_told = |metric: &Metric| metrics.contains(metric) || missing.contains(metric);
            if let Some(metric) = metric.filter(|metric| !is_told(metric)) {
                missing.push(metric);
                let message =
                    format!("{} is not among the experiment's metrics", Metric::name(metric));
                check.wrong(&one, message, "add it to `metrics` at the top".to_owned());
            }
        }
        if let Ok(spec) = serde_json::from_value::<MechanismSpec>((*arm).clone()) {
            contradictions(&mut check, pointer, &spec, &metrics);
        }
    }
    check.all
}

/// Whether the numbers of a study that are to stand beside the results are there.
fn published(check: &mut Check<'_>) {
    let name = check.document.value["published"].as_str();
    if let Some(Err(error)) = name.map(published::study) {
        let fix = "leave `published` out: it puts a built-in study's numbers beside the results";
        check.wrong("/published", error.to_string(), fix.to_owned());
    }
}

fn exclusions(check: &mut Check<'_>) {
    let mut ruled = Vec::new();
    for pointer in check.each("/exclude") {
        let pointer = format!("{pointer}/when");
        let given = check.document.value.pointer(&pointer).and_then(Value::as_str);
        match given.map(|text| Rule::try_from(text.to_owned())) {
            Some(Err(why)) => {
                let names = Quantity::ALL.map(Quantity::name).join(", ");
                let fix =
                    format!("QUANTITY > NUMBER, such as \"steal > 0.1\"; quantities: {names}");
                check.wrong(&pointer, why, fix);
            }
            Some(Ok(rule)) if ruled.contains(&rule.quantity) => {
                let message = format!("a rule about {} stands above", rule.quantity.name());
                check.wrong(&pointer, message, "one rule for each quantity".to_owned());
            }
            Some(Ok(rule)) => ruled.push(rule.quantity),
            None => {}
        }
    }
}

fn profiles(check: &mut Check<'_>) {
    let document = check.document;
    let Some(profiles) = document.value["profile"].as_object() else { return };
    if profiles.is_empty() {
        check.wrong("/profile", "there is no profile".into(), "[profile.quick]".to_owned());
    }
    for (name, profile) in profiles {
        let pointer = format!("/profile/{name}");
        if !PROFILES.contains(&name.as_str()) {
            check.all.push(Finding {
                span: document.key_at(&pointer),
                message: format!("`--profile {name}` does not exist"),
                fix: Some(nearest(name, PROFILES, "profiles are")),
            });
        }
        let Ok(profile) = serde_json::from_value::<Profile>(profile.clone()) else { continue };
        if profile.blocks_min > profile.blocks_max {
            let (least, most) = (profile.blocks_min, profile.blocks_max);
            let message = format!("blocks_min is {least}, more than blocks_max, which is {most}");
            check.wrong(&format!("{pointer}/blocks_min"), message, None);
        }
        if profile.blocks_min < profile.blocks_max && profile.budget_s.is_none() {
            let message = "blocks_min and blocks_max differ, but nothing says how long to go on";
            let fix = "add budget_s, the seconds that the blocks should fill".to_owned();
            check.wrong(&format!("{pointer}/blocks_min"), message.into(), fix);
        }
    }
}

/// What of an arm can't be.
fn contradictions(check: &mut Check<'_>, at: &str, arm: &MechanismSpec, all: &[Metric]) {
    let own = |key: &str| format!("{at}/{key}");
    let kind = arm.kind.label();
    if arm.kind.stands_between() && arm.hops != 1 {
        let message = format!("{kind} stands in the one box between the ends");
        check.wrong(&own("hops"), message, "write hops = 1".to_owned());
    }
    if let Some(kinds) = kinds(&arm.implementation).filter(|k| !k.contains(&arm.kind)) {
        let message = format!("{} is no {kind}", arm.implementation);
        let known: Vec<String> = kinds.iter().map(|kind| kind.name()).collect();
        check.wrong(&own("kind"), message, format!("its kinds are: {}", known.join(", ")));
    }
    let hops = clat_hops(&arm.implementation).filter(|_| arm.kind == Kind::Clat);
    if let Some(hops) = hops.filter(|hops| *hops != arm.hops) {
        let message = format!("a CLAT by {} has {hops} hop(s)", arm.implementation);
        check.wrong(&own("hops"), message, format!("write hops = {hops}"));
    }
    if let Some(family) = arm.kind.family().filter(|family| *family != arm.family) {
        let (word, other) = if family == Family::V4 { ("v4", "IPv4") } else { ("v6", "IPv6") };
        let message = format!("applications behind {kind} speak {other}");
        check.wrong(&own("family"), message, format!("write family = \"{word}\""));
    }
    if arm.cost_percent.is_some() && arm.implementation != "native" {
        let message = "a known cost is injected into native forwarding only".to_owned();
        check.wrong(&own("cost_percent"), message, "leave cost_percent out".to_owned());
    }
    if !arm.alg.is_empty() && !matches!(arm.kind, Kind::Nat64 | Kind::NatPt) {
        let message = "only NAT64 and NAT-PT have application gateways";
        check.wrong(&own("alg"), message.into(), "leave alg out".to_owned());
    }
    entries(check, at, arm);
    let known = arm.standby.is_none_or(|standby| match arm.implementation.as_str() {
        "fordway" => arm.kind == Kind::Nat64,
        "nftables" => standby == Standby::TakesOver,
        program => program == "jool" && arm.kind == Kind::Nat64 && standby == Standby::TakesOver,
    });
    if !known {
        let message = "a NAT64 by fordway has a standby, and one that takes over is also known of NAT44 by nftables and NAT64 by jool";
        check.wrong(&own("standby"), message.to_owned(), "leave standby out".to_owned());
    }
    let given = [
        ("engine", arm.engine.is_some()),
        ("attach", arm.attach.is_some()),
        ("alg", !arm.alg.is_empty()),
    ];
    for (key, given) in given {
        if given && arm.implementation != "fordway" {
            let message = format!("{} has no choice of {key}", arm.implementation);
            check.wrong(&own(key), message, format!("leave {key} out"));
        }
    }
    let takes_over = arm.standby == Some(Standby::TakesOver);
    commands(check, at, arm);
    // What an arm is measured by it names itself, or the experiment does for all.
    let named = !arm.metrics.is_empty();
    let metrics = if named { &arm.metrics } else { all };
    device::device(check, at, arm, metrics);
    for (number, metric) in metrics.iter().enumerate() {
        let Some(load) = metric.load() else { continue };
        let message = if load == Load::Duplex && !arm.kind.opens_back() {
            let needs = "needs a way from the server to the client";
            format!("{} {needs}, which {kind} has not", metric.name())
        } else if load == Load::Failover && !takes_over {
            format!("{} needs standby = \"takes-over\"", metric.name())
        } else if !arm.kind.carries().bears(load) {
            format!("{} is nothing that {kind} carries", metric.name())
        } else {
            continue;
        };
        let pointer = if named { own(&format!("metrics/{number}")) } else { own("name") };
        check.wrong(&pointer, message, "name in its metrics what it does".to_owned());
        break;
    }
}

/// A table of entries that the arm has not, or that can't be filled.
fn entries(check: &mut Check<'_>, at: &str, arm: &MechanismSpec) {
    let Some(entries) = arm.entries else { return };
    let kind = entries.table.kind();
    if arm.implementation != "fordway" || arm.kind != kind {
        let message = format!("only {} by fordway has such a table", kind.label());
        check.wrong(&format!("{at}/entries"), message, "leave entries out".to_owned());
    }
    if !entries.count.is_power_of_two() {
        let message = format!("{} prefixes of equal length are no /15", entries.count);
        let fix = "write a power of two".to_owned();
        check.wrong(&format!("{at}/entries/count"), message, fix);
    }
}

/// Names of metrics: the built-in ones, then the experiment's own.
fn metric_names(value: &Value) -> Vec<&str> {
    let own = value["metric"].as_array().into_iter().flatten();
    let own = own.filter_map(|metric| metric["name"].as_str());
    Metric::ALL
        .iter()
        .map(|metric| metric.name())
        .filter(|name| *name != "gate")
        .chain(own)
        .collect()
}

/// Two of a list may not have one name.
fn twice(check: &mut Check<'_>, table: &str, key: &str) {
    let mut seen: Vec<&str> = Vec::new();
    for pointer in check.each(table) {
        let pointer = format!("{pointer}/{key}");
        let Some(name) = check.document.value.pointer(&pointer).and_then(Value::as_str) else {
            continue;
        };
        if seen.contains(&name) {
            let message = format!("a {} above is called `{name}`, too", &table[1..]);
            check.wrong(&pointer, message, "a name of its own".to_owned());
        }
        seen.push(name);
    }
}

/// What stands at a pointer, where it is of the right shape.
fn shaped<T: serde::de::DeserializeOwned>(check: &Check<'_>, pointer: &str) -> Option<T> {
    serde_json::from_value(check.document.value.pointer(pointer)?.clone()).ok()
}

/// Those items of a list that are what they should be.
fn parse_each<T: serde::de::DeserializeOwned>(list: &Value) -> Vec<T> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(|item| serde_json::from_value(item.clone()).ok()).collect()
}

/// What the choices of a run name must be there, too.
pub(super) fn run_misfits(experiment: &Experiment) -> Option<String> {
    let run = experiment.run.as_ref()?;
    if run.blocks == 0 || run.durations_s.is_empty() || run.mechanisms.is_empty() {
        let least = "the [run] table needs at least one block, one duration and one mechanism";
        return Some(least.into());
    }
    if let Some(why) = run.hosts.as_ref().and_then(Hosts::fault) {
        return Some(format!("hosts: {why}"));
    }
    let profile = experiment.profile(&run.profile).err();
    let arms = run.mechanisms.iter().filter_map(|name| experiment.mechanism(name).err());
    profile.into_iter().chain(arms).map(|error| error.to_string()).next()
}

/// What of an arm's own command lines can't be.
fn commands(check: &mut Check<'_>, at: &str, arm: &MechanismSpec) {
    let by_command = arm.implementation == "command";
    let Some(given) = &arm.command else {
        if by_command {
            let message = "implementation \"command\" needs a table of command lines";
            let fix = "add [mechanism.command] with `up` or `run` below it".to_owned();
            check.wrong(&format!("{at}/implementation"), message.into(), fix);
        }
        return;
    };
    if !by_command {
        let message = format!("{} brings its own command lines", arm.implementation);
        let fix = "write implementation = \"command\", or leave [mechanism.command] out".to_owned();
        check.wrong(&format!("{at}/command"), message, fix);
        return;
    }
    let at = format!("{at}/command");
    let of_client = format!("{at}/client");
    match (&given.client, arm.kind.in_two_boxes()) {
        (Some(client), true) => {
            end(check, &of_client, arm, client, End::Client);
            let named = [
                ("version", !client.version.is_empty()),
                ("requires", !client.requires.is_empty()),
                ("install", client.install.is_some()),
                ("client", client.client.is_some()),
            ];
            for (key, _) in named.into_iter().filter(|(_, named)| *named) {
                let message = format!("{key} stands in [mechanism.command], for both ends");
                check.wrong(&format!("{of_client}/{key}"), message, "move it there".to_owned());
            }
            if !given.forget.is_empty() && !client.forget.is_empty() {
                let message = "sessions are deleted at one end".to_owned();
                let fix = "leave `forget` out at the end that keeps none".to_owned();
                check.wrong(&format!("{of_client}/forget"), message, fix);
            }
            end(check, &at, arm, given, End::Middle);
        }
        (None, true) => {
            let message = format!("{} has an end in the client's box, too", arm.kind.label());
            let fix = "add [mechanism.command.client] with `up` or `run` below it".to_owned();
            check.wrong(&at, message, fix);
        }
        (Some(_), false) => {
            let message = format!("{} stands in one box", arm.kind.label());
            check.wrong(&of_client, message, "leave [mechanism.command.client] out".to_owned());
        }
        (None, false) => end(check, &at, arm, given, End::Only),
    }
}

/// What of the command lines of one end can't be; `at` is where they stand.
fn end(check: &mut Check<'_>, at: &str, arm: &MechanismSpec, given: &Commands, end: End) {
    if given.up.is_empty() && given.run.is_empty() {
        let fix = "`up`: commands that end; `run`: one that stays".to_owned();
        check.wrong(at, "nothing sets the mechanism up".into(), fix);
    }
    for file in given.config.keys() {
        let path = std::path::Path::new(file);
        let plain = |part| matches!(part, std::path::Component::Normal(_));
        if file.is_empty() || !path.components().all(plain) {
            let message = format!("`{file}` is no name of a file below {{dir}}");
            let pointer = below(&format!("{at}/config"), file);
            check.wrong(&pointer, message, "such as \"my.conf\"".to_owned());
        }
    }
    let texts: Vec<(String, String)> = given.texts(at);
    for (pointer, text) in texts {
        for name in placeholders(&text) {
            let why = match PLACEHOLDERS.iter().any(|(known, _)| known == &name) {
                false => format!("there is no placeholder {{{name}}}"),
                true if fixed(arm.kind, end, arm.hops, name).is_none()
                    && !PER_DEPLOYMENT.contains(&name) =>
                {
                    let at = match end {
                        End::Only => "",
                        End::Client => "the client's end of ",
                        End::Middle => "the middle box's end of ",
                    };
                    format!("{{{name}}} has no meaning for {at}{}", arm.kind.label())
                }
                true => continue,
            };
            let names = PLACEHOLDERS
                .iter()
                .map(|(name, _)| *name)
                .filter(|name| fixed(arm.kind, end, arm.hops, name).is_some())
                .chain(PER_DEPLOYMENT.iter().copied());
            let fix = format!(
                "{} (braces that are meant as such: {{{{{name}}}}})",
                nearest(name, names, "there are")
            );
            let span = check.document.inside(&pointer, &format!("{{{name}}}"));
            check.all.push(Finding { span, message: why, fix: Some(fix) });
        }
    }
}
