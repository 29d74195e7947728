//! A chained CNI plugin that gives each pod of an IPv6-only cluster a CLAT (RFC 6877): IPv4 applications in the pod use
//! 192.0.0.1, and programs at the pod's own device translate their packets.
//!
//! The plugin runs behind the one that makes the pod's interface, reads that one's result, and passes it on unchanged. No
//! process stays behind. A pod's state is:
//!
//! | what | where | vanishes with |
//! |---|---|---|
//! | two addresses, an IPv4 default route, two stubs at the device | the pod's namespace | the namespace |
//! | a route to the CLAT's address, where the node routes to pods one by one | the node | the pod's device, or DEL |
//! | an entry in a BPF map | `/sys/fs/bpf/fordway-cni` | DEL or GC, or [`clean`] after the pod |
//!
//! The entry is made first and removed last, so whatever a killed plugin has left can be found: by the next ADD of that
//! pod, by DEL, by GC, and by [`clean`] where no runtime calls the plugin any more. The entry's key is computed from the
//! names of network, container and interface; no state file says which pod has what.
#![forbid(unsafe_code)]

mod address;
mod clean;
mod command;
mod failure;
mod install;
mod list;
mod network;
mod node;
mod pod;
mod prefix;
mod request;
mod run;
mod steps;

pub use clean::{Cleaned, clean};
pub use command::{answer, versions};
pub use failure::{Code, Failure};
pub use install::Installation;
pub use list::{List, list};
pub use request::{Command, Request};
pub use steps::Steps;

/// The result of this crate's operations.
pub type Result<T, E = Failure> = std::result::Result<T, E>;
