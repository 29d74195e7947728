//! What the tests of the program share: a folder of their own for each test, small experiments, and what a run left.
//!
//! Several tests run at once, each a process of its own, also those of another checkout. So each has its own folder of
//! notes (`FORDWAY_LAB_RUN`), and looks only at namespaces whose names begin with the ids of its own runs. What they
//! measure may be disturbed: they ask for little, count what they ask for, and hold no number against another.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::LazyLock;

use fordway_testhost::{has_programs, is_root, poll_or, require};
use serde_json::Value;
use toml::Table;

pub(crate) const LAB: &str = env!("CARGO_BIN_EXE_fordway-lab");

/// Runs a command of the lab that leaves nothing behind.
pub(crate) fn lab(args: &[&str]) -> Output {
    Command::new(LAB).args(args).env("NO_COLOR", "1").output().expect("the lab starts")
}

/// Octets as text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What the lab says of this machine.
static DOCTOR: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_slice(&lab(&["doctor", "--json"]).stdout).expect("doctor prints JSON")
});

/// Whether whole runs are possible here; a skip where they are not.
pub(crate) fn can_run() -> bool {
    is_root() && require(DOCTOR["ready"] == true, "a program that every run needs is missing")
}

/// Whether a mechanism can run here, for what it is asked about; a skip where it can't.
pub(crate) fn has(implementation: &str, kind: &str) -> bool {
    let wanted = |m: &&Value| m["implementation"] == implementation && m["kind"] == kind;
    let mechanisms = DOCTOR["mechanisms"].as_array().expect("mechanisms");
    let found = mechanisms.iter().find(wanted).expect("doctor names every mechanism");
    require(
        !found["version"].is_null(),
        &format!("{implementation} for {kind}: {}", found["hint"].as_str().unwrap_or_default()),
    )
}

/// Whether the lab can measure this here; a skip where it can't.
pub(crate) fn can_measure(metric: &str) -> bool {
    let lacking = DOCTOR["measurements"].as_array().expect("measurements");
    let of =
        |one: &&Value| one["metrics"].as_array().is_some_and(|all| all.contains(&metric.into()));
    let missing = lacking.iter().find(of);
    let why = missing.and_then(|one| one["missing"].as_str()).unwrap_or_default();
    require(missing.is_none(), &format!("{metric}: {why}"))
}

/// The objects of a file with one a line; a line that is still being written is none yet.
pub(crate) fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Sizes of a run unless a test says otherwise.
const SIZES: &str = "durations_s = [1]\nflow_octets = 20_000_000\ninterval_s = 0.1\nping_count = 10\n\
                     ping_interval_s = 0.01\nblocks_min = 1\nblocks_max = 1\n";

