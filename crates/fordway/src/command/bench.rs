//! `fordway bench`: how long the programs take for a packet, and where the kernel spends time on traffic.

mod path;
mod surroundings;

use std::fmt::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use fordway_bpf::{Loaded, Outcome, Program, TestOptions};
use fordway_daemon::failure::Failure;
use fordway_daemon::output::{self, STRONG};
use fordway_xlat::addr::{Eam, EamTable};
use fordway_xlat::{Config, Direction};
use serde::Serialize;

use crate::cli::BenchArgs;
use surroundings::Surroundings;

/// Runs per measurement. Each is on a fresh packet: a packet that has been translated is another one.
const RUNS: usize = 4001;

/// Octets of the IP packet.
const SIZES: [usize; 2] = [64, 1500];

/// A result.
#[derive(Debug, Serialize)]
struct Measured {
    program: &'static str,
    direction: &'static str,
    protocol: &'static str,
    /// Octets of the packet that comes in.
    packet_octets: usize,
    /// Median of the runs.
    ns_per_packet: u32,
}

pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    fordway_bpf::probe().map_err(|error| Failure::from(fordway_bpf::Error::from(error)))?;
    if args.path {
        return path::run(args.seconds, args.json);
    }
    fordway_bpf::mount_bpffs().map_err(|error| Failure::from(fordway_bpf::Error::from(error)))?;
    let run_dir = tempdir()?;
    // On a thread of its own: this one's network namespace stays.
    let measured = std::thread::scope(|scope| {
        let measuring = scope.spawn(|| measure(&run_dir));
        measuring.join().unwrap_or_else(|_| Err(Failure::failed("the measurement panicked")))
    });
    // What is left in it does no harm.
    let _ = std::fs::remove_dir_all(&run_dir);
    let measured = measured?;
    if args.json {
        return output::print_json(&measured);
    }
    output::print(&table(&measured))
}

fn tempdir() -> Result<PathBuf, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::failed(format!("cannot make a folder for the measurement: {error}"))
    };
    let number = getrandom::u64().map_err(|error| failed(&error))?;
    let dir = std::env::temp_dir().join(format!("fordway-bench-{number:016x}"));
    std::fs::DirBuilder::new().mode(0o700).create(&dir).map_err(|error| failed(&error))?;
    Ok(dir)
}

fn measure(run_dir: &Path) -> Result<Vec<Measured>, Failure> {
    let surroundings = Surroundings::make(run_dir)?;
    let options = TestOptions {
        tun: surroundings.inside(),
        devices: vec![surroundings.outside()],
        ..TestOptions::default()
    };
    let mut measured = Vec::new();
    for (name, there, back) in [
        ("interface", Program::Interface, Program::Interface),
        ("uplink", Program::UplinkEgress, Program::UplinkIngress),
        ("xdp", Program::Xdp, Program::Xdp),
    ] {
        let mut programs = vec![there, back];
        programs.dedup();
        let mut loaded = Loaded::load(&config()?, &programs, &options)?;
        for octets in SIZES {
            for (protocol, number) in [("tcp", 6), ("udp", 17)] {
                for (direction, program) in [(Direction::V4ToV6, there), (Direction::V6ToV4, back)]
                {
                    let frame = frame(direction, number, octets);
                    measured.push(Measured {
                        program: name,
                        direction: direction.label(),
                        protocol,
                        packet_octets: octets,
                        ns_per_packet: median(&mut loaded, program, &frame)?,
                    });
                }
            }
        }
    }
    Ok(measured)
}

fn median(loaded: &mut Loaded, program: Program, frame: &[u8]) -> Result<u32, Failure> {
    let mut times = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let run = loaded.run(program, frame, 0, 1)?;
        if run.outcome != Some(Outcome::Translated) {
            let text = format!(
                "{program:?} did not translate its packet: {:?}, code {}",
                run.outcome, run.code
            );
            return Err(Failure::failed(text).hint("this is a fault in Fordway, please report it"));
        }
        times.push(run.ns);
    }
    times.sort_unstable();
    Ok(times[RUNS / 2])
}

