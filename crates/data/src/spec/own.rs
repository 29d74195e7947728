//! Loads and metrics that an experiment brings itself: command lines, and how values are read from what they print.

use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use regex_lite::Regex;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{Axis, Experiment, Metric};

/// The named group of a regular expression that holds the value.
pub(crate) const GROUP: &str = "value";

/// What may stand in braces in the commands of a load, and what it stands for.
pub(crate) const LOAD_PLACEHOLDERS: &[(&str, &str)] = &[
    ("seconds", "seconds that it should run"),
    ("target", "the server's address for the application"),
    ("client", "the application's own address"),
    ("server", "the address that the server itself has"),
    ("seen", "the application's address as the server sees it"),
    ("name", "name of the deployment, unique on the machine"),
    ("threads", "processors of the machine"),
];

/// A load of one's own: a command at the client, and where it needs one, a command at the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadSpec {
    /// Name by which metrics refer to it.
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9._-]*$"))]
    pub name: String,
    /// How to read its numbers; the report prints it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// The command that runs where the application is, without a shell; {placeholders} in it are replaced.
    #[schemars(length(min = 1))]
    pub client: Vec<String>,
    /// A command that runs at the server: it is started before the client's, and ended after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server: Vec<String>,
    /// A command at the server that succeeds as soon as the server's command is ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server_ready: Vec<String>,
    /// A parameter of the load, and its values: the load runs once with each on every deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan: Option<Scan>,
    /// Seconds that the client's command takes, for the plan; without it, those of a TCP flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.01, max = 3600.0))]
    pub takes_s: Option<f64>,
    /// Seconds after which the mechanism has failed to carry it; without it, 15 s more than it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.1, max = 7200.0))]
    pub limit_s: Option<f64>,
    /// Exit statuses of the client's command that mean success; any other is a failure of the mechanism.
    #[serde(default = "success", skip_serializing_if = "is_success")]
    #[schemars(length(min = 1))]
    pub success: Vec<i32>,
    /// Exit statuses that mean that the command itself is at fault: the trial does not count.
    #[serde(default = "unusable", skip_serializing_if = "is_unusable")]
    pub unusable: Vec<i32>,
    /// Programs without which its metrics are not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// What to do where one of these is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<String>,
}

fn success() -> Vec<i32> {
    vec![0]
}

fn is_success(statuses: &[i32]) -> bool {
    statuses == success()
}

/// What a shell, and the lab's own way into a namespace, say of a program that can't be run.
fn unusable() -> Vec<i32> {
    vec![126, 127]
}

fn is_unusable(statuses: &[i32]) -> bool {
    statuses == unusable()
}

/// A parameter of a load with its values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scan {
    /// What the parameter is; commands have a placeholder of this name.
    pub axis: Axis,
    /// Its values.
    #[schemars(length(min = 1))]
    pub values: Vec<u64>,
}

/// Which values are the better ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// The larger ones: a rate.
    Higher,
    /// The smaller ones: a time, a cost.
    Lower,
}

/// Whose failure it is when a command succeeds and prints no value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Missing {
    /// The tool's or the pattern's: the trial does not count.
    #[default]
    Tool,
    /// The mechanism's: the trial counts, and is worse than every value.
    Mechanism,
}

impl Missing {
    fn is_the_tools(&self) -> bool {
        *self == Self::Tool
    }
}

/// A metric of one's own: a number in what a load prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricSpec {
    /// Name in artefacts: small letters, digits and `_`.
    pub name: String,
    /// Name for people.
    #[schemars(length(min = 1))]
    pub label: String,
    /// A few letters for narrow tables; without it, the label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short: Option<String>,
    /// The unit of its values.
    pub unit: String,
    /// Which values are the better ones.
    pub better: Better,
    /// The load that yields it.
    pub load: String,
    /// Where the value stands in JSON that the client's command prints: a JSON pointer (RFC 6901).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<String>,
    /// A regular expression with a group `(?<value>...)`; of several matches in what is printed, the last one holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// The number that is printed is multiplied by this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    /// Whose failure it is when the command succeeds and prints no value.
    #[serde(default, skip_serializing_if = "Missing::is_the_tools")]
    pub missing: Missing,
    /// A value within this factor of what the load reaches with nothing in between is a lower bound; for metrics of which
    /// higher values are better. With 0, nothing is: of a load at a fixed rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 100.0))]
    pub ceiling_factor: Option<f64>,
}

