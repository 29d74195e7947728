//! Holds the table of crates in ARCHITECTURE.md against what `cargo metadata` says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

type Imports = BTreeMap<String, BTreeSet<String>>;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// `fordway-xlat` is called `xlat` in the documents; `fordway` is itself.
fn short(package: &str) -> String {
    package.strip_prefix("fordway-").unwrap_or(package).to_owned()
}

fn actual() -> Imports {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo metadata runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let names: BTreeSet<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    let imports = |package: &serde_json::Value| {
        let dependencies = package["dependencies"].as_array().expect("dependencies").iter();
        // What only tests use does not shape the product.
        let normal = dependencies.filter(|dependency| dependency["kind"].is_null());
        let own = normal.filter_map(|d| d["name"].as_str()).filter(|name| names.contains(name));
        own.map(short).collect()
    };
    packages.iter().map(|p| (short(p["name"].as_str().expect("name")), imports(p))).collect()
}

fn documented() -> Imports {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let table = text.split("| crate | imports | holds |").nth(1).expect("the table of crates");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    rows.map(|row| {
        let mut cells = row.split('|').skip(1);
        let name: Vec<String> = names(cells.next().expect("crate"));
        (name[0].clone(), names(cells.next().expect("imports")).into_iter().collect())
    })
    .collect()
}

#[test]
fn architecture_tells_who_imports_whom() {
    assert_eq!(documented(), actual(), "left: ARCHITECTURE.md, right: the crates");
}

#[test]
fn pure_crates_have_no_standard_library_and_no_unsafe_code() {
    for name in ["wire", "xlat"] {
        let lib = root().join("crates").join(name).join("src/lib.rs");
        let text = std::fs::read_to_string(&lib).expect("lib.rs");
        assert!(text.contains("#![no_std]"), "{}", lib.display());
        assert!(text.contains("#![forbid(unsafe_code)]"), "{}", lib.display());
    }
}
