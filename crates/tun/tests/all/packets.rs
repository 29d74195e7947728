//! Packets between the kernel and a queue, in a namespace of their own.

use std::io::{IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::thread;
use std::time::Duration;

use fordway_testhost::PATIENCE;
use fordway_tun::{Device, GsoType, Offloads, Queue, RecvOutcome, SendOutcome, VnetHeader, Waker};

use crate::common::{
    BUFFER, HEADROOM, in_namespace, inside_namespace, ip, is_v4, options, receive, turn_around,
};

const UDP: u8 = 17;
const TIMEOUT: Option<Duration> = Some(PATIENCE);

/// A device fw0 that is up, with 192.0.2.1/24.
fn device(run_dir: &std::path::Path, queues: usize) -> (Device, Vec<Queue>) {
    let opened = Device::open("fw0", &options(run_dir, queues)).unwrap();
    ip("address add 192.0.2.1/24 dev fw0");
    ip("link set fw0 up");
    opened
}

#[test]
fn a_datagram_goes_out_with_a_partial_checksum_and_comes_back() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        let (device, mut queues) = device(run.path(), 2);
        assert!(!device.adopted() && !device.single_queue());
        assert_eq!(queues.len(), 2);
        assert_eq!(device.offloads().granted & Offloads::CSUM, Offloads::CSUM);

        let socket = UdpSocket::bind("192.0.2.1:4000").unwrap();
        socket.set_read_timeout(TIMEOUT).unwrap();
        socket.send_to(b"fordway", "192.0.2.2:4001").unwrap();

        let mut buf = vec![0; BUFFER];
        let (index, header, len) = receive(&mut queues, &mut buf, |_, p| is_v4(p, UDP));
        assert_eq!(len, 20 + 8 + 7);
        assert!(header.needs_csum());
        assert_eq!(header.gso_type, GsoType::None);
        assert_eq!((header.csum_start, header.csum_offset), (20, 6));
        let front: [u8; 10] = buf[HEADROOM - 10..HEADROOM].try_into().unwrap();
        assert_eq!(VnetHeader::decode(front), header);

        // In place, in one piece and in two pieces: the socket gets all three.
        let queue = &mut queues[index];
        turn_around(&mut buf[HEADROOM..HEADROOM + len]);
        let packet = buf[HEADROOM..HEADROOM + len].to_vec();
        let sent = queue.send_in_place(&mut buf, HEADROOM, HEADROOM + len, &header).unwrap();
        assert_eq!(sent, SendOutcome::Sent);
        assert_eq!(queue.send(&header, &packet).unwrap(), SendOutcome::Sent);
        let sent = queue.send_parts(&header, &packet[..20], &packet[20..]);
        assert_eq!(sent.unwrap(), SendOutcome::Sent);
        for _ in 0..3 {
            let mut received = [0; 64];
            let (len, from) = socket.recv_from(&mut received).unwrap();
            assert_eq!(&received[..len], b"fordway");
            assert_eq!(from, "192.0.2.2:4001".parse().unwrap());
        }
    });
}

#[test]
fn datagrams_of_one_send_stay_one_super_packet() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        let (device, mut queues) = device(run.path(), 1);
        assert_eq!(device.offloads().granted, Offloads::all());
        let socket = UdpSocket::bind("192.0.2.1:4000").unwrap();
        send_segmented(&socket, "192.0.2.2:4001", 10_500, 1_000);

        let mut buf = vec![0; BUFFER];
        let (_, header, len) = receive(&mut queues, &mut buf, |_, p| is_v4(p, UDP));
        assert_eq!(header.gso_type, GsoType::UdpL4);
        assert_eq!(header.gso_size, 1_000);
        assert!(header.needs_csum());
        assert_eq!(len, 28 + 10_500);

        // Back again: the kernel cuts it for a socket that knows nothing of it.
        socket.set_read_timeout(TIMEOUT).unwrap();
        turn_around(&mut buf[HEADROOM..HEADROOM + len]);
        let sent = queues[0].send_in_place(&mut buf, HEADROOM, HEADROOM + len, &header);
        assert_eq!(sent.unwrap(), SendOutcome::Sent);
        let mut lengths = Vec::new();
        for _ in 0..11 {
            lengths.push(socket.recv(&mut [0; 2_000]).unwrap());
        }
        assert_eq!(lengths, [[1_000; 10].as_slice(), &[500]].concat());
    });
}