/// The file of a built-in experiment with these of its mechanisms and metrics alone, and sizes as small as a test needs:
/// `sizes` are lines of a profile. Work of others discards no trial.
pub(crate) fn small(name: &str, arms: &[&str], metrics: &[&str], sizes: &str) -> String {
    let file = format!("{}/../data/experiments/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&file).expect("a built-in experiment");
    let mut whole: Table = toml::from_str(&text).expect("TOML");
    let words =
        |list: &[&str]| list.iter().map(|word| toml::Value::from(*word)).collect::<Vec<_>>();
    let names =
        |value: &toml::Value, known: &[&str]| value.as_str().is_some_and(|v| known.contains(&v));

    whole.insert("metrics".into(), words(metrics).into());
    if !names(&whole["sentinel"], arms) {
        whole.insert("sentinel".into(), arms[0].into());
    }
    let mechanisms = whole["mechanism"].as_array_mut().expect("mechanisms");
    mechanisms.retain(|arm| names(&arm["name"], arms));
    assert_eq!(mechanisms.len(), arms.len(), "{name} has not all of {arms:?}");
    for arm in mechanisms {
        let arm = arm.as_table_mut().expect("a table");
        for key in ["base", "same_as"] {
            if arm.get(key).is_some_and(|of| !names(of, arms)) {
                arm.remove(key);
            }
        }
        if let Some(toml::Value::Array(own)) = arm.get_mut("metrics") {
            own.retain(|metric| names(metric, metrics));
            assert!(!own.is_empty(), "{arm:?} is measured by none of {metrics:?}");
        }
    }
    whole.retain(|key, _| !["difference", "requires", "program_costs"].contains(&key));
    let sizes = format!("about = \"as small as a test needs\"\n{SIZES}{sizes}");
    whole.insert("profile".into(), Table::from_iter([("quick".into(), profile(&sizes))]).into());
    let keep = toml::toml! {
        when = "steal > 1"
        reason = "what a test asks for has to be there on a busy machine, too"
    };
    whole.insert("exclude".into(), vec![toml::Value::from(keep)].into());
    toml::to_string(&whole).expect("TOML")
}

/// The table of these lines, of which the last one about a key holds.
fn profile(lines: &str) -> toml::Value {
    let each = lines.lines().map(|line| toml::from_str::<Table>(line).expect("a line of TOML"));
    each.flatten().collect::<Table>().into()
}

/// What one test makes: a folder with its experiments, its results and the notes of its runs.
pub(crate) struct Bench {
    dir: tempfile::TempDir,
    notes: PathBuf,
}

impl Bench {
    /// Everything in a temporary folder.
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("fwlab-").tempdir().expect("a folder");
        // Servers that the lab starts give up root: they must get to their files below the folder of notes.
        let all = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(dir.path(), all).expect("an own folder");
        Self { notes: dir.path().join("notes"), dir }
    }

    /// With the notes below `/run`, which hosts of a run have each for itself.
    pub(crate) fn below_run() -> Self {
        let mut bench = Self::new();
        let name = bench.dir.path().file_name().expect("a name").to_string_lossy().into_owned();
        bench.notes = Path::new("/run").join(name.replace("fwlab-", "labtest-"));
        bench
    }

    /// The folder of notes.
    pub(crate) fn notes(&self) -> &Path {
        &self.notes
    }

    /// A path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The same as text.
    pub(crate) fn shown(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Writes a file and says where.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).expect("a file");
        self.shown(name)
    }

    /// The lab with these arguments.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.of(Command::new(LAB), args)
    }

    /// The same by a command that runs what follows.
    pub(crate) fn of(&self, mut command: Command, args: &[&str]) -> Command {
        command.args(args).env("NO_COLOR", "1").env("FORDWAY_LAB_RUN", &self.notes);
        // A busy machine takes its time: a mechanism may come up after more than five seconds.
        command.env("FORDWAY_LAB_PATIENCE", "4");
        command
    }

    /// Runs the lab to its end.
    pub(crate) fn lab(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the lab starts")
    }

    /// Starts the lab; it ends with what is given back.
    pub(crate) fn start(&self, args: &[&str]) -> Started {
        Started::new(self.command(args))
    }

    /// Runs an experiment, with these options, to its good end in the folder `out`.
    pub(crate) fn run(&self, out: &str, experiment: &str, options: &[&str]) -> Folder {
        let (file, folder) = (self.write(&format!("{out}.toml"), experiment), self.shown(out));
        let args = [&["run", &file, "--out", &folder], options].concat();
        let done = self.lab(&args);
        assert!(done.status.success(), "{}", text(&done.stderr));
        Folder { path: self.path(out), said: text(&done.stdout), errors: text(&done.stderr) }
    }

    /// Asserts that nothing is left of the runs into these folders, and of what prepared them.
    pub(crate) fn assert_clean(&self, outs: &[&str]) {
        let left: Vec<String> =
            outs.iter().flat_map(|out| Folder::at(self.path(out)).namespaces()).collect();
        assert!(left.is_empty(), "{left:?}");
        // A note stays for as long as any namespace of its run does.
        let notes = std::fs::read_dir(&self.notes).into_iter().flatten().flatten();
        let notes: Vec<PathBuf> = notes.map(|entry| entry.path()).collect();
        assert!(notes.is_empty(), "{notes:?}");
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // What a test that failed has left.
        if std::fs::read_dir(&self.notes).is_ok_and(|mut notes| notes.next().is_some()) {
            let _ = self.command(&["doctor", "--clean"]).output();
        }
        let _ = std::fs::remove_dir_all(&self.notes);
    }
}

/// The folder of a run, with what was printed.
#[derive(Default)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    /// Standard output.
    pub(crate) said: String,
    /// Standard error.
    pub(crate) errors: String,
}

