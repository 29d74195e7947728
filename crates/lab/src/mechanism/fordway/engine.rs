//! Which engine a gateway runs, by its own `status --json`: an arm that measures another engine than
//! it is named after would be worse than none.

use fordway_data::spec::MechanismSpec;
use serde_json::Value;

fn text<'a>(status: &'a Value, key: &str) -> &'a str {
    status.pointer(&format!("/translators/0/{key}")).and_then(Value::as_str).unwrap_or("unknown")
}

/// Whether the first translator runs the engine, at the attach point, that the arm asks for.
pub(super) fn check(status: &Value, spec: &MechanismSpec) -> std::result::Result<(), String> {
    let engine = text(status, "engine");
    if let Some(wanted) = spec.engine.as_deref().filter(|w| *w != "auto" && *w != engine) {
        return Err(format!(
            "it runs the {engine} engine, not the {wanted} engine ({})",
            text(status, "engine_reason")
        ));
    }
    // The lab's word for it.
    let attach = match (text(status, "attach"), text(status, "forward")) {
        ("ingress", forward @ ("in-place" | "direct")) => forward,
        (attach, _) => attach,
    };
    match spec.attach.as_deref().filter(|wanted| *wanted != attach) {
        Some(wanted) => Err(format!("it is attached at {attach}, not at {wanted}")),
        None => Ok(()),
    }
}

/// The engine in words: `kernel engine at uplink, tcx`.
pub(super) fn words(status: &Value) -> Option<String> {
    let engine = status.pointer("/translators/0/engine")?.as_str()?;
    let mut words = format!("{engine} engine at {}", text(status, "attach"));
    if let Some(hook) = status.pointer("/translators/0/kernel/hook").and_then(Value::as_str) {
        words.push_str(&format!(", {hook}"));
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fordway_data::spec::Experiment;

    fn status(engine: &str, attach: &str) -> Value {
        serde_json::json!({"translators": [{
            "engine": engine, "attach": attach, "engine_reason": "no bpffs is mounted",
            "kernel": {"hook": "tcx"}}]})
    }

    fn arm(name: &str) -> MechanismSpec {
        Experiment::find("clat-vs-dual-stack").unwrap().mechanism(name).unwrap().clone()
    }

    #[test]
    fn another_engine_than_the_wanted_one_is_refused_with_its_reason() {
        let uplink = arm("clat-fordway-uplink");
        assert_eq!(check(&status("kernel", "uplink"), &uplink), Ok(()));
        let why = check(&status("user", "uplink"), &uplink).unwrap_err();
        assert!(why.contains("user engine") && why.contains("no bpffs"), "{why}");
        let why = check(&status("kernel", "interface"), &uplink).unwrap_err();
        assert!(why.contains("at interface, not at uplink"), "{why}");
        assert!(check(&serde_json::json!({}), &uplink).is_err());
        assert_eq!(check(&status("user", "interface"), &arm("clat-fordway")), Ok(()));
        assert!(check(&status("kernel", "interface"), &arm("clat-fordway")).is_err());
    }

    #[test]
    fn the_engine_is_told_with_its_hook() {
        let words = words(&status("kernel", "uplink"));
        assert_eq!(words.as_deref(), Some("kernel engine at uplink, tcx"));
    }
}