#[test]
fn without_offloads_packets_come_cut_and_complete() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        let mut options = options(run.path(), 1);
        options.offloads = Offloads::empty();
        let (device, mut queues) = Device::open("fw0", &options).unwrap();
        assert_eq!(device.offloads().to_string(), "none");
        ip("address add 192.0.2.1/24 dev fw0");
        ip("link set fw0 up");
        let socket = UdpSocket::bind("192.0.2.1:4000").unwrap();
        send_segmented(&socket, "192.0.2.2:4001", 2_500, 1_000);
        let mut buf = vec![0; BUFFER];
        for expected in [1_000, 1_000, 500] {
            let (_, header, len) = receive(&mut queues, &mut buf, |_, p| is_v4(p, UDP));
            assert_eq!(header.gso_type, GsoType::None);
            assert!(!header.needs_csum());
            assert_eq!(len, 28 + expected);
        }
    });
}

#[test]
fn a_tcp_stream_passes_between_two_devices_in_super_packets() {
    const OCTETS: usize = 8 << 20;
    let server = "192.0.2.1:4000".parse().unwrap();
    let run = tempfile::tempdir().unwrap();
    let run = run.path();
    let open = |address: &str| {
        let (device, queues) = Device::open("fw0", &options(run, 1)).unwrap();
        ip(&format!("address add {address}/24 dev fw0"));
        ip("link set fw0 up");
        (device, queues)
    };
    in_namespace(|| {
        let (_near, mut near_queues) = open("192.0.2.1");
        let listener = TcpListener::bind("192.0.2.1:4000").unwrap();
        let stop = Waker::new().unwrap();
        thread::scope(|scope| {
            let client = scope.spawn(|| {
                inside_namespace(|| {
                    // The lock is per namespace: the same name is free here.
                    let (_far, mut far_queues) = open("192.0.2.2");
                    thread::scope(|scope| {
                        let relay =
                            scope.spawn(|| relay(&mut near_queues[0], &mut far_queues[0], &stop));
                        let stream = TcpStream::connect_timeout(&server, PATIENCE);
                        let result = stream.and_then(|mut stream| {
                            stream.set_write_timeout(TIMEOUT)?;
                            stream.set_read_timeout(TIMEOUT)?;
                            stream.write_all(&vec![0x5a; OCTETS])?;
                            stream.shutdown(std::net::Shutdown::Write)?;
                            stream.read_exact(&mut [0; 4])
                        });
                        stop.wake();
                        (result, relay.join().unwrap())
                    })
                })
            });
            let mut stream = accept(&listener);
            stream.set_read_timeout(TIMEOUT).unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            assert_eq!(received.len(), OCTETS);
            assert!(received.iter().all(|octet| *octet == 0x5a));
            stream.write_all(b"done").unwrap();
            let (result, longest) = client.join().unwrap();
            result.unwrap();
            assert!(longest > 20_000, "longest packet {longest}");
        });
    });
}

/// Accepts one connection; fails when it does not come in time.
fn accept(listener: &TcpListener) -> TcpStream {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, PollTimeout::from(PATIENCE.as_secs() as u16 * 1000)), Ok(1));
    listener.accept().unwrap().0
}

/// Carries packets both ways until `stop` is woken; returns the length of the
/// longest TCP super-packet.
fn relay(one: &mut Queue, other: &mut Queue, stop: &Waker) -> usize {
    let mut buf = vec![0; BUFFER];
    let mut longest = 0;
    let short = Some(Duration::from_millis(1));
    loop {
        let mut idle = true;
        for forward in [true, false] {
            let (from, to) =
                if forward { (&mut *one, &mut *other) } else { (&mut *other, &mut *one) };
            let RecvOutcome::Packet { header, len } = from.recv(&mut buf, HEADROOM).unwrap() else {
                continue;
            };
            idle = false;
            if header.gso_type == GsoType::TcpV4 {
                assert!(header.needs_csum());
                assert!(usize::from(header.gso_size) < 1_500 && usize::from(header.hdr_len) >= 40);
                longest = longest.max(len);
            }
            let sent = to.send_in_place(&mut buf, HEADROOM, HEADROOM + len, &header);
            assert_eq!(sent.unwrap(), SendOutcome::Sent);
        }
        if idle && one.wait(stop, short).unwrap().woken {
            return longest;
        }
    }
}

