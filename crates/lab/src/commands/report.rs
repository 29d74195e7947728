//! `report`: from a run's folder to its report, again and again the same.

use std::path::Path;

use crate::error::{EXIT_DONE, Result};

/// Makes the report.
pub(super) fn report(dir: &Path, _json: bool) -> Result<u8> {
    for t in crate::trial::Ledger::of(dir).read()? {
        println!("{} {} {:?} {} {:?} {:?}", t.block, t.mechanism, t.value, t.metric.name(), t.cpu, t.invalid);
        for c in &t.checks { println!("     {} {} {}", c.ok, c.name, c.detail); }
    }
    Ok(EXIT_DONE)
}
