//! A guest in which a run takes place.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A Debian guest in QEMU: what is chosen, and how its processors are made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Guest {
    /// Debian suite of its kernel and programs.
    pub suite: String,
    /// Processors.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// How its instructions are executed.
    pub accelerator: Accelerator,
    /// Whether its clock counts instructions, one per nanosecond, whatever time they take on the host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub icount: bool,
    /// Version of the emulator.
    pub emulator: String,
}

/// How a guest's instructions are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// By the processor itself.
    Kvm,
    /// One by one, by QEMU.
    Tcg,
}

impl Guest {
    /// In words, for a report.
    pub fn words(&self) -> String {
        let Self { suite, cpus, memory_mib, emulator, .. } = self;
        let how = match (self.accelerator, self.icount) {
            (Accelerator::Kvm, _) => "hardware virtualisation (KVM)",
            (Accelerator::Tcg, false) => "emulated instructions (TCG)",
            (Accelerator::Tcg, true) => {
                "emulated instructions (TCG), a clock of one nanosecond per instruction"
            }
        };
        format!("guest: Debian {suite}, processors: {cpus}, {memory_mib} MiB, {emulator}, {how}")
    }
}
