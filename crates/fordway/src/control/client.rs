//! Asking a daemon.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::{Leases, Reply, Request};
use crate::failure::Failure;
use crate::report::{Entries, ReverseReport, Stats, Status};
use crate::trace::TraceLine;

/// Time for a whole exchange.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Time for what the daemon has to do something for.
const LONG_TIMEOUT: Duration = Duration::from_secs(60);

/// Octets that a reply may have.
const MAX_REPLY: u64 = 64 << 20;

/// What came of a request to do something.
pub(crate) enum Answer {
    /// It has been done: a sentence.
    Done(String),
    /// There is no translator of the name.
    Unknown,
}

/// What the daemon behind `socket` runs.
pub(crate) fn ask_status(socket: &Path) -> Result<Status, Failure> {
    match exchange(socket, &Request::Status {}, TIMEOUT)? {
        Reply::Status(status) => Ok(*status),
        other => Err(unexpected(socket, other)),
    }
}

/// What the daemon behind `socket` has carried.
pub(crate) fn ask_stats(socket: &Path) -> Result<Stats, Failure> {
    match exchange(socket, &Request::Stats {}, TIMEOUT)? {
        Reply::Stats(stats) => Ok(*stats),
        other => Err(unexpected(socket, other)),
    }
}

/// Whose a transport address is.
pub(crate) fn ask_reverse(socket: &Path, request: &Request) -> Result<ReverseReport, Failure> {
    match exchange(socket, request, LONG_TIMEOUT)? {
        Reply::Reverse(report) => Ok(report),
        other => Err(unexpected(socket, other)),
    }
}

/// What the daemon's DSTM server has lent.
pub(crate) fn ask_leases(socket: &Path) -> Result<Leases, Failure> {
    match exchange(socket, &Request::Leases {}, LONG_TIMEOUT)? {
        Reply::Leases(leases) => Ok(leases),
        other => Err(unexpected(socket, other)),
    }
}

/// Has the daemon show entries. Gives how many, and whether there are more.
pub(crate) fn list(
    socket: &Path,
    request: &Request,
    mut each: impl FnMut(Entries) -> Result<(), Failure>,
) -> Result<(u64, bool), Failure> {
    let mut reader = BufReader::new(send(socket, request, LONG_TIMEOUT)?);
    loop {
        let mut line = Vec::new();
        let read = (&mut reader).take(MAX_REPLY).read_until(b'\n', &mut line);
        read.map_err(|error| broken(socket, &error))?;
        match parse(socket, &line)? {
            Reply::Entries(entries) => each(entries)?,
            Reply::Listed { matched, more } => return Ok((matched, more)),
            other => return Err(unexpected(socket, other)),
        }
    }
}

/// Has the daemon end, with its kernel engines going on, and waits until it has ended. Gives what it says.
pub(crate) fn leave(socket: &Path) -> Result<String, Failure> {
    let mut reader = BufReader::new(send(socket, &Request::Leave {}, LONG_TIMEOUT)?);
    let mut line = Vec::new();
    let read = (&mut reader).take(MAX_REPLY).read_until(b'\n', &mut line);
    read.map_err(|error| broken(socket, &error))?;
    match parse(socket, &line)? {
        // It keeps the connection for as long as it lives.
        Reply::Done(text) => match reader.read_until(b'\n', &mut line) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => Err(broken(socket, &error)),
            _ => Ok(text),
        },
        other => Err(unexpected(socket, other)),
    }
}

/// Has the daemon behind `socket` do something.
pub(crate) fn ask(socket: &Path, request: &Request) -> Result<Answer, Failure> {
    match exchange(socket, request, LONG_TIMEOUT)? {
        Reply::Done(text) => Ok(Answer::Done(text)),
        Reply::Unknown(_) => Ok(Answer::Unknown),
        other => Err(unexpected(socket, other)),
    }
}

