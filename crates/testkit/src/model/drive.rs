//! Random packets, random times, random operators: on the model and on the core, side by side.

mod draw;
mod octets;
mod world;

pub use draw::Random;
pub use world::{Tally, World};
