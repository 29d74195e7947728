//! Initiation: new connections, one after the other, or one that has to wait for a lease; `tcpdump` at both sides of the box in the middle, whose
//! timestamps say how long the first packet of each took to get through.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::backend::{Backend, Place};
use crate::error::{LabError, Result};
use crate::process::{Finished, Output, Running, poll};
use crate::topology::Network;

/// Octets of a packet that are kept: two IPv6 headers and a TCP header fit.
const SNAPSHOT: &str = "160";
/// How long `tcpdump` may take to begin, and the last packet to get into its file.
const PATIENCE: Duration = Duration::from_secs(5);

/// Times of the first packets of connections, in ns.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Begun {
    /// When each came in.
    pub(crate) came: Vec<u64>,
    /// When each went on.
    pub(crate) left: Vec<u64>,
}

impl Begun {
    /// Of each connection how long its first packet took, in µs. What went on before the next one came belongs to
    /// the last; one of which nothing went on is left out.
    pub(crate) fn times(&self) -> Vec<f64> {
        let next = self.came[1.min(self.came.len())..].iter().copied().chain([u64::MAX]);
        let one = |(came, next): (&u64, u64)| {
            let left = self.left.iter().find(|left| **left >= *came && **left < next)?;
            Some((left - came) as f64 / 1e3)
        };
        self.came.iter().zip(next).filter_map(one).collect()
    }
}

/// What comes first into the box in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    /// A connection's first packet.
    Packet,
    /// The client's request for an address to its DSTM server: the connection's packet waits for it.
    Request,
}

/// One `tcpdump`.
struct Capture {
    process: Running,
    file: PathBuf,
}

impl Capture {
    fn start(
        backend: &dyn Backend,
        place: &Place,
        side: Side,
        raw: &Path,
        name: &str,
    ) -> Result<Self> {
        let (device, direction) = match side {
            Side::In => ("to-client", "in"),
            Side::Out => ("to-iperf", "out"),
        };
        let file = raw.join(format!("{name}-{device}.pcap"));
        let log = raw.join(format!("{name}-{device}.log"));
        let to = file.display().to_string();
        let mut argv = vec!["tcpdump", "-n", "-p", "-U", "-Z", "root", "--immediate-mode"];
        argv.extend(["--time-stamp-precision=nano", "-s", SNAPSHOT, "-i", device]);
        argv.extend(["-Q", direction, "-w", &to]);
        let argv: Vec<String> = argv.into_iter().map(str::to_owned).collect();
        let mut process = backend.run(Some(place), &argv, Output::Log(&log))?;
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        let listens =
            poll(PATIENCE, || (said().contains("listening on") || !process.alive()).then_some(()))?;
        if listens.is_none() || !process.alive() {
            return Err(LabError::Command {
                argv: argv.join(" "),
                status: "not listening".into(),
                stderr: said(),
            });
        }
        Ok(Self { process, file })
    }

    /// Times of the first packets so far.
    fn read(&self, first: First) -> Vec<u64> {
        pcap::first_packets(&std::fs::read(&self.file).unwrap_or_default(), first)
    }
}

#[derive(Debug, Clone, Copy)]
enum Side {
    In,
    Out,
}

/// Opens so many connections to the server by a command, and times their first packets.
pub(crate) fn measure(
    backend: &dyn Backend,
    network: &Network,
    first: First,
    count: u32,
    argv: &[String],
    raw: &Path,
    name: &str,
) -> Result<(Finished, Begun)> {
    let host = network
        .host
        .as_ref()
        .ok_or_else(|| LabError::Usage("there is no box in the middle to be begun at".into()))?;
    let came = Capture::start(backend, host, Side::In, raw, name)?;
    let left = Capture::start(backend, host, Side::Out, raw, name)?;
    let limit = Duration::from_secs(20 + u64::from(count) / 10);
    let finished = backend.run(Some(&network.app), argv, Output::Keep)?.wait(limit)?.ok()?;
    let read = || {
        let mut begun = Begun { came: came.read(first), left: left.read(First::Packet) };
        // An address is asked for in several messages.
        begun.came.truncate(count as usize);
        begun
    };
    let whole = |begun: &Begun| begun.came.len().min(begun.left.len()) >= count as usize;
    // What is missing is the finding; it need not be waited for longer than this.
    poll(PATIENCE, || whole(&read()).then_some(()))?;
    let begun = read();
    for mut capture in [came, left] {
        capture.process.stop();
    }
    Ok((finished, begun))
}

