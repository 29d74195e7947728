//! `doctor` for hosts: what they are and lack, by plain commands of a shell, so that nothing is changed on a host
//! that is not marked.

use std::path::Path;
use std::time::Duration;

use fordway_data::spec::{HostSpec, Hosts};
use serde::Serialize;

use super::deploy::{CACHE, allowed, programs};
use super::ssh::{Connection, quote};
use super::{MARK, mark_words};
use crate::error::{LabError, Result};
use crate::process::{self, Output};
use crate::state;

/// How long looking at a host may take.
const LOOK: Duration = Duration::from_secs(30);

/// What was found of a host.
#[derive(Debug, Serialize)]
pub(crate) struct Host {
    name: String,
    role: &'static str,
    /// Why it can't be reached.
    unreachable: Option<String>,
    lab_host: bool,
    marked: bool,
    root: bool,
    kernel: String,
    libc: String,
    /// The device on the wire as `ip -br link` has it; empty: there is none.
    uplink: String,
    /// Processors that programs may be bound to.
    processors: String,
    /// Whether irqbalance runs there: then interrupts can't be bound.
    irqbalance: bool,
    missing: Vec<String>,
    /// Runs that are noted there: under way, or crashed.
    left: Vec<String>,
    install: Option<String>,
}

impl Host {
    /// Whether a run can begin.
    pub(crate) fn ready(&self) -> bool {
        self.unreachable.is_none()
            && self.lab_host
            && self.marked
            && self.root
            && self.missing.is_empty()
            && self.uplink.contains("LOWER_UP")
    }

    /// Prints it for people.
    pub(crate) fn print(&self) {
        let green = anstyle::AnsiColor::Green.on_default();
        let yellow = anstyle::AnsiColor::Yellow.on_default();
        let line = |ok: bool, name: &str, text: &str| {
            let (style, mark) = if ok { (green, "ok  ") } else { (yellow, "miss") };
            anstream::println!("  {style}{mark}{style:#}  {name:<20} {text}");
        };
        anstream::println!("Host {} ({})", self.name, self.role);
        if let Some(why) = &self.unreachable {
            return line(false, "connection", why);
        }
        line(true, "connection", &self.kernel);
        line(true, "C library", &self.libc);
        line(
            self.root,
            "root",
            if self.root { "yes" } else { "log in as root: address = \"root@...\"" },
        );
        let file = if self.lab_host {
            "lab_host = true"
        } else {
            "write lab_host = true, if it serves nobody"
        };
        line(self.lab_host, "hosts file", file);
        let mark = if self.marked {
            MARK.to_owned()
        } else {
            format!("`fordway-lab hosts --mark FILE` makes {MARK}")
        };
        line(self.marked, "mark", &mark);
        let wire = match self.uplink.as_str() {
            "" => "there is no such device: name the one on the wire in uplink = \"...\"",
            link => link,
        };
        line(self.uplink.contains("LOWER_UP"), "uplink", wire);
        let pin = match self.irqbalance {
            true => "run --pin: `systemctl stop irqbalance` first, which moves interrupts",
            false => "run --pin auto: client, mechanism, server and the device's interrupts",
        };
        line(!self.irqbalance, "pin", &format!("processors {}; {pin}", self.processors));
        let missing = self.install.as_deref().unwrap_or("every run's are there");
        line(self.missing.is_empty(), "programs", missing);
        let left = match self.left.is_empty() {
            true => "nothing".to_owned(),
            false => format!(
                "runs {}: the next run, or `doctor --clean --hosts FILE`, tidies up",
                self.left.join(", ")
            ),
        };
        line(self.left.is_empty(), "left over", &left);
    }
}

/// Runs a line of shell on a host, this machine or another.
fn said(host: &HostSpec, folder: &Path, line: &str) -> Result<String> {
    if host.address.is_some() {
        let socket =
            folder.join(format!("ssh-{}", &fordway_data::trial::hash(host.name.as_bytes())[..8]));
        return Connection::open(host, socket)?.said(line, LOOK);
    }
    let argv = ["sh", "-c", line].map(str::to_owned);
    Ok(process::start(&argv, Output::Keep)?.wait(LOOK)?.ok()?.stdout)
}

/// A folder for the sockets of connections, of this user alone, while it is looked.
fn sockets() -> Result<tempfile::TempDir> {
    tempfile::Builder::new()
        .prefix("fordway-lab-")
        .tempdir()
        .map_err(LabError::file(std::env::temp_dir()))
}

