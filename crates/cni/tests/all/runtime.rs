//! A container runtime that calls the plugins by itself: podman with its CNI backend.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use fordway_testhost::{has_programs, require};
use serde_json::json;
use tempfile::TempDir;

use crate::world::{CNI, World, can_run, short_folder};

/// A podman with files of its own. It refuses a `runroot` of more than 50 characters.
struct Podman {
    folder: TempDir,
    runroot: TempDir,
}

impl Podman {
    fn new() -> Podman {
        Podman { folder: tempfile::tempdir().expect("a folder"), runroot: short_folder() }
    }

    fn command(&self) -> Command {
        let mut podman = Command::new("podman");
        podman.arg("--root").arg(self.folder.path().join("root"));
        podman.arg("--runroot").arg(self.runroot.path());
        podman.args(["--storage-driver", "vfs"]).stdin(Stdio::null());
        podman.env("CONTAINERS_CONF", self.folder.path().join("containers.conf"));
        podman
    }
}

/// Whether podman can have CNI; newer releases have netavark alone.
fn has_cni_backend(podman: &Podman) -> bool {
    let mut info = podman.command();
    let output =
        info.args(["info", "--format", "{{.Host.NetworkBackend}}"]).output().expect("podman");
    let [told, errors] = [&output.stdout, &output.stderr]
        .map(|octets| String::from_utf8_lossy(octets).trim().to_owned());
    require(told == "cni", &format!("podman has no CNI backend: {told} {errors}"))
}

/// The cgroup of the containers, which podman leaves.
struct Group(String);

impl Drop for Group {
    fn drop(&mut self) {
        let top = Path::new("/sys/fs/cgroup");
        let hierarchies =
            fs::read_dir(top).into_iter().flatten().flatten().map(|entry| entry.path());
        for hierarchy in hierarchies.chain([top.to_owned()]) {
            remove_folders(&hierarchy.join(&self.0[1..]));
        }
    }
}

/// Removes a folder and those in it, which have files that are no files.
fn remove_folders(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_folders(&entry.path());
        }
    }
    let _ = fs::remove_dir(folder);
}

/// A file system with the host's programs and nothing else.
fn file_system(folder: &Path) -> String {
    let root = folder.join("rootfs");
    for name in ["usr", "etc", "proc", "sys", "dev", "tmp", "run"] {
        fs::create_dir_all(root.join(name)).expect("a folder");
    }
    for name in ["bin", "lib", "lib64"] {
        symlink(format!("usr/{name}"), root.join(name)).expect("a link");
    }
    root.display().to_string()
}

#[test]
fn a_container_of_podman_uses_ipv4() {
    if !can_run() || !has_programs(&["podman", "runc"]) {
        return;
    }
    let world = World::new();
    let podman = Podman::new();
    let folder = podman.folder.path();
    let own = Path::new(CNI).parent().expect("a folder").display().to_string();
    let net_d = folder.join("net.d");
    fs::create_dir(&net_d).expect("a folder");
    let conf = format!(
        "[network]\nnetwork_backend = \"cni\"\ncni_plugin_dirs = [\"/usr/lib/cni\", \"{own}\"]\n\
         network_config_dir = \"{}\"\n\
         [engine]\nruntime = \"runc\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"none\"\n",
        net_d.display()
    );
    fs::write(folder.join("containers.conf"), conf).expect("a file");
    if !has_cni_backend(&podman) {
        return;
    }
    let list = json!({
        "cniVersion": "1.0.0", "name": "pods",
        "plugins": [world.first("bridge"), World::second(&json!({}))],
    });
    fs::write(net_d.join("10-pods.conflist"), list.to_string()).expect("a file");
    let root = file_system(folder);
    let group = Group(format!("/fwt-cni-{}", std::process::id()));
    let run = |program: &'static str| {
        let mut podman = podman.command();
        podman.args(["run", "--rm", "--network", "pods"]);
        podman.args([
            "--cgroup-parent",
            &group.0,
            "--ulimit",
            "nofile=1024:1024",
            "--ulimit",
            "nproc=1024:1024",
            "--security-opt",
            "seccomp=unconfined",
        ]);
        podman.args(["--dns", "2001:db8:ff::1", "--volume", "/usr:/usr:ro", "--rootfs", &root]);
        podman.args(program.split(' '));
        let output = world.node.run(move || podman.output().expect("podman"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let addresses = run("ip -o -4 addr show dev eth0");
    assert!(addresses.contains("192.0.0.1/32") && addresses.lines().count() == 1, "{addresses}");
    assert!(run("curl -sS --max-time 60 http://198.51.100.10/").starts_with("you are 203.0.113."));
    let named = run("curl -sS --max-time 60 http://v4only.example.net/");
    assert!(named.starts_with("you are 203.0.113."), "{named}");
    assert_eq!(world.leftovers(), "");
}
