//! Trials over veths: a loop of two ends, and a router of the kernel between them. No trial has more frames than the ring of
//! a veth holds (256): a busy machine can delay them, and not lose them.

use std::net::UdpSocket;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use fordway_tester::{
    Addresses, Direction, End, Enumeration, Error, Fault, Flow, Mode, Outcome, Pace, Pairs,
    Sending, Setup, Tester, Trial, Tuples, ceiling, jitter,
};
use fordway_testhost::namespace::{Namespace, can_test};
use fordway_testhost::{PATIENCE, has_programs};

/// Frames of a trial.
const FRAMES: u64 = 200;
/// At least as long as anything takes here.
const LONG: f64 = 60.0;
static RUN: AtomicBool = AtomicBool::new(false);

const CLIENT: [u8; 6] = [2, 0, 0, 0, 0, 1];
const ROUTER: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3]];
const SERVER: [u8; 6] = [2, 0, 0, 0, 0, 4];

fn written(address: [u8; 6]) -> String {
    address.map(|octet| format!("{octet:02x}")).join(":")
}

/// Connects two namespaces by devices with these names and link addresses.
fn connect(near: (&Namespace, &str, [u8; 6]), far: (&Namespace, &str, [u8; 6])) {
    let (own, other) = (written(near.2), written(far.2));
    near.0.ip(&format!(
        "link add {} address {own} type veth peer name {} address {other} netns {}",
        near.1,
        far.1,
        process_of(far.0)
    ));
    near.0.ip(&format!("link set {} up", near.1));
    far.0.ip(&format!("link set {} up", far.1));
}

/// `ip` takes a thread's number as well as a process's.
fn process_of(namespace: &Namespace) -> String {
    namespace.path.split('/').nth(4).expect("/proc/PROCESS/task/THREAD").to_owned()
}

fn end(namespace: &Namespace, own: [u8; 6], next: [u8; 6]) -> End {
    let namespace = Some(PathBuf::from(&namespace.path));
    End { device: "uplink".into(), namespace, own, next, queues: 1 }
}

/// Two ends, directly connected.
fn direct() -> ([Namespace; 2], Setup) {
    let hosts = [Namespace::create(), Namespace::create()];
    connect((&hosts[0], "uplink", CLIENT), (&hosts[1], "uplink", SERVER));
    let ends = [end(&hosts[0], CLIENT, SERVER), end(&hosts[1], SERVER, CLIENT)];
    let [client, server] = ends;
    (hosts, Setup::new(client, server))
}

/// A client, a router of the kernel, and a server.
fn routed() -> ([Namespace; 3], Setup) {
    let hosts = [Namespace::create(), Namespace::create(), Namespace::create()];
    let [client, router, server] = &hosts;
    router.sysctl("ipv4/ip_forward", "1");
    router.sysctl("ipv6/conf/all/forwarding", "1");
    connect((client, "uplink", CLIENT), (router, "near", ROUTER[0]));
    connect((server, "uplink", SERVER), (router, "far", ROUTER[1]));
    for (host, device, number) in [
        (client, "uplink", "18.0.2"),
        (router, "near", "18.0.1"),
        (router, "far", "19.0.1"),
        (server, "uplink", "19.0.2"),
    ] {
        host.add_address(&format!("198.{number}/24"), device);
        let groups = number.replace('.', ":");
        host.add_address(&format!("2001:2:0:{}::{}/64", &groups[..2], &groups[5..]), device);
    }
    for (host, group) in [(client, "18"), (server, "19")] {
        host.ip(&format!("route add default via 198.{group}.0.1"));
        host.ip(&format!("-6 route add default via 2001:2:0:{group}::1"));
    }
    let ends = [end(client, CLIENT, ROUTER[0]), end(server, SERVER, ROUTER[1])];
    let [client, server] = ends;
    (hosts, Setup::new(client, server))
}

/// The router needs no answer to know its neighbours: none of the first frames waits for one.
fn introduce(router: &Namespace) {
    for (address, host, device) in [("18", CLIENT, "near"), ("19", SERVER, "far")] {
        let host = written(host);
        router.ip(&format!("neigh replace 198.{address}.0.2 lladdr {host} dev {device}"));
        router.ip(&format!("neigh replace 2001:2:0:{address}::2 lladdr {host} dev {device}"));
    }
}

