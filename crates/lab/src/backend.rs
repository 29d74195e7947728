//! Where a mechanism runs: a back end has two operations, run a command and deploy a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fordway_data::files::write_file;
use fordway_data::spec::Pin;
use fordway_data::trial::CpuUse;

use crate::error::{LabError, Result};
use crate::host::cpu::Meter;
use crate::process::{self, Dialogue, Finished, Output, Running};
use crate::state;

/// Where `ip netns` keeps the names of namespaces.
const NAMESPACES: &str = "/run/netns";

/// A place in which commands run: a role of the topology, for example `client`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place(pub(crate) String);

/// Runs commands and deploys files in places.
pub(crate) trait Backend {
    /// Starts a command in a place; `None` is outside of every place, on the machine itself.
    fn run(&self, place: Option<&Place>, argv: &[String], output: Output<'_>) -> Result<Running>;

    /// Starts a command in a place that takes orders on its standard input; see [`process::talk`].
    fn talk(&self, place: &Place, argv: &[String], patience: Duration) -> Result<Dialogue>;

    /// The command line that runs `argv` in a place, from outside of every place.
    fn inside(&self, place: &Place, argv: &[String]) -> Vec<String>;

    /// A file that names the network namespace of a place on this machine.
    fn namespace(&self, place: &Place) -> PathBuf;

    /// Puts a file where commands of every place can read it, and says where.
    fn deploy(&self, name: &str, content: &[u8]) -> Result<PathBuf>;

    /// Starts a command outside of every place, on the machine of one.
    fn outside(&self, _place: &Place, argv: &[String], output: Output<'_>) -> Result<Running> {
        self.run(None, argv, output)
    }

    /// The device of a place's machine on the wire to the other machine, when there are two.
    fn wire(&self, _place: &Place) -> Option<&str> {
        None
    }

    /// What programs in places are bound to, when they are.
    fn pin(&self) -> Option<&Pin> {
        None
    }

    /// Who removes a place when its network goes.
    fn keeper(&self) -> Keeper {
        // What cannot be removed now stays in the state file and is tried again later.
        Keeper::new(|place| drop(state::remove_namespace(&place.0)))
    }

    /// Begins to count processor time on the machine that mechanisms run on: of it, and of these processes of this
    /// machine, or what has these handles on another.
    fn count(&self, pids: &[u32], _handles: &[u64]) -> Result<Counting> {
        Ok(Counting::here(pids))
    }

    /// The most that a load may put on the wire.
    fn cap(&self) -> Option<Cap> {
        None
    }
}

/// The most that a load may put on the wire between two hosts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cap {
    /// Gbit/s.
    pub(crate) gbit_s: f64,
    /// Small datagrams per second.
    pub(crate) packets_s: u64,
}

/// Processor use between two moments.
pub(crate) struct Counting(Box<dyn FnOnce() -> Result<CpuUse>>);

impl Counting {
    /// Begun: this function ends it.
    pub(crate) fn new(stop: impl FnOnce() -> Result<CpuUse> + 'static) -> Self {
        Self(Box::new(stop))
    }

    /// On this machine, and of these processes.
    pub(crate) fn here(pids: &[u32]) -> Self {
        let meter = Meter::start(pids);
        Self::new(|| Ok(meter.stop()))
    }

    /// Ends.
    pub(crate) fn stop(self) -> Result<CpuUse> {
        (self.0)()
    }
}

/// Removes places. It outlives no back end that it came from.
#[derive(Clone)]
pub(crate) struct Keeper(Arc<dyn Fn(&Place)>);

impl Keeper {
    /// By this function, which heeds no interruption.
    pub(crate) fn new(remove: impl Fn(&Place) + 'static) -> Self {
        Self(Arc::new(remove))
    }

    /// Removes a place, with what runs in it.
    pub(crate) fn remove(&self, place: &Place) {
        (self.0)(place);
    }
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keeper")
    }
}

/// Runs a command in a place to its end and demands success.
pub(crate) fn must(backend: &dyn Backend, place: &Place, argv: &[&str]) -> Result<Finished> {
    let argv: Vec<String> = argv.iter().map(ToString::to_string).collect();
    backend.run(Some(place), &argv, Output::Keep)?.wait(Duration::from_secs(10))?.ok()
}

/// A server, with a folder of its own, where it has one, which goes when it does.
#[derive(Debug)]
pub(crate) struct Served {
    process: Running,
    folder: Option<PathBuf>,
}

impl Served {
    /// Starts it in a place, and waits until somebody listens to this TCP port there.
    pub(crate) fn start(
        backend: &dyn Backend,
        place: &Place,
        argv: &[String],
        port: u16,
        folder: impl Into<Option<PathBuf>>,
        log: &Path,
    ) -> Result<Self> {
        let process = backend.run(Some(place), argv, Output::Log(log))?;
        let mut server = Self { process, folder: folder.into() };
        let listeners = ["ss", "-Hltn", "sport", "=", &format!(":{port}")].map(str::to_owned);
        let up = process::poll(Duration::from_secs(5), || {
            let out = backend.run(Some(place), &listeners, Output::Keep);
            let out = out.and_then(|run| run.wait(Duration::from_secs(2)));
            let up = out.is_ok_and(|out| !out.stdout.trim().is_empty());
            (up || !server.process.alive()).then_some(up)
        })?;
        if up == Some(true) {
            return Ok(server);
        }
        Err(LabError::Command {
            argv: argv.join(" "),
            status: "not listening".into(),
            stderr: std::fs::read_to_string(log).unwrap_or_default(),
        })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.process.stop();
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// The default back end: Linux network namespaces of this machine.
#[derive(Debug, Clone)]
pub(crate) struct Netns {
    /// Folder for deployed files.
    pub(crate) dir: PathBuf,
}

impl Backend for Netns {
    fn run(&self, place: Option<&Place>, argv: &[String], output: Output<'_>) -> Result<Running> {
        match place {
            Some(place) => process::start(&self.inside(place, argv), output),
            None => process::start(argv, output),
        }
    }

    fn talk(&self, place: &Place, argv: &[String], patience: Duration) -> Result<Dialogue> {
        process::talk(&self.inside(place, argv), patience)
    }

    /// `ip netns exec` would mount another /sys over the machine's; `nsenter --net` alone does not.
    fn inside(&self, place: &Place, argv: &[String]) -> Vec<String> {
        let net = format!("--net={}", self.namespace(place).display());
        let mut all = vec!["nsenter".to_owned(), net, "--".to_owned()];
        all.extend_from_slice(argv);
        all
    }

    fn namespace(&self, place: &Place) -> PathBuf {
        Path::new(NAMESPACES).join(&place.0)
    }

    fn deploy(&self, name: &str, content: &[u8]) -> Result<PathBuf> {
        let path = self.dir.join(name);
        write_file(&path, content)?;
        Ok(path)
    }
}
