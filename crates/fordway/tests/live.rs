//! Every vector through the gateway as it runs: `fordway run` with a configuration file, an interface, counters
//! from the control socket; with the kernel engine where the host allows it.
//!
//! Packets go through the interface with a packet socket. Needs root. Two things differ from the core and are
//! taken into account here: routing counts the hops, so the translator does not; and identifications begin
//! with a random number.
//!
//! Vectors of one configuration share a daemon. Those of two configurations alternate, so that two threads are
//! seldom in need of the same daemon.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fordway_softwire::{Role, Softwire};
use fordway_testkit::checksum::checksum;
use fordway_testkit::live::{
    self, INTERFACE, PATIENCE, applies_to_programs, passes_unmatched, same_fragment_ids, tap,
    try_step,
};
use fordway_testkit::sys;
use fordway_testkit::tap::Tap;
use fordway_testkit::vector::{
    Applies, BindingSpec, Case, CaseStep, CounterMap, Observation, Sent, SoftwireSpec, Subject,
    SubjectError,
};
use fordway_testkit::view::View;
use fordway_xlat::{
    Config, DropReason, HopCount, IcmpErrors, TrafficClass, UdpChecksumZero, Verdict,
};
use tempfile::TempDir;

fn main() {
    let mut first = live::trials(|| Live, configuration, "");
    let mut second = first.split_off(first.len().div_ceil(2)).into_iter();
    let trials = first.into_iter().flat_map(|trial| [Some(trial), second.next()]).flatten();
    let conclusion = libtest_mimic::run(&live::arguments(), trials.collect());
    lock(&DAEMONS).clear();
    conclusion.exit();
}

/// The gateway's own program.
struct Live;

impl Subject for Live {
    fn name(&self) -> &'static str {
        "live"
    }

    fn applies(&self, case: &Case) -> Applies {
        let no = |reason: &str| Applies::No(reason.to_owned());
        let config = &case.config;
        let expired = |step: &CaseStep| match step.expected.verdict {
            Verdict::Drop(reason) => reason == DropReason::HopLimitExceeded,
            Verdict::Reply(error) => error.reason == DropReason::HopLimitExceeded,
            _ => false,
        };
        match applies_to_programs(self.name(), case) {
            Applies::No(reason) => Applies::No(reason),
            _ if case
                .softwire
                .as_ref()
                .is_some_and(|it| it.settings().hop_count != HopCount::NONE) =>
            {
                no("routing counts the hops at an interface")
            }
            _ if case.softwire.is_none() && case.steps.iter().any(expired) => {
                no("routing counts the hops at an interface")
            }
            _ if config.mtu4 != Config::default().mtu4 => {
                no("routes know the MTU of the IPv4 side")
            }
            _ if passes_unmatched(case) => no("what is routed to an interface is never passed on"),
            _ => Applies::Yes,
        }
    }

    fn observe(&mut self, case: &Case) -> Result<Vec<Observation>, SubjectError> {
        let config = configuration(case);
        let shared = daemon_of(&config);
        let mut slot = lock(&shared);
        let daemon = match slot.take() {
            Some(daemon) => daemon,
            None => Daemon::start(&config)?,
        };
        // After an error it is of no use to others.
        let seen = observe(&daemon, case)?;
        *slot = Some(daemon);
        Ok(seen)
    }
}

fn observe(daemon: &Daemon, case: &Case) -> Result<Vec<Observation>, SubjectError> {
    let seen = case.steps.iter().map(|step| {
        let mut observation = try_step(&daemon.tap, step, || stats(daemon.folder.path()))?;
        same_fragment_ids(step, &mut observation);
        match case.softwire {
            Some(_) => level_softwire(step, &mut observation),
            None => level(case, step, &mut observation),
        }
        Ok(observation)
    });
    seen.collect()
}

