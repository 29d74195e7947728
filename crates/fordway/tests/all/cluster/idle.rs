//! Connections that are open and idle, more than a process may have files: processes hold some thousands of them each.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use fordway_testhost::PATIENCE;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::SUBSCRIBERS;
use super::world::World;

/// Connections of a process, both ends of each.
const OF_PROCESS: u64 = 8000;

/// A process, and what is said to it: an octet asks how many connections have broken, a line answers.
struct Holder {
    process: Child,
    talk: BufReader<UnixStream>,
    number: u64,
}

/// All of them.
pub(super) struct Idle(Vec<Holder>);

impl Idle {
    /// How many a measurement is to have: `FORDWAY_IDLE`.
    pub(super) fn wanted() -> u64 {
        std::env::var("FORDWAY_IDLE").map_or(0, |text| text.parse().expect("a number"))
    }

    /// Opens so many connections, from one subscriber after the other.
    pub(super) fn open(world: &World, listener: &TcpListener, to: SocketAddr, number: u64) -> Idle {
        let starts = (0..number).step_by(OF_PROCESS as usize).zip((1..=SUBSCRIBERS).cycle());
        let open = |(start, subscriber)| {
            world.send_from(subscriber);
            let number = OF_PROCESS.min(number - start);
            let (own, other) = UnixStream::pair().unwrap();
            let name = format!("{}::holds", module_path!().split_once("::").unwrap().1);
            let process = world
                .client
                .command(std::env::current_exe().unwrap())
                .args([&name, "--exact", "--ignored", "--nocapture"])
                .env("FORDWAY_HOLDS", format!("{number} {to}"))
                .stdin(OwnedFd::from(listener.try_clone().unwrap()))
                .stdout(Stdio::null())
                .stderr(OwnedFd::from(other))
                .spawn()
                .unwrap();
            let mut holder = Holder { process, talk: BufReader::new(own), number };
            assert_eq!(holder.hear(), 0, "they are open");
            holder
        };
        Idle(starts.map(open).collect())
    }

    pub(super) fn number(&self) -> u64 {
        self.0.iter().map(|holder| holder.number).sum()
    }

    /// How many of them no octet passes both ways any more.
    pub(super) fn broken(&mut self) -> u64 {
        let ask = |holder: &mut Holder| {
            holder.talk.get_mut().write_all(b"?").unwrap();
            holder.hear()
        };
        self.0.iter_mut().map(ask).sum()
    }
}

impl Holder {
    fn hear(&mut self) -> u64 {
        let mut line = String::new();
        self.talk.read_line(&mut line).unwrap();
        line.trim().parse().unwrap_or_else(|_| panic!("{line}"))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Such a process: it has the listener as its input, and talks by its output for errors.
#[test]
#[ignore = "a part of a measurement"]
fn holds() {
    let Ok(order) = std::env::var("FORDWAY_HOLDS") else { return };
    let (number, to) = order.split_once(' ').unwrap();
    let (number, to): (u64, SocketAddr) = (number.parse().unwrap(), to.parse().unwrap());
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    let listener = TcpListener::from(io::stdin().as_fd().try_clone_to_owned().unwrap());
    let mut talk = UnixStream::from(io::stderr().as_fd().try_clone_to_owned().unwrap());
    let open = |_| {
        let client = TcpStream::connect_timeout(&to, PATIENCE).unwrap();
        [client, listener.accept().unwrap().0]
    };
    let mut connections: Vec<_> = (0..number).map(open).collect();
    writeln!(talk, "0").unwrap();
    while talk.read_exact(&mut [0]).is_ok() {
        let there = pass(&mut connections, 0, 1);
        let back = pass(&mut connections, 1, 0);
        let broken = there.iter().zip(&back).filter(|(there, back)| !(**there && **back));
        writeln!(talk, "{}", broken.count()).unwrap();
    }
}

/// An octet of one end of each to the other. Whether it has come.
pub(super) fn pass(connections: &mut [[TcpStream; 2]], from: usize, to: usize) -> Vec<bool> {
    for ends in connections.iter_mut() {
        // What has broken says so when the other end waits for it.
        let _ = ends[from].write_all(&[1]);
    }
    let receive = |ends: &mut [TcpStream; 2]| {
        ends[to].set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        ends[to].read_exact(&mut [0]).is_ok()
    };
    connections.iter_mut().map(receive).collect()
}
