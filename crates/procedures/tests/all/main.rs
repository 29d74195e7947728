//! The procedures against simulated devices whose rate, delay, loss and capacity are known.

mod benchmarks;
mod device;
mod mlrsearch;
mod plans;
mod properties;
mod searches;
mod stateful;
mod trouble;
