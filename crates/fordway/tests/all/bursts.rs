//! Packets that come while the user engine has no processor.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;

use fordway_testhost::{can_use_tun, poll};
use rustix::process::Signal;
use serde_json::Value;

use crate::common::daemon::{Daemon, RunDir, count, dropped};
use crate::common::topology::{Border, V4_HOST_AS_V6};

/// The queues hold what is sent in one go here only where they are longer than the kernel makes them.
const BURST: u64 = 2_000;

/// Datagrams that are sent before it is looked whether the gateway has them.
const STRIDE: u64 = 100;

fn gateway(run: &RunDir, more: &str) -> PathBuf {
    let text = format!(
        "[[translator]]\nname = 'siit0'\nmode = 'siit'\nengine = 'user'\nqueues = 1\n\
         pool6 = ['2001:db8:64::/96']\neam = [['192.0.2.2', '2001:db8:6::2']]\n{more}"
    );
    run.file("siit.toml", &text)
}

/// The IPv6 host's datagrams to the IPv4 host.
struct Stream<'a> {
    net: &'a Border,
    from: UdpSocket,
    at: UdpSocket,
    to: SocketAddr,
}

impl<'a> Stream<'a> {
    fn open(net: &'a Border) -> Stream<'a> {
        // Where nobody listens each datagram would be answered.
        let listener = net.v4.inside(|| UdpSocket::bind("198.51.100.2:0").unwrap());
        let port = listener.local_addr().unwrap().port();
        let from = net.v6.inside(|| UdpSocket::bind("[::]:0").unwrap());
        let to = SocketAddr::new(V4_HOST_AS_V6.parse::<IpAddr>().unwrap(), port);
        Stream { net, from, at: listener, to }
    }

    /// Sends `number` datagrams, all of which the gateway has routed when this returns.
    fn send(&self, number: u64) {
        let come = self.net.gateway.counter(&format!("iifname g6 udp dport {}", self.to.port()));
        for sent in 1..=number {
            self.from.send_to(&[0x46; 64], self.to).unwrap();
            if sent % STRIDE == 0 || sent == number {
                poll("the gateway has the datagrams", || (come() == sent).then_some(()));
            }
        }
    }

    /// Counts those that arrive.
    fn arrivals(&self) -> impl Fn() -> u64 {
        self.net.v4.counter(&format!("iifname h4 udp dport {}", self.to.port()))
    }
}

/// Takes all processors from the daemon.
fn stop(daemon: &Daemon<'_>) {
    daemon.signal(Signal::STOP);
    let tasks = format!("/proc/{}/task", daemon.pid());
    let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    };
    poll("all threads have stopped", || {
        std::fs::read_dir(&tasks).unwrap().all(is_stopped).then_some(())
    });
}

#[test]
fn a_burst_waits_for_its_turn() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let daemon =
        Daemon::start(&run, &net.gateway, &format!("run -c {}", gateway(&run, "").display()));
    assert!(net.gateway.ip("link show siit0").contains("qlen 4096"));
    let stream = Stream::open(&net);
    let arrived = stream.arrivals();
    // Both neighbours are known.
    stream.send(1);
    daemon.counts("siit0", "v6_to_v4/packets", 1);
    stop(&daemon);
    stream.send(BURST);
    daemon.signal(Signal::CONT);
    let stats = daemon.counts("siit0", "v6_to_v4/packets", 1 + BURST);
    assert_eq!(dropped(&stats), 0, "{stats}");
    poll("all have arrived", || (arrived() == 1 + BURST).then_some(()));
    daemon.stop();
}

