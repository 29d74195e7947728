//! `doctor`: what this machine can run, and what is missing.

use std::collections::{BTreeMap, BTreeSet};

use fordway_data::environment::Affinity;
use fordway_data::spec::{Experiment, Hosts, Kind, Metric, Pin, Processors, Role};
use fordway_data::trial::FLAG_OTHER;
use serde::Serialize;

use crate::cli::DoctorArgs;
use crate::error::{EXIT_DONE, EXIT_SKIPPED, Result};
use crate::host::cpu::{self, Watch};
use crate::host::{affinity, clocksource};
use crate::hosts::check;
use crate::mechanism::{self, Availability, locate_fordway};
use crate::process::find_program;
use crate::runner::unmeasured;
use crate::state;

/// Programs that every run needs, and the Debian package of each.
pub(crate) const TOOLS: &[(&str, &str)] = &[
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
    ("setpriv", "util-linux"),
    ("taskset", "util-linux"),
    ("sysctl", "procps"),
    ("iperf3", "iperf3"),
    ("ping", "iputils-ping"),
    ("ethtool", "ethtool"),
];

/// Implementations, and what each is asked about: what a host needs for it differs.
const MECHANISMS: &[(&str, Kind)] = &[
    ("native", Kind::Native),
    ("fordway", Kind::Clat),
    ("fordway", Kind::Nat64),
    ("fordway", Kind::NatPt),
    ("fordway", Kind::Softwire),
    ("fordway", Kind::Dstm),
    ("fordway", Kind::Trt),
    ("fordway", Kind::Proxy),
    ("nginx", Kind::ReverseProxy),
    ("apache", Kind::Proxy),
    ("squid", Kind::Proxy),
    ("nftables", Kind::Nat44),
    ("tayga", Kind::Clat),
    ("tayga", Kind::Nat64),
    ("tundra", Kind::Clat),
    ("jool", Kind::Clat),
    ("jool", Kind::Siit),
    ("jool", Kind::Nat64),
    ("fordway", Kind::Dns64),
    ("unbound", Kind::Dns64),
    ("bind", Kind::Dns64),
];

#[derive(Serialize)]
struct Findings {
    ready: bool,
    root: bool,
    tun: bool,
    processors: usize,
    load_average: Option<f64>,
    /// Cores that other programs kept busy while the machine was examined.
    other_cores: f64,
    clocksource: String,
    clocksources: Vec<String>,
    tools: Vec<Tool>,
    mechanisms: Vec<Found>,
    measurements: Vec<Measurement>,
    /// What `run --pin auto` would bind.
    pin: Pinning,
    /// What `run --guest` needs and is not installed, as the command that installs it.
    guest: Option<String>,
    orphans: Vec<Left>,
    install: Option<String>,
}

/// What binding to processors would do here.
#[derive(Serialize)]
struct Pinning {
    /// Processors that programs may be bound to.
    processors: Processors,
    /// The processors of each role by `--pin auto`.
    auto: Option<BTreeMap<Role, Processors>>,
    /// Why it has no choice.
    refused: Option<String>,
    /// What decides now.
    found: Affinity,
}

impl Pinning {
    fn here() -> Self {
        let cores = affinity::cores();
        let (auto, refused) = match Pin::auto().on_one(&cores) {
            Ok(pin) => (Some(pin.roles), None),
            Err(why) => (None, Some(why.to_string())),
        };
        Self { processors: cores.all(), auto, refused, found: affinity::found(None) }
    }

    fn words(&self) -> String {
        let found = &self.found;
        let governors: Vec<String> =
            found.governors.iter().map(|(name, on)| format!("; governor {name} on {on}")).collect();
        let balanced = if found.irqbalance { "; irqbalance moves interrupts" } else { "" };
        let isolated = match found.isolated.is_empty() {
            true => String::new(),
            false => format!("; {} isolated", found.isolated),
        };
        let auto = self.auto.iter().flatten().map(|(role, on)| format!("{} {on}", role.name()));
        let auto = auto.collect::<Vec<String>>().join(", ");
        let what = self.refused.clone().unwrap_or_else(|| format!("run --pin auto: {auto}"));
        format!("{what}{isolated}{}{balanced}", governors.concat())
    }
}

#[derive(Serialize)]
struct Tool {
    name: &'static str,
    path: Option<String>,
    package: &'static str,
}

#[derive(Serialize)]
struct Found {
    implementation: &'static str,
    kind: Kind,
    version: Option<String>,
    hint: Option<String>,
}