/// A translation prefix and one mapping, so that one address of each packet takes either way.
fn config() -> Result<Config, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::failed(error.to_string());
    let v4 = "192.0.2.1/32".parse().map_err(|error: ipnet::AddrParseError| failed(&error))?;
    let v6 = "2001:db8:1::1/128".parse().map_err(|error: ipnet::AddrParseError| failed(&error))?;
    let eam = Eam::new(v4, v6).map_err(|error| failed(&error))?;
    let pool6 = "2001:db8:64::/96".parse().map_err(|error| failed(&error))?;
    Ok(Config {
        pool6: vec![pool6],
        eam: EamTable::new([eam]).map_err(|error| failed(&error))?,
        pass_unmatched: true,
        ..Config::default()
    })
}

/// An Ethernet frame with a packet of so many octets. Its transport checksum is whatever: programs change
/// it by the difference.
fn frame(direction: Direction, protocol: u8, octets: usize) -> Vec<u8> {
    // The kernel runs programs as on the loopback interface, whose address is zero.
    let mut frame = vec![0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2];
    let header = match direction {
        Direction::V4ToV6 => {
            frame.extend([0x08, 0x00]);
            let [high, low] = (octets as u16).to_be_bytes();
            let mut header = vec![0x45, 0, high, low, 0, 0, 0x40, 0, 64, protocol, 0, 0];
            header.extend([192, 0, 2, 1, 198, 51, 100, 1]);
            let sum: u32 = header
                .chunks_exact(2)
                .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
                .sum();
            let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            header
        }
        Direction::V6ToV4 => {
            frame.extend([0x86, 0xdd]);
            let [high, low] = ((octets - 40) as u16).to_be_bytes();
            let mut header = vec![0x60, 0, 0, 0, high, low, protocol, 64];
            header.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0x64, 0, 0, 0, 0, 0, 0, 198, 51, 100, 1]);
            header.extend([0x20, 0x01, 0x0d, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            header
        }
    };
    let start = frame.len();
    frame.extend(&header);
    frame.resize(start + octets, 0);
    let transport = start + header.len();
    frame[transport..transport + 4].copy_from_slice(&[0x30, 0x39, 0x04, 0xd2]);
    if protocol == 17 {
        let [high, low] = ((octets - header.len()) as u16).to_be_bytes();
        frame[transport + 4..transport + 8].copy_from_slice(&[high, low, 0x12, 0x34]);
    } else {
        // A header of 20 octets, ACK.
        frame[transport + 12..transport + 14].copy_from_slice(&[0x50, 0x10]);
    }
    frame
}

fn table(measured: &[Measured]) -> String {
    let mut text = format!(
        "{STRONG}{:<12}{:<12}{:<10}{:>8}{:>16}{STRONG:#}\n",
        "program", "direction", "protocol", "octets", "ns per packet"
    );
    for one in measured {
        let direction = one.direction.replace('_', " ");
        let _ = writeln!(
            text,
            "{:<12}{direction:<12}{:<10}{:>8}{:>16}",
            one.program, one.protocol, one.packet_octets, one.ns_per_packet
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use fordway_control::Glimpse;

    #[test]
    fn frames_have_the_size_and_the_header_that_is_asked_for() {
        for direction in Direction::ALL {
            for octets in SIZES {
                let frame = frame(direction, 17, octets);
                assert_eq!(frame.len(), 14 + octets);
                let glimpse = Glimpse::of(&frame[14..]).unwrap();
                assert_eq!(
                    (glimpse.source_port, glimpse.destination_port),
                    (Some(12345), Some(1234))
                );
                assert_eq!(Direction::of(&frame[14..]), Some(direction));
            }
        }
    }
}
