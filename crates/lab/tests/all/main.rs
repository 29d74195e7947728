//! The lab's tests of whole commands and runs, by its own program.

mod benchmarks;
mod commands;
mod common;
mod device;
mod experiments;
mod flows;
mod hosts;
mod kinds;
mod matrix;
mod measurements;
mod monitor;
mod names;
mod points;
mod run;
mod tundra;
mod watch;
