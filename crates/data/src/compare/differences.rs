//! What differs between two runs besides their numbers.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::artefacts::Run;

/// One thing that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What it is.
    pub what: String,
    /// In A.
    pub a: String,
    /// In B.
    pub b: String,
    /// Whether the machine is another one, or runs as another one.
    pub machine: bool,
}

/// Keys of the environment that say nothing of how the machine is made.
const PASSING: [&str; 5] = ["started", "load_average", "other_cores", "steal_share", "programs"];
/// Keys without which a machine is another one.
const MACHINE: [&str; 8] = [
    "kernel",
    "cpu_model",
    "processors",
    "smt",
    "governor",
    "clocksource",
    "virtualisation",
    "memory_mib",
];
/// Choices of a run that follow from others.
const FOLLOWING: [&str; 3] = ["replay", "versions", "seed"];

/// Compares environments, programs, experiments and choices.
pub(super) fn differences(a: &Run, b: &Run) -> Vec<Difference> {
    let value = |of: &dyn Fn(&Run) -> serde_json::Value| [flat(&of(a)), flat(&of(b))];
    let environment =
        value(&|run| serde_json::to_value(&run.results.environment).unwrap_or_default());
    let spec = value(&|run| serde_json::to_value(&run.experiment).unwrap_or_default());
    let mut all = differing(&environment, "", |key| PASSING.contains(&root(key)));
    all.extend(programs(a, b));
    all.extend(differing(&spec, "spec: ", |key| {
        root(key) == "run" && key.split('.').nth(1).is_some_and(|own| FOLLOWING.contains(&own))
    }));
    all
}

fn root(key: &str) -> &str {
    key.split('.').next().unwrap_or(key)
}

/// Values by path: `sysctls.net.core.rmem_max`. Elements of lists that have a name are told apart by it.
fn flat(value: &serde_json::Value) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    walk(value, String::new(), &mut all);
    all
}

fn walk(value: &serde_json::Value, path: String, all: &mut BTreeMap<String, String>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        serde_json::Value::Object(own) => {
            for (key, value) in own {
                walk(value, below(key), all);
            }
        }
        serde_json::Value::Array(items) if items.iter().any(serde_json::Value::is_object) => {
            for item in items {
                walk(item, below(item["name"].as_str().unwrap_or("?")), all);
            }
        }
        serde_json::Value::Array(items) => {
            let text: Vec<String> = items.iter().map(plain).collect();
            all.insert(path, text.join(", "));
        }
        other => drop(all.insert(path, plain(other))),
    }
}

fn plain(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn differing(
    [a, b]: &[BTreeMap<String, String>; 2],
    prefix: &str,
    left_out: impl Fn(&str) -> bool,
) -> Vec<Difference> {
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let of = |map: &BTreeMap<String, String>, key: &String| {
        map.get(key).cloned().unwrap_or_else(|| "–".into())
    };
    keys.into_iter()
        .filter(|key| !left_out(key) && a.get(*key) != b.get(*key))
        .map(|key| Difference {
            what: format!("{prefix}{key}"),
            a: of(a, key),
            b: of(b, key),
            machine: prefix.is_empty() && MACHINE.contains(&root(key)),
        })
        .collect()
}

/// Programs by name and hash: a path does not matter.
fn programs(a: &Run, b: &Run) -> Vec<Difference> {
    let of = |run: &Run| -> BTreeMap<String, String> {
        let short = |hash: &str| hash.get(..12).unwrap_or(hash).to_owned();
        let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let programs = run.results.environment.programs.iter();
        programs.map(|(path, hash)| (format!("program {}", name(path)), short(hash))).collect()
    };
    let known = |run: &Run, hash: &str| {
        run.results.environment.programs.values().any(|h| h.starts_with(hash))
    };
    let mut all = differing(&[of(a), of(b)], "", |_| false);
    // The same program under another name is the same.
    all.retain(|d| !(d.a != "–" && known(b, &d.a) || d.b != "–" && known(a, &d.b)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_told_by_their_path() {
        let value =
            serde_json::json!({"a": {"b": [1, 2]}, "m": [{"name": "x", "hops": 1}], "c": "t"});
        let all = flat(&value);
        let want = [("a.b", "1, 2"), ("c", "t"), ("m.x.hops", "1"), ("m.x.name", "x")];
        assert!(all.iter().map(|(k, v)| (k.as_str(), v.as_str())).eq(want));
    }

    #[test]
    fn only_what_differs_is_told_and_the_machine_is_marked() {
        let of = |kernel: &str| {
            BTreeMap::from([
                ("kernel".to_owned(), kernel.to_owned()),
                ("x".to_owned(), "1".to_owned()),
            ])
        };
        let all = differing(&[of("6.1"), of("6.2")], "", |_| false);
        assert_eq!(all.len(), 1);
        assert!(all[0].machine && all[0].a == "6.1" && all[0].b == "6.2");
        assert!(!differing(&[of("6.1"), of("6.2")], "spec: ", |_| false)[0].machine);
        assert!(differing(&[of("6.1"), of("6.2")], "", |key| key == "kernel").is_empty());
    }
}