/// Looks at the hosts; `tools` are programs that every run needs, with their packages.
pub(crate) fn examine(hosts: &Hosts, tools: &[(&str, &str)]) -> Result<Vec<Host>> {
    let folder = sockets()?;
    Ok(hosts.both().map(|(role, host)| one(host, role, tools, folder.path())).into())
}

fn one(host: &HostSpec, role: &'static str, tools: &[(&str, &str)], folder: &Path) -> Host {
    let names: Vec<&str> = tools.iter().map(|(name, _)| *name).chain(["nft"]).collect();
    let script = format!(
        "PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; echo \"uid $(id -u)\"; echo \"kernel $(uname -srvm)\"; \
         echo \"libc $(ldd --version 2>&1 | head -n 1)\"; test -f {MARK} && echo marked; \
         echo \"processors $(cat /sys/devices/system/cpu/online)\"; \
         cat /proc/[0-9]*/comm 2>/dev/null | grep -qx irqbalance && echo irqbalance; \
         echo \"link $(ip -br link show dev {} 2>/dev/null)\"; \
         for p in {}; do command -v $p >/dev/null || echo \"missing $p\"; done; \
         for f in {}/*.json; do test -f \"$f\" && echo \"left $(basename $f .json)\"; done; true",
        host.uplink,
        names.join(" "),
        quote(&state::notes().display().to_string())
    );
    let (text, unreachable) = match said(host, folder, &script) {
        Ok(text) => (text, None),
        Err(error) => (String::new(), Some(error.to_string())),
    };
    let all = |key: &str| -> Vec<String> {
        let of = |line: &str| line.strip_prefix(key)?.strip_prefix(' ').map(str::to_owned);
        text.lines().filter_map(of).collect()
    };
    let first = |key: &str| all(key).into_iter().next().unwrap_or_default();
    let missing = all("missing");
    let package = |name: &String| {
        let known = tools.iter().find(|(tool, _)| tool == name).map(|(_, package)| *package);
        known.unwrap_or("nftables").to_owned()
    };
    let mut packages: Vec<String> = missing.iter().map(package).collect();
    packages.sort_unstable();
    packages.dedup();
    Host {
        name: host.name.clone(),
        role,
        unreachable,
        lab_host: host.lab_host,
        marked: text.lines().any(|line| line == "marked"),
        root: first("uid") == "0",
        kernel: first("kernel"),
        libc: first("libc"),
        uplink: first("link"),
        processors: first("processors"),
        irqbalance: text.lines().any(|line| line == "irqbalance"),
        install: (!packages.is_empty())
            .then(|| format!("apt-get install -y {}", packages.join(" "))),
        missing,
        left: all("left"),
    }
}

/// Makes the mark on hosts that have none; returns the names of all.
pub(crate) fn mark(hosts: &Hosts) -> Result<Vec<String>> {
    let folder = sockets()?;
    let words = mark_words();
    // The words have no quotes in them.
    let script = format!("test -f {MARK} || printf '%s' '{words}' > {MARK}");
    let of = |(_, host): (&str, &HostSpec)| {
        said(host, folder.path(), &script).map(|_| host.name.clone())
    };
    hosts.both().into_iter().map(of).collect()
}

/// Undoes on the hosts what crashed runs left, and removes the lab's programs from them; says of each what was
/// removed.
pub(crate) fn clean(hosts: &Hosts, fordway: Option<&Path>) -> Result<Vec<(String, String)>> {
    hosts.allowed()?;
    let folder = sockets()?;
    let mut all = Vec::new();
    for (number, (_, host)) in hosts.both().into_iter().enumerate() {
        let removed = match host.address {
            None => {
                let orphans = state::orphans();
                orphans.iter().map(|orphan| state::undo(orphan).len()).sum::<usize>()
            }
            Some(_) => {
                let connection =
                    Connection::open(host, folder.path().join(format!("ssh-{number}")))?;
                allowed(&connection, host)?;
                let lab = programs(&connection, fordway)?.lab;
                let mut doctor = state::environment();
                doctor.extend([lab.display().to_string(), "doctor".into(), "--clean".into()]);
                let doctor: Vec<String> = doctor.iter().map(|word| quote(word)).collect();
                let said = connection
                    .said(&format!("{} 2>&1 >/dev/null || true", doctor.join(" ")), LOOK)?;
                connection.said(&format!("rm -rf {CACHE}"), LOOK)?;
                said.lines().filter(|line| line.starts_with("removed namespace")).count()
            }
        };
        all.push((
            host.name.clone(),
            format!("{removed} namespaces of crashed runs, and the lab's programs"),
        ));
    }
    Ok(all)
}