/// What a run that ended without tidying up has left.
#[derive(Serialize)]
struct Left {
    /// Of its namespaces and files.
    id: String,
    /// The process that is gone.
    pid: u32,
    /// Folder of the run, which `resume` continues.
    out: String,
    namespaces: Vec<String>,
    /// Settings of the machine that are to be put back.
    settings: Vec<String>,
}

/// Metrics that share a need which this machine may lack.
#[derive(Serialize)]
struct Measurement {
    metrics: Vec<&'static str>,
    missing: String,
}

/// The Debian packages of these tools, each once.
pub(super) fn packages(tools: &[&str]) -> Vec<&'static str> {
    let mut all: Vec<&str> = TOOLS
        .iter()
        .filter(|(name, _)| tools.contains(name))
        .map(|(_, package)| *package)
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Examines the machine.
pub(super) fn doctor(args: &DoctorArgs) -> Result<u8> {
    if let Some(file) = &args.hosts {
        return hosts(file, args);
    }
    if args.clean && !state::orphans().is_empty() {
        state::need_root()?;
        for orphan in state::orphans() {
            for name in state::undo(&orphan) {
                crate::note!("removed namespace {name}");
            }
        }
    }
    let findings = examine(args)?;
    let code = if findings.ready { EXIT_DONE } else { EXIT_SKIPPED };
    if args.json {
        super::print_json(&findings)?;
        return Ok(code);
    }
    print(&findings);
    Ok(code)
}

/// Examines the hosts of a file; with `--clean`, undoes what is left there.
fn hosts(file: &std::path::Path, args: &DoctorArgs) -> Result<u8> {
    let hosts = Hosts::read(file)?;
    if args.clean {
        let fordway = locate_fordway(args.fordway.as_deref())?;
        for (name, removed) in check::clean(&hosts, fordway.as_deref())? {
            crate::note!("host {name}: removed {removed}");
        }
    }
    let found = check::examine(&hosts, TOOLS)?;
    let ready = found.iter().all(check::Host::ready);
    if args.json {
        super::print_json(&found)?;
    } else {
        found.iter().for_each(check::Host::print);
    }
    Ok(if ready { EXIT_DONE } else { EXIT_SKIPPED })
}

fn examine(args: &DoctorArgs) -> Result<Findings> {
    let watch = Watch::begin();
    let fordway = locate_fordway(args.fordway.as_deref())?;
    let tools: Vec<Tool> = TOOLS
        .iter()
        .map(|(name, package)| {
            let path = find_program(name).map(|p| p.display().to_string());
            Tool { name, path, package }
        })
        .collect();
    let mut mechanisms = Vec::new();
    for (implementation, kind) in MECHANISMS {
        let found = mechanism::of(implementation, fordway.as_deref())?.availability(*kind);
        let (version, hint) = match found {
            Availability::Ready { version, .. } => (Some(version), None),
            Availability::Missing { hint } => (None, Some(hint)),
        };
        mechanisms.push(Found { implementation, kind: *kind, version, hint });
    }
    let missing: Vec<&str> = tools.iter().filter(|t| t.path.is_none()).map(|t| t.name).collect();
    let mut wanted = packages(&missing);
    for (implementation, kind, package) in [
        ("tayga", Kind::Clat, "tayga"),
        ("nftables", Kind::Nat44, "nftables"),
        ("nginx", Kind::ReverseProxy, "nginx-light"),
        ("apache", Kind::Proxy, "apache2-bin"),
        ("squid", Kind::Proxy, "squid"),
        ("unbound", Kind::Dns64, "unbound"),
        ("bind", Kind::Dns64, "bind9"),
    ] {
        let is = |m: &Found| m.implementation == implementation && m.kind == kind;
        if mechanisms.iter().any(|m| is(m) && m.version.is_none()) {
            wanted.push(package);
        }
    }
    for package in ["curl", "dnsperf", "hey", "tcpdump", "vsftpd", "wrk"] {
        wanted.extend(find_program(package).is_none().then_some(package));
    }
    wanted.extend(find_program("ab").is_none().then_some("apache2-utils"));
    wanted.extend(find_program("h2load").is_none().then_some("nghttp2-client"));
    let install = (!wanted.is_empty()).then(|| format!("apt-get install -y {}", wanted.join(" ")));
    let mut lacking: BTreeMap<String, BTreeSet<Metric>> = BTreeMap::new();
    for experiment in Experiment::built_in()? {
        let missing = unmeasured(&experiment);
        for metric in experiment.metrics {
            if let Some(why) = missing.get(metric.name()) {
                lacking.entry(why.clone()).or_default().insert(metric);
            }
        }
    }
    let measurements = lacking
        .into_iter()
        .map(|(missing, metrics)| Measurement {
            metrics: metrics.into_iter().map(Metric::name).collect(),
            missing,
        })
        .collect();
    Ok(Findings {
        measurements,
        ready: missing.is_empty(),
        root: state::is_root(),
        tun: std::path::Path::new("/dev/net/tun").exists(),
        processors: cpu::processors(),
        load_average: cpu::load_average(),
        other_cores: watch.end(),
        clocksource: clocksource::current().unwrap_or_else(|_| "unknown".into()),
        clocksources: clocksource::available().unwrap_or_default(),
        tools,
        mechanisms,
        pin: Pinning::here(),
        guest: crate::guest::missing(),
        orphans: state::orphans().iter().map(left).collect(),
        install,
    })
}

