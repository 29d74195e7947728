//! Statistics: description, bootstrap intervals, paired tests, equivalence, verdicts, trends.

pub(crate) mod bootstrap;
pub(crate) mod describe;
pub(crate) mod multiple;
pub(crate) mod paired;
pub(crate) mod trend;