impl Folder {
    /// A run that something else started.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path, ..Self::default() }
    }

    /// Every trial in the order of the ledger.
    pub(crate) fn trials(&self) -> Vec<Value> {
        lines(&self.path.join("trials.jsonl"))
    }

    /// `results.json`.
    pub(crate) fn results(&self) -> Value {
        let bytes = std::fs::read(self.path.join("results.json")).expect("results");
        serde_json::from_slice(&bytes).expect("JSON")
    }

    /// The report.
    pub(crate) fn page(&self) -> String {
        std::fs::read_to_string(self.path.join("report.html")).expect("a report")
    }

    /// Why a mechanism of this run was left out; `None`: it was not.
    pub(crate) fn skipped(&self, mechanism: &str) -> Option<String> {
        let spec = std::fs::read_to_string(self.path.join("spec.toml")).expect("a spec");
        let spec: Table = toml::from_str(&spec).expect("TOML");
        spec["run"]["skipped"].get(mechanism)?.as_str().map(str::to_owned)
    }

    /// The one trial of a mechanism and a metric in the block, which counts.
    pub(crate) fn trial(&self, mechanism: &str, metric: &str) -> Value {
        let mut found = self.of(mechanism, metric);
        assert_eq!(found.len(), 1, "{mechanism}, {metric}: {found:?}");
        found.remove(0)
    }

    /// All trials of a mechanism and a metric in the block, at each of its points. All of them count.
    pub(crate) fn of(&self, mechanism: &str, metric: &str) -> Vec<Value> {
        let this =
            |t: &Value| t["mechanism"] == mechanism && t["metric"] == metric && t["block"] == 1;
        let found: Vec<Value> = self.trials().into_iter().filter(this).collect();
        let bad = found.iter().find(|trial| trial["valid"] != true);
        assert!(bad.is_none(), "{mechanism}, {metric}: {bad:?}\n{}", self.errors);
        found
    }

    /// Asserts that a mechanism has passed this probe of the gate.
    pub(crate) fn assert_passed(&self, mechanism: &str, check: &str) {
        let results = self.results();
        let checks = results["gate"][mechanism].as_array().expect("checks");
        let found = checks.iter().find(|c| c["name"] == check);
        assert!(found.is_some_and(|c| c["ok"] == true), "{mechanism}, {check}: {found:?}");
    }

    /// Namespaces of this run that exist now. All files in `raw` begin with the names of the networks.
    pub(crate) fn namespaces(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.path.join("raw")).into_iter().flatten().flatten();
        let prefix = |name: String| -> Option<String> {
            let (id, _) = name.strip_prefix("fwlab-")?.split_once('-')?;
            Some(format!("fwlab-{id}-"))
        };
        let own: BTreeSet<String> =
            files.filter_map(|file| prefix(file.file_name().into_string().ok()?)).collect();
        let mut all = namespaces();
        all.retain(|name| own.iter().any(|prefix| name.starts_with(prefix)));
        all
    }
}

/// Namespaces that exist now, whoever made them.
pub(crate) fn namespaces() -> Vec<String> {
    let names = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let mut all: Vec<String> =
        names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    all.sort();
    all
}

/// A lab at work. Dropping it kills it.
pub(crate) struct Started {
    child: Child,
}

impl Started {
    pub(crate) fn new(mut command: Command) -> Self {
        // What it says goes to the test's own output, which nobody has to read while it runs.
        let child = command.stdout(Stdio::null()).spawn().expect("the lab starts");
        Self { child }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `ready`, while the lab is at work.
    pub(crate) fn until(&mut self, what: &str, ready: impl FnMut() -> bool) {
        self.until_or(ready, || what.to_owned());
    }

    /// The same; `what` says what it waits for, when it has failed.
    pub(crate) fn until_or(&mut self, mut ready: impl FnMut() -> bool, what: impl Fn() -> String) {
        poll_or(
            || {
                let ended = self.child.try_wait().expect("a child");
                assert!(ended.is_none(), "the lab ended before: {}", what());
                ready().then_some(())
            },
            &what,
        );
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.id(), name);
    }

    /// Waits for its end.
    pub(crate) fn end(&mut self) -> ExitStatus {
        fordway_testhost::wait(&mut self.child, "the lab")
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn signal(pid: u32, name: &str) {
    let pid = pid.to_string();
    assert!(Command::new("kill").args([name, &pid]).status().expect("kill").success());
}

/// Whether these programs are installed; a skip where one is not.
pub(crate) fn programs(names: &[&str]) -> bool {
    has_programs(names)
}