/// Files of `tcpdump`, as far as first packets of connections are concerned.
mod pcap {
    use super::First;

    /// UDP port of DSTM servers (docs/dstm.md).
    const DSTM: [u8; 2] = 13_653_u16.to_be_bytes();
    /// Octets of the file's header, and of a packet's.
    const FILE: usize = 24;
    const PACKET: usize = 16;
    /// The file's first word where times are in ns; written by this machine, so in its own byte order.
    const MAGIC: u32 = 0xa1b2_3c4d;

    /// Times in ns of all packets that begin something, in IPv4, IPv6, or IPv4 in IPv6.
    pub(super) fn first_packets(file: &[u8], first: First) -> Vec<u64> {
        let word = |octets: &[u8], at: usize| {
            let word = octets.get(at..at + 4)?.try_into().ok()?;
            Some(u32::from_ne_bytes(word))
        };
        let mut times = Vec::new();
        if word(file, 0) != Some(MAGIC) {
            return times;
        }
        let mut rest = file.get(FILE..).unwrap_or_default();
        while let (Some(s), Some(ns), Some(length)) = (word(rest, 0), word(rest, 4), word(rest, 8))
        {
            let Some(frame) = rest.get(PACKET..PACKET + length as usize) else { break };
            if asks(frame, first).unwrap_or(false) {
                times.push(u64::from(s) * 1_000_000_000 + u64::from(ns));
            }
            rest = &rest[PACKET + length as usize..];
        }
        times
    }

    /// Whether an Ethernet frame holds a SYN without ACK, or something for a DSTM server.
    fn asks(frame: &[u8], first: First) -> Option<bool> {
        packet(frame.get(14..)?, first)
    }

    fn packet(octets: &[u8], first: First) -> Option<bool> {
        let (protocol, content) = match octets.first()? >> 4 {
            4 => (*octets.get(9)?, octets.get(usize::from(octets[0] & 15) * 4..)?),
            6 => (*octets.get(6)?, octets.get(40..)?),
            _ => return None,
        };
        match (protocol, first) {
            (4, _) => packet(content, first),
            // SYN is 2, ACK 16 (RFC 9293 section 3.1).
            (6, First::Packet) => Some(content.get(13)? & 0x12 == 2),
            (17, First::Request) => Some(content.get(2..4)? == DSTM),
            _ => None,
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn tcp(flags: u8) -> Vec<u8> {
            let mut octets = vec![0; 20];
            octets[13] = flags;
            octets
        }

        fn v4(content: &[u8]) -> Vec<u8> {
            let mut octets = vec![0; 20];
            (octets[0], octets[9]) = (0x45, 6);
            octets.extend(content);
            octets
        }

        fn v6(next: u8, content: &[u8]) -> Vec<u8> {
            let mut octets = vec![0; 40];
            (octets[0], octets[6]) = (0x60, next);
            octets.extend(content);
            octets
        }

        #[test]
        fn requests_for_connections_are_found_in_whatever_carries_them() {
            let (syn, ack) = (tcp(2), tcp(0x12));
            let packets = [
                v4(&syn),
                v6(6, &syn),
                v6(4, &v4(&syn)),
                v4(&ack),
                v6(17, &syn),
                v6(4, &v4(&ack)),
                vec![],
                vec![0x60],
                v6(17, &[&[0xff, 0xff], &DSTM[..], &[0; 4]].concat()),
            ];
            let mut file = MAGIC.to_ne_bytes().to_vec();
            file.resize(FILE, 0);
            for (number, packet) in (0_u32..).zip(&packets) {
                let length = packet.len() as u32 + 14;
                for word in [1, number, length, length] {
                    file.extend(word.to_ne_bytes());
                }
                file.extend([0; 14]);
                file.extend(packet);
            }
            let times = |first| first_packets(&file, first);
            assert_eq!(times(First::Packet), [1_000_000_000, 1_000_000_001, 1_000_000_002]);
            assert_eq!(times(First::Request), [1_000_000_008]);
            // A file that is being written may end anywhere.
            for end in 0..file.len() {
                assert!(first_packets(&file[..end], First::Packet).len() <= 3);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_what_left_before_the_next_one_came() {
        let begun = Begun { came: vec![1000, 9000, 20_000], left: vec![3000, 21_500, 22_000] };
        assert_eq!(begun.times(), [2.0, 1.5]);
        assert!(Begun::default().times().is_empty());
    }
}
