//! The Helm chart: its values against their schema, and what it renders.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use fordway_testhost::{has_programs, require};
use serde_json::{Value, json};

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/helm/fordway")
}

fn run(program: &str, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect(program);
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("to write");
    child.wait_with_output().expect("its output")
}

/// Debian has no Helm, which does the same: values over the defaults, held against the schema. Prints what is wrong.
const CHECK: &str = r"
import json, sys, yaml, jsonschema
folder = sys.argv[1]

def over(below, above):
    if isinstance(below, dict) and isinstance(above, dict):
        return {key: over(below.get(key), above[key]) if key in above else below[key] for key in below | above}
    return above

with open(f'{folder}/values.yaml') as file:
    defaults = yaml.safe_load(file)
with open(f'{folder}/values.schema.json') as file:
    schema = json.load(file)
jsonschema.Draft7Validator.check_schema(schema)
checker = jsonschema.Draft7Validator(schema)
for values in json.load(sys.stdin):
    print(json.dumps([error.json_path for error in checker.iter_errors(over(defaults, values))]))
";

/// What the schema says of these values: paths of what is wrong.
fn check(values: &[Value]) -> Option<Vec<Vec<String>>> {
    let imported = run("python3", &["-c", "import yaml, jsonschema"], "");
    if !require(imported.status.success(), "python3-yaml or python3-jsonschema is not installed") {
        return None;
    }
    let folder = chart().display().to_string();
    let output = run("python3", &["-c", CHECK, &folder], &json!(values).to_string());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(text.lines().map(|line| serde_json::from_str(line).expect("a list")).collect())
}

/// A gateway beside the plugin.
fn all() -> Value {
    json!({
        "pref64": "2001:db8:64::/96", "allowPrivate": true,
        "cni": { "clatPrefix": "2001:db8:c1a7::/64" },
        "nat64": { "enabled": true, "pool4": ["203.0.113.0/28"] },
        "dns64": { "enabled": true, "listen": ["2001:db8::53"], "upstream": ["2001:db8::1"], "allow": ["2001:db8::/32"] },
        "networkPolicy": { "allowPref64": true },
    })
}

#[test]
fn values_have_a_schema() {
    if !has_programs(&["python3"]) {
        return;
    }
    let good =
        [json!({}), all(), json!({ "pref64": "auto" }), json!({ "cni": { "mode": "uninstall" } })];
    let Some(found) = check(&good) else { return };
    assert_eq!(found, vec![Vec::<String>::new(); good.len()]);
    let bad = [
        (json!({ "pref64": "64:ff9b::/95" }), "$.pref64"),
        (json!({ "prefix": "64:ff9b::/96" }), "$"),
        (json!({ "cni": { "mode": "remove" } }), "$.cni.mode"),
        (json!({ "cni": { "clatPrefix": "2001:db8::/113" } }), "$.cni.clatPrefix"),
        (json!({ "cni": { "binDir": "opt" } }), "$.cni.binDir"),
        (json!({ "nat64": { "enabled": true } }), "$.nat64.pool4"),
        (json!({ "dns64": { "enabled": true, "upstream": ["2001:db8::1"] } }), "$.dns64.listen"),
        (json!({ "pref64": "auto", "networkPolicy": { "allowPref64": true } }), "$.pref64"),
    ];
    let values: Vec<Value> = bad.iter().map(|(values, _)| values.clone()).collect();
    let found = check(&values).expect("as before");
    for ((values, path), found) in bad.iter().zip(found) {
        assert_eq!(found, [*path], "{values}");
    }
}

#[test]
#[ignore = "needs helm, which Debian does not have"]
fn helm_renders_what_the_programs_accept() {
    let folder = chart().display().to_string();
    let render = |values: &Value| {
        let output =
            run("helm", &["template", "test", &folder, "--values", "-"], &values.to_string());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(run("helm", &["lint", "--strict", &folder], "").status.success());
    let plain = render(&json!({}));
    assert_eq!(plain.matches("\nkind: ").count(), 1, "{plain}");
    assert!(plain.contains(r#""--config={\"pref64\":\"64:ff9b::/96\"}""#), "{plain}");
    // What pods leave is removed by the container that takes the plugin off.
    let removal = render(&json!({ "cni": { "mode": "uninstall" } }));
    for needed in [
        "- uninstall\n",
        "privileged: true",
        "mountPath: /sys/fs/bpf",
        "mountPath: /run/fordway-cni",
    ] {
        assert!(removal.contains(needed) && !plain.contains(needed), "{needed}: {removal}");
    }
    let text = render(&all());
    let kinds: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("kind: ")).collect();
    assert_eq!(kinds.len(), 4, "{kinds:?}");
    // The gateway takes its configuration.
    let toml: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.contains("fordway.toml: |"))
        .skip(1)
        .take_while(|line| line.starts_with("    ") || line.is_empty())
        .map(str::trim)
        .collect();
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("fordway.toml");
    std::fs::write(&file, toml.join("\n")).expect("a file");
    let gateway = Path::new(crate::world::CNI).with_file_name("fordway");
    let gateway = gateway.display().to_string();
    let output = run(&gateway, &["check", "-c", &file.display().to_string()], "");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!run("helm", &["template", "test", &folder, "--set", "pref64=x"], "").status.success());
}
