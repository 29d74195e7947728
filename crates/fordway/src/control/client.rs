//! Asking a daemon.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::{Command, Reply, Request};
use crate::failure::Failure;
use crate::report::{Stats, Status};

/// Time for a whole exchange.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Octets that a reply may have.
const MAX_REPLY: u64 = 64 << 20;

/// What the daemon behind `socket` runs.
pub(crate) fn ask_status(socket: &Path) -> Result<Status, Failure> {
    match ask(socket, Command::Status)? {
        Reply::Status(status) => Ok(status),
        other => Err(unexpected(socket, &other)),
    }
}

/// What the daemon behind `socket` has carried.
pub(crate) fn ask_stats(socket: &Path) -> Result<Stats, Failure> {
    match ask(socket, Command::Stats)? {
        Reply::Stats(stats) => Ok(stats),
        other => Err(unexpected(socket, &other)),
    }
}

fn ask(socket: &Path, command: Command) -> Result<Reply, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::failed(format!("no answer on the control socket {}: {error}", socket.display()))
    };
    let mut stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            Failure::failed(format!("no daemon listens on the control socket {}", socket.display()))
                .hint("start one (fordway run -c FILE), or name its socket with --socket")
        }
        ErrorKind::PermissionDenied => failed(&error).hint("the socket is for root alone"),
        _ => failed(&error),
    })?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(|error| failed(&error))?;
    stream.set_write_timeout(Some(TIMEOUT)).map_err(|error| failed(&error))?;
    let mut text = serde_json::to_vec(&Request { command }).map_err(|error| failed(&error))?;
    text.push(b'\n');
    stream.write_all(&text).map_err(|error| failed(&error))?;
    let mut line = Vec::new();
    BufReader::new(stream.take(MAX_REPLY))
        .read_until(b'\n', &mut line)
        .map_err(|error| failed(&error))?;
    serde_json::from_slice(&line)
        .map_err(|error| failed(&error).hint("are the daemon and this program of one version?"))
}

fn unexpected(socket: &Path, reply: &Reply) -> Failure {
    let text = match reply {
        Reply::Error(text) => text.clone(),
        _ => "it answers another question".to_owned(),
    };
    Failure::failed(format!("the daemon on {} says: {text}", socket.display()))
}
