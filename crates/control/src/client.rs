//! Asking a daemon.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::{
    Applied, ClusterStatus, Entries, Error, Event, Leases, ReloadPlan, Reply, Request,
    ReverseReport, Stats, Status, TraceLine, from_line, to_line,
};

/// Time for a whole exchange.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Time for what the daemon has to do something for.
const LONG_TIMEOUT: Duration = Duration::from_secs(60);

/// Octets that a reply may have.
const MAX_REPLY: u64 = 64 << 20;

/// The socket for reading beside a control socket: `control.read.sock` beside `control.sock`.
#[must_use]
pub fn read_socket(control: &Path) -> PathBuf {
    control.with_extension("read.sock")
}

/// Whether a path is that of a socket for reading.
#[must_use]
pub fn is_read_socket(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b".read.sock")
}

/// What came of a request to do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It has been done: a sentence.
    Done(String),
    /// There is no translator of the name.
    Unknown,
}

/// A client of the daemon behind a socket, or behind the socket for reading beside it if the user may use only that. Each
/// request has a connection of its own.
///
/// All requests fail with an [`Error`] if no daemon listens, if the reply does not come in time or is of another version, or
/// if the daemon refuses.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// A client of the daemon behind `socket`.
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>) -> Client {
        Client { socket: socket.into() }
    }

    /// Whether no daemon listens on the socket.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        let kind = UnixStream::connect(&self.socket).err().map(|error| error.kind());
        matches!(kind, Some(ErrorKind::NotFound | ErrorKind::ConnectionRefused))
    }

    /// What the daemon runs.
    ///
    /// # Errors
    /// See [`Client`].
    pub fn status(&self) -> Result<Status, Error> {
        match self.send(&Request::Status {}, TIMEOUT)?.reply()? {
            Reply::Status(status) => Ok(*status),
            other => Err(self.unexpected(other)),
        }
    }

    /// What the daemon has counted.
    ///
    /// # Errors
    /// See [`Client`].
    pub fn stats(&self) -> Result<Stats, Error> {
        match self.send(&Request::Stats {}, TIMEOUT)?.reply()? {
            Reply::Stats(stats) => Ok(*stats),
            other => Err(self.unexpected(other)),
        }
    }

    /// Whose a transport address is: the reply to [`Request::Reverse`].
    ///
    /// # Errors
    /// See [`Client`].
    pub fn reverse(&self, request: &Request) -> Result<ReverseReport, Error> {
        match self.send(request, LONG_TIMEOUT)?.reply()? {
            Reply::Reverse(report) => Ok(report),
            other => Err(self.unexpected(other)),
        }
    }

    /// What a reload would do.
    ///
    /// # Errors
    /// See [`Client`]; and those that the reload would have.
    pub fn reload_plan(&self) -> Result<ReloadPlan, Error> {
        match self.send(&Request::Reload { dry_run: true }, LONG_TIMEOUT)?.reply()? {
            Reply::Plan(plan) => Ok(plan),
            other => Err(self.unexpected(other)),
        }
    }

    /// What the daemon's DSTM server has lent.
    ///
    /// # Errors
    /// See [`Client`].
    pub fn leases(&self) -> Result<Leases, Error> {
        match self.send(&Request::Leases {}, LONG_TIMEOUT)?.reply()? {
            Reply::Leases(leases) => Ok(leases),
            other => Err(self.unexpected(other)),
        }
    }

    /// The daemon's cluster, as the daemon sees it.
    ///
    /// # Errors
    /// See [`Client`].
    pub fn cluster(&self) -> Result<ClusterStatus, Error> {
        match self.send(&Request::Cluster {}, TIMEOUT)?.reply()? {
            Reply::Cluster(status) => Ok(*status),
            other => Err(self.unexpected(other)),
        }
    }

    /// Has the daemon do something: requests that are answered with a sentence.
    ///
    /// # Errors
    /// See [`Client`].
    pub fn ask(&self, request: &Request) -> Result<Answer, Error> {
        match self.send(request, LONG_TIMEOUT)?.reply()? {
            Reply::Done(text) => Ok(Answer::Done(text)),
            Reply::Unknown(_) => Ok(Answer::Unknown),
            other => Err(self.unexpected(other)),
        }
    }

    /// Gives `each` the entries that [`Request::List`] asks for, some at a time. Returns how many there were, and whether
    /// there are more.
    ///
    /// # Errors
    /// See [`Client`]; and those of `each`.
    pub fn list<E: From<Error>>(
        &self,
        request: &Request,
        mut each: impl FnMut(Entries) -> Result<(), E>,
    ) -> Result<(u64, bool), E> {
        let mut replies = self.send(request, LONG_TIMEOUT)?;
        loop {
            match replies.reply()? {
                Reply::Entries(entries) => each(entries)?,
                Reply::Listed { matched, more } => return Ok((matched, more)),
                other => return Err(self.unexpected(other).into()),
            }
        }
    }

    /// Gives `each` the packets that [`Request::Trace`] asks for, until it returns `false` or the daemon ends the trace.
    ///
    /// # Errors
    /// See [`Client`]; and those of `each`.
    pub fn trace<E: From<Error>>(
        &self,
        request: &Request,
        mut each: impl FnMut(TraceLine) -> Result<bool, E>,
    ) -> Result<(), E> {
        let mut replies = self.send(request, LONG_TIMEOUT)?;
        // The next packet may come at any time.
        let timeout = replies.reader.get_ref().set_read_timeout(None);
        timeout.map_err(|error| Error::io(&self.socket, &error))?;
        while let Some(reply) = replies.next()? {
            match reply {
                Reply::Done(_) => {}
                Reply::Trace(line) => {
                    if !each(*line)? {
                        break;
                    }
                }
                other => return Err(self.unexpected(other).into()),
            }
        }
        Ok(())
    }

    /// Sets keys of the daemon's configuration: `document` is a JSON object of keys and values. `replace`: other keys are
    /// set no more; `dry_run`: nothing is changed. Returns what has become of each key.
    ///
    /// # Errors
    /// See [`Client`].
    pub fn apply(&self, document: &[u8], replace: bool, dry_run: bool) -> Result<Applied, Error> {
        let request = Request::Apply { octets: document.len() as u64, replace, dry_run };
        let mut replies = self.send(&request, LONG_TIMEOUT)?;
        // A daemon that refuses the length closes the connection, and has said why.
        let written = replies.reader.get_ref().write_all(document);
        match (replies.reply(), written) {
            (Ok(Reply::Applied(applied)), _) => Ok(applied),
            (Ok(other), _) => Err(self.unexpected(other)),
            (Err(_), Err(error)) => Err(Error::io(&self.socket, &error)),
            (Err(error), Ok(())) => Err(error),
        }
    }

    /// Values of keys in the daemon's configuration; without keys, of those that are set by [`Client::apply`].
    ///
    /// # Errors
    /// See [`Client`].
    pub fn values(&self, keys: &[String]) -> Result<BTreeMap<String, Value>, Error> {
        match self.send(&Request::Get { keys: keys.to_vec() }, LONG_TIMEOUT)?.reply()? {
            Reply::Values(values) => Ok(values),
            other => Err(self.unexpected(other)),
        }
    }

    /// Gives `each` the daemon's changes from now on, the first of which tells where that is, until it returns `false` or
    /// the daemon ends.
    ///
    /// # Errors
    /// See [`Client`]; and those of `each`.
    pub fn watch<E: From<Error>>(
        &self,
        mut each: impl FnMut(Event) -> Result<bool, E>,
    ) -> Result<(), E> {
        let mut replies = self.send(&Request::Watch {}, TIMEOUT)?;
        // The next change may come at any time.
        let timeout = replies.reader.get_ref().set_read_timeout(None);
        timeout.map_err(|error| Error::io(&self.socket, &error))?;
        while let Some(reply) = replies.next()? {
            match reply {
                Reply::Event(event) => {
                    if !each(event)? {
                        break;
                    }
                }
                other => return Err(self.unexpected(other).into()),
            }
        }
        Ok(())
    }

    /// Ends the daemon, whose kernel engines go on, and waits for the end. Returns what the daemon says.
    ///
    /// # Errors
    /// See [`Client`].
    pub fn leave(&self) -> Result<String, Error> {
        let mut replies = self.send(&Request::Leave {}, LONG_TIMEOUT)?;
        let text = match replies.reply()? {
            Reply::Done(text) => text,
            other => return Err(self.unexpected(other)),
        };
        // The daemon closes the connection when it ends.
        match replies.reader.read_until(b'\n', &mut Vec::new()) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => {
                Err(Error::io(&self.socket, &error))
            }
            _ => Ok(text),
        }
    }

    fn send(&self, request: &Request, timeout: Duration) -> Result<Replies<'_>, Error> {
        let failed = |error| Error::io(&self.socket, &error);
        // Who may not use the control socket may still be in the group of those who read.
        let connected = UnixStream::connect(&self.socket).or_else(|error| match error.kind() {
            ErrorKind::PermissionDenied => {
                UnixStream::connect(read_socket(&self.socket)).map_err(|_| error)
            }
            _ => Err(error),
        });
        let stream = connected.map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                Error::Absent(self.socket.clone())
            }
            _ => failed(error),
        })?;
        stream.set_read_timeout(Some(timeout)).map_err(failed)?;
        stream.set_write_timeout(Some(timeout)).map_err(failed)?;
        let line = to_line(request).map_err(|error| failed(error.into()))?;
        (&stream).write_all(&line).map_err(failed)?;
        Ok(Replies { client: self, reader: BufReader::new(stream) })
    }

    fn unexpected(&self, reply: Reply) -> Error {
        let text = match reply {
            Reply::Failed { text, hint, config } => return Error::Failed { text, hint, config },
            Reply::Unknown(name) => return Error::Unknown(name),
            Reply::Error(text) => text,
            _ => "it answers another question".to_owned(),
        };
        Error::Says { socket: self.socket.clone(), text }
    }
}