fn pairs(client: &str, server: &str) -> Pairs {
    let [client, server] =
        [client, server].map(|first| Addresses { first: first.parse().unwrap(), shift: 8 });
    Pairs {
        forward: Flow { source: client, target: server },
        reverse: Flow { source: server, target: client },
    }
}

fn v4() -> Pairs {
    pairs("198.18.0.2", "198.19.0.2")
}

fn v6() -> Pairs {
    pairs("2001:2:0:18::2", "2001:2:0:19::2")
}

/// A trial about nothing but counts: no time is too late.
fn trial(pairs: Pairs, forward: Pace) -> Trial {
    let mut trial = Trial::new(pairs, 128, forward);
    trial.timeout_s = LONG;
    trial.lateness_limit_s = LONG;
    trial
}

fn steady() -> Pace {
    Pace::steady(2000.0, FRAMES as f64 / 2000.0)
}

#[track_caller]
fn run(tester: &mut Tester, trial: &Trial) -> Outcome {
    let outcome = tester.run(trial, &RUN).unwrap();
    assert!(outcome.is_valid(), "{outcome:?}");
    outcome
}

#[test]
fn everything_arrives_in_both_directions_and_classes() {
    if !can_test() {
        return;
    }
    let (_hosts, setup) = direct();
    for (one_thread, sending) in
        [(false, Sending::Sockets), (true, Sending::Sockets), (false, Sending::Program)]
    {
        let mut tester = Tester::open(Setup { one_thread, sending, ..setup.clone() }).unwrap();
        let mut trial = trial(v4(), steady());
        trial.reverse = Pace::Burst(FRAMES / 2);
        trial.native = Some(v6());
        trial.translated_share = 90;
        trial.networks = 5;
        trial.keep_delays = true;
        let outcome = run(&mut tester, &trial);
        assert_eq!(outcome.modes, [Mode::Copy; 2]);
        assert_eq!((outcome.sending, &outcome.refusal), ([sending; 2], &None));
        for (side, sent) in [(&outcome.forward, FRAMES), (&outcome.reverse, FRAMES / 2)] {
            assert_eq!((side.sender.planned, side.sender.sent), (sent, sent));
            for (counts, sent) in [(&side.translated, sent * 9 / 10), (&side.native, sent / 10)] {
                assert_eq!(
                    (counts.sent, counts.received, counts.lost),
                    (sent, sent, 0),
                    "{counts:?}"
                );
                assert_eq!((counts.late, counts.duplicates, counts.reordered), (0, 0, 0));
                assert_eq!(counts.arrivals_by_pair, vec![sent / 5; 5]);
                assert_eq!(counts.arrivals_by_second.iter().sum::<u64>(), sent);
                assert_eq!(counts.delays.count(), sent);
                assert_eq!(counts.ipdv.count(), sent - 1);
            }
            assert_eq!(side.wrong, Default::default());
            assert_eq!(side.unstamped, 0);
        }
        assert_eq!(outcome.forward.sender.lateness.count(), FRAMES);
        // What is written can be read. (Seconds may differ in their last binary digit.)
        let json = serde_json::to_string(&outcome).unwrap();
        let read: Outcome = serde_json::from_str(&json).unwrap();
        assert_eq!(read.forward.translated, outcome.forward.translated);
        assert_eq!(read.reverse.native, outcome.reverse.native);
    }
}

#[test]
fn all_sizes_that_fit_are_sent_and_others_refused() {
    if !can_test() {
        return;
    }
    let (hosts, mut setup) = direct();
    for host in &hosts {
        host.ip("link set uplink mtu 2100");
    }
    setup.largest_frame = 2048;
    let mut tester = Tester::open(setup).unwrap();
    for size in [84, 128, 256, 512, 768, 1024, 1280, 1518, 1522, 2048] {
        let mut trial = trial(v6(), Pace::Burst(20));
        trial.frame_size = size;
        assert_eq!(run(&mut tester, &trial).forward.translated.received, 20, "{size}");
    }
    for size in [64, 83, 2049, 4096] {
        let mut trial = trial(v6(), Pace::Burst(20));
        trial.frame_size = size;
        assert!(matches!(tester.run(&trial, &RUN), Err(Error::Unfit(_))), "{size}");
    }
}

