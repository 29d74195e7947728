//! The tables in `docs/rfc` and `docs/threats.md` against what they name.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fordway_testkit::vector::{vectors_dir, walk, walk_sequences};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every word in backticks of the last column of a table row, with the place where it stands.
fn proofs() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let folder = fs::read_dir(root().join("docs/rfc")).unwrap();
    let tables = folder.map(|entry| entry.unwrap().path());
    for path in tables.chain([root().join("docs/threats.md")]) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name == "README.md" {
            continue;
        }
        for (number, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            let Some(row) = line.strip_prefix('|').and_then(|row| row.trim_end().strip_suffix('|'))
            else {
                continue;
            };
            let columns: Vec<&str> = row.split('|').map(str::trim).collect();
            let last = columns.last().copied().unwrap_or_default();
            let claims = columns.get(2).is_some_and(|mark| mark.starts_with("done"));
            assert!(!claims || !last.is_empty(), "{name}:{}: done, without proof", number + 1);
            for word in last.split('`').skip(1).step_by(2) {
                found.push((format!("{name}:{}", number + 1), word.to_owned()));
            }
        }
    }
    assert!(found.len() > 100, "the tables were not understood");
    found
}

/// Whether `name` fits `pattern`, where `*` stands for any characters except `/`.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => name.strip_prefix(head).is_some_and(|rest| {
            let end = rest.find('/').unwrap_or(rest.len());
            (0..=end).any(|at| rest.is_char_boundary(at) && fits(tail, &rest[at..]))
        }),
    }
}

#[test]
fn every_proof_exists_and_every_vector_proves_something() {
    let (vectors, sequences) =
        (walk(&vectors_dir()).unwrap(), walk_sequences(&vectors_dir()).unwrap());
    let vectors: BTreeSet<String> =
        vectors.into_iter().chain(sequences).map(|(name, _)| name).collect();
    let mut named = BTreeSet::new();
    let mut wrong = Vec::new();
    for (place, word) in proofs() {
        if let Some((file, test)) = word.split_once("::") {
            let text = fs::read_to_string(root().join(file)).unwrap_or_default();
            if !text.contains(&format!("fn {test}(")) {
                wrong.push(format!("{place}: there is no test {word}"));
            }
            continue;
        }
        let hits: Vec<&String> = vectors.iter().filter(|name| fits(&word, name)).collect();
        if hits.is_empty() {
            wrong.push(format!("{place}: there is no vector {word}"));
        }
        named.extend(hits);
    }
    let orphans = vectors.iter().filter(|name| !named.contains(name));
    wrong.extend(orphans.map(|name| format!("no table names the vector {name}")));
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn patterns() {
    assert!(fits("a/b_*", "a/b_c"));
    assert!(fits("a/*_c", "a/b_c"));
    assert!(fits("a/b*c*", "a/bxcy"));
    assert!(!fits("a/*", "a/b/c"));
    assert!(!fits("a/b", "a/bc"));
}
