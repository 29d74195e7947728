//! The engine on a TUN device, in a namespace of its own.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fordway_engine::{Engine, Error, Options, Sweeping, Unchecked, monotonic};
use fordway_testhost::{PATIENCE, can_use_tun};
use fordway_testkit::sys;
use fordway_testkit::tap::Tap;
use fordway_tun::{Device, OpenOptions};
use fordway_xlat::addr::{Eam, EamTable};
use fordway_xlat::nat64::{Heap, Nat64, Pool, Protocol, Range, Segment, Settings, Sizes, Tuple};
use fordway_xlat::{Config, Direction, DropReason, Offload, Translator, UdpChecksumZero};

pub(crate) const INTERFACE: &str = "eng0";

/// Runs `test` in a thread with a network namespace of its own, which goes with it; a skip where the host does not
/// allow it.
pub(crate) fn in_namespace(test: impl FnOnce(&Path) + Send) {
    if !can_use_tun() {
        return;
    }
    let run_dir = tempfile::tempdir().unwrap();
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            sys::enter_new_namespace().expect("a network namespace");
            test(run_dir.path());
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// An engine whose interface is up, and a place at the interface.
fn start(run_dir: &Path, translator: Translator) -> (Engine, Tap) {
    start_with(run_dir, 2, translator, Options::default())
}

pub(crate) fn start_with(
    run_dir: &Path,
    queues: usize,
    translator: Translator,
    options: Options,
) -> (Engine, Tap) {
    let open = OpenOptions { queues, run_dir: run_dir.to_owned(), ..OpenOptions::default() };
    let (device, queues) = Device::open(INTERFACE, &open).unwrap();
    sys::bring_up(INTERFACE, 1500).unwrap();
    let tap = Tap::open(INTERFACE).unwrap();
    let engine = fordway_engine::start(device, queues, Arc::new(translator), options);
    (engine.unwrap(), tap)
}

pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        // Another thread needs microseconds for it.
        thread::yield_now();
    }
}

pub(crate) fn config() -> Config {
    Config { pool6: vec!["2001:db8:64::/96".parse().unwrap()], ..Config::default() }
}

pub(crate) fn tables(settings: Settings) -> Arc<Nat64> {
    let heap = Heap::new(&settings.sizes, [1, 2]);
    Arc::new(Nat64::new(settings, Arc::new(heap)).unwrap())
}

pub(crate) fn settings() -> Settings {
    let address = Ipv4Addr::new(192, 0, 2, 1);
    let range = Range { first: address, last: address, low: 1024, high: 65_535 };
    Settings {
        pools: vec![Pool { ranges: vec![range], ..Pool::default() }],
        sizes: Sizes { bibs: 64, sessions: 64, subscribers: 16 },
        ..Settings::default()
    }
}

