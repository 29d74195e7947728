//! `systemctl restart` of a gateway whose kernel engine carries ten thousand connections.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use fordway_testhost::{PATIENCE, has_programs, poll};
use rustix::process::Signal;

use crate::common::can_test_kernel;
use crate::common::daemon::{Daemon, RunDir};
use crate::common::host::{assert_same, snapshot};
use crate::common::netns::Netns;
use crate::common::topology::{Border, V4_HOST_AS_V6};

const CONNECTIONS: usize = 10_000;

/// A process of its own: both ends would be more descriptors than one process may have on many hosts.
const ECHO: &str = "
import selectors, socket
wait = selectors.DefaultSelector()
listener = socket.create_server(('0.0.0.0', 0), backlog=4096)
wait.register(listener, selectors.EVENT_READ)
print(listener.getsockname()[1], flush=True)
while True:
    for key, _ in wait.select():
        if key.fileobj is listener:
            wait.register(listener.accept()[0], selectors.EVENT_READ)
        elif octets := key.fileobj.recv(4096):
            key.fileobj.sendall(octets)
        else:
            wait.unregister(key.fileobj)
            key.fileobj.close()
";

/// A server that sends back what it gets.
struct Echo {
    process: Child,
    port: u16,
}

impl Echo {
    fn start(netns: &Netns) -> Echo {
        let mut command = netns.command("python3");
        let mut process = command.args(["-c", ECHO]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Echo { process, port: line.trim().parse().unwrap() }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _status = self.process.wait();
    }
}

fn connect(netns: &Netns, port: u16) -> Vec<TcpStream> {
    let to = SocketAddr::new(V4_HOST_AS_V6.parse().unwrap(), port);
    let connection = |_| {
        let stream = TcpStream::connect_timeout(&to, PATIENCE).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    netns.inside(|| (0..CONNECTIONS).map(connection).collect())
}

/// Sends octets over each connection and takes them back. Gives how many connections have not carried them.
fn round(connections: &[TcpStream], number: usize) -> usize {
    let octets = (number as u64).to_be_bytes();
    let send = |mut stream: &TcpStream| stream.write_all(&octets).is_ok();
    let sent: Vec<bool> = connections.iter().map(send).collect();
    let broken = connections.iter().zip(sent).filter(|(stream, sent)| {
        let (mut received, mut stream) = ([0; 8], *stream);
        !(*sent && stream.read_exact(&mut received).is_ok() && received == octets)
    });
    broken.count()
}

#[test]
fn ten_thousand_connections_outlive_restarts() {
    if !can_test_kernel() || !has_programs(&["python3"]) {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let before = snapshot(&net.gateway);
    let file = |more: &str| {
        let text = format!(
            "{more}\n[[translator]]\nname = 'nat64'\nmode = 'nat64'\nengine = 'kernel'\n\
             pool6 = ['2001:db8:64::/96']\npool4 = ['192.0.2.1']\n"
        );
        format!("run -c {}", run.file("nat64.toml", &text).display())
    };
    let mut daemon = Daemon::start(&run, &net.gateway, &file(""));
    let echo = Echo::start(&net.v4);
    let connections = connect(&net.v6, echo.port);
    assert_eq!(round(&connections, 0), 0);
    let (rounds, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let broken = scope.spawn(|| {
            let mut broken = 0;
            while !done.load(Ordering::Relaxed) {
                broken += round(&connections, rounds.fetch_add(1, Ordering::Relaxed) + 1);
            }
            broken
        });
        let pass = |rounds: &AtomicUsize| {
            let least = rounds.load(Ordering::Relaxed) + 2;
            poll("octets go on", || (rounds.load(Ordering::Relaxed) >= least).then_some(()));
        };
        // What `systemctl restart` sends (packaging/fordway.service), and what supervisors send that know no other signal.
        for (signal, next) in
            [(Signal::USR2, "[control]\non_sigterm = 'leave'"), (Signal::TERM, "")]
        {
            pass(&rounds);
            daemon.signal(signal);
            let status = daemon.wait();
            assert!(status.success(), "{status}\n{}", daemon.log());
            // Without a daemon they go on.
            pass(&rounds);
            daemon = Daemon::start(&run, &net.gateway, &file(next));
            assert!(daemon.log().contains("sessions of an earlier run go on"), "{}", daemon.log());
        }
        pass(&rounds);
        done.store(true, Ordering::Relaxed);
        assert_eq!(broken.join().unwrap(), 0, "of {CONNECTIONS} connections");
    });
    daemon.counts("nat64", "nat64/sessions/tcp", CONNECTIONS as u64);
    // A stop takes everything down.
    daemon.stop();
    assert_same(&snapshot(&net.gateway), &before);
}
