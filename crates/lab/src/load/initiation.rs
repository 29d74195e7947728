//! Initiation: new connections, one after the other, and `tcpdump` at both sides of the box in the middle, whose
//! timestamps say how long the first packet of each took to get through.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::backend::{Backend, Place};
use crate::error::{LabError, Result};
use crate::probe::gate;
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

    /// Times of the first packets of connections so far.
    fn read(&self) -> Vec<u64> {
        pcap::first_packets(&std::fs::read(&self.file).unwrap_or_default())
    }
}

#[derive(Debug, Clone, Copy)]
enum Side {
    In,
    Out,
}

/// Opens so many connections to the server, whose probes must be served, and times their first packets.
pub(crate) fn measure(
    backend: &dyn Backend,
    network: &Network,
    count: u32,
    raw: &Path,
    name: &str,
) -> Result<(Finished, Begun)> {
    let host = network
        .host
        .as_ref()
        .ok_or_else(|| LabError::Usage("there is no box in the middle to be begun at".into()))?;
    let came = Capture::start(backend, host, Side::In, raw, name)?;
    let left = Capture::start(backend, host, Side::Out, raw, name)?;
    let argv = gate::begin(network, count)?;
    let limit = Duration::from_secs(20 + u64::from(count) / 10);
    let finished = backend.run(Some(&network.app), &argv, Output::Keep)?.wait(limit)?.ok()?;
    let whole = || came.read().len() >= count as usize && left.read().len() >= count as usize;
    // What is missing is the finding; it need not be waited for longer than this.
    poll(PATIENCE, || whole().then_some(()))?;
    let begun = Begun { came: came.read(), left: left.read() };
    for mut capture in [came, left] {
        capture.process.stop();
    }
    Ok((finished, begun))
}

/// Files of `tcpdump`, as far as first packets of connections are concerned.
mod pcap {
    /// Octets of the file's header, and of a packet's.
    const FILE: usize = 24;
    const PACKET: usize = 16;
    /// The file's first word where times are in ns; written by this machine, so in its own byte order.
    const MAGIC: u32 = 0xa1b2_3c4d;

    /// Times in ns of all TCP packets that ask for a connection, in IPv4, IPv6, or IPv4 in IPv6.
    pub(super) fn first_packets(file: &[u8]) -> Vec<u64> {
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
            if asks(frame).unwrap_or(false) {
                times.push(u64::from(s) * 1_000_000_000 + u64::from(ns));
            }
            rest = &rest[PACKET + length as usize..];
        }
        times
    }

    /// Whether an Ethernet frame holds a SYN without ACK.
    fn asks(frame: &[u8]) -> Option<bool> {
        packet(frame.get(14..)?)
    }

    fn packet(octets: &[u8]) -> Option<bool> {
        let (protocol, content) = match octets.first()? >> 4 {
            4 => (*octets.get(9)?, octets.get(usize::from(octets[0] & 15) * 4..)?),
            6 => (*octets.get(6)?, octets.get(40..)?),
            _ => return None,
        };
        match protocol {
            4 => packet(content),
            // SYN is 2, ACK 16 (RFC 9293 section 3.1).
            6 => Some(content.get(13)? & 0x12 == 2),
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
            let times = first_packets(&file);
            assert_eq!(times, [1_000_000_000, 1_000_000_001, 1_000_000_002]);
            // A file that is being written may end anywhere.
            for end in 0..file.len() {
                assert!(first_packets(&file[..end]).len() <= 3);
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
