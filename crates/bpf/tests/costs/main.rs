//! What the kernel programs do for a packet: instructions, searches of maps, writes that other processors see. The programs
//! run in the kernel, with a counter in each basic block. Needs root.

mod bytecode;
mod document;
mod hook;
mod model;
mod paths;
mod table;
mod verifier;

use std::collections::BTreeMap;
use std::path::Path;

use fordway_testhost::is_root;

use table::{Row, Scope};

/// By how much the instructions of a path may differ from the documents', because compilers do.
const COMPILERS: f64 = 0.1;

/// With UPDATE_DOCS=1 the document takes what is counted now.
#[test]
fn packets_cost_what_the_document_says() {
    if !is_root() {
        return;
    }
    let rows = rows();
    share_little(&rows);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/kernel-engine.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(document::BEGIN).expect("a place for the table");
    let (text, after) = rest.split_once(document::END).expect("the end of the table");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let now = [before, document::BEGIN, &document::write(&rows), document::END, after].concat();
        std::fs::write(&path, now).unwrap();
        return;
    }
    let written = document::read(text);
    let counted: Vec<&str> = rows.iter().map(|row| row.path.as_str()).collect();
    assert_eq!(written.iter().map(|row| row.path.as_str()).collect::<Vec<_>>(), counted);
    for (written, row) in written.iter().zip(&rows) {
        let off = row.instructions.abs_diff(written.instructions) as f64;
        assert!(off <= COMPILERS * written.instructions as f64, "{row:?}, written: {written:?}");
        let same = Row { instructions: row.instructions, ..written.clone() };
        assert_eq!(*row, same, "written anew with UPDATE_DOCS=1");
    }
}

/// On hosts with many processors a packet writes nothing that packets of other flows write too.
fn share_little(rows: &[Row]) {
    for row in rows {
        let is_new = row.path.contains("new");
        let lines = |scope| row.lines.get(&scope).copied().unwrap_or(0);
        // IPv4 identifications are taken by many at once, for addresses that had none.
        let takes = row.path.starts_with("SIIT v6>v4, first packet");
        assert_eq!(lines(Scope::All), u64::from(takes), "{row:?}");
        assert_eq!(lines(Scope::Subscriber), u64::from(is_new), "{row:?}");
        // A session; of a new one also its mapping, and the three chains that both are in.
        let flow = if is_new { 5 } else { u64::from(row.path.contains("NAT64")) };
        assert_eq!(lines(Scope::Flow), flow, "{row:?}");
    }
}

fn rows() -> Vec<Row> {
    hook::install();
    let mut rows = Vec::new();
    paths::visit(&mut |path, loaded| rows.push(table::count(path, loaded)));
    let mut names = BTreeMap::new();
    for row in &rows {
        *names.entry(&row.path).or_insert(0) += 1;
    }
    assert!(names.values().all(|&times| times == 1), "{names:?}");
    assert!(rows.len() > 30, "{rows:?}");
    rows
}
