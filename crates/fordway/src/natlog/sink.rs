//! Where octets of a log go.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::Record;

/// Turns records into octets.
pub(crate) trait Encode: Send {
    /// Called before each series of records, with the time.
    fn begin(&mut self, now: SystemTime);
    /// Adds a record to what waits. `true`: it should be written now.
    fn add(&mut self, record: &Record) -> bool;
    /// What waits, finished; nothing waits any more.
    fn take(&mut self) -> Vec<Message>;
}

/// What is written at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) octets: Vec<u8>,
    /// How many records are in it.
    pub(crate) records: u64,
}

/// Takes messages.
pub(crate) trait Sink: Send {
    /// Writes a message.
    fn write(&mut self, message: &[u8]) -> io::Result<()>;
}

/// How often a file is looked for under its name.
const LOOK: Duration = Duration::from_secs(1);

/// Time to wait for a receiver on this host that is slow.
const PATIENCE: Duration = Duration::from_millis(500);

/// A file that grows at its end. One that is moved away (logrotate) is made anew.
pub(crate) struct File {
    path: PathBuf,
    file: std::fs::File,
    looked: std::time::Instant,
}

impl File {
    pub(crate) fn open(path: &Path) -> io::Result<File> {
        // Anything else (a pipe, a terminal) may hold up the writer for ever.
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(io::Error::other("it is no regular file"));
        }
        let file = OpenOptions::new().append(true).create(true).mode(0o640).open(path)?;
        Ok(File { path: path.to_owned(), file, looked: std::time::Instant::now() })
    }

    fn is_there(&self) -> bool {
        let identity = |metadata: &std::fs::Metadata| (metadata.dev(), metadata.ino());
        let (there, ours) = (std::fs::metadata(&self.path), self.file.metadata());
        matches!((there, ours), (Ok(there), Ok(ours)) if identity(&there) == identity(&ours))
    }
}

impl Sink for File {
    fn write(&mut self, message: &[u8]) -> io::Result<()> {
        if self.looked.elapsed() >= LOOK {
            if !self.is_there() {
                *self = File::open(&self.path)?;
            }
            self.looked = std::time::Instant::now();
        }
        self.file.write_all(message)
    }
}

/// A socket for datagrams.
pub(crate) enum Datagrams {
    Udp(UdpSocket),
    Unix { path: PathBuf, socket: Option<UnixDatagram> },
}

impl Datagrams {
    pub(crate) fn udp(to: SocketAddr) -> io::Result<Datagrams> {
        let any = match to {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(to)?;
        Ok(Datagrams::Udp(socket))
    }

    pub(crate) fn unix(path: &Path) -> io::Result<Datagrams> {
        let socket = Some(connect(path)?);
        Ok(Datagrams::Unix { path: path.to_owned(), socket })
    }
}

/// Whether a receiver is there and does not read.
pub(crate) fn is_slow(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn connect(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

impl Sink for Datagrams {
    fn write(&mut self, message: &[u8]) -> io::Result<()> {
        match self {
            Datagrams::Udp(socket) => match socket.send(message) {
                // What an earlier datagram met; this one has not been sent.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    socket.send(message).map(drop)
                }
                sent => sent.map(drop),
            },
            Datagrams::Unix { path, socket } => {
                match socket.as_ref().map(|socket| socket.send(message)) {
                    Some(Ok(_)) => return Ok(()),
                    Some(Err(error)) if is_slow(&error) => return Err(error),
                    _ => {}
                }
                // The receiver may have been started anew.
                *socket = None;
                let anew = connect(path)?;
                anew.send(message)?;
                *socket = Some(anew);
                Ok(())
            }
        }
    }
}
