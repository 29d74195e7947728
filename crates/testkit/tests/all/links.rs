//! The documents against what they point at: files and headings.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every Markdown file of the project, with its text.
fn documents() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // Not what builds and runs leave behind.
            if path.is_dir() && !matches!(&*name, "target" | ".git" | "results" | "lab-results") {
                folders.push(path);
            } else if name.ends_with(".md") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    assert!(found.len() > 20, "the documents were not found");
    found
}

/// The lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    })
}

/// What a heading is called in a link: its words in lower case, joined by hyphens.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

/// The targets of `[text](target)` in a line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

fn wrong_link(document: &Path, text: &str, target: &str) -> Option<String> {
    if target.starts_with("https://") {
        return None;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = document.parent().unwrap_or(document).join(file);
    if !file.is_empty() && !path.exists() {
        return Some("there is no such file".into());
    }
    let other = if file.is_empty() { text.to_owned() } else { read(&path) };
    let known = heading.is_empty() || anchors(&other).contains(heading);
    (!known).then(|| "there is no such heading".into())
}

/// A file's text; of a folder, nothing.
fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn every_link_leads_somewhere() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (path, text) in documents() {
        for target in prose(&text).flat_map(targets) {
            count += 1;
            if let Some(why) = wrong_link(&path, &text, target) {
                wrong.push(format!("{}: {target}: {why}", path.display()));
            }
        }
    }
    assert!(count > 50, "the links were not understood");
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Files of the source, as ARCHITECTURE.md calls them: from the root, from `crates`, or from where its
/// tables say that they are at home.
fn source(name: &str) -> Option<PathBuf> {
    let homes = ["", "crates", "crates/xlat/src", "crates/xlat/src/icmp", "crates/bpf/c"];
    let homes = homes.iter().chain(&["crates/bpf/c/include"]);
    homes.map(|home| root().join(home).join(name)).find(|path| path.is_file())
}

#[test]
fn architecture_names_files_that_are_there() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let words = prose(&text).flat_map(|line| line.split('`').skip(1).step_by(2));
    let ends = [".rs", ".h", ".c"];
    let files =
        words.filter(|word| ends.iter().any(|end| word.ends_with(end)) && !word.contains('{'));
    let (there, missing): (Vec<_>, Vec<_>) = files.partition(|word| source(word).is_some());
    assert!(there.len() > 30, "only {} files were found", there.len());
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn headings_become_anchors() {
    assert_eq!(anchor(" The CLAT's IPv6 address"), "the-clats-ipv6-address");
    assert_eq!(anchor(" `[control]`"), "control");
    assert_eq!(anchor(" Addresses and ports, mode nat64"), "addresses-and-ports-mode-nat64");
}
