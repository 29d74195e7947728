//! This end of a host: its connection, its programs, and who answers there.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fordway_data::spec::{HostSpec, Processors};
use serde::de::DeserializeOwned;

use super::deploy::{Programs, allowed, programs};
use super::orders::{Answer, BEAT, Hello, Numbered, Order};
use super::ssh::Connection;
use crate::error::{LabError, Result};
use crate::mechanism;
use crate::process::{Dialogue, talk};

/// How long an order may take.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long a host may take to tidy up.
const TIDY: Duration = Duration::from_secs(30);

/// Another host, ready. Dropping it ends its end, which tidies up.
#[derive(Debug)]
pub(crate) struct Far {
    /// Its name in the hosts file.
    pub(crate) name: String,
    /// Folder of the run there.
    pub(crate) folder: PathBuf,
    /// Namespaces that crashed runs had left there.
    pub(crate) cleaned: Vec<String>,
    programs: Programs,
    // Dropped in this order: the end there tidies up while the connection stands.
    talk: Mutex<Talk>,
    connection: Connection,
}

#[derive(Debug)]
struct Talk {
    dialogue: Dialogue,
    number: u64,
}

impl Far {
    /// Connects, makes sure that the host may be used, brings the programs, and starts its end for the run of this
    /// id.
    pub(crate) fn open(
        host: &HostSpec,
        socket: PathBuf,
        fordway: Option<&Path>,
        id: &str,
    ) -> Result<Arc<Self>> {
        let connection = Connection::open(host, socket)?;
        allowed(&connection, host)?;
        let programs = programs(&connection, fordway)?;
        let mut serve = crate::state::environment();
        serve.push(programs.lab.display().to_string());
        serve.extend(["far", "serve", "--id", id].map(str::to_owned));
        if let Some(fordway) = &programs.fordway {
            serve.extend(["--fordway".to_owned(), fordway.display().to_string()]);
        }
        let failed = |error: LabError| {
            connection.lost().unwrap_or_else(|| connection.error(&error.to_string()))
        };
        let dialogue = talk(&connection.argv(&serve), PATIENCE).map_err(failed)?;
        dialogue.beat(BEAT);
        let hello = dialogue.first();
        let Hello { folder, cleaned } = serde_json::from_str(&hello)
            .map_err(|e| connection.error(&format!("its end says `{hello}`: {e}")))?;
        let talk = Mutex::new(Talk { dialogue, number: 0 });
        let name = host.name.clone();
        Ok(Arc::new(Self { name, folder, cleaned, programs, talk, connection }))
    }

    /// Asks its end.
    pub(crate) fn ask<T: DeserializeOwned>(&self, order: Order) -> Result<T> {
        self.answer(order, true)
    }

    /// The same without heed of an interruption, for tidying up.
    pub(crate) fn ask_anyway<T: DeserializeOwned>(&self, order: Order) -> Result<T> {
        self.answer(order, false)
    }

    fn answer<T: DeserializeOwned>(&self, order: Order, heed: bool) -> Result<T> {
        let mut talk = self.talk();
        talk.number += 1;
        let number = talk.number;
        let text = serde_json::to_string(&Numbered { number, order })
            .map_err(|e| LabError::Usage(e.to_string()))?;
        let dialogue = &mut talk.dialogue;
        let mut line = match heed {
            true => dialogue.ask(&text, PATIENCE),
            false => dialogue.ask_anyway(&text, PATIENCE),
        };
        loop {
            let said = line.map_err(|error| self.gone(error))?;
            let bad = |e: serde_json::Error| {
                self.connection.error(&format!("its end says `{said}`: {e}"))
            };
            let answer: Answer = serde_json::from_str(&said).map_err(bad)?;
            // An answer that nobody waited for, after an interruption, is of no use now.
            if answer.number == number {
                let value = answer.outcome.map_err(|refusal| refusal.error(&self.name))?;
                return serde_json::from_value(value).map_err(bad);
            }
            line = dialogue.answer(PATIENCE, heed);
        }
    }

    fn talk(&self) -> MutexGuard<'_, Talk> {
        self.talk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error of an end that does not answer.
    fn gone(&self, error: LabError) -> LabError {
        if matches!(error, LabError::Interrupted) {
            return error;
        }
        self.connection.lost().unwrap_or_else(|| {
            self.connection.error(&format!(
                "the lab's end there is gone ({error}); what it left goes with the next run, or with \
                 `fordway-lab doctor --clean --hosts FILE`"
            ))
        })
    }

    /// An error when the host can't be reached any more.
    pub(crate) fn there(&self) -> Result<()> {
        self.connection.lost().map_or(Ok(()), Err)
    }

    /// The command line that runs a command line there, in a namespace or outside of all, and ends it when the
    /// connection, or this end of it, goes.
    pub(crate) fn argv(&self, namespace: Option<&str>, argv: &[String]) -> Vec<String> {
        let mut all = vec![self.programs.lab.display().to_string(), "far".into(), "run".into()];
        all.extend(namespace.iter().flat_map(|name| ["--net".to_owned(), (*name).to_owned()]));
        all.push("--".into());
        all.extend(self.there_words(argv));
        self.connection.argv(&all)
    }

    /// The same for a program that takes orders, and ends with them.
    pub(crate) fn argv_of_dialogue(&self, namespace: &str, argv: &[String]) -> Vec<String> {
        let net = format!("--net=/run/netns/{namespace}");
        let mut all = vec!["nsenter".to_owned(), net, "--".into()];
        all.extend(self.there_words(argv));
        self.connection.argv(&all)
    }

    /// A command line with this program where it lies on that host.
    fn there_words(&self, argv: &[String]) -> Vec<String> {
        let own =
            std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default();
        let there = self.programs.lab.display().to_string();
        argv.iter().map(|word| if *word == own { there.clone() } else { word.clone() }).collect()
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let mut talk = self.talk();
        if !talk.dialogue.end(TIDY) {
            crate::note!(
                "fordway-lab: host {} has not said that it is tidied up; look with `fordway-lab doctor --hosts FILE`",
                self.name
            );
        }
    }
}

/// A mechanism that runs on another host. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Held {
    /// The host.
    pub(crate) host: Arc<Far>,
    /// Its number there.
    pub(crate) handle: u64,
    /// Name of its deployment, and where its logs go on this machine.
    pub(crate) logs: (String, PathBuf),
}

impl mechanism::Held for Held {
    /// A host that does not answer has none of its processes.
    fn gone(&self) -> bool {
        self.host.ask(Order::Gone { handle: self.handle }).unwrap_or(true)
    }

    fn astray(&self, on: &Processors) -> Option<String> {
        // One that does not answer is lost, which is said elsewhere.
        self.host.ask(Order::Astray { handle: self.handle, on: on.clone() }).ok().flatten()
    }

    fn fetch_logs(&self) {
        let name = self.logs.0.clone();
        let logs: Vec<(String, String)> =
            self.host.ask_anyway(Order::Logs { name }).unwrap_or_default();
        for (file, text) in logs {
            // A log that cannot be kept is no reason to lose the measurement.
            let _ = std::fs::write(self.logs.1.join(file), text);
        }
    }

    fn handle(&self) -> u64 {
        self.handle
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.host.there().is_ok() {
            let _ = self.host.ask_anyway::<()>(Order::Stop { handle: self.handle });
            mechanism::Held::fetch_logs(self);
        }
    }
}
