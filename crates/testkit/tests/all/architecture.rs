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

/// What starts programs, asks for the time, or looks at the machine.
const IMPURE: [&str; 8] = [
    "std::process",
    "std::env",
    "std::thread",
    "Instant",
    "SystemTime",
    "UdpSocket",
    "TcpStream::",
    "/proc/",
];

/// What follows from a run's folder must follow from it again, on any machine and without privileges.
#[test]
fn the_labs_data_follows_from_artefacts_alone() {
    let mut files = Vec::new();
    for name in ["data", "procedures", "stats"] {
        let src = root().join("crates").join(name).join("src");
        let lib = std::fs::read_to_string(src.join("lib.rs")).expect("lib.rs");
        assert!(lib.contains("#![forbid(unsafe_code)]"), "{name}");
        sources(&src, &mut files);
    }
    assert!(files.len() > 70, "only {} files were found", files.len());
    let found = files.iter().flat_map(|(name, code)| {
        IMPURE
            .iter()
            .filter(|word| code.contains(**word))
            .map(move |word| format!("{name}: {word}"))
    });
    assert_eq!(found.collect::<Vec<String>>(), Vec::<String>::new());
}

/// What reads octets that somebody else has sent, and the one file of the daemon in which it may be named: there it is
/// handed to a thread without capabilities.
const STRANGERS: [(&str, Option<&str>); 17] = [
    ("control::serve(", Some("daemon/src/lib.rs")),
    ("metrics::serve(", Some("daemon/src/lib.rs")),
    ("watcher.run(", Some("daemon/src/reconcile/auto/discovery.rs")),
    (".is_claim(", Some("daemon/src/reconcile/auto/discovery.rs")),
    ("get_inner().receive(", Some("daemon/src/reconcile/auto/discovery.rs")),
    ("runner.run(", Some("daemon/src/serve/dstm_client.rs")),
    ("trace::line(", Some("daemon/src/apply/tracing.rs")),
    ("Message::parse(", Some("daemon/src/reconcile/auto/duplicate.rs")),
    ("hickory_proto", None),
    ("fordway_dns64::ndp", None),
    ("hyper", None),
    ("UdpSocket", None),
    ("TcpListener::from_std", None),
    ("TcpStream", None),
    ("UnixStream", None),
    ("recv_from(", None),
    ("recvfrom(", None),
];

/// The source files below a folder, and their text without tests.
fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path.display().to_string();
        if path.is_dir() && !path.ends_with("tests") {
            sources(&path, found);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            let text = std::fs::read_to_string(&path).expect("a source file");
            let code =
                text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
            found.push((name, code));
        }
    }
}