/// Takes out of an observation what differs by design: one hop less counted, identifications of the
/// generator.
fn level(case: &Case, step: &CaseStep, observation: &mut Observation) {
    let input = View::of(&step.input);
    let fragment = input.is_some_and(|view| !view.v4 && view.fragment_header);
    let generated = matches!(step.expected.verdict, Verdict::Reply(_)) || !fragment;
    let same =
        observation.sent.windows(2).all(|pair| pair[0].bytes.get(4..6) == pair[1].bytes.get(4..6));
    let expected = step.expected.packets.iter();
    for (Sent { bytes, .. }, expected) in observation.sent.iter_mut().zip(expected) {
        let v4 = bytes.len() >= 20 && bytes[0] >> 4 == 4 && expected.len() >= 20;
        if v4 && generated && same {
            bytes[4..6].copy_from_slice(&expected[4..6]);
        }
        if step.expected.verdict == Verdict::Forward && case.config.decrement_hop_limit.v4_to_v6 {
            let at = if v4 { 8 } else { 7 };
            bytes[at] = bytes[at].wrapping_sub(1);
        }
        if v4 && bytes[0] == 0x45 && checksum(&expected[..20]) == 0 {
            bytes[10..12].fill(0);
            let value = checksum(&bytes[..20]);
            bytes[10..12].copy_from_slice(&value.to_be_bytes());
        }
    }
}

/// Takes out of an observation of a softwire what differs by design: flow labels have a secret, and ICMPv4 errors
/// identifications of the generator.
fn level_softwire(step: &CaseStep, observation: &mut Observation) {
    let replied = matches!(step.expected.verdict, Verdict::Reply(_));
    let relayed = step.expected.verdict == Verdict::Forward && step.input.get(6) == Some(&ICMPV6);
    for (Sent { bytes, .. }, expected) in
        observation.sent.iter_mut().zip(step.expected.packets.iter())
    {
        if bytes.len() >= 40 && bytes[0] >> 4 == 6 && expected.len() >= 40 && !replied {
            let label = [bytes[1] & 15, bytes[2], bytes[3]];
            if label != [0; 3] {
                bytes[1] = bytes[1] & 0xf0 | expected[1] & 15;
                bytes[2..4].copy_from_slice(&expected[2..4]);
            }
        }
        let v4 = bytes.len() >= 20 && bytes[0] == 0x45 && expected.len() >= 20;
        if v4 && (replied || relayed) && checksum(&bytes[..20]) == 0 {
            bytes[4..6].copy_from_slice(&expected[4..6]);
            bytes[10..12].fill(0);
            let value = checksum(&bytes[..20]);
            bytes[10..12].copy_from_slice(&value.to_be_bytes());
        }
    }
}

const ICMPV6: u8 = 58;

/// Time between two looks at a process.
const LOOK: Duration = Duration::from_millis(1);

/// How many daemons may run at once.
const MOST: usize = 4;

/// A configuration and its daemon, which is there from its first vector on.
type Shared = (String, Arc<Mutex<Option<Daemon>>>);

/// Those of the last configurations; the last used one is the last.
static DAEMONS: Mutex<Vec<Shared>> = Mutex::new(Vec::new());