fn left(orphan: &state::State) -> Left {
    let clock = orphan.clocksource.as_ref().map(|name| format!("clock source {name}"));
    let limits = orphan.conntrack.map(|_| "limits of connection tracking".to_owned());
    let files = orphan.settings.iter().map(|(path, _)| path.display().to_string());
    Left {
        id: orphan.id.clone(),
        pid: orphan.pid,
        out: orphan.out.display().to_string(),
        namespaces: orphan.namespaces(),
        settings: clock.into_iter().chain(limits).chain(files).collect(),
    }
}

fn print(findings: &Findings) {
    let green = anstyle::AnsiColor::Green.on_default();
    let yellow = anstyle::AnsiColor::Yellow.on_default();
    let line = |ok: bool, name: &str, text: &str| {
        let (style, mark) = if ok { (green, "ok  ") } else { (yellow, "miss") };
        anstream::println!("  {style}{mark}{style:#}  {name:<20} {text}");
    };
    anstream::println!("Tools");
    for tool in &findings.tools {
        let text = tool.path.clone().unwrap_or_else(|| format!("apt-get install {}", tool.package));
        line(tool.path.is_some(), tool.name, &text);
    }
    anstream::println!("Mechanisms (a missing one is skipped, the run goes on)");
    for found in &findings.mechanisms {
        let text = found.version.as_ref().or(found.hint.as_ref()).cloned().unwrap_or_default();
        let name = match found.kind {
            Kind::Native | Kind::Clat => found.implementation.to_owned(),
            kind => format!("{}, {}", found.implementation, kind.label()),
        };
        line(found.version.is_some(), &name, &text);
    }
    if !findings.measurements.is_empty() {
        anstream::println!("Measurements that are left out");
        for lacking in &findings.measurements {
            line(false, &lacking.metrics.join(", "), &lacking.missing);
        }
    }
    anstream::println!("Machine");
    let root = if findings.root { "yes" } else { "`run` and `resume` need it: use sudo" };
    line(findings.root, "root", root);
    line(findings.tun, "TUN", if findings.tun { "/dev/net/tun" } else { "modprobe tun" });
    let quiet = findings.other_cores <= FLAG_OTHER;
    let text = format!(
        "{} processors, {:.1} of them busy with other programs{}; load average {:.2}",
        findings.processors,
        findings.other_cores,
        if quiet { "" } else { ": too busy for good numbers" },
        findings.load_average.unwrap_or(0.0)
    );
    line(quiet, "load", &text);
    let clocks = format!("{} (of {})", findings.clocksource, findings.clocksources.join(", "));
    line(true, "clock", &clocks);
    line(findings.pin.refused.is_none(), "pin", &findings.pin.words());
    let guest = findings.guest.as_deref();
    line(guest.is_none(), "guest", guest.unwrap_or("run --guest: QEMU and mmdebstrap"));
    if findings.orphans.is_empty() {
        line(true, "left over", "nothing");
    } else {
        line(false, "left over", "of crashed runs: remove with `sudo fordway-lab doctor --clean`");
        for left in &findings.orphans {
            let what: Vec<&str> =
                left.namespaces.iter().chain(&left.settings).map(String::as_str).collect();
            let what = if what.is_empty() { "its record alone".into() } else { what.join(", ") };
            anstream::println!("        process {} ({}): {what}", left.pid, left.out);
        }
    }
    if let Some(install) = &findings.install {
        anstream::println!("\nInstall what is missing:\n  {install}");
    }
}
