//! A Debian guest in QEMU, in which a whole run takes place: for mechanisms that need kernel modules, and for other kernels.
//!
//! The image has a kernel of the chosen Debian suite, Jool's modules built for it, and the programs that mechanisms and
//! loads need; everything comes from Debian's packages. The guest runs this program with the arguments of the host, so that
//! all arms of a run share one kernel and one machine. Their values are compared inside the guest only.
//!
//! ```text
//! host     image (built once), job disk with programs and arguments -> QEMU -> the run's folder, read from the job disk
//! guest    /job/init -> fordway-lab run ... --out /job/out -> power off
//! ```

mod boot;
mod image;
mod job;

use std::path::Path;

use crate::error::{LabError, Result};
use fordway_data::spec::{Accelerator, Guest};

pub(crate) use image::missing;

/// Holds, inside the guest, the [`Guest`] as JSON.
const VARIABLE: &str = "FORDWAY_LAB_GUEST";
/// Folder of the job disk in the guest.
pub(crate) const JOB: &str = "/job";

/// The guest in which this process runs.
pub(crate) fn around() -> Option<Guest> {
    serde_json::from_str(&std::env::var(VARIABLE).ok()?).ok()
}

/// What to run in a guest.
#[derive(Debug)]
pub(crate) struct Order<'a> {
    /// Arguments of the lab after its name.
    pub(crate) arguments: Vec<String>,
    /// A file that the guest needs, and its name below [`JOB`].
    pub(crate) file: Option<(&'a str, &'a Path)>,
    /// A run's folder to continue.
    pub(crate) continued: Option<&'a Path>,
    /// The gateway's program.
    pub(crate) fordway: Option<&'a Path>,
    /// Where the run's folder goes.
    pub(crate) out: &'a Path,
}

/// Boots the guest, runs the order there, and fetches the run's folder. Returns the exit status of the lab in the guest.
///
/// # Errors
///
/// A program that the host lacks; an image that can't be built; a guest that does not boot, or ends before the lab in it.
pub(crate) fn run(guest: &Guest, order: &Order<'_>) -> Result<u8> {
    let image = image::ensure(&guest.suite)?;
    let scratch = tempfile::Builder::new()
        .prefix("fordway-lab-guest-")
        .tempdir()
        .map_err(LabError::file(std::env::temp_dir()))?;
    let disk = job::pack(scratch.path(), guest, order)?;
    boot::boot(guest, &image, &disk)?;
    job::fetch(&disk, scratch.path(), order.out)
}

/// A guest of these choices. Hardware virtualisation is tried, where the host has it and the clock need not count
/// instructions.
pub(crate) fn choose(suite: &str, cpus: u32, memory_mib: u32, icount: bool) -> Result<Guest> {
    image::need()?;
    let emulator = boot::version()?;
    let accelerator = if icount { Accelerator::Tcg } else { boot::accelerator(suite)? };
    let cpus = if icount { 1 } else { cpus };
    Ok(Guest { suite: suite.to_owned(), cpus, memory_mib, accelerator, icount, emulator })
}
