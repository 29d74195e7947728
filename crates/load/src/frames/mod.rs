//! Frames put on a link, and taken from it, by programs that the kernel runs at XDP.
//!
//! A socket costs its sender more per packet than a gateway costs to forward it, so that a test with
//! sockets measures the tester. Here the kernel itself repeats frames (`BPF_PROG_TEST_RUN` with
//! live frames, Linux 5.18): the sender's program writes their headers and redirects them into a veth, as
//! a network card would hand it over; the receiver's program counts and drops it where it arrives.
//! Together they cost about a tenth of kernel forwarding. The programs are `c/frames.bpf.c`.

mod receive;
mod send;
mod wire;

use crate::bpf::{Loaded, compiled};

pub(super) use receive::index_of;
pub use receive::{Received, receive};
pub use send::{Hosts, Used, send, supported};
#[cfg(test)]
pub(super) use wire::folded;
pub use wire::{Endpoint, frame};
pub(super) use wire::{front, sum, transport_sum};

/// Octets of the smallest frame, without its check sequence.
const LEAST: usize = 60;
/// Octets that the program writes, in whole words; what is behind them is zeros.
const FRONT: usize = 96;
/// Frames that can take turns.
const FRAMES: usize = 64;

/// The programs, after setting variables of theirs.
fn load(set: &[(&str, &[u8])]) -> std::io::Result<Loaded> {
    Loaded::new(compiled!("frames"), set, 1)
}

fn unfit(why: String) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidInput, why)
}