impl MetricSpec {
    /// The value in what a command printed, in the metric's unit; or what is wrong with it.
    pub fn read(&self, printed: &str) -> Result<f64, String> {
        let (number, place) = match (&self.json, &self.regex) {
            (Some(pointer), _) => (in_json(printed, pointer), format!("at {pointer}")),
            (None, Some(pattern)) => (in_text(printed, pattern), format!("for {pattern}")),
            (None, None) => return Err("neither `json` nor `regex` says where it stands".into()),
        };
        let number = number.ok_or_else(|| format!("no value {place} in what it printed"))?;
        let value = number.trim().parse::<f64>().map(|value| value * self.scale.unwrap_or(1.0));
        value
            .ok()
            .filter(|value| value.is_finite() && *value >= 0.0)
            .ok_or_else(|| format!("`{number}` {place} is no number from 0 on"))
    }
}

/// What stands at a pointer, as text; JSON begins at the first brace or bracket that begins a line.
fn in_json(printed: &str, pointer: &str) -> Option<String> {
    let mut at = 0;
    let begins = printed.split_inclusive('\n').find_map(|line| {
        let here = at;
        at += line.len();
        line.trim_start().starts_with(['{', '[']).then_some(here)
    })?;
    let mut documents = serde_json::Deserializer::from_str(&printed[begins..]).into_iter::<Value>();
    match documents.next()?.ok()?.pointer(pointer)? {
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        other => Some(other.to_string()),
    }
}

fn in_text(printed: &str, pattern: &str) -> Option<String> {
    let found = Regex::new(pattern).ok()?.captures_iter(printed).last()?;
    Some(found.name(GROUP)?.as_str().to_owned())
}

/// Why a regular expression can't be used.
pub(crate) fn pattern_fault(pattern: &str) -> Option<String> {
    match Regex::new(pattern) {
        Err(error) => Some(error.to_string()),
        Ok(regex) if !regex.capture_names().flatten().any(|name| name == GROUP) => {
            Some(format!("it has no group `{GROUP}`"))
        }
        Ok(_) => None,
    }
}

/// A definition that lives as long as the program, so that what refers to it is as small as a built-in metric or load. Equal
/// definitions are kept once; the memory is bounded by the different definitions that are read.
pub struct Kept<T: 'static>(&'static (usize, T));

impl<T> Kept<T> {
    /// What is defined.
    pub fn spec(self) -> &'static T {
        &self.0.1
    }
}

impl<T> Clone for Kept<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Kept<T> {}

impl<T> PartialEq for Kept<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.0 == other.0.0
    }
}

impl<T> Eq for Kept<T> {}

impl<T> Hash for Kept<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.0.hash(state);
    }
}

impl<T> PartialOrd for Kept<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Kept<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.0.cmp(&other.0.0)
    }
}

/// By name alone: orders of a run are made of it, and must not depend on what else was read.
impl std::fmt::Debug for Kept<LoadSpec> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.spec().name)
    }
}

impl std::fmt::Debug for Kept<Definition> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.spec().metric.name)
    }
}

/// A metric of one's own with its load.
#[derive(Debug, PartialEq)]
pub struct Definition {
    /// The metric.
    pub metric: MetricSpec,
    /// What yields it.
    pub load: OwnLoad,
}

/// A load of one's own.
pub type OwnLoad = Kept<LoadSpec>;
/// A metric of one's own.
pub type OwnMetric = Kept<Definition>;

static LOADS: Mutex<Vec<OwnLoad>> = Mutex::new(Vec::new());
static METRICS: Mutex<Vec<OwnMetric>> = Mutex::new(Vec::new());

fn keep<T: PartialEq>(all: &Mutex<Vec<Kept<T>>>, it: T) -> Kept<T> {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = all.iter().find(|known| *known.spec() == it) {
        return *known;
    }
    let kept = Kept(Box::leak(Box::new((all.len(), it))));
    all.push(kept);
    kept
}

thread_local! {
    /// Metrics that names may refer to beside the built-in ones, while an experiment's files are read.
    static KNOWN: RefCell<Vec<OwnMetric>> = const { RefCell::new(Vec::new()) };
}

/// Makes an experiment's own metrics known to what this thread reads, until it is dropped.
#[must_use]
#[derive(Debug)]
pub(crate) struct Known(Vec<OwnMetric>);

impl Known {
    /// Those of an experiment file; a definition that is not of the right shape is none.
    pub(super) fn of_file(document: &Value) -> Self {
        Self::of(&list(document, "load"), &list(document, "metric"))
    }

    /// Those of an experiment.
    pub(crate) fn of_experiment(experiment: &Experiment) -> Self {
        Self::of(&experiment.loads, &experiment.own_metrics)
    }