/// The daemon of a configuration. Others end where there are too many.
fn daemon_of(config: &str) -> Arc<Mutex<Option<Daemon>>> {
    let mut all = lock(&DAEMONS);
    let known = all.iter().position(|(its, _)| its == config);
    let entry = known.map_or_else(|| (config.to_owned(), Arc::default()), |at| all.remove(at));
    let shared = Arc::clone(&entry.1);
    all.push(entry);
    let unused = all.iter().position(|(_, daemon)| Arc::strong_count(daemon) == 1);
    let ended = unused.filter(|_| all.len() > MOST).map(|at| all.remove(at));
    drop(all);
    drop(ended);
    shared
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A vector that panics has taken its daemon with it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running gateway in a namespace of its own.
struct Daemon {
    folder: TempDir,
    tap: Tap,
    /// Dropped to end it.
    stop: Option<Sender<()>>,
    /// The thread that has started it, and with which it ends.
    keeper: Option<JoinHandle<()>>,
}

impl Daemon {
    fn start(config: &str) -> Result<Daemon, SubjectError> {
        let config = config.to_owned();
        let (tell, told) = mpsc::channel();
        let (stop, stopped) = mpsc::channel();
        let keeper = thread::spawn(move || match start(&config) {
            Ok((process, folder, tap)) => {
                let _ = tell.send(Ok((folder, tap)));
                let _ = stopped.recv();
                drop(process);
            }
            Err(error) => {
                let _ = tell.send(Err(error));
            }
        });
        let (folder, tap) = told.recv().map_err(other)??;
        Ok(Daemon { folder, tap, stop: Some(stop), keeper: Some(keeper) })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop = None;
        let _ = self.keeper.take().map(JoinHandle::join);
    }
}

/// `fordway run`; it is ended when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Killed, it would leave its programs in a namespace that is about to go.
        sys::terminate(&self.0);
        let deadline = Instant::now() + PATIENCE;
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(LOOK);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts it, in a new namespace of the calling thread.
fn start(config: &str) -> Result<(Process, TempDir, Tap), SubjectError> {
    sys::enter_new_namespace().map_err(io("namespace"))?;
    let folder = TempDir::with_prefix("fordway-live-").map_err(io("folder"))?;
    let run_dir = folder.path();
    let path = run_dir.join("fordway.toml");
    fs::write(&path, config).map_err(io("write"))?;
    let log = File::create(run_dir.join("log")).map_err(io("log"))?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_fordway"));
    command.arg("run").arg("--config").arg(&path).arg("--run-dir").arg(run_dir);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    sys::end_with_parent(&mut command);
    let mut process = Process(command.spawn().map_err(io("fordway run"))?);
    let deadline = Instant::now() + PATIENCE;
    // It answers as soon as it translates.
    while stats(run_dir).is_err() {
        let ended = process.0.try_wait().map_err(io("wait"))?.is_some();
        if ended || Instant::now() > deadline {
            let log = fs::read_to_string(run_dir.join("log")).unwrap_or_default();
            return Err(other(format!("fordway run did not come up:\n{log}\n{config}")));
        }
        thread::sleep(LOOK);
    }
    let tap = tap()?;
    Ok((process, folder, tap))
}

/// The counters that the daemon tells on its control socket, under the names that vectors use.
fn stats(run_dir: &Path) -> Result<CounterMap, SubjectError> {
    let socket = UnixStream::connect(run_dir.join("control.sock"));
    let mut socket = socket.map_err(io("connect to the control socket"))?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(io("control socket"))?;
    socket.write_all(b"{\"command\":\"stats\"}\n").map_err(io("ask for counters"))?;
    let mut text = String::new();
    BufReader::new(socket).read_line(&mut text).map_err(io("read counters"))?;
    let json: serde_json::Value = serde_json::from_str(&text).map_err(other)?;
    let totals = &json["stats"]["translators"][0];
    let mut map = CounterMap::new();
    let mut take = |name: String, value: &serde_json::Value| -> Result<(), SubjectError> {
        let value = value.as_u64().ok_or_else(|| other(format!("no {name} in {text}")))?;
        if value != 0 {
            map.insert(name, value);
        }
        Ok(())
    };
    for direction in ["v4_to_v6", "v6_to_v4"] {
        for name in ["packets", "segments", "octets", "fragments"] {
            take(format!("{direction}.{name}"), &totals[direction][name])?;
        }
    }
    take("icmp_errors.v4_to_v6".into(), &totals["icmp_errors"]["v4"])?;
    take("icmp_errors.v6_to_v4".into(), &totals["icmp_errors"]["v6"])?;
    take("suppressed".into(), &totals["icmp_errors"]["suppressed"])?;
    take("passed".into(), &totals["passed"])?;
    for reason in DropReason::ALL {
        take(format!("drop.{}", reason.label()), &totals["drops"][reason.label()])?;
    }
    Ok(map)
}

/// The gateway's configuration file of a case.
fn configuration(case: &Case) -> String {
    match (&case.softwire, &case.vector.softwire) {
        (Some(softwire), Some(spec)) => softwire_file(softwire, spec),
        _ => file(&case.config),
    }
}

/// That which makes this end of softwires.
fn softwire_file(softwire: &Softwire, spec: &SoftwireSpec) -> String {
    let settings = softwire.settings();
    let mut text = format!(
        "[[translator]]\nname = \"{INTERFACE}\"\nmode = \"softwire\"\nmanage = false\nqueues = 1\n\
         mtu = {}\nhop_limit = {}\nmss_clamp = {}\n",
        settings.mtu6.min(65_535),
        settings.hop_limit,
        settings.mss_clamp
    );
    let source4 = settings.icmp_source4.map_or_else(|| "off".to_owned(), |addr| addr.to_string());
    let errors = match settings.icmp_errors {
        IcmpErrors::Off => "off",
        _ => "unlimited",
    };
    let _ = writeln!(text, "icmp_source4 = \"{source4}\"\nicmp_errors = \"{errors}\"");
    if let TrafficClass::Set(octet) = settings.traffic_class {
        let _ = writeln!(text, "traffic_class = {octet}");
    }
    let ports = |binding: &BindingSpec| match binding.psid {
        Some(psid) => {
            let (len, offset) = (binding.psid_len, binding.psid_offset);
            vec![("psid", psid), ("psid_len", len.into()), ("psid_offset", offset.into())]
        }
        None => Vec::new(),
    };
    if settings.role == Role::Client {
        let Some(binding) = spec.bindings.first() else { return text };
        let remote = binding.local.unwrap_or(spec.local);
        let (v4, local) = (binding.v4, binding.remote);
        let _ = writeln!(text, "role = \"client\"\nv4 = \"{v4}\"\nremote = \"{remote}\"");
        let _ = writeln!(text, "local = \"{local}\"");
        for (key, value) in ports(binding) {
            let _ = writeln!(text, "{key} = {value}");
        }
        return text;
    }
    let (local, hairpin) = (spec.local, settings.hairpin);
    let _ = writeln!(text, "role = \"tep\"\nlocal = \"{local}\"\nhairpin = {hairpin}");
    for binding in &spec.bindings {
        let (v4, remote) = (binding.v4, binding.remote);
        let _ = writeln!(text, "[[translator.bindings]]\nv4 = \"{v4}\"\nremote = \"{remote}\"");
        if let Some(local) = binding.local {
            let _ = writeln!(text, "local = \"{local}\"");
        }
        for (key, value) in ports(binding) {
            let _ = writeln!(text, "{key} = {value}");
        }
    }
    text
}

/// The gateway's configuration file that makes this configuration of the core.
fn file(config: &Config) -> String {
    let mut text =
        format!("[[translator]]\nname = \"{INTERFACE}\"\nmode = \"siit\"\nmanage = false\n");
    let mut line = |key: &str, value: String| {
        let _ = writeln!(text, "{key} = {value}");
    };
    let quoted = |value: String| format!("\"{value}\"");
    let pool6: Vec<String> = config.pool6.iter().map(|pool6| format!("\"{pool6}\"")).collect();
    if !pool6.is_empty() {
        line("pool6", format!("[{}]", pool6.join(", ")));
    }
    let eam =
        config.eam.entries().iter().map(|eam| format!("[\"{}\", \"{}\"]", eam.v4(), eam.v6()));
    let eam: Vec<String> = eam.collect();
    if !eam.is_empty() {
        line("eam", format!("[{}]", eam.join(", ")));
    }
    let off = || "off".to_owned();
    line("icmp_source4", quoted(config.icmp_source4.map_or_else(off, |addr| addr.to_string())));
    line("icmp_source6", quoted(config.icmp_source6.map_or_else(off, |addr| addr.to_string())));
    match config.icmp_errors {
        IcmpErrors::Off => line("icmp_errors", quoted(off())),
        IcmpErrors::Unlimited => line("icmp_errors", quoted("unlimited".into())),
        IcmpErrors::Limited { per_second, burst } => {
            line("icmp_errors", quoted(format!("{per_second}/s")));
            line("icmp_errors_burst", burst.to_string());
        }
    }
    let zero = match config.udp_checksum_zero {
        UdpChecksumZero::Compute => "compute",
        UdpChecksumZero::Drop => "drop",
        UdpChecksumZero::Pass => "pass",
    };
    line("udp_checksum_zero", quoted(zero.into()));
    if let TrafficClass::Set(octet) = config.traffic_class {
        line("traffic_class", octet.to_string());
    }
    line("allow_private", config.allow_private.to_string());
    line("ipv4_translatable", config.ipv4_translatable.to_string());
    line("hairpin", config.hairpin.to_string());
    line("icmp_node_id", config.icmp_node_id.to_string());
    line("mss_clamp", config.mss_clamp.to_string());
    line("mtu", config.mtu6.min(65_535).to_string());
    line("lowest_ipv6_mtu", config.lowest_ipv6_mtu.to_string());
    line("queues", "1".into());
    text
}

fn io(what: &'static str) -> impl Fn(std::io::Error) -> SubjectError {
    move |error| SubjectError::Io(what, error)
}

fn other(error: impl std::fmt::Display) -> SubjectError {
    SubjectError::Other(error.to_string())
}
