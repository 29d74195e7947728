//! TUN devices and their queues. All of it needs root.

mod common;

mod devices;
mod packets;