/// Replies to a request.
struct Replies<'a> {
    client: &'a Client,
    reader: BufReader<UnixStream>,
}

impl Replies<'_> {
    /// The next reply; `None` if the daemon has closed the connection.
    fn next(&mut self) -> Result<Option<Reply>, Error> {
        let (mut line, socket) = (Vec::new(), &self.client.socket);
        let read = (&mut self.reader).take(MAX_REPLY).read_until(b'\n', &mut line);
        match read.map_err(|error| Error::io(socket, &error))? {
            0 => Ok(None),
            _ if !line.ends_with(b"\n") => Err(Error::closed(socket)),
            _ => from_line(&line).map(Some).map_err(|error| Error::parse(socket, &error)),
        }
    }

    /// The next reply, which has to come.
    fn reply(&mut self) -> Result<Reply, Error> {
        self.next()?.ok_or_else(|| Error::closed(&self.client.socket))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// The result of a request if a server accepts the connection and does `then`.
    fn asked(then: impl FnOnce(UnixStream) + Send + 'static) -> (String, String) {
        let dir = tempfile::TempDir::new().unwrap();
        let socket = dir.path().join("control.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = thread::spawn(move || then(listener.accept().unwrap().0));
        let client = Client::new(&socket);
        let replies = client.send(&Request::Status {}, Duration::from_millis(50));
        let error = replies.and_then(|mut replies| replies.reply()).unwrap_err();
        server.join().unwrap();
        (error.to_string(), error.hint().unwrap_or_default().to_owned())
    }

    #[test]
    fn a_daemon_that_says_nothing_is_told_from_one_that_ends() {
        let (silent, hint) = asked(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
        assert!(silent.contains("it takes too long"), "{silent}");
        assert!(hint.starts_with("the daemon is busy or stopped"), "{hint}");
        let (ended, hint) = asked(drop);
        assert!(ended.contains("the daemon has closed the connection"), "{ended}");
        assert!(hint.starts_with("it may just"), "{hint}");
    }

    #[test]
    fn a_daemon_of_another_version_is_named_as_such() {
        let reply = "{\"protocol_version\":2,\"status\":\"in another form\"}\n";
        let (error, hint) = asked(|mut stream| {
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            assert_eq!(line, "{\"protocol_version\":1,\"command\":\"status\"}\n");
            stream.write_all(reply.as_bytes()).unwrap();
        });
        assert!(error.ends_with("protocol 2 is not known here, only protocol 1"), "{error}");
        assert_eq!(hint, "use the fordway program of the daemon's version");
    }
}
