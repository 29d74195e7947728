//! What the lab computes from numbers alone: statistics of trials, and formulas of queues.
//!
//! Nothing here touches the machine, and a seed gives the same result again. The crate is one of its own because it is
//! where the lab's time goes when it does not measure: it is optimised in every profile, the rest of the lab is not.

#![forbid(unsafe_code)]

pub mod describe;
pub mod interval;
pub mod multiple;
pub mod order;
pub mod outcomes;
pub mod paired;
pub mod power;
pub mod queues;
pub mod serial;
pub mod trend;
pub mod unpaired;

#[cfg(test)]
mod simulated;