/// The other host gets each datagram by itself, with its octets.
#[test]
fn datagrams_that_are_gathered_arrive_one_by_one() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let config = gateway(&run, "gro = 'tcp-udp'\n");
    let daemon = Daemon::start(&run, &net.gateway, &format!("run -c {}", config.display()));
    let stream = Stream::open(&net);
    let gathered =
        net.v4.counter(&format!("iifname h4 meta length > 92 udp dport {}", stream.to.port()));
    stream.send(1);
    daemon.counts("siit0", "v6_to_v4/packets", 1);
    for is_whole in [true, false] {
        if !is_whole {
            net.gateway.run("ethtool -K g4 tx-udp-segmentation off");
        }
        let (arrived, before) = (stream.arrivals(), gathered());
        let carried = count(&daemon.stats("siit0"), "v6_to_v4/packets");
        stop(&daemon);
        stream.send(STRIDE);
        daemon.signal(Signal::CONT);
        daemon.counts("siit0", "v6_to_v4/packets", carried + STRIDE);
        if is_whole {
            poll("super-packets arrive", || (gathered() > before).then_some(()));
        } else {
            poll("all have arrived", || (arrived() == STRIDE).then_some(()));
            assert_eq!(gathered(), before);
        }
    }
    let mut octets = [0; 128];
    stream.at.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    for _ in 0..=2 * STRIDE {
        let len = stream.at.recv(&mut octets).unwrap();
        assert_eq!(octets[..len], [0x46; 64]);
    }
    daemon.stop();
}

#[test]
fn what_a_full_queue_loses_is_counted_and_told() {
    const LENGTH: u64 = 128;
    const SENT: u64 = 300;
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let file = gateway(&run, &format!("queue_length = {LENGTH}\n"));
    let file = file.display();
    let daemon = Daemon::start(&run, &net.gateway, &format!("run -c {file}"));
    let stream = Stream::open(&net);
    let arrived = stream.arrivals();
    stream.send(1);
    daemon.counts("siit0", "v6_to_v4/packets", 1);
    assert_eq!(daemon.status()["translators"][0]["receive_queue_full"], 0);
    stop(&daemon);
    stream.send(SENT);
    daemon.signal(Signal::CONT);
    let (stats, lost) = poll("each datagram is carried, or counted as lost", || {
        let stats = daemon.stats("siit0");
        let lost = count(&stats, "drops/receive_queue_full");
        (count(&stats, "v6_to_v4/packets") + lost == 1 + SENT).then_some((stats, lost))
    });
    // The kernel frees places in its ring a few at a time.
    assert!((SENT - LENGTH..SENT).contains(&lost), "{stats}");
    assert_eq!(dropped(&stats), lost, "{stats}");
    poll("what was kept has arrived", || (arrived() == 1 + SENT - lost).then_some(()));

    let status = &daemon.status()["translators"][0];
    assert_eq!(
        (&status["queue_length"], &status["receive_queue_full"]),
        (&LENGTH.into(), &lost.into())
    );
    let said =
        |arguments: &str| String::from_utf8(run.output(&net.gateway, arguments).stdout).unwrap();
    let status = said("status");
    assert!(status.contains(&format!("{lost} packets, because a queue was full")), "{status}");
    let stats = said("stats");
    assert!(stats.contains("receive_queue_full"), "{stats}");
    let metrics = said("stats --prometheus");
    let metric = format!(
        "fordway_drops_total{{translator=\"siit0\",reason=\"receive_queue_full\"}} {lost}\n"
    );
    assert!(metrics.contains(&metric), "{metrics}");
    let doctor: Value =
        serde_json::from_str(&said(&format!("doctor --json --timeout 200ms -c {file}"))).unwrap();
    let findings = doctor["findings"].as_array().unwrap();
    let told = findings.iter().find(|it| it["check"] == "queues").unwrap();
    assert_eq!(told["state"], "warning");
    assert!(told["seen"].as_str().unwrap().contains(&format!("{lost} packets")), "{told}");

    // A longer queue is taken on while the daemon runs; what was lost before stays told.
    gateway(&run, "queue_length = 512\n");
    let reload = run.output(&net.gateway, "reload");
    assert!(reload.status.success(), "{}", String::from_utf8_lossy(&reload.stderr));
    stop(&daemon);
    stream.send(SENT);
    daemon.signal(Signal::CONT);
    let stats = daemon.counts("siit0", "v6_to_v4/packets", 1 + SENT - lost + SENT);
    assert_eq!(dropped(&stats), lost, "{stats}");
    daemon.stop();
}
