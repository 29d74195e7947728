//! Statistics: description, bootstrap intervals, paired and unpaired tests, equivalence, verdicts, trends, series.

pub(crate) mod bootstrap;
pub(crate) mod describe;
pub(crate) mod multiple;
pub(crate) mod order;
pub(crate) mod paired;
pub(crate) mod power;
pub(crate) mod serial;
pub(crate) mod trend;
pub(crate) mod unpaired;