    fn of(loads: &[LoadSpec], metrics: &[MetricSpec]) -> Self {
        let own = metrics.iter().filter_map(|metric| {
            let load = loads.iter().find(|load| load.name == metric.load)?.clone();
            let load = keep(&LOADS, load);
            Some(keep(&METRICS, Definition { metric: metric.clone(), load }))
        });
        Self(KNOWN.replace(own.collect()))
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        KNOWN.set(std::mem::take(&mut self.0));
    }
}

fn list<T: DeserializeOwned>(document: &Value, key: &str) -> Vec<T> {
    let all = document[key].as_array().into_iter().flatten();
    all.filter_map(|one| serde_json::from_value(one.clone()).ok()).collect()
}

/// The metric of this name, built in or known to this thread.
pub(super) fn metric(name: &str) -> Option<Metric> {
    let built_in = Metric::ALL.into_iter().find(|metric| metric.name() == name);
    let own =
        || KNOWN.with_borrow(|all| all.iter().find(|own| own.spec().metric.name == name).copied());
    built_in.or_else(|| own().map(Metric::Own))
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Metric {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        metric(&name).ok_or_else(|| serde::de::Error::custom(format!("unknown metric `{name}`")))
    }
}

/// Reads an experiment from another process, with the metrics that it brings.
pub fn experiment<'de, D: Deserializer<'de>>(from: D) -> Result<Box<Experiment>, D::Error> {
    let value = Value::deserialize(from)?;
    let _known = Known::of_file(&value);
    serde_json::from_value(value).map(Box::new).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(lines: &str) -> MetricSpec {
        let text = format!(
            "name = \"m\"\nlabel = \"M\"\nunit = \"x\"\nbetter = \"lower\"\nload = \"l\"\n{lines}"
        );
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn a_value_is_read_from_json_by_its_pointer() {
        let printed = "warning: {not this}\n{\"end\": {\"bits\": 2.5e9, \"text\": \"7\", \"no\": null, \"flag\": true}}\ntail";
        let read = |lines: &str| metric(lines).read(printed);
        assert_eq!(read("json = \"/end/bits\"\nscale = 1e-9"), Ok(2.5));
        assert_eq!(read("json = \"/end/text\""), Ok(7.0));
        for (lines, why) in [
            ("json = \"/end/no\"", "no value at /end/no"),
            ("json = \"/begin\"", "no value at /begin"),
            ("json = \"/end/flag\"", "`true` at /end/flag is no number"),
            ("json = \"/end/bits\"\nscale = -1.0", "is no number from 0 on"),
            ("", "neither"),
        ] {
            let error = read(lines).unwrap_err();
            assert!(error.contains(why), "{lines}: {error}");
        }
        assert!(metric("json = \"/a\"").read("{\"a\": ").is_err());
    }

    #[test]
    fn a_value_is_read_from_the_last_match_of_a_pattern() {
        let read = |text: &str| metric("regex = 'rate (?<value>[0-9.]+|none)'").read(text);
        assert_eq!(read("rate 1.5\nrate 2.5\n"), Ok(2.5));
        assert!(read("speed 1.5").unwrap_err().contains("no value for rate"));
        assert!(read("rate none").unwrap_err().contains("`none`"));
        assert_eq!(pattern_fault("(?<value>x)"), None);
        assert!(pattern_fault("(x)").unwrap().contains("no group `value`"));
        assert!(pattern_fault("(").is_some());
    }

    #[test]
    fn names_are_known_while_their_experiment_is_read() {
        let document = |unit: &str| {
            serde_json::json!({
                "load": [{"name": "l", "client": ["true"]}],
                "metric": [
                    {"name": "own", "label": "Own", "unit": unit, "better": "higher", "load": "l", "json": "/a"},
                    {"name": "lost", "label": "Lost", "unit": "x", "better": "higher", "load": "none", "json": "/a"},
                ],
            })
        };
        let read = |name: &str| serde_json::from_str::<Metric>(&format!("\"{name}\""));
        assert!(read("own").is_err() && read("rtt").is_ok());
        let known = Known::of_file(&document("x"));
        let first = read("own").unwrap();
        assert!(read("lost").is_err(), "its load is not there");
        {
            let _other = Known::of_file(&document("y"));
            let other = read("own").unwrap();
            assert!(other != first && other.unit() == "y", "of another experiment");
        }
        assert_eq!(read("own").unwrap(), first);
        drop(known);
        assert!(read("own").is_err());
        let _again = Known::of_file(&document("x"));
        assert_eq!(read("own").unwrap(), first);
        assert_eq!((first.name(), first.unit(), first.short()), ("own", "x", "Own"));
        assert_eq!(serde_json::to_value(first).unwrap(), "own");
        assert_eq!(format!("{:?}", first.load().unwrap()), "Own(l)");
    }
}
