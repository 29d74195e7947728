//! Stateful NAT64 with the gateway's own address as pool4, the usual small site.

#[path = "../common/mod.rs"]
mod common;

mod clash;
mod follow;
mod gateway;
mod hosts;
mod site;
mod take_down;
