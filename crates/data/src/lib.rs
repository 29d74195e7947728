//! What the lab knows without running anything: experiments, the records of their trials, and what follows from them.
//!
//! Nothing here starts a program, asks for the time or needs privileges: a run's folder is all that a report needs, and
//! a seed gives the same result again.
//!
//! | module | concern |
//! |---|---|
//! | `spec`, `addresses`, `findings` | experiments as data, the addresses of their boxes, what is wrong with a file |
//! | `plan` | what a run will do |
//! | `trial`, `environment`, `costs` | records of what was measured, and on what |
//! | `histogram` | percentiles of round-trip times |
//! | `analysis`, `compare`, `model` | from trials to verdicts, between runs, to what a network needs |
//! | `artefacts`, `files`, `schema`, `publish` | a run's folder |
//! | `report`, `numbers` | pages, figures, tables, numbers as people read them |

#![forbid(unsafe_code)]

pub mod addresses;
pub mod analysis;
pub mod artefacts;
pub mod compare;
pub mod costs;
pub mod environment;
pub mod error;
pub mod files;
pub mod findings;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
pub mod histogram;
pub mod model;
pub mod numbers;
pub mod plan;
pub mod publish;
pub mod report;
pub mod schema;
pub mod spec;
pub mod trial;
