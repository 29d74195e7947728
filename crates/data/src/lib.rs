//! What the lab computes from numbers alone: statistics of trials, and simulations of queues.
//!
//! Nothing here touches the machine, and a seed gives the same result again. The crate is one of its own because it is
//! where the lab's time goes when it does not measure: it is optimised, the rest of the lab is not.

#![forbid(unsafe_code)]

pub mod simulate;
pub mod stats;