#[test]
fn every_tenth_frame_that_the_router_drops_is_lost_and_no_other() {
    if !can_test() || !has_programs(&["nft"]) {
        return;
    }
    let (hosts, setup) = routed();
    introduce(&hosts[1]);
    hosts[1].output("nft", "add table inet lossy");
    hosts[1]
        .output("nft", "add chain inet lossy forward { type filter hook forward priority 0 ; }");
    hosts[1].output(
        "nft",
        "add rule inet lossy forward ip daddr 198.19.0.2 numgen inc mod 10 == 3 drop",
    );
    let mut tester = Tester::open(setup).unwrap();
    let mut trial = trial(v4(), steady());
    trial.reverse = steady();
    trial.native = Some(v6());
    trial.translated_share = 50;
    let half = FRAMES / 2;
    // Lost frames are waited for: that long.
    trial.timeout_s = 5.0;
    let outcome = run(&mut tester, &trial);
    let counts = |counts: &fordway_tester::Counts| {
        (counts.sent, counts.received + counts.late, counts.duplicates)
    };
    assert_eq!(counts(&outcome.forward.translated), (half, half * 9 / 10, 0));
    assert_eq!(counts(&outcome.forward.native), (half, half, 0));
    assert_eq!(counts(&outcome.reverse.translated), (half, half, 0));
    assert_eq!(counts(&outcome.reverse.native), (half, half, 0));
    assert!(outcome.forward.translated.last_loss_s.is_some());
}

#[test]
fn queues_share_the_frames_and_one_without_a_socket_makes_the_trial_invalid() {
    if !can_test() {
        return;
    }
    let hosts = [Namespace::create(), Namespace::create()];
    let (own, other, far) = (written(CLIENT), written(SERVER), process_of(&hosts[1]));
    let queues = "numtxqueues 2 numrxqueues 2";
    hosts[0].ip(&format!(
        "link add uplink address {own} {queues} type veth peer name uplink address {other} {queues} netns {far}"
    ));
    hosts[0].ip("link set uplink up");
    hosts[1].ip("link set uplink up");
    let ends = |served| {
        let mut ends = [end(&hosts[0], CLIENT, SERVER), end(&hosts[1], SERVER, CLIENT)];
        (ends[0].queues, ends[1].queues) = (2, served);
        let [client, server] = ends;
        Setup::new(client, server)
    };
    let mut trial = trial(v4(), steady());
    let outcome = run(&mut Tester::open(ends(2)).unwrap(), &trial);
    assert_eq!(outcome.forward.translated.received, FRAMES);
    assert_eq!(outcome.forward.sender.lateness.count(), FRAMES);
    trial.timeout_s = 5.0;
    let outcome = Tester::open(ends(1)).unwrap().run(&trial, &RUN).unwrap();
    assert_eq!(outcome.forward.translated.received, FRAMES / 2);
    assert!(matches!(&outcome.invalid[..], [Fault::Lost(100)]), "{outcome:?}");
}

#[test]
fn a_time_out_of_nothing_makes_every_frame_late() {
    if !can_test() {
        return;
    }
    let (_hosts, setup) = direct();
    let mut tester = Tester::open(setup).unwrap();
    let mut trial = trial(v4(), steady());
    trial.timeout_s = 0.0;
    // Frames that are late stop nothing; the trial waits for its residual time only, which is 0 as well, so the last may miss.
    let outcome = run(&mut tester, &trial);
    let counts = &outcome.forward.translated;
    assert_eq!((counts.received, counts.lost), (0, FRAMES));
    assert!(counts.late > 0);
    assert_eq!(counts.delays.count(), 0);
}