/// An IPv4 packet from 198.51.100.1 to 192.0.2.1.
pub(crate) fn v4(protocol: u8, transport: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((20 + transport.len() as u16).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
    packet.extend([198, 51, 100, 1, 192, 0, 2, 1]);
    let checksum = !sum(&packet);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(transport);
    packet
}

/// The ones' complement sum (RFC 1071).
pub(crate) fn sum(octets: &[u8]) -> u16 {
    let words = octets.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// A SYN from port 4000 to port 5000.
fn syn() -> Vec<u8> {
    let mut tcp = [0; 20];
    tcp[..4].copy_from_slice(&[0x0f, 0xa0, 0x13, 0x88]);
    tcp[12..16].copy_from_slice(&[0x50, 0x02, 0xff, 0xff]);
    let pseudo = [&[198, 51, 100, 1, 192, 0, 2, 1, 0, 6, 0, 20], &tcp[..]].concat();
    tcp[16..18].copy_from_slice(&(!sum(&pseudo)).to_be_bytes());
    v4(6, &tcp)
}

#[test]
fn a_syn_that_nobody_answers_is_answered_and_counted() {
    in_namespace(|run_dir| {
        let mut settings = settings();
        settings.lifetimes.tcp_incoming_syn = Duration::from_millis(1);
        let translator = Translator::nat64(config(), tables(settings)).unwrap();
        let (engine, tap) = start(run_dir, translator);
        tap.send(&syn(), &Offload::default()).unwrap();
        let all = |count: &dyn Fn(&fordway_xlat::Counters) -> u64| -> u64 {
            engine.counters().iter().map(|queue| count(&queue.core)).sum()
        };
        let unanswered = || all(&|core| core.dropped(DropReason::SynUnanswered));
        wait_until("a drop", || unanswered() == 1);
        // A packet is counted when everything that comes of it has been written.
        let errors = tap.receive_all().unwrap();
        let [(error, _)] = errors.as_slice() else { panic!("{errors:?}") };
        assert_eq!((error[0] >> 4, error[9]), (4, 1), "an ICMPv4 packet: {error:?}");
        assert_eq!(error[20..22], [3, 3], "port unreachable");
        wait_until("an error", || all(&|core| core.icmp_errors(Direction::V4ToV6)) == 1);
        assert_eq!(unanswered(), 1);
        engine.stop().unwrap();
    });
}

/// RFC 7915 section 4.5: "a system management event that specifies at least the IP addresses and port numbers".
#[test]
fn a_datagram_without_checksum_that_is_dropped_is_told() {
    in_namespace(|run_dir| {
        let options =
            OpenOptions { queues: 1, run_dir: run_dir.to_owned(), ..OpenOptions::default() };
        let (device, queues) = Device::open(INTERFACE, &options).unwrap();
        sys::bring_up(INTERFACE, 1500).unwrap();
        let tap = Tap::open(INTERFACE).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let unchecked = Unchecked(Arc::new(move |src, dst| tell.send((src, dst)).unwrap()));
        let options = Options { unchecked: Some(unchecked), ..Options::default() };
        let eam = Eam::new("192.0.2.1/32".parse().unwrap(), "2001:db8:1::1/128".parse().unwrap())
            .unwrap();
        let config = Config {
            eam: EamTable::new([eam]).unwrap(),
            udp_checksum_zero: UdpChecksumZero::Drop,
            icmp_source4: None,
            ..config()
        };
        // This one answers the sender, so that the packet is in the answer.
        let answers =
            Config { icmp_source4: Some(Ipv4Addr::new(192, 0, 2, 254)), ..config.clone() };
        let first = Arc::new(Translator::new(config).unwrap());
        let engine = fordway_engine::start(device, queues, first, options).unwrap();
        let mut udp = [0; 12];
        udp[..6].copy_from_slice(&[0x0f, 0xa0, 0x13, 0x88, 0, 12]);
        let expected = ("198.51.100.1:4000".parse().unwrap(), "192.0.2.1:5000".parse().unwrap());
        let send = || {
            tap.send(&v4(17, &udp), &Offload::default()).unwrap();
            assert_eq!(told.recv_timeout(PATIENCE), Ok(expected));
        };
        send();
        engine.replace(Arc::new(Translator::new(answers).unwrap()));
        // A burst that has begun ends with the translator that it began with.
        wait_until("an answer", || {
            send();
            engine.counters()[0].core.icmp_errors(Direction::V4ToV6) > 0
        });
        engine.stop().unwrap();
    });
}

#[test]
fn a_sweeper_that_panics_ends_the_engine() {
    in_namespace(|run_dir| {
        let nat64 = tables(settings());
        let translator = Translator::nat64(config(), Arc::clone(&nat64)).unwrap();
        let (mut engine, _tap) = start(run_dir, translator);
        let tell: Box<dyn FnMut(_) + Send> = Box::new(|_| panic!("told"));
        engine.sweep(Sweeping { tell: Some(tell), kernel_grace: None }).unwrap();
        assert!(!engine.failed());
        let tuple = Tuple {
            protocol: Protocol::Udp,
            near: ("2001:db8::1".parse::<Ipv6Addr>().unwrap(), 4000),
            remote: (Ipv4Addr::new(198, 51, 100, 1), 53),
            segment: Segment::Other,
            pool6: 0,
            mark: 0,
            packets: 1,
            octets: 100,
        };
        nat64.from_v6(&tuple, monotonic(), 0).unwrap();
        wait_until("the end", || engine.failed());
        let error = engine.stop().unwrap_err();
        assert!(error.to_string().starts_with("the sweeper of eng0 panicked"), "{error}");
    });
}

#[test]
fn an_interface_that_is_deleted_ends_the_engine() {
    in_namespace(|run_dir| {
        let (engine, _tap) = start(run_dir, Translator::new(config()).unwrap());
        assert!(!engine.failed());
        let deleted = Command::new("ip").args(["link", "delete", INTERFACE]).status();
        assert!(deleted.expect("ip (package iproute2)").success());
        wait_until("the end", || engine.failed());
        assert!(matches!(engine.stop(), Err(Error::Gone { .. })));
    });
}

#[test]
fn no_packet_is_lost_while_the_translator_is_replaced() {
    const PACKETS: u64 = 2_000;
    in_namespace(|run_dir| {
        let eam = |host: &str| {
            let v6 = format!("2001:db8:1::{host}/128").parse().unwrap();
            Eam::new("192.0.2.1/32".parse().unwrap(), v6).unwrap()
        };
        let translator = |host: &str| {
            let eam = EamTable::new([eam(host)]).unwrap();
            Translator::new(Config { eam, ..config() }).unwrap()
        };
        let (engine, tap) = start(run_dir, translator("1"));
        let packet = v4(253, &[0; 100]);
        let counted = || -> u64 {
            let queues = engine.counters().iter();
            queues.map(|queue| queue.core.direction(Direction::V4ToV6).packets).sum()
        };
        let mut seen = [0_u64; 2];
        for number in 0..PACKETS {
            engine.replace(Arc::new(translator(if number % 2 == 0 { "2" } else { "1" })));
            tap.send(&packet, &Offload::default()).unwrap();
            wait_until("a packet", || counted() > number);
            for (packet, _) in tap.receive_all().unwrap() {
                seen[usize::from(packet[39]) - 1] += 1;
            }
        }
        // A burst that has begun ends with the translator that it began with.
        assert!(seen.iter().all(|packets| *packets > 0), "{seen:?}");
        assert_eq!(seen.iter().sum::<u64>(), PACKETS);
        engine.stop().unwrap();
    });
}
