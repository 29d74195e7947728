//! The report: figures, one self-contained page, and the table on the terminal.

mod cards;
pub mod comparison;
pub mod decision;
mod deviations;
pub mod figures;
mod grid;
pub mod page;
pub mod performance;
mod points;
mod processors;
mod rfc8219;
mod rfc9693;
mod tables;
pub mod terminal;
mod verdicts;
pub mod words;