#[test]
fn a_sender_behind_its_time_makes_the_trial_invalid() {
    if !can_test() {
        return;
    }
    let (_hosts, setup) = direct();
    let mut tester = Tester::open(setup).unwrap();
    let mut trial = trial(v4(), steady());
    trial.lateness_limit_s = 0.0;
    let outcome = tester.run(&trial, &RUN).unwrap();
    assert_eq!(outcome.forward.translated.received, FRAMES);
    assert!(
        matches!(&outcome.invalid[..], [Fault::Late { direction: Direction::Forward, .. }]),
        "{outcome:?}"
    );
}

#[test]
fn ordinary_traffic_passes_beside_it() {
    if !can_test() {
        return;
    }
    let (hosts, setup) = routed();
    let mut tester = Tester::open(setup).unwrap();
    for (client, server) in [("198.18.0.2", "198.19.0.2"), ("2001:2:0:18::2", "2001:2:0:19::2")] {
        // The first packets ask for link addresses, through the tester's programs.
        let bind = |host: &Namespace, address: &str| {
            let address: std::net::IpAddr = address.parse().unwrap();
            host.run(move || {
                let socket = UdpSocket::bind((address, 0)).unwrap();
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                socket
            })
        };
        let (near, far) = (bind(&hosts[0], client), bind(&hosts[2], server));
        near.send_to(b"question", far.local_addr().unwrap()).unwrap();
        let mut octets = [0; 16];
        let (length, from) = far.recv_from(&mut octets).unwrap();
        assert_eq!(&octets[..length], b"question");
        far.send_to(b"answer", from).unwrap();
        let length = near.recv(&mut octets).unwrap();
        assert_eq!(&octets[..length], b"answer");
    }
    // Neighbours are known now: the tester's frames pass as well.
    let mut trial = trial(v4(), steady());
    trial.learning = 1;
    assert_eq!(run(&mut tester, &trial).forward.translated.received, FRAMES);
}

#[test]
fn a_trial_that_is_stopped_says_so_and_leaves_no_program() {
    if !can_test() {
        return;
    }
    let (hosts, setup) = direct();
    let has_program = || hosts.each_ref().map(|host| host.ip("link show uplink").contains("xdp"));
    let mut tester = Tester::open(setup).unwrap();
    assert_eq!(has_program(), [true; 2]);
    let stop = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        // An hour, if nobody stopped it.
        let trial = trial(v4(), Pace::steady(10.0, 3600.0));
        let (tester, stop) = (&mut tester, &stop);
        let thread = scope.spawn(move || tester.run(&trial, stop).unwrap());
        // Frames that have passed say that the trial has begun.
        fordway_testhost::poll("frames of the trial", || {
            let shown = hosts[1].ip("-s link show uplink");
            let line = shown.lines().skip_while(|line| !line.contains("RX:")).nth(1)?;
            let packets = line.split_whitespace().nth(1)?.parse::<u64>().ok()?;
            (packets > 3).then_some(())
        });
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        thread.join().unwrap()
    });
    assert!(outcome.invalid.contains(&Fault::Stopped), "{outcome:?}");
    assert!(outcome.forward.sender.sent < outcome.forward.sender.planned);
    drop(tester);
    assert_eq!(has_program(), [false; 2]);
}

/// A router whose devices take frames that a program redirects.
fn take_redirected(router: &Namespace) {
    for device in ["near", "far"] {
        router.output("ethtool", &format!("-K {device} gro on"));
    }
}

