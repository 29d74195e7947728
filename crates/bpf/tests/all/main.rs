//! The kernel engine: loading and attaching, and its programs held against the core.
//!
//! All of it needs root; where the host does not allow it, a test says so and is skipped.

mod alike;
mod cases;
mod common;
mod pair;
mod uplink_bench;
mod wire;
mod xdp_bench;

mod agreement;
mod agreement_dynamic4;
mod agreement_nat64;
mod agreement_softwire;
mod attach;
mod clsact;
mod edges;
mod lifecycle;
mod loaded;
mod loops;
mod nat64;
mod pass_rate;
mod routing_news;
mod shards;
mod softwire_bindings;
mod softwire_live;
mod uplink;
mod uplink_devices;
mod xdp;
mod xdp_devices;
