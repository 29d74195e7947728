//! What a packet of each path costs.

use std::collections::BTreeMap;

use fordway_bpf::Loaded;

use crate::bytecode::{UNKNOWN, Work};
use crate::hook;
use crate::paths::Path;

/// Runs before the counted ones, which then find the kernel's answers remembered; and counted ones, the cheapest of
/// which is taken. The clock's next tick, which a session notes, may fall into one; and a new entry may be the first
/// of several that are taken at once.
const BEFORE: u16 = 3;
const COUNTED: u16 = 5;

/// Whose packets write to a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// Those of a processor.
    Processor,
    /// Those of a flow, in both directions.
    Flow,
    /// New flows of a subscriber.
    Subscriber,
    /// All.
    All,
}

/// Maps that a program writes to, by the names that the kernel has of them (15 octets), and whose packets write to the same
/// cache lines. What is not here may be written to by all. A processor's free list is in `nat64_free`, its
/// remembered answers in `routes`.
const SCOPES: [(&str, Scope); 14] = [
    ("counters", Scope::Processor),
    ("works", Scope::Processor),
    ("snapped", Scope::Processor),
    ("own_identificat", Scope::Processor),
    ("pairs", Scope::Processor),
    ("at_hand", Scope::Processor),
    ("routes", Scope::Processor),
    ("nat64_free", Scope::Processor),
    ("nat64_sessions", Scope::Flow),
    ("nat64_session", Scope::Flow),
    ("nat64_bibs", Scope::Flow),
    ("nat64_bib4", Scope::Flow),
    ("nat64_bib6", Scope::Flow),
    ("nat64_subscribe", Scope::Subscriber),
];

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) path: String,
    pub(crate) instructions: u64,
    pub(crate) lookups: u64,
    pub(crate) helpers: u64,
    /// Cache lines that are written to and that packets at other processors may write to as well.
    pub(crate) lines: BTreeMap<Scope, u64>,
    /// Atomic instructions among these writes.
    pub(crate) atomic: u64,
}

/// Counts what a packet of a path costs.
pub(crate) fn count(path: &Path, loaded: &mut Loaded) -> Row {
    let program = path.program.name();
    for number in 0..BEFORE {
        path.run(loaded, number);
    }
    let counted = (BEFORE..BEFORE + COUNTED).map(|number| {
        hook::begin(program);
        path.run(loaded, number);
        hook::done(program)
    });
    let work = counted.min_by_key(|work| work.instructions).expect("several");
    let unknown = work.writes.get(UNKNOWN).map_or(0, |writes| writes.all);
    assert_eq!(unknown, 0, "writes of {program} to what the verifier does not say");
    row(format!("{}, {}", path.name, path.at), &work)
}

fn row(path: String, work: &Work) -> Row {
    let mut lines = BTreeMap::new();
    let mut atomic = 0;
    for (map, writes) in work.writes.iter().filter(|(_, writes)| writes.all > 0) {
        let scope = SCOPES.iter().find(|(name, _)| name == map).map_or(Scope::All, |found| found.1);
        if scope != Scope::Processor {
            // An entry, or the head of a chain: one cache line.
            *lines.entry(scope).or_insert(0) += 1;
            atomic += writes.atomic;
        }
    }
    let helpers = work.helpers + work.updates;
    Row { path, instructions: work.instructions, lookups: work.lookups, helpers, lines, atomic }
}
