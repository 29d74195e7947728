//! Statistics: description, bootstrap intervals, paired and unpaired tests, equivalence, verdicts, trends, series.

pub(crate) mod bootstrap;
pub(crate) mod describe;
pub(crate) mod multiple;
pub(crate) mod paired;
#[allow(dead_code, reason = "for comparisons of runs and of recordings")]
pub(crate) mod serial;
pub(crate) mod trend;
#[allow(dead_code, reason = "for comparisons of runs and of recordings")]
pub(crate) mod unpaired;