#[test]
fn connections_of_a_nat_are_noted_and_answered() {
    if !can_test() || !has_programs(&["nft", "ethtool"]) {
        return;
    }
    let (hosts, setup) = routed();
    introduce(&hosts[1]);
    take_redirected(&hosts[1]);
    hosts[1].output("nft", "add table ip nat");
    hosts[1]
        .output("nft", "add chain ip nat postrouting { type nat hook postrouting priority 100 ; }");
    hosts[1].output("nft", "add rule ip nat postrouting oifname far masquerade");
    let flows = FRAMES as u32;
    let enumeration = Enumeration { flows, source_ports: (1024, 50), target_ports: (1, 4) };
    for sending in [Sending::Sockets, Sending::Program] {
        let mut tester = Tester::open(Setup { sending, ..setup.clone() }).unwrap();
        let mut trial = trial(v4(), steady());
        trial.tuples = Tuples::Enumerated(enumeration);
        let outcome = run(&mut tester, &trial);
        assert_eq!(outcome.sending, [sending; 2]);
        assert_eq!(outcome.forward.translated.received, FRAMES);
        assert_eq!(outcome.noted, FRAMES);
        assert_eq!(tester.noted(), (FRAMES, FRAMES));
        // Validation: one frame back for each connection.
        trial.forward = Pace::Silent;
        trial.reverse = steady();
        let outcome = run(&mut tester, &trial);
        assert_eq!(outcome.reverse.translated.received, FRAMES);
        // Test phase 2: another order over the same connections, of which the notes stay as they were.
        trial.forward = Pace::steady(1000.0, FRAMES as f64 / 2000.0);
        let outcome = run(&mut tester, &Trial { order: 1, ..trial.clone() });
        assert_eq!(outcome.forward.translated.received, FRAMES / 2);
        assert_eq!(outcome.reverse.translated.received, FRAMES);
        assert_eq!(tester.noted(), (FRAMES, FRAMES));
        // A table that is gone leads nowhere.
        tester.forget();
        assert_eq!(tester.noted(), (0, 0));
        assert!(matches!(tester.run(&trial, &RUN), Err(Error::Unfit(_))));
    }
}

#[test]
fn sockets_send_where_a_device_refuses_the_program() {
    if !can_test() || !has_programs(&["ethtool"]) {
        return;
    }
    let (hosts, setup) = routed();
    introduce(&hosts[1]);
    let setup = Setup { sending: Sending::Program, ..setup };
    // A veth without receive offload takes no redirected frames. One end that does is not enough.
    hosts[1].output("ethtool", "-K near gro on");
    hosts[1].output("ethtool", "-K far gro off");
    let error = Tester::open(setup.clone()).unwrap_err();
    assert!(error.to_string().contains("uplink sends no frames"), "{error}");
    let mut tester = Tester::open(Setup { falls_back: true, ..setup.clone() }).unwrap();
    let outcome = run(&mut tester, &trial(v4(), steady()));
    assert_eq!(outcome.sending, [Sending::Sockets; 2]);
    let refusal = outcome.refusal.expect("a reason");
    assert!(refusal.contains("uplink sends no frames"), "{refusal}");
    assert_eq!(outcome.forward.translated.received, FRAMES);
    drop(tester);
    take_redirected(&hosts[1]);
    let mut tester = Tester::open(Setup { falls_back: true, ..setup }).unwrap();
    let outcome = run(&mut tester, &trial(v4(), steady()));
    assert_eq!((outcome.sending, outcome.refusal), ([Sending::Program; 2], None));
}

#[test]
fn the_ceiling_and_the_jitter_of_a_loop_are_found() {
    if !can_test() {
        return;
    }
    let (_hosts, setup) = direct();
    let mut tester = Tester::open(Setup { one_thread: true, ..setup }).unwrap();
    let trial = trial(v4(), Pace::Silent);
    let found = ceiling(&mut tester, &trial, FRAMES, 2, 0.01, &RUN).unwrap();
    assert_eq!((found.sent, found.lost), (FRAMES, 0));
    assert!(found.out > 0.0 && found.lossless < found.out, "{found:?}");
    let found = jitter(&mut tester, &trial, 2000.0, FRAMES as f64 / 2000.0, &RUN).unwrap();
    assert_eq!((found.lost, found.lateness.count()), (0, FRAMES));
    let all = [found.min_ns, found.median_ns, found.p99_ns, found.p999_ns].map(Option::unwrap);
    assert!(all.is_sorted() && all[0] > 0, "{found:?}");
}

#[test]
fn a_device_that_is_not_there_is_named() {
    if !can_test() {
        return;
    }
    let (_hosts, mut setup) = direct();
    setup.server.device = "nothing".into();
    let error = Tester::open(setup).unwrap_err();
    assert!(error.to_string().contains("nothing"), "{error}");
}