#[test]
fn what_happens_to_the_interface_is_an_outcome() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        let (_device, mut queues) = device(run.path(), 2);
        let queue = &mut queues[0];
        let plain = VnetHeader::default();
        let mut packet = [0u8; 28];
        packet[0] = 0x45;
        assert_eq!(queue.send(&plain, &packet).unwrap(), SendOutcome::Sent);
        assert_eq!(queue.send(&plain, &[0xf0; 28]).unwrap(), SendOutcome::Refused);
        let outside = VnetHeader { flags: VnetHeader::NEEDS_CSUM, csum_start: 4_000, ..plain };
        assert_eq!(queue.send(&outside, &packet).unwrap(), SendOutcome::Refused);

        ip("link set fw0 down");
        assert_eq!(queue.send(&plain, &packet).unwrap(), SendOutcome::Down);
        ip("link set fw0 up");
        assert_eq!(queue.send(&plain, &packet).unwrap(), SendOutcome::Sent);

        ip("link delete fw0");
        let waker = Waker::new().unwrap();
        assert!(queue.wait(&waker, TIMEOUT).unwrap().gone);
        let mut buf = vec![0; BUFFER];
        assert_eq!(queue.recv(&mut buf, HEADROOM).unwrap(), RecvOutcome::Gone);
        assert_eq!(queue.send(&plain, &packet).unwrap(), SendOutcome::Gone);
    });
}

#[test]
fn a_detached_queue_gets_no_packet() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        let (_device, mut queues) = device(run.path(), 2);
        let socket = UdpSocket::bind("192.0.2.1:4000").unwrap();
        let mut buf = vec![0; BUFFER];
        for (detached, attached) in [(0, 1), (1, 0)] {
            queues[detached].set_attached(false).unwrap();
            assert!(queues[detached].set_attached(false).is_err());
            for port in 5_000..5_020u16 {
                socket.send_to(b"x", ("192.0.2.2", port)).unwrap();
                let wanted = |_: &_, p: &[u8]| is_v4(p, UDP) && p[22..24] == port.to_be_bytes();
                assert_eq!(receive(&mut queues, &mut buf, wanted).0, attached);
            }
            queues[detached].set_attached(true).unwrap();
        }
    });
}

#[test]
fn short_buffers_are_errors_and_cut_packets_are_told() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        let (_device, mut queues) = device(run.path(), 1);
        let waker = Waker::new().unwrap();
        let socket = UdpSocket::bind("192.0.2.1:4000").unwrap();
        let mut buf = vec![0; BUFFER];
        for (len, headroom) in [(100, 9), (100, 100), (0, 10), (20, usize::MAX)] {
            let error = queues[0].recv(&mut buf[..len], headroom).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        }
        for (start, end) in [(9, 20), (20, 19), (10, BUFFER + 1), (usize::MAX, usize::MAX)] {
            let sent = queues[0].send_in_place(&mut buf, start, end, &VnetHeader::default());
            assert_eq!(sent.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
        }
        socket.send_to(&[0; 100], "192.0.2.2:4001").unwrap();
        loop {
            // Everything else the kernel sends by itself here is as long.
            assert!(queues[0].wait(&waker, TIMEOUT).unwrap().readable);
            let outcome = queues[0].recv(&mut buf[..HEADROOM + 40], HEADROOM).unwrap();
            assert_eq!(outcome, RecvOutcome::Truncated);
            if is_v4(&buf[HEADROOM..], UDP) {
                break;
            }
        }
    });
}

#[test]
fn a_waker_wakes_until_cleared() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        let (_device, queues) = Device::open("fw0", &options(run.path(), 1)).unwrap();
        let waker = Waker::new().unwrap();
        let none = queues[0].wait(&waker, Some(Duration::ZERO)).unwrap();
        assert!(!none.readable && !none.woken && !none.gone);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| queues[0].wait(&waker, TIMEOUT).unwrap());
            waker.clone().wake();
            assert!(waiting.join().unwrap().woken);
        });
        assert!(queues[0].wait(&waker, TIMEOUT).unwrap().woken);
        assert!(waker.clear());
        assert!(!waker.clear());
        assert!(!queues[0].wait(&waker, Some(Duration::ZERO)).unwrap().woken);
    });
}

/// Sends `len` octets in one call as datagrams of `segment` octets.
fn send_segmented(socket: &UdpSocket, to: &str, len: usize, segment: u16) {
    use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrIn, sendmsg};
    let payload = vec![0x5a; len];
    let to: std::net::SocketAddrV4 = to.parse().unwrap();
    let sent = sendmsg(
        socket.as_raw_fd(),
        &[IoSlice::new(&payload)],
        &[ControlMessage::UdpGsoSegments(&segment)],
        MsgFlags::empty(),
        Some(&SockaddrIn::from(to)),
    );
    assert_eq!(sent.unwrap(), len);
}
