//! A connection by OpenSSH: one is opened, and every command goes over it.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fordway_data::spec::HostSpec;

use crate::error::{LabError, Result};
use crate::process::{self, Output, Running};

/// How long logging in may take; ssh's own limit for the connection is shorter.
const LOGIN: Duration = Duration::from_secs(30);

/// An open connection to a host. Dropping it closes it, and every command over it with it.
#[derive(Debug)]
pub(crate) struct Connection {
    name: String,
    destination: String,
    socket: PathBuf,
    /// The connection's process, and what it said when it had ended.
    master: Mutex<(Running, Option<String>)>,
}

impl Connection {
    /// Logs in; `socket` is a path of its own for it.
    pub(crate) fn open(host: &HostSpec, socket: PathBuf) -> Result<Self> {
        let destination = host.destination().ok_or_else(|| {
            LabError::Usage(format!("host {} has no address to connect to", host.name))
        })?;
        let mut argv = vec!["ssh".to_owned(), "-M".into(), "-N".into()];
        argv.extend(["-S".to_owned(), socket.display().to_string()]);
        if let Some(config) = &host.ssh_config {
            argv.extend(["-F".to_owned(), config.display().to_string()]);
        }
        if let Some(port) = host.port {
            argv.extend(["-p".to_owned(), port.to_string()]);
        }
        if let Some(identity) = &host.identity {
            argv.extend(["-i".to_owned(), identity.display().to_string()]);
        }
        for option in [
            // Nobody is there to be asked; whether a host's key is known is the user's own setting.
            "BatchMode=yes",
            "ConnectTimeout=10",
            "ControlPersist=no",
            "ServerAliveInterval=5",
            "ServerAliveCountMax=3",
            "ClearAllForwardings=yes",
            "ForwardAgent=no",
            "ForwardX11=no",
            "PermitLocalCommand=no",
            "RemoteCommand=none",
            "LogLevel=ERROR",
        ] {
            argv.extend(["-o".to_owned(), option.to_owned()]);
        }
        argv.extend(["--".to_owned(), destination.clone()]);
        let master = process::start(&argv, Output::Keep)?;
        let connection = Self {
            name: host.name.clone(),
            destination,
            socket,
            master: Mutex::new((master, None)),
        };
        let up = process::poll(LOGIN, || {
            // The socket is there once the login is done; a connection that ends first will not come up.
            (connection.socket.exists() || connection.lost().is_some()).then_some(())
        })?;
        match connection.lost() {
            Some(error) => Err(error),
            None if up.is_none() => Err(connection.error("no login within 30 s")),
            None => Ok(connection),
        }
    }

    /// Why the connection is gone, when it is.
    pub(crate) fn lost(&self) -> Option<LabError> {
        let mut held = self.master.lock().unwrap_or_else(PoisonError::into_inner);
        let (master, said) = &mut *held;
        if master.alive() {
            return None;
        }
        let said = said.get_or_insert_with(|| master.said()).trim();
        let fix = if said.contains("Host key verification failed") {
            "; connect once by hand, and compare its key"
        } else if said.contains("Permission denied") {
            "; name a key that it knows: identity = \"...\""
        } else {
            ""
        };
        let why = if said.is_empty() { "the connection has ended" } else { said };
        Some(self.error(&format!("{why}{fix} (by hand: ssh {})", self.destination)))
    }

    /// An error that names the host.
    pub(crate) fn error(&self, why: &str) -> LabError {
        LabError::Host { host: self.name.clone(), why: why.to_owned() }
    }

    /// The command line that runs a command line on the host.
    pub(crate) fn argv(&self, command: &[String]) -> Vec<String> {
        let quoted: Vec<String> = command.iter().map(|word| quote(word)).collect();
        self.shell(&format!("exec {}", quoted.join(" ")))
    }

    /// The command line that runs a line of shell on the host.
    pub(crate) fn shell(&self, line: &str) -> Vec<String> {
        let socket = self.socket.display().to_string();
        // When the connection is gone, the command must fail, not open one of its own.
        let own = [
            "ssh",
            "-S",
            &socket,
            "-F",
            "none",
            "-o",
            "ProxyCommand=false",
            "-o",
            "LogLevel=ERROR",
            "--",
        ];
        let end = [self.destination.clone(), line.to_owned()];
        own.iter().map(ToString::to_string).chain(end).collect()
    }

    /// Runs a line of shell on the host and gives what it printed.
    pub(crate) fn said(&self, line: &str, patience: Duration) -> Result<String> {
        let done = process::start(&self.shell(line), Output::Keep)?.wait(patience)?;
        self.whole(done)
    }

    /// The same with a file as its input.
    pub(crate) fn said_reading(
        &self,
        line: &str,
        file: &Path,
        patience: Duration,
    ) -> Result<String> {
        let done = process::start_reading(&self.shell(line), file)?.wait(patience)?;
        self.whole(done)
    }

    fn whole(&self, done: process::Finished) -> Result<String> {
        if done.status.success() {
            return Ok(done.stdout);
        }
        if let Some(lost) = self.lost() {
            return Err(lost);
        }
        Err(self.error(&process::complaint(&format!("{}\n{}", done.stdout, done.stderr))))
    }
}

/// A word as a POSIX shell reads it.
pub(super) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_pass_a_shell_as_they_are() {
        let words =
            ["plain", "two words", "it's", "", "$HOME;`x`", "{ type filter; }", "a\"b\\c", "é*?~#"];
        let line: Vec<String> = words.iter().map(|word| quote(word)).collect();
        let script = format!("printf '%s\\n' {}", line.join(" "));
        let out = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        let said = String::from_utf8(out.stdout).unwrap();
        assert_eq!(said.split('\n').collect::<Vec<_>>()[..words.len()], words);
    }
}
