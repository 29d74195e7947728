//! Where octets of a log go.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::Record;

/// Turns records into octets.
pub(crate) trait Encode: Send {
    /// The receiver knows of no earlier message.
    fn restart(&mut self) {}
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

/// Whether messages can be written.
#[derive(Debug)]
pub(crate) enum Ready {
    /// Yes, as before.
    Known,
    /// Yes, to a receiver that knows of no earlier message.
    Anew,
    /// No, for this reason; records wait.
    Not(io::Error),
}

/// Takes messages.
pub(crate) trait Sink: Send {
    /// Asked before messages are made. Datagrams and files are always ready: what can't be written is lost.
    fn ready(&mut self) -> Ready {
        Ready::Known
    }

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
        whole(&self.file, |mut file| file.write_all(message))
    }
}

/// Appends all of something or nothing: half a line would spoil the one that follows it.
fn whole(
    file: &std::fs::File,
    write: impl FnOnce(&std::fs::File) -> io::Result<()>,
) -> io::Result<()> {
    let len = || file.metadata().map(|metadata| metadata.len());
    let before = len()?;
    write(file).inspect_err(|_| {
        if len().is_ok_and(|now| now > before) {
            let _ = file.set_len(before);
        }
    })
}

/// A receiver of datagrams.
#[derive(Debug)]
enum Receiver {
    Udp(SocketAddr),
    Unix(PathBuf),
}

#[derive(Debug)]
enum Socket {
    Udp(UdpSocket),
    Unix(UnixDatagram),
}

/// Sends datagrams to a receiver, which may come, go and be started anew.
#[derive(Debug)]
pub(crate) struct Datagrams {
    to: Receiver,
    socket: Option<Socket>,
}

impl Datagrams {
    /// To a collector in the network; and why there is no way to it now.
    pub(crate) fn udp(to: SocketAddr) -> (Datagrams, Option<io::Error>) {
        let to = Receiver::Udp(to);
        match to.connect() {
            Ok(socket) => (Datagrams { to, socket: Some(socket) }, None),
            Err(error) => (Datagrams { to, socket: None }, Some(error)),
        }
    }

    /// To a receiver on this host.
    pub(crate) fn unix(path: &Path) -> io::Result<Datagrams> {
        let to = Receiver::Unix(path.to_owned());
        Ok(Datagrams { socket: Some(to.connect()?), to })
    }
}

impl Receiver {
    fn connect(&self) -> io::Result<Socket> {
        match self {
            Receiver::Udp(to) => {
                let any: IpAddr = match to {
                    SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                    SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
                };
                let socket = UdpSocket::bind((any, 0))?;
                socket.connect(to)?;
                Ok(Socket::Udp(socket))
            }
            Receiver::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                socket.set_write_timeout(Some(PATIENCE))?;
                Ok(Socket::Unix(socket))
            }
        }
    }
}

impl Socket {
    fn send(&self, message: &[u8]) -> io::Result<()> {
        match self {
            Socket::Udp(socket) => socket.send(message),
            Socket::Unix(socket) => socket.send(message),
        }
        .map(drop)
    }
}

/// Whether a receiver is there and does not read.
pub(crate) fn is_slow(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

impl Sink for Datagrams {
    fn write(&mut self, message: &[u8]) -> io::Result<()> {
        match self.socket.as_ref().map(|socket| socket.send(message)) {
            Some(Ok(())) => return Ok(()),
            Some(Err(error)) if is_slow(&error) => return Err(error),
            // The receiver was started anew, this host has another address, or an earlier datagram met
            // something; this one has not been sent.
            _ => self.socket = None,
        }
        let anew = self.to.connect()?;
        anew.send(message)?;
        self.socket = Some(anew);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_in_part_is_taken_back() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("log.json");
        let file = File::open(&path).unwrap().file;
        whole(&file, |mut file| file.write_all(b"{}\n")).unwrap();
        let full = whole(&file, |mut file| {
            file.write_all(b"{\"time\":")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(full.unwrap_err().kind(), io::ErrorKind::StorageFull);
        whole(&file, |mut file| file.write_all(b"{}\n")).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}\n{}\n");
    }

    #[test]
    fn a_collector_to_which_there_is_no_way_may_come_later() {
        // No host has a route to another's link-local address without naming the link.
        let nowhere: SocketAddr = "[fe80::1]:4739".parse().unwrap();
        let (mut log, trouble) = Datagrams::udp(nowhere);
        assert!(trouble.is_some());
        assert!(log.write(b"lost").is_err());
        let collector = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        log.to = Receiver::Udp(collector.local_addr().unwrap());
        log.write(b"arrives").unwrap();
        let mut buffer = [0; 16];
        let (len, _) = collector.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"arrives");
    }
}