/// The sender for frames that take turns and leave through a device, between so many pairs of hosts. Only the frames'
/// lengths and what stands in their payload may differ.
fn sender(frames: &[Vec<u8>], device: u32, hosts: Hosts) -> std::io::Result<Loaded> {
    if frames.is_empty() || frames.len() > FRAMES {
        return Err(unfit(format!("1 to {FRAMES} frames can take turns, not {}", frames.len())));
    }
    let mut fronts = vec![0; FRAMES * FRONT];
    let mut lengths = [0; FRAMES];
    for (number, frame) in frames.iter().enumerate() {
        let (front, rest) = frame.split_at(FRONT.min(frame.len() & !3));
        if frame.len() < LEAST || rest.iter().any(|octet| *octet != 0) {
            let length = frame.len();
            return Err(unfit(format!(
                "a frame has at least {LEAST} octets, and zeros behind the first {FRONT}: {length} octets"
            )));
        }
        fronts[number * FRONT..][..front.len()].copy_from_slice(front);
        lengths[number] = frame.len() as u32;
    }
    let frame = &frames[0];
    let v4 = frame[12..14] == [0x08, 0x00];
    let address = match (v4, hosts.at_target) {
        (true, false) => 26,
        (true, true) => 30,
        (false, false) => 34,
        (false, true) => 50,
    };
    let number = &frame[address..address + 4];
    let zeros = u32::from_be_bytes([number[0], number[1], number[2], number[3]]).trailing_zeros();
    if hosts.count > 1 && u64::from(hosts.count) > 1 << zeros {
        return Err(unfit(format!(
            "{} hosts do not fit behind the first one's address",
            hosts.count
        )));
    }
    // UDP's checksum, and that of the IPv4 header.
    let checksums: [u32; 2] = if v4 { [40, 24] } else { [60, 0] };
    load(&[
        ("frames", &(frames.len() as u32).to_ne_bytes()),
        ("lengths", &lengths.map(u32::to_ne_bytes).concat()),
        ("fronts", &fronts),
        ("device", &device.to_ne_bytes()),
        ("hosts", &hosts.count.to_ne_bytes()),
        ("host_at", &(address as u32).to_ne_bytes()),
        ("checksums_at", &checksums.map(u32::to_ne_bytes).concat()),
    ])
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    // Verdicts of XDP programs.
    const ABORTED: u32 = 0;
    const DROP: u32 = 1;
    const PASS: u32 = 2;
    const REDIRECTED: u32 = 4;

    fn of_size(source: &str, target: &str, size: usize) -> Vec<u8> {
        let end = |ip: &str| {
            let ip: IpAddr = ip.parse().unwrap();
            Endpoint { mac: [2, 0, 0, 0, 0, 1], ip, port: 9 }
        };
        frame(end(source), end(target), size).unwrap()
    }

    fn of(source: &str, target: &str) -> Vec<u8> {
        of_size(source, target, 18)
    }

    fn one(frame: &[u8], hosts: Hosts) -> std::io::Result<Loaded> {
        sender(&[frame.to_vec()], 1, hosts)
    }

    #[test]
    fn a_frame_is_written_whole_or_not_sent() {
        if !fordway_testhost::is_root() {
            return;
        }
        let wanted = of("2001:db8::1", "2001:db8::2");
        let programs = one(&wanted, Hosts::ONE).unwrap();
        assert_eq!(programs.run("send", &[0xff; 80]).unwrap(), (REDIRECTED, wanted));
        assert_eq!(programs.run("send", &[0xff; 59]).unwrap().0, ABORTED);
        for length in [0, 56, 59] {
            assert!(one(&vec![0; length], Hosts::ONE).is_err(), "{length}");
        }
        // Octets that the program does not write.
        for length in [62, 97, 1000] {
            let mut frame = vec![0; length];
            assert!(one(&frame, Hosts::ONE).is_ok(), "{length}");
            frame[length - 1] = 1;
            assert!(one(&frame, Hosts::ONE).is_err(), "{length}");
        }
        for length in (LEAST..=FRONT).step_by(4) {
            let frame: Vec<u8> = (0..length as u8).collect();
            let sent = one(&frame, Hosts::ONE).unwrap().run("send", &vec![0xff; length]).unwrap();
            assert_eq!(sent, (REDIRECTED, frame));
        }
    }

    #[test]
    fn sizes_take_turns_whole_and_with_their_own_checksums() {
        if !fordway_testhost::is_root() {
            return;
        }
        for (source, target) in [("198.18.0.0", "198.51.100.2"), ("2001:db8::", "2001:db8:5::5")] {
            let [small, odd, middle, large] =
                [18, 31, 548, 1452].map(|size| of_size(source, target, size));
            let mix = [&small, &odd, &small, &large, &middle].map(Clone::clone);
            let programs = sender(&mix, 1, Hosts::ONE).unwrap();
            for frame in mix.iter().chain([&small, &odd]) {
                // What the kernel hands in: headers as they came back, and zeros.
                let mut given = vec![0; large.len()];
                given[..62].fill(0xff);
                assert_eq!(programs.run("send", &given).unwrap(), (REDIRECTED, frame.clone()));
            }
        }
        let frame = of("198.18.0.0", "198.51.100.2");
        assert!(sender(&vec![frame.clone(); FRAMES], 1, Hosts::ONE).is_ok());
        assert!(sender(&vec![frame; FRAMES + 1], 1, Hosts::ONE).is_err());
        assert!(sender(&[], 1, Hosts::ONE).is_err());
    }

    #[test]
    fn hosts_take_turns_and_checksums_stay_right() {
        if !fordway_testhost::is_root() {
            return;
        }
        for (first, others, fixed, at_target) in [
            ("198.18.0.0", ["198.18.0.1", "198.18.0.2", "198.18.0.3"], "198.51.100.2", false),
            ("198.18.0.0", ["198.18.0.1", "198.18.0.2", "198.18.0.3"], "198.51.100.2", true),
            ("2001:db8::", ["2001:db8::1", "2001:db8::2", "2001:db8::3"], "2001:db8:5::5", false),
            ("2001:db8::", ["2001:db8::1", "2001:db8::2", "2001:db8::3"], "2001:db8:5::5", true),
        ] {
            let of = |host: &str| if at_target { of(fixed, host) } else { of(host, fixed) };
            let wanted: Vec<Vec<u8>> =
                [first].iter().chain(&others).chain([&first]).map(|host| of(host)).collect();
            let programs = one(&of(first), Hosts { count: 4, at_target }).unwrap();
            for frame in wanted {
                let sent = programs.run("send", &vec![0xff; frame.len()]).unwrap();
                assert_eq!(sent, (REDIRECTED, frame), "{first} {at_target}");
            }
        }
        let none = of("198.18.0.2", "198.51.100.2");
        assert!(one(&none, Hosts { count: 3, at_target: false }).is_err());
        assert!(one(&none, Hosts { count: 2, at_target: false }).is_ok());
    }

    #[test]
    fn datagrams_to_the_port_are_counted_and_all_else_is_passed_on() {
        if !fordway_testhost::is_root() {
            return;
        }
        let frames = [of("2001:db8::1", "2001:db8::2"), of("192.0.2.1", "192.0.2.2")];
        for v4 in [false, true] {
            let set = [u32::from(v4), 9].map(u32::to_ne_bytes);
            let sized = 1_u32.to_ne_bytes();
            let programs = load(&[("v4", &set[0]), ("port", &set[1]), ("sized", &sized)]).unwrap();
            let verdict = |frame: &[u8]| programs.run("receive", frame).unwrap().0;
            let [other, own] =
                if v4 { frames.clone() } else { [frames[1].clone(), frames[0].clone()] };
            assert_eq!([verdict(&own), verdict(&own), verdict(&other)], [DROP, DROP, PASS]);
            let (port_at, protocol_at) = if v4 { (37, 23) } else { (57, 20) };
            for at in [port_at, protocol_at] {
                let mut changed = own.clone();
                changed[at] ^= 1;
                assert_eq!(verdict(&changed), PASS);
            }
            let counted = |name| programs.words(name)[0].load(Relaxed);
            assert_eq!((counted("packets"), counted("octets")), (2, 2 * 18));
        }
    }
}
