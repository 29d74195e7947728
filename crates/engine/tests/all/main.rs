//! The user engine on real devices. All of it needs root.

mod engine;
mod fence;
mod gro;
