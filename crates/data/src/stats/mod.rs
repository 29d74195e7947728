//! Statistics: description, bootstrap intervals, paired and unpaired tests, equivalence, verdicts, trends, series.

pub mod bootstrap;
pub mod describe;
pub mod multiple;
pub mod order;
pub mod paired;
pub mod power;
pub mod serial;
pub mod trend;
pub mod unpaired;
