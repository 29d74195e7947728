//! QEMU: how it is started, watched and interrupted.

use std::path::Path;
use std::time::{Duration, Instant};

use super::image;
use super::image::{INIT_PATH, Image};
use crate::error::{LabError, Result};
use crate::process::{self, Output, interrupted, run_str};
use fordway_data::spec::{Accelerator, Guest};

const PROGRAM: &str = "qemu-system-x86_64";
/// How long a guest with hardware virtualisation may take to power off that has nothing to do.
const PROBE: Duration = Duration::from_secs(20);
/// How long an interrupted run may take to tidy up and power off.
const FAREWELL: Duration = Duration::from_secs(180);
/// What a terminal sends for Ctrl-C.
const INTERRUPT: &[u8] = b"\x03";

/// The emulator's version.
pub(super) fn version() -> Result<String> {
    let told = run_str(&[PROGRAM, "--version"])?.ok()?.stdout;
    let number =
        told.split_whitespace().skip_while(|word| *word != "version").nth(1).unwrap_or("?");
    Ok(format!("QEMU {number}"))
}

/// Hardware virtualisation where it boots the guest's kernel, emulation elsewhere.
pub(super) fn accelerator(suite: &str) -> Result<Accelerator> {
    if std::fs::File::options().read(true).write(true).open("/dev/kvm").is_err() {
        return Ok(Accelerator::Tcg);
    }
    let image = image::ensure(suite)?;
    let guest = Guest {
        suite: suite.to_owned(),
        cpus: 1,
        memory_mib: 1024,
        accelerator: Accelerator::Kvm,
        icount: false,
        emulator: String::new(),
    };
    // Without a job the guest powers off as soon as it is up.
    let done = process::start(&command(&guest, &image, None), Output::Keep)?.wait(PROBE);
    match done {
        Ok(done) if done.stdout.contains("is up") => Ok(Accelerator::Kvm),
        Err(LabError::Interrupted) => Err(LabError::Interrupted),
        _ => {
            crate::note!(
                "  guest     /dev/kvm is there, but does not boot the guest: its instructions are emulated"
            );
            Ok(Accelerator::Tcg)
        }
    }
}

/// Runs the guest until it powers off. Its console goes to standard error; an interruption is passed to the lab in it.
pub(super) fn boot(guest: &Guest, image: &Image, job: &Path) -> Result<()> {
    crate::note!("  {}", guest.words().replacen(": ", "     ", 1));
    let mut emulator = process::start_held(&command(guest, image, Some(job)), Output::People)?;
    let mut end = None;
    while emulator.alive() {
        if interrupted() && end.is_none() {
            crate::note!("  guest     interrupted: the lab in the guest tidies up");
            emulator.say(INTERRUPT);
            end = Some(Instant::now() + FAREWELL);
        }
        if end.is_some_and(|end| Instant::now() > end) {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn command(guest: &Guest, image: &Image, job: Option<&Path>) -> Vec<String> {
    let (machine, cpu) = match guest.accelerator {
        Accelerator::Kvm => ("q35,accel=kvm", "host"),
        // Double-word atomics stop all emulated processors; the kernel's allocator would use them all the time.
        Accelerator::Tcg => ("q35,accel=tcg", "max,cx16=off"),
    };
    let kernel = format!(
        "console=ttyS0 quiet loglevel=3 root=/dev/vda rw init={INIT_PATH} panic=-1 net.ifnames=0 random.trust_cpu=on"
    );
    let mut argv: Vec<String> =
        [PROGRAM, "-machine", machine, "-cpu", cpu, "-nodefaults", "-no-user-config"]
            .map(str::to_owned)
            .to_vec();
    argv.extend(
        [
            "-display",
            "none",
            "-no-reboot",
            "-chardev",
            "stdio,id=console,signal=off",
            "-serial",
            "chardev:console",
        ]
        .map(str::to_owned),
    );
    argv.extend(["-smp".into(), guest.cpus.to_string(), "-m".into(), guest.memory_mib.to_string()]);
    if guest.icount {
        argv.extend(
            ["-icount", "shift=0,align=off,sleep=off", "-rtc", "clock=vm"].map(str::to_owned),
        );
    }
    argv.extend([
        "-kernel".into(),
        image.kernel.display().to_string(),
        "-initrd".into(),
        image.initrd.display().to_string(),
    ]);
    argv.extend(["-append".into(), kernel]);
    argv.extend([
        "-drive".into(),
        format!("file={},if=virtio,format=raw,snapshot=on", image.disk.display()),
    ]);
    if let Some(job) = job {
        argv.extend([
            "-drive".into(),
            format!("file={},if=virtio,format=raw,cache=writeback", job.display()),
        ]);
    }
    argv
}
