//! The guest's disk: a Debian system with a kernel, Jool's modules for it, and what mechanisms and loads need.
//!
//! `mmdebstrap` makes it from packages alone, `mke2fs -d` puts it into a file system. It stays in [`CACHE`] until the list
//! of its packages changes; a run boots it read-only, with its writes in a scratch file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::error::{LabError, Result};
use crate::process::{self, Output, find_program, run_str};

/// Where images stay: some 700 MiB each.
const CACHE: &str = "/var/cache/fordway-lab";
/// First process of the guest.
const INIT: &str = include_str!("init");
/// Where it stands in the guest.
pub(super) const INIT_PATH: &str = "/usr/sbin/fordway-lab-init";
/// What the guest has beside the essential packages.
const PACKAGES: &[&str] = &[
    "apache2-bin",
    "apache2-utils",
    "bind9",
    "conntrack",
    "conntrackd",
    "curl",
    "dnsperf",
    "ethtool",
    "iperf3",
    "iproute2",
    "iputils-ping",
    "jool-dkms",
    "jool-tools",
    "keepalived",
    "kmod",
    "linux-headers-cloud-amd64",
    "linux-image-cloud-amd64",
    "mount",
    "nats-server",
    "nftables",
    "nginx-light",
    "openssl",
    "procps",
    "squid",
    "tayga",
    "tcpdump",
    "udev",
    "unbound",
    "util-linux",
    "vsftpd",
    "wrk",
    "zlib1g",
    "libelf1",
];
/// What no run reads.
const LEFT_OUT: [&str; 4] =
    ["/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*"];
/// Size of the file system; the file is sparse.
const SIZE: &str = "6G";
/// How long packages may take to come and modules to build, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Programs of the host, and their packages.
const NEEDED: [(&str, &str); 6] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("mmdebstrap", "mmdebstrap"),
    ("unshare", "util-linux"),
    ("mke2fs", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("debugfs", "e2fsprogs"),
];

/// An image that can be booted.
#[derive(Debug)]
pub(super) struct Image {
    /// The root file system, without a partition table.
    pub(super) disk: PathBuf,
    /// The kernel.
    pub(super) kernel: PathBuf,
    /// Its initial RAM disk, which has the drivers of the disk.
    pub(super) initrd: PathBuf,
}

/// What the host lacks, with the command that installs it; `None` if nothing.
pub(crate) fn missing() -> Option<String> {
    let mut packages: Vec<&str> = NEEDED
        .iter()
        .filter(|(program, _)| find_program(program).is_none())
        .map(|(_, package)| *package)
        .collect();
    packages.dedup();
    (!packages.is_empty()).then(|| format!("apt-get install {}", packages.join(" ")))
}

/// Fails where the host lacks a program.
pub(super) fn need() -> Result<()> {
    match missing() {
        Some(hint) => {
            Err(LabError::Missing(format!("a guest needs programs that are not installed: {hint}")))
        }
        None => Ok(()),
    }
}

/// The image of a suite, built if it is not there.
pub(super) fn ensure(suite: &str) -> Result<Image> {
    let folder = Path::new(CACHE).join(format!("guest-{suite}-{}", version()));
    if !folder.exists() {
        build(suite, &folder)?;
    }
    Ok(Image {
        disk: folder.join("disk"),
        kernel: folder.join("kernel"),
        initrd: folder.join("initrd"),
    })
}

/// What the image is made of, in eight digits: another list makes another image.
fn version() -> String {
    let mut hash = Sha256::new();
    for part in PACKAGES.iter().chain(&LEFT_OUT).chain(&[INIT, SIZE]) {
        hash.update(part);
        hash.update([0]);
    }
    hash.finalize().iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

fn build(suite: &str, folder: &Path) -> Result<()> {
    need()?;
    std::fs::create_dir_all(CACHE).map_err(LabError::file(CACHE))?;
    // Beside its place, so that it can be renamed there when it is whole.
    let scratch = tempfile::Builder::new()
        .prefix(".guest-")
        // apt fetches packages as a user of its own.
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir_in(CACHE)
        .map_err(LabError::file(CACHE))?;
    let root = scratch.path().join("root");
    let made = scratch.path().join("image");
    std::fs::create_dir(&made).map_err(LabError::file(&made))?;
    let init = scratch.path().join("init");
    std::fs::write(&init, INIT).map_err(LabError::file(&init))?;
    crate::note!(
        "  guest     builds an image of Debian {suite}: packages, and Jool's modules; once, for some minutes"
    );
    // Mounts, processes and temporary files of its own, which go with it however it ends.
    let temporary = format!("TMPDIR={}", scratch.path().display());
    let alone = ["env", &temporary, "unshare", "--mount", "--pid", "--fork", "--kill-child"];
    let made_by = ["mmdebstrap", "--quiet", "--mode=root", "--variant=apt"];
    let mut argv: Vec<String> = alone.into_iter().chain(made_by).map(str::to_owned).collect();
    argv.push(format!("--include={}", PACKAGES.join(",")));
    argv.push("--aptopt=APT::Install-Recommends \"false\"".into());
    argv.extend(LEFT_OUT.map(|path| format!("--dpkgopt=path-exclude={path}")));
    argv.push(format!("--customize-hook=upload {} {INIT_PATH}", init.display()));
    argv.push(format!("--customize-hook=chroot \"$1\" chmod 755 {INIT_PATH}"));
    argv.push(
        "--customize-hook=rm -rf \"$1\"/var/cache/apt/*.bin \"$1\"/var/lib/apt/lists/*".into(),
    );
    argv.extend([suite.to_owned(), root.display().to_string(), mirror()]);
    step(&argv)?;
    if !has_module(&root, "jool") {
        return Err(LabError::Guest(format!(
            "jool-dkms of Debian {suite} did not build for its kernel: choose another --guest-suite"
        )));
    }
    for (name, prefix) in [("kernel", "vmlinuz-"), ("initrd", "initrd.img-")] {
        let from = boot_file(&root, prefix)?;
        std::fs::copy(&from, made.join(name)).map_err(LabError::file(&from))?;
    }
    let disk = made.join("disk").display().to_string();
    let root = root.display().to_string();
    step(
        &["mke2fs", "-q", "-t", "ext4", "-L", "guest", "-d", &root, &disk, SIZE].map(str::to_owned),
    )?;
    std::fs::rename(&made, folder).map_err(LabError::file(folder))
}

fn step(argv: &[String]) -> Result<()> {
    process::start(argv, Output::Keep)?.wait(PATIENCE)?.ok().map(drop)
}

/// The mirror that the host's own apt uses.
fn mirror() -> String {
    let format = "$(REPO_URI) $(ORIGIN)";
    let known = run_str(&["apt-get", "indextargets", "--format", format, "Created-By: Packages"]);
    let known = known.map(|told| told.stdout).unwrap_or_default();
    let own = known
        .lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(_, origin)| *origin == "Debian");
    own.map_or("http://deb.debian.org/debian", |(uri, _)| uri).to_owned()
}

fn has_module(root: &Path, name: &str) -> bool {
    walkdir::WalkDir::new(root.join("usr/lib/modules"))
        .into_iter()
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with(&format!("{name}.ko")))
}

fn boot_file(root: &Path, prefix: &str) -> Result<PathBuf> {
    let boot = root.join("boot");
    let entries = std::fs::read_dir(&boot).map_err(LabError::file(&boot))?;
    let found =
        entries.flatten().find(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    found
        .map(|entry| entry.path())
        .ok_or_else(|| LabError::Guest(format!("its image has no /boot/{prefix}*")))
}
