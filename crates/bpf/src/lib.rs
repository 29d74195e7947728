//! The kernel engine: eBPF programs that translate the common packets, and their loader.
//!
//! An [`Accelerator`] is the kernel engine of one translator: programs made for its configuration,
//! attached at its [`Hook`] and pinned, so that they stay when the process ends. Packets that they do not
//! translate reach the translator's TUN device, and with it the user engine. For a change of any kind, new
//! programs are loaded, and each attachment is switched to them atomically.
//!
//! Everything that a later process needs is in the folder of pins ([`pins_dir`]): attachments,
//! counters, and a mark for each clsact queueing discipline that was made here. After a process was killed,
//! [`Accelerator::start`] adopts its attachments, and [`take_down`] removes them.
//!
//! Calls act on the network namespace of the calling thread. They need `CAP_BPF`, `CAP_NET_ADMIN` and
//! `CAP_PERFMON` (or `CAP_SYS_ADMIN`), which [`probe`] checks, and write access to the folder of pins.
#![deny(unsafe_code)]

mod abi;
mod accelerator;
mod attach;
mod capture;
mod clsact;
mod convert;
mod counters;
mod device;
mod engine;
mod error;
mod events;
mod gates;
mod grace;
mod host;
mod loaded;
mod maps;
mod object;
mod options;
mod path;
mod pins;
mod pod_hook;
mod pods;
mod program;
mod reason;
mod routing;
mod softwire_maps;
mod state_maps;
#[allow(unsafe_code)]
mod sys;
mod totals;

pub use accelerator::{Accelerator, take_down};
pub use attach::{Attachment, Kind};
pub use device::link_layer_len;
pub use error::{Error, Unsupported};
pub use events::{Event, Events};
pub use gates::ShardGates;
pub use grace::GracePeriods;
pub use host::{Host, probe};
pub use loaded::{Action, Clock, Loaded, Run, TestOptions};
pub use options::{Forwarding, Hook, Options, Stateful, Tunnels};
pub use path::{Calls, Observed, PathWatch, ProgramRuns, STEPS, Step};
pub use pins::{has_bpffs, mount_bpffs, pinned_name, pins_dir, pins_root};
pub use pod_hook::{PodHook, attached_pods};
pub use pods::{
    POD_NAME_MAX, Pod, PodPrograms, PodTotals, Pods, pod_programs_id, pods_root, remove_empty,
};
pub use program::{Place, Program};
pub use reason::{Outcome, PassReason};
pub use routing::RoutingNews;
pub use softwire_maps::SoftwireMaps;
pub use state_maps::{Left, Origin, StateMaps, StateMemory};
pub use totals::Totals;

/// The result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;