/// The thread with capabilities runs the crate `daemon`: nothing there reads what strangers send, but for what is
/// started by `privilege::apart` in the same file. What runs on which thread is shown by the tests `privileges::` of the
/// program; this one is for code that they do not reach.
#[test]
fn who_has_capabilities_parses_nothing_of_strangers() {
    let src = root().join("crates/daemon/src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    // Threads of their own, commands, and the log, which names crates.
    let apart = ["log", "metrics", "natlog", "runtime", "tables/cache", "trace"]
        .map(|part| src.join(part).display().to_string());
    files.retain(|(name, _)| !apart.iter().any(|part| name.starts_with(part)));
    // The control socket's thread, which `control::serve(` above begins.
    files.retain(|(name, _)| !name.contains("daemon/src/serve/control/"));
    assert!(files.len() > 50, "only {} files were found", files.len());
    let mut wrong = Vec::new();
    for (word, place) in STRANGERS {
        let mut is_there = false;
        for (name, code) in files.iter().filter(|(_, code)| code.contains(word)) {
            match place {
                Some(place) if name.ends_with(place) => is_there = true,
                _ => wrong.push(format!("{name}: {word}")),
            }
            // Duplicate address detection is a function of octets, which the thread calls.
            if !code.contains("privilege::apart(") && !name.ends_with("duplicate.rs") {
                wrong.push(format!("{name}: {word} without a thread apart"));
            }
        }
        if place.is_some() && !is_there {
            wrong.push(format!("{word} is nowhere: correct this table"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// The parts of the daemon: each imports only those before it.
const PARTS: [&str; 5] = ["plan", "handover", "apply", "reconcile", "serve"];

#[test]
fn parts_of_the_daemon_import_only_those_before_them() {
    let daemon = root().join("crates/daemon/src");
    let mut wrong = Vec::new();
    for (place, part) in PARTS.iter().enumerate() {
        let mut files = Vec::new();
        sources(&daemon.join(part), &mut files);
        assert!(!files.is_empty(), "{part} has no files");
        for (name, code) in &files {
            let imports = |later: &&&str| code.contains(&format!("crate::{later}"));
            let later = PARTS[place + 1..].iter().filter(imports);
            wrong.extend(later.map(|later| format!("{name} imports {later}")));
            if code.contains("crate::{") {
                wrong.push(format!("{name}: name each part by its whole path"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Crates whose modules import each other in one direction alone. A file or folder of `src` counts as one module, and
/// what `lib.rs` exports as the module's that it comes from.
const ACYCLIC: &str = "bpf cluster cni config control counters daemon data discovery dns64 dstm dstmd engine fordway lab load nameserver \
                        net procedures proxy relay resolver router serve softwire stats tester testhost tun wire xlat";

/// The first word of a path, and how the text goes on.
fn first_word(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len()))
}

/// The words that stand behind `crate::`: one, or those of a list outside of inner braces that begin a path.
fn imported(text: &str) -> Vec<&str> {
    let Some(mut list) = text.strip_prefix('{') else { return vec![first_word(text).0] };
    let (mut words, mut depth, mut begins) = (Vec::new(), 1, true);
    while let Some(c) = list.chars().next().filter(|_| depth > 0) {
        let (word, rest) = first_word(list);
        if begins && depth == 1 && !word.is_empty() {
            words.push(word);
        }
        begins = c == ',' || c.is_whitespace() && begins;
        depth += i32::from(c == '{') - i32::from(c == '}');
        list = if word.is_empty() { &list[c.len_utf8()..] } else { rest };
    }
    words
}

/// The modules of a crate, and which of the others each imports.
fn modules(name: &str) -> Imports {
    let src = root().join("crates").join(name).join("src");
    let (mut files, mut all, mut exported) = (Vec::new(), Imports::new(), BTreeMap::new());
    sources(&src, &mut files);
    let mut codes = Vec::new();
    for (path, text) in &files {
        let path: Vec<_> = Path::new(path).strip_prefix(&src).expect("below src").iter().collect();
        let module = path[0].to_string_lossy().trim_end_matches(".rs").to_owned();
        if module != "lib" && module != "main" {
            let code: Vec<&str> = text.lines().filter_map(|line| line.split("//").next()).collect();
            let up =
                "super::".repeat(path.len() - usize::from(path.ends_with(&["mod.rs".as_ref()])));
            let code = code.join("\n").replace(&format!("\nuse {up}"), "\nuse crate::");
            all.insert(module.clone(), BTreeSet::new());
            codes.push((module, code));
            continue;
        }
        for path in text.split("pub use ").skip(1).filter_map(|it| it.split(';').next()) {
            let (from, names) = first_word(path.strip_prefix("crate::").unwrap_or(path));
            let names = names.split(|c: char| !c.is_alphanumeric() && c != '_');
            exported.extend(names.map(|name| (name, from)));
        }
    }
    for (module, code) in &codes {
        for word in code.split("crate::").skip(1).flat_map(imported) {
            let from =
                if all.contains_key(word) { word } else { exported.get(word).unwrap_or(&"") };
            if all.contains_key(from) && from != module {
                all.entry(module.clone()).or_default().insert(from.to_owned());
            }
        }
    }
    all
}

/// Takes away what imports nothing of the rest, and what nothing of the rest imports, until only circles are left.
fn circles(mut all: Imports) -> Imports {
    loop {
        let left: BTreeSet<String> = all.keys().cloned().collect();
        all.values_mut().for_each(|imports| imports.retain(|it| left.contains(it)));
        let used: BTreeSet<String> = all.values().flatten().cloned().collect();
        all.retain(|name, imports| !imports.is_empty() && used.contains(name));
        if all.len() == left.len() {
            return all;
        }
    }
}

#[test]
fn modules_import_each_other_in_one_direction() {
    let mut arrows = 0;
    for name in ACYCLIC.split(' ') {
        let modules = modules(name);
        arrows += modules.values().map(BTreeSet::len).sum::<usize>();
        assert_eq!(circles(modules), Imports::new(), "modules of {name}, and what each imports");
    }
    assert!(arrows > 300, "only {arrows} imports were found");
}

#[test]
fn circles_are_found() {
    let arrow = |(from, to): (&str, &str)| (from.to_owned(), BTreeSet::from([to.to_owned()]));
    let line = [("top", "a"), ("a", "b"), ("b", "low"), ("low", "none")];
    assert_eq!(circles(line.map(arrow).into()), Imports::new());
    let circle = [("top", "a"), ("a", "b"), ("b", "a")];
    assert_eq!(circles(circle.map(arrow).into()), circle[1..].iter().copied().map(arrow).collect());
    assert_eq!(imported("{a::{b, c}, d, e as f};\ng"), ["a", "d", "e"]);
    assert_eq!(imported("one::two;"), ["one"]);
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Whether a source file defines the function: in Rust by `fn`, in C at the beginning of a line.
fn defines(source: &str, name: &str) -> bool {
    let name = name.rsplit("::").next().unwrap_or(name);
    let begins = |rest: &str| rest.starts_with(['(', '<']);
    let rust = format!("fn {name}");
    let calls = |line: &str| {
        line.split_once(&format!("{name}(")).is_some_and(|(before, _)| before.ends_with([' ', '*']))
    };
    source.split(&rust).skip(1).any(begins)
        || source.lines().any(|line| !line.starts_with(['\t', ' ', '*', '/']) && calls(line))
}

#[test]
fn the_ways_of_packets_lead_through_functions_that_exist() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let ways = text.split("## Packet paths").nth(1).expect("the ways");
    let ways = ways.split("\n## ").next().expect("an end");
    let (mut steps, mut missing) = (0, Vec::new());
    for row in ways.lines().filter(|line| line.starts_with('|')) {
        let mut file: Option<(&str, String)> = None;
        for word in row.split('|').skip(2).flat_map(quoted) {
            let is_path =
                word.contains('/') && [".rs", ".c", ".h"].iter().any(|end| word.ends_with(end));
            if is_path {
                let source = std::fs::read_to_string(root().join("crates").join(word));
                file = Some((word, source.unwrap_or_default()));
            } else if let Some((path, source)) = &file
                && !word.contains('.')
                && word.chars().all(|c| c.is_alphanumeric() || c == '_' || c == ':')
            {
                steps += 1;
                if !defines(source, word) {
                    missing.push(format!("{path}: {word}"));
                }
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new());
    assert!(steps > 80, "only {steps} steps were found");
}
