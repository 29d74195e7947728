//! Stateful NAT64 with the gateway's own address as pool4, the usual small site.

mod clash;
mod follow;
mod gateway;
mod hosts;
mod site;
mod take_down;