/// Has the daemon tell of packets, until `each` says that it is enough or the daemon ends it.
pub(crate) fn trace(
    socket: &Path,
    request: &Request,
    mut each: impl FnMut(TraceLine) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let stream = send(socket, request, LONG_TIMEOUT)?;
    // Packets come when they come.
    stream.set_read_timeout(None).map_err(|error| broken(socket, &error))?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let read = (&mut reader).take(MAX_REPLY).read_until(b'\n', &mut line);
        if read.map_err(|error| broken(socket, &error))? == 0 {
            return Ok(());
        }
        match parse(socket, &line)? {
            Reply::Done(_) => {}
            Reply::Trace(line) => {
                if !each(*line)? {
                    return Ok(());
                }
            }
            other => return Err(unexpected(socket, other)),
        }
    }
}

/// Whether nobody listens on `socket`.
pub(crate) fn is_absent(socket: &Path) -> bool {
    let connected = UnixStream::connect(socket);
    let kind = connected.err().map(|error| error.kind());
    matches!(kind, Some(ErrorKind::NotFound | ErrorKind::ConnectionRefused))
}

fn exchange(socket: &Path, request: &Request, timeout: Duration) -> Result<Reply, Failure> {
    let stream = send(socket, request, timeout)?;
    let mut line = Vec::new();
    BufReader::new(stream.take(MAX_REPLY))
        .read_until(b'\n', &mut line)
        .map_err(|error| broken(socket, &error))?;
    parse(socket, &line)
}

fn send(socket: &Path, request: &Request, timeout: Duration) -> Result<UnixStream, Failure> {
    let failed = |error: io::Error| broken(socket, &error);
    let mut stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            Failure::failed(format!("no daemon listens on the control socket {}", socket.display()))
                .hint("start one (fordway run -c FILE), or name its socket with --socket")
        }
        ErrorKind::PermissionDenied => failed(error).hint("the socket is for root alone"),
        _ => failed(error),
    })?;
    stream.set_read_timeout(Some(timeout)).map_err(failed)?;
    stream.set_write_timeout(Some(timeout)).map_err(failed)?;
    let mut text = serde_json::to_vec(request).map_err(|error| no_answer(socket, &error))?;
    text.push(b'\n');
    stream.write_all(&text).map_err(failed)?;
    Ok(stream)
}

fn parse(socket: &Path, line: &[u8]) -> Result<Reply, Failure> {
    if !line.ends_with(b"\n") {
        return Err(closed(socket));
    }
    serde_json::from_slice(line).map_err(|error| {
        no_answer(socket, &error).hint("are the daemon and this program of one version?")
    })
}

/// What reading or writing met.
fn broken(socket: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => no_answer(socket, &"it takes too long")
            .hint("the daemon is busy or stopped: its log says what it does"),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => closed(socket),
        _ => no_answer(socket, error),
    }
}

fn closed(socket: &Path) -> Failure {
    no_answer(socket, &"the daemon has closed the connection")
        .hint("it may just be ending: its log says why")
}

fn no_answer(socket: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::failed(format!("no answer on the control socket {}: {error}", socket.display()))
}

fn unexpected(socket: &Path, reply: Reply) -> Failure {
    let text = match reply {
        Reply::Failed { text, hint, config } => return Failure::told(text, hint, config),
        Reply::Error(text) => text,
        Reply::Unknown(name) => return Failure::failed(format!("no translator is called {name}")),
        _ => "it answers another question".to_owned(),
    };
    Failure::failed(format!("the daemon on {} says: {text}", socket.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// What asking says if somebody accepts the connection and does `then`.
    fn asked(then: impl FnOnce(UnixStream) + Send + 'static) -> String {
        let dir = tempfile::TempDir::new().unwrap();
        let socket = dir.path().join("control.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = thread::spawn(move || then(listener.accept().unwrap().0));
        let failed = exchange(&socket, &Request::Status {}, Duration::from_millis(50));
        let said = failed.err().map_or_else(String::new, |failure| failure.line());
        server.join().unwrap();
        said
    }

    #[test]
    fn a_daemon_that_says_nothing_is_told_from_one_that_ends() {
        let silent = asked(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
        assert!(silent.contains("it takes too long (the daemon is busy or stopped"), "{silent}");
        let ended = asked(drop);
        assert!(ended.contains("the daemon has closed the connection (it may just"), "{ended}");
    }
}
