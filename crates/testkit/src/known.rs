//! Devices under test whose behaviour is known: they prove testers, which must find their rate, delay, loss and size.
//!
//! A device passes frames between two interfaces as a bridge does, unchanged. Its behaviour is for UDP datagrams that arrive at the
//! near interface; everything else passes. Except for a delay, a behaviour follows from the frames alone, so that it is
//! the same on a busy machine.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::sys::{PacketSocket, VNET_LEN, interface_index};

/// What a device does to datagrams from the near side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Passes all.
    Nothing,
    /// Loses every datagram whose number is a multiple of this, counted from 1.
    Loss(u64),
    /// Passes at most so many per second, without a burst: it loses those that come too early behind the last passed one, by the
    /// time that stands in their tags.
    Rate(u64),
    /// Holds each for this time.
    Delay(Duration),
    /// Passes those whose ports are in a table of so many entries, which first datagrams fill.
    Table(usize),
}

impl FromStr for Behaviour {
    type Err = String;

    /// `nothing`, `loss=EVERY`, `rate=FRAMES_PER_SECOND`, `delay=MICROSECONDS`, `table=ENTRIES`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').unwrap_or((text, "1"));
        let value = value.parse::<u64>().map_err(|error| format!("{text}: {error}"))?;
        match (name, value) {
            ("nothing", _) => Ok(Self::Nothing),
            ("loss", 1..) => Ok(Self::Loss(value)),
            ("rate", 1..=1_000_000_000) => Ok(Self::Rate(value)),
            ("delay", _) => Ok(Self::Delay(Duration::from_micros(value))),
            ("table", _) => Ok(Self::Table(value as usize)),
            _ => Err(format!(
                "{text}: nothing, loss=EVERY, rate=FRAMES_PER_SECOND, delay=MICROSECONDS or table=ENTRIES"
            )),
        }
    }
}

/// A device's state.
#[derive(Debug)]
pub struct Device {
    behaviour: Behaviour,
    datagrams: u64,
    /// The least time of the next datagram that passes, ns.
    next: u64,
    table: HashSet<[u8; 4]>,
}

impl Device {
    /// A device that has seen nothing.
    pub fn new(behaviour: Behaviour) -> Device {
        Device { behaviour, datagrams: 0, next: 0, table: HashSet::new() }
    }

    /// Whether a frame from the near side passes, and after which time.
    pub fn pass(&mut self, frame: &[u8]) -> Option<Duration> {
        let Some((ports, time)) = datagram(frame) else { return Some(Duration::ZERO) };
        self.datagrams += 1;
        let passes = match self.behaviour {
            Behaviour::Nothing => true,
            Behaviour::Loss(every) => !self.datagrams.is_multiple_of(every),
            Behaviour::Rate(rate) => {
                let passes = time >= self.next;
                if passes {
                    self.next = time + 1_000_000_000 / rate;
                }
                passes
            }
            Behaviour::Delay(delay) => return Some(delay),
            Behaviour::Table(entries) => {
                self.table.contains(&ports)
                    || self.table.len() < entries && self.table.insert(ports)
            }
        };
        passes.then_some(Duration::ZERO)
    }
}

/// Ports of a UDP datagram, and the time in its tag (ns, 10 octets behind the UDP header; 0 where there is none).
fn datagram(frame: &[u8]) -> Option<([u8; 4], u64)> {
    let udp = match (frame.get(12..14)?, frame.get(14)? >> 4) {
        ([0x08, 0x00], 4) if frame.get(23) == Some(&17) => 14 + usize::from(frame[14] & 15) * 4,
        ([0x86, 0xdd], 6) if frame.get(20) == Some(&17) => 54,
        _ => return None,
    };
    let ports = frame.get(udp..udp + 4)?.try_into().ok()?;
    let time = frame.get(udp + 18..udp + 26).and_then(|octets| octets.try_into().ok());
    Some((ports, time.map_or(0, u64::from_be_bytes)))
}

/// Time without a frame after which the device sleeps a moment.
const PAUSE: Duration = Duration::from_micros(50);

/// A device between two interfaces of the namespace in which it is opened.
#[derive(Debug)]
pub struct Bridge {
    near: PacketSocket,
    far: PacketSocket,
    device: Device,
    /// Frames on their way, and when they leave.
    held: VecDeque<(Instant, [u8; VNET_LEN], Vec<u8>)>,
}

impl Bridge {
    /// Frames that arrive from now on are passed by [`Bridge::run`].
    pub fn open(near: &str, far: &str, behaviour: Behaviour) -> io::Result<Bridge> {
        Ok(Bridge {
            near: PacketSocket::open(interface_index(near)?)?,
            far: PacketSocket::open(interface_index(far)?)?,
            device: Device::new(behaviour),
            held: VecDeque::new(),
        })
    }

    /// Passes frames until `stop`.
    pub fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            let mut idle = true;
            if let Some((header, frame)) = self.near.receive()? {
                idle = false;
                if let Some(delay) = self.device.pass(&frame) {
                    // Delays are all alike: frames leave in their order.
                    self.held.push_back((Instant::now() + delay, header, frame));
                }
            }
            while self.held.front().is_some_and(|(leaves, ..)| *leaves <= Instant::now()) {
                let Some((_, header, frame)) = self.held.pop_front() else { break };
                self.far.send(&header, &frame)?;
            }
            if let Some((header, frame)) = self.far.receive()? {
                idle = false;
                self.near.send(&header, &frame)?;
            }
            if idle {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }
}
