//! What a thread does without an event, while time passes as a test says.

use std::io::Write;
use std::os::unix::net::UnixStream;

use super::super::policy::tests::settings;
use super::super::settings::Limits;
use super::*;

const MS: Duration = Duration::from_millis(1);

/// A thread's connections, with the far ends of their sockets.
struct Bench {
    tcp: Tcp,
    core: Core,
    far: Vec<(UnixStream, UnixStream)>,
}

impl Bench {
    fn new(connections: usize) -> Bench {
        let listener = TcpListener::bind("[::1]:0").unwrap();
        let (tcp, core) = (Tcp::new(listener), Core::of_test(settings()));
        let mut bench = Bench { tcp, core, far: Vec::new() };
        (0..connections).for_each(|_| bench.connect());
        bench
    }

    fn connect(&mut self) {
        let pair = || {
            let (near, far) = UnixStream::pair().unwrap();
            near.set_nonblocking(true).unwrap();
            (near, far)
        };
        let ((v6, client), (v4, server)) = (pair(), pair());
        let asked: SocketAddrV6 = "[2001:db8:64::c633:6401]:80".parse().unwrap();
        let from: SocketAddrV6 = "[2001:db8:1::5]:40000".parse().unwrap();
        let ends = (from, asked, "198.51.100.1:80".parse().unwrap());
        let core = &mut self.core;
        let network = core.settings.network(*from.ip());
        let limits = core.settings.limits;
        let tally = &core.shared.connections;
        let ticket = tally.enter(network, limits.connections, limits.per_client).unwrap();
        let connection = Connection::new(v6.into(), v4.into(), ends, ticket, core.now);
        self.tcp.register(connection, core);
        let (key, _) = self.tcp.connections.iter().last().unwrap();
        self.tcp.event(key, Side::V4, EventFlags::OUT, core);
        self.tcp.event(key, Side::V6, EventFlags::OUT, core);
        self.far.push((client, server));
    }

    /// Time passes; what is due is done every quarter of a second.
    fn pass(&mut self, time: Duration) {
        let end = self.core.now + time;
        while self.core.now < end {
            self.core.now = (self.core.now + 250 * MS).min(end);
            self.tcp.tend(&mut self.core);
        }
    }

    fn count(&self) -> usize {
        self.core.shared.connections.count()
    }
}

#[test]
fn connections_whose_time_has_not_come_cost_nothing() {
    let mut bench = Bench::new(300);
    let idle = bench.core.settings.limits.idle;
    bench.pass(idle - 250 * MS);
    // Each once, when the time for connecting would have been over.
    assert_eq!((bench.tcp.looks, bench.count()), (300, 300));
    assert_eq!(bench.tcp.waits(bench.core.now), Some(250 * MS));
    bench.pass(250 * MS);
    assert_eq!((bench.tcp.looks, bench.count()), (600, 0));
    assert_eq!(bench.tcp.waits(bench.core.now), None);
}

#[test]
fn octets_put_the_end_off() {
    let mut bench = Bench::new(2);
    let idle = bench.core.settings.limits.idle;
    bench.pass(idle / 2);
    bench.far[0].0.write_all(b"x").unwrap();
    let (key, _) = bench.tcp.connections.iter().next().unwrap();
    bench.tcp.event(key, Side::V6, EventFlags::IN, &mut bench.core);
    bench.pass(idle / 2);
    assert_eq!(bench.count(), 1);
    bench.pass(idle / 2);
    assert_eq!(bench.count(), 0);
}

#[test]
fn shorter_times_hold_at_once() {
    let mut bench = Bench::new(2);
    let mut settings = settings();
    settings.limits = Limits { idle: 1000 * MS, ..settings.limits };
    bench.core.settings = std::sync::Arc::new(settings);
    bench.tcp.take_settings(&bench.core);
    bench.pass(750 * MS);
    assert_eq!(bench.count(), 2);
    bench.pass(250 * MS);
    assert_eq!(bench.count(), 0);
}
