//! TUN queues that carry whole super-packets.
//!
//! A [`Device`] is a TUN interface opened with one or more queues and with a virtio-net header in front of each packet.
//! Through that header the kernel hands over what it would hand a network card: TCP and UDP super-packets of up to 64
//! KiB that are not cut into segments yet, and transport checksums that are still partial. What the kernel does not
//! grant is reported by [`Device::offloads`], so that one log line can say it.
//!
//! Bytes on a queue, in both directions:
//!
//! ```text
//! 0                      10                                   10 + n
//! ├──── VnetHeader ──────┼──────── IPv4 or IPv6 packet ────────┤
//! ```
//!
//! There is no packet information header in front (`IFF_NO_PI`): the first four bits of the packet are its IP version.
//!
//! What this crate leaves to others: addresses, routes, MTU and administrative state of the interface; counting; what
//! the packets mean.
#![deny(unsafe_code)]

mod device;
mod error;
mod lock;
mod offload;
mod probe;
mod processor;
mod queue;
#[allow(unsafe_code)]
mod sys;
mod vnet;
mod wait;

pub use device::{Device, MAX_QUEUES, OpenOptions};
pub use error::Error;
pub use offload::{OffloadReport, Offloads};
pub use probe::is_open;
pub use processor::{allowed_processors, set_processors};
pub use queue::{MAX_PACKET, Queue, RecvOutcome, SendOutcome};
pub use vnet::{GsoType, VnetHeader};
pub use wait::{Ready, Waker};
