//! What of an experiment's own loads, metrics and goals can't be.

use crate::findings::{Finding, nearest};
use crate::spec::Metric;
use crate::spec::command::placeholders;
use crate::spec::goals::{Goal, Measure};
use crate::spec::own::{Better, LOAD_PLACEHOLDERS, LoadSpec, MetricSpec, pattern_fault};

use super::{Check, metric_names, shaped, twice};

/// What of the experiment's own loads can't be.
pub(super) fn loads(check: &mut Check<'_>) {
    twice(check, "/load", "name");
    let known: Vec<&str> = LOAD_PLACEHOLDERS.iter().map(|(name, _)| *name).collect();
    for pointer in check.each("/load") {
        let Some(load) = shaped::<LoadSpec>(check, &pointer) else { continue };
        if load.server.is_empty() && !load.server_ready.is_empty() {
            let fix = "write `server`, or leave `server_ready` out".to_owned();
            let message = "there is no command at the server that could be ready".into();
            check.wrong(&format!("{pointer}/server_ready"), message, fix);
        }
        if let Some(both) = load.success.iter().find(|status| load.unusable.contains(status)) {
            let message = format!("exit status {both} is in `success`, too");
            let fix = "a status means one thing".to_owned();
            check.wrong(&format!("{pointer}/unusable"), message, fix);
        }
        let scanned = load.scan.as_ref().map(|scan| scan.axis.name());
        let known: Vec<&str> = known.iter().copied().chain(scanned).collect();
        if let Some(scan) = &load.scan {
            let name = scan.axis.name();
            let used = |word: &String| placeholders(word).contains(&name);
            if !load.client.iter().chain(&load.server).any(used) {
                let message = format!("no command has the placeholder {{{name}}}");
                let fix = format!("write {{{name}}} where its value belongs");
                check.wrong(&format!("{pointer}/scan/axis"), message, fix);
            }
            let again = |(place, value): &(usize, &u64)| scan.values[..*place].contains(value);
            if let Some((place, value)) = scan.values.iter().enumerate().find(again) {
                let message = format!("{value} stands above, too");
                let fix = "each value once".to_owned();
                check.wrong(&format!("{pointer}/scan/values/{place}"), message, fix);
            }
        }
        let commands = [
            ("client", &load.client),
            ("server", &load.server),
            ("server_ready", &load.server_ready),
        ];
        for (key, argv) in commands {
            for (number, word) in argv.iter().enumerate() {
                let word_at = format!("{pointer}/{key}/{number}");
                for name in placeholders(word).into_iter().filter(|name| !known.contains(name)) {
                    let fix = format!(
                        "{} (braces that are meant as such: {{{{{name}}}}})",
                        nearest(name, known.iter().copied(), "there are")
                    );
                    let span = check.document.inside(&word_at, &format!("{{{name}}}"));
                    let message = format!("a load has no placeholder {{{name}}}");
                    check.all.push(Finding { span, message, fix: Some(fix) });
                }
            }
        }
    }
}

/// What of the experiment's own metrics can't be.
pub(super) fn metrics(check: &mut Check<'_>) {
    twice(check, "/metric", "name");
    let document = check.document;
    let loads = document.value["load"].as_array().into_iter().flatten();
    let loads: Vec<&str> = loads.filter_map(|load| load["name"].as_str()).collect();
    for pointer in check.each("/metric") {
        let own = |key: &str| format!("{pointer}/{key}");
        check.known(&own("load"), "load", &loads);
        let Some(metric) = shaped::<MetricSpec>(check, &pointer) else { continue };
        let name = &metric.name;
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(plain) {
            let fix = "small letters, digits and `_`, a letter first".to_owned();
            check.wrong(&own("name"), format!("\"{name}\" cannot be the name of a metric"), fix);
        }
        if Metric::ALL.iter().any(|known| known.name() == name) {
            let message = format!("there is a built-in metric `{name}`");
            check.wrong(&own("name"), message, "a name of its own".to_owned());
        }
        match (&metric.json, &metric.regex) {
            (Some(at), None) if !at.is_empty() && !at.starts_with('/') => {
                let message = format!("\"{at}\" is no JSON pointer");
                check.wrong(&own("json"), message, format!("write \"/{}\"", at.replace('.', "/")));
            }
            (None, Some(pattern)) => {
                if let Some(why) = pattern_fault(pattern) {
                    let message = format!("`regex` can't be used: {why}");
                    let fix = "such as 'rate: (?<value>[0-9.]+)'".to_owned();
                    check.wrong(&own("regex"), message, fix);
                }
            }
            (Some(_), Some(_)) => {
                let message = "both `json` and `regex` say where the value stands".into();
                check.wrong(&own("regex"), message, "one of them".to_owned());
            }
            (None, None) => {
                let message = "nothing says where the value stands".into();
                check.wrong(&pointer, message, "add `json` or `regex`".to_owned());
            }
            (Some(_), None) => {}
        }
        if metric.ceiling_factor.is_some() && metric.better == Better::Lower {
            let message = "a generator has no ceiling of what should be low".into();
            check.wrong(&own("ceiling_factor"), message, "leave ceiling_factor out".to_owned());
        }
    }
}

/// What of the experiment's own goals can't be.
pub(super) fn goals(check: &mut Check<'_>, mechanisms: &[&str], metrics: &[Metric]) {
    twice(check, "/goal", "id");
    let document = check.document;
    let metric_names = metric_names(&document.value);
    for pointer in check.each("/goal") {
        let own = |key: &str| format!("{pointer}/{key}");
        for key in ["mechanism", "base", "zero"] {
            check.known(&own(key), "mechanism", mechanisms);
        }
        check.known(&own("metric"), "metric", &metric_names);
        let Some(goal) = shaped::<Goal>(check, &pointer) else { continue };
        if !metrics.contains(&goal.metric) {
            let message = format!("{} is not among the experiment's metrics", goal.metric.name());
            check.wrong(&own("metric"), message, "add it to `metrics` at the top".to_owned());
        } else if goal.metric.has_points() {
            let message = format!("{} is measured at several points", goal.metric.name());
            let fix = "goals are about metrics that have one value on a deployment".to_owned();
            check.wrong(&own("metric"), message, fix);
        }
        let measure = goal.measure();
        if measure.has_base() && goal.base.is_none() {
            let fix = "add `base`, the mechanism that it is compared with".to_owned();
            check.wrong(&own("measure"), "nothing says what it is compared with".into(), fix);
        }
        if measure == Measure::Value && goal.base.is_some() {
            let message = "a mechanism's own value has no base".into();
            check.wrong(&own("base"), message, "leave `base` or `measure` out".to_owned());
        }
        if measure == Measure::AddedRatio && goal.zero.is_none() {
            let fix = "add `zero`, the path whose value is subtracted from both".to_owned();
            check.wrong(&own("measure"), "nothing says from where both are added".into(), fix);
        }
    }
}
