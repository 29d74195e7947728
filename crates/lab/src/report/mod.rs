//! The report: figures, one self-contained page, and the table on the terminal.

mod cards;
pub(crate) mod comparison;
pub(crate) mod decision;
mod deviations;
pub(crate) mod figures;
pub(crate) mod grid;
pub(crate) mod page;
pub(crate) mod points;
mod rfc8219;
mod tables;
pub(crate) mod terminal;
mod verdicts;
pub(crate) mod words;
