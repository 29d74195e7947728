//! Segments that wait in a queue leave as one super-packet.

use std::sync::Arc;

use fordway_engine::{Gathered, Options};
use fordway_testkit::sys;
use fordway_testkit::tap::Tap;
use fordway_tun::{Device, Offloads, OpenOptions};
use fordway_xlat::addr::{Eam, EamTable};
use fordway_xlat::counters::DirectionTotals;
use fordway_xlat::{ChecksumState, Config, Direction, Gso, GsoKind, Offload, Translator};

use crate::engine::{INTERFACE, config, in_namespace, sum, v4, wait_until};

/// `size` octets from port 4000 to port 5000, `number` segments behind the first.
fn segment(number: usize, size: usize) -> Vec<u8> {
    let mut tcp =
        vec![0x0f, 0xa0, 0x13, 0x88, 0, 0, 0, 0, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0];
    tcp[4..8].copy_from_slice(&((number * size) as u32).to_be_bytes());
    tcp.resize(20 + size, number as u8);
    let len = (tcp.len() as u16).to_be_bytes();
    let pseudo = [&[198, 51, 100, 1, 192, 0, 2, 1, 0, 6][..], &len, &tcp].concat();
    tcp[16..18].copy_from_slice(&(!sum(&pseudo)).to_be_bytes());
    v4(6, &tcp)
}

/// A datagram of `size` octets from port 4000 to port 5000.
fn datagram(number: usize, size: usize) -> Vec<u8> {
    let mut udp = vec![0x0f, 0xa0, 0x13, 0x88, 0, 0, 0, 0];
    udp.resize(8 + size, number as u8);
    let len = (udp.len() as u16).to_be_bytes();
    udp[4..6].copy_from_slice(&len);
    let pseudo = [&[198, 51, 100, 1, 192, 0, 2, 1, 0, 17][..], &len, &udp].concat();
    udp[6..8].copy_from_slice(&(!sum(&pseudo)).to_be_bytes());
    v4(17, &udp)
}

/// What leaves when packets wait in the only queue, what was counted, and what the kernel has granted.
fn left(
    gro: Gathered,
    waiting: &[Vec<u8>],
    test: impl FnOnce(Vec<(Vec<u8>, Offload)>, DirectionTotals, Offloads) + Send,
) {
    in_namespace(|run_dir| {
        let open = OpenOptions { run_dir: run_dir.to_owned(), ..OpenOptions::default() };
        let (device, queues) = Device::open(INTERFACE, &open).unwrap();
        sys::bring_up(INTERFACE, 1500).unwrap();
        let tap = Tap::open(INTERFACE).unwrap();
        waiting.iter().for_each(|packet| tap.send(packet, &Offload::default()).unwrap());
        let eam = Eam::new("192.0.2.1/32".parse().unwrap(), "2001:db8:1::1/128".parse().unwrap());
        let eam = EamTable::new([eam.unwrap()]).unwrap();
        let options = Options { gro, ..Options::default() };
        let translator = Arc::new(Translator::new(Config { eam, ..config() }).unwrap());
        let engine = fordway_engine::start(device, queues, translator, options).unwrap();
        let counted = || engine.counters()[0].core.direction(Direction::V4ToV6);
        wait_until("all packets", || counted().packets == waiting.len() as u64);
        test(tap.receive_all().unwrap(), counted(), engine.device().offloads().granted);
        engine.stop().unwrap();
    });
}

#[test]
fn segments_that_wait_leave_as_one_super_packet() {
    const SIZE: usize = 1000;
    let waiting: Vec<_> = (0..10).map(|number| segment(number, SIZE)).collect();
    left(Gathered::Tcp, &waiting, |left, counted, _| {
        assert_eq!((counted.segments, counted.octets), (10, 10 * (40 + SIZE as u64)));
        let [(packet, offload)] = left.as_slice() else { panic!("{} left", left.len()) };
        assert_eq!((packet[0] >> 4, packet.len()), (6, 60 + 10 * SIZE));
        let Gso { kind, size, .. } = offload.gso;
        assert_eq!((kind, usize::from(size)), (GsoKind::TcpV6, SIZE));
        assert_eq!(offload.checksum, ChecksumState::Partial { start: 40, offset: 16 });
        for (number, payload) in packet[60..].chunks(SIZE).enumerate() {
            assert_eq!(payload, [number as u8; SIZE]);
        }
    });
}

#[test]
fn datagrams_that_wait_leave_as_one_super_packet() {
    const SIZE: usize = 100;
    let waiting: Vec<_> = (0..10).map(|number| datagram(number, SIZE)).collect();
    left(Gathered::TcpUdp, &waiting, |left, counted, granted| {
        assert_eq!((counted.packets, counted.segments), (10, 10));
        // Kernels before 6.2 take none.
        if !granted.contains(Offloads::USO4) {
            return assert_eq!(left.len(), 10);
        }
        let [(packet, offload)] = left.as_slice() else { panic!("{} left", left.len()) };
        assert_eq!((packet[0] >> 4, packet.len()), (6, 48 + 10 * SIZE));
        let Gso { kind, size, .. } = offload.gso;
        assert_eq!((kind, usize::from(size)), (GsoKind::Udp, SIZE));
        assert_eq!(offload.checksum, ChecksumState::Partial { start: 40, offset: 6 });
        for (number, payload) in packet[48..].chunks(SIZE).enumerate() {
            assert_eq!(payload, [number as u8; SIZE]);
        }
    });
}

#[test]
fn what_is_not_to_be_gathered_leaves_one_by_one() {
    for gro in [Gathered::Nothing, Gathered::Tcp] {
        let mut waiting: Vec<_> = (0..10).map(|number| datagram(number, 100)).collect();
        if gro == Gathered::Nothing {
            waiting.extend((0..10).map(|number| segment(number, 100)));
        }
        left(gro, &waiting, |left, _, _| assert_eq!(left.len(), waiting.len()));
    }
}

#[test]
fn what_leaves_in_fragments_is_not_gathered() {
    let mut waiting: Vec<_> = (0..3).map(|number| segment(number, 1400)).collect();
    // May be fragmented, and has to be: with an IPv6 header it is longer than 1280 octets.
    for packet in &mut waiting[1..] {
        packet[6] = 0;
        packet[10..12].fill(0);
        let checksum = !sum(&packet[..20]);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    left(Gathered::Tcp, &waiting, |left, counted, _| {
        assert_eq!((counted.packets, counted.fragments), (3, 4));
        let next_headers: Vec<_> = left.iter().map(|(packet, _)| packet[6]).collect();
        assert_eq!(next_headers, [6, 44, 44, 44, 44]);
    });
}
