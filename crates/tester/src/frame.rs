//! The tester's frames: Ethernet, IPv4 or IPv6, UDP, tag, and zeros to the frame's size.
//!
//! The tag stands right behind the UDP header, in network byte order:
//!
//! | offset | octets | what |
//! |---|---|---|
//! | 0 | 2 | [`MAGIC`] |
//! | 2 | 2 | trial: frames of another trial are counted apart |
//! | 4 | 2 | stream: bit 15 class (1: native), bit 14 direction (1: reverse), bits 13 to 0 the pair of networks |
//! | 6 | 4 | sequence number: counts from 0 in each class of each direction |
//! | 10 | 8 | time at which the frame was to be sent: CLOCK_MONOTONIC, ns |
//!
//! These are 18 octets: what the smallest frame holds, which has 64 octets with its check sequence over IPv4 and 84 over
//! IPv6 (RFC 8219 section 5.1). A smaller frame is refused.

use std::net::IpAddr;

use crate::{Class, Direction, Error, Result};

/// The first two octets of a tag.
pub const MAGIC: u16 = 0xf08d;
/// Octets of a tag.
pub const TAG: usize = 18;
/// Octets of the smallest frame over IPv4, with its check sequence.
pub const SMALLEST_V4: u16 = 64;
/// Octets of the smallest frame over IPv6, with its check sequence.
pub const SMALLEST_V6: u16 = 84;
/// Octets of the largest frame, with its check sequence: what one chunk of a socket's memory holds.
pub const LARGEST: u16 = 3840 + CHECK_SEQUENCE;

/// Octets of Ethernet's frame check sequence, which neither sender nor receiver sees.
pub(crate) const CHECK_SEQUENCE: u16 = 4;
/// Octets of Ethernet's header.
const LINK: usize = 14;
/// Octets of UDP's header.
const UDP: usize = 8;
/// UDP's protocol number.
const UDP_PROTOCOL: u8 = 17;
/// EtherType of local experiments (IEEE 802).
const EXPERIMENTAL: [u8; 2] = [0x88, 0xb5];
/// The smallest frame of Ethernet, without its check sequence.
const LEAST: usize = (SMALLEST_V4 - CHECK_SEQUENCE) as usize;
/// Hops that a frame may take.
const HOP_LIMIT: u8 = 64;
/// Octets that differ from frame to frame, at most: up to the end of the tag over IPv6. Behind them are zeros.
pub(crate) const FRONT: usize = LINK + 40 + UDP + TAG;

/// What a tag says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// The trial.
    pub trial: u16,
    /// The stream.
    pub stream: Stream,
    /// Number of the frame in its class and direction.
    pub sequence: u32,
    /// When it was to be sent, CLOCK_MONOTONIC, ns.
    pub time: u64,
}

/// Class, direction and pair of networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// The class.
    pub class: Class,
    /// The direction.
    pub direction: Direction,
    /// Number of the pair of networks, below 2^14.
    pub pair: u16,
}

impl Stream {
    const NATIVE: u16 = 1 << 15;
    const REVERSE: u16 = 1 << 14;

    fn to_bits(self) -> u16 {
        let class = if self.class == Class::Native { Self::NATIVE } else { 0 };
        let direction = if self.direction == Direction::Reverse { Self::REVERSE } else { 0 };
        class | direction | self.pair & !(Self::NATIVE | Self::REVERSE)
    }

    fn from_bits(bits: u16) -> Self {
        let native = bits & Self::NATIVE != 0;
        let reverse = bits & Self::REVERSE != 0;
        Self {
            class: if native { Class::Native } else { Class::Translated },
            direction: if reverse { Direction::Reverse } else { Direction::Forward },
            pair: bits & !(Self::NATIVE | Self::REVERSE),
        }
    }
}

impl Tag {
    /// The tag's octets.
    fn to_octets(self) -> [u8; TAG] {
        let mut octets = [0; TAG];
        octets[..2].copy_from_slice(&MAGIC.to_be_bytes());
        octets[2..4].copy_from_slice(&self.trial.to_be_bytes());
        octets[4..6].copy_from_slice(&self.stream.to_bits().to_be_bytes());
        octets[6..10].copy_from_slice(&self.sequence.to_be_bytes());
        octets[10..].copy_from_slice(&self.time.to_be_bytes());
        octets
    }

    /// The tag at the beginning of a payload, if there is one.
    fn parse(payload: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u16::from_be_bytes(payload.get(at..at + 2)?.try_into().ok()?));
        if word(0)? != MAGIC {
            return None;
        }
        Some(Self {
            trial: word(2)?,
            stream: Stream::from_bits(word(4)?),
            sequence: u32::from_be_bytes(payload.get(6..10)?.try_into().ok()?),
            time: u64::from_be_bytes(payload.get(10..TAG)?.try_into().ok()?),
        })
    }
}

/// Octets of payload of a frame of `size` octets, its check sequence included, on the side with the longer header.
pub(crate) fn payload(size: u16, v6: bool) -> Result<u16> {
    let (smallest, headers) =
        if v6 { (SMALLEST_V6, LINK + 40 + UDP) } else { (SMALLEST_V4, LINK + 20 + UDP) };
    if !(smallest..=LARGEST).contains(&size) {
        return Err(Error::Unfit(format!(
            "a frame of {size} octets: those that hold a tag have {smallest} to {LARGEST}, with their check sequence"
        )));
    }
    Ok(size - CHECK_SEQUENCE - headers as u16)
}

/// Source and destination of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Tuple {
    pub(crate) source: IpAddr,
    pub(crate) source_port: u16,
    pub(crate) target: IpAddr,
    pub(crate) target_port: u16,
}

impl Tuple {
    /// Where an answer goes.
    pub(crate) fn reversed(self) -> Self {
        Self {
            source: self.target,
            source_port: self.target_port,
            target: self.source,
            target_port: self.source_port,
        }
    }
}

/// The front of frames between two addresses, without what differs from frame to frame.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    front: [u8; FRONT],
    /// Octets of the frame, without its check sequence.
    length: usize,
    /// Where the UDP header begins.
    udp: usize,
    /// The sum of all that UDP's checksum covers, but for ports and tag.
    sum: u32,
}

impl Template {
    /// `macs`: source and destination; `payload` in octets, at least a tag's.
    pub(crate) fn new(macs: [[u8; 6]; 2], ends: [IpAddr; 2], payload: u16) -> Result<Self> {
        let mut front = [0; FRONT];
        front[..6].copy_from_slice(&macs[1]);
        front[6..12].copy_from_slice(&macs[0]);
        let datagram = payload + UDP as u16;
        let (udp, addresses) = match ends {
            [IpAddr::V4(source), IpAddr::V4(target)] => {
                front[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0]);
                front[16..18].copy_from_slice(&(datagram + 20).to_be_bytes());
                // Identification 0, may not be fragmented (RFC 6864 section 4).
                front[20..24].copy_from_slice(&[0x40, 0, HOP_LIMIT, UDP_PROTOCOL]);
                front[26..30].copy_from_slice(&source.octets());
                front[30..34].copy_from_slice(&target.octets());
                let checksum = !folded(sum(&front[LINK..34]));
                front[24..26].copy_from_slice(&checksum.to_be_bytes());
                (34, 26..34)
            }
            [IpAddr::V6(source), IpAddr::V6(target)] => {
                front[12..16].copy_from_slice(&[0x86, 0xdd, 0x60, 0]);
                front[18..20].copy_from_slice(&datagram.to_be_bytes());
                front[20..22].copy_from_slice(&[UDP_PROTOCOL, HOP_LIMIT]);
                front[22..38].copy_from_slice(&source.octets());
                front[38..54].copy_from_slice(&target.octets());
                (54, 22..54)
            }
            [source, target] => {
                return Err(Error::Unfit(format!("{source} and {target} are of two families")));
            }
        };
        front[udp + 4..udp + 6].copy_from_slice(&datagram.to_be_bytes());
        // UDP's length counts twice: in the pseudo-header and in the header.
        let sum = sum(&front[addresses]) + u32::from(UDP_PROTOCOL) + 2 * u32::from(datagram);
        Ok(Self { front, length: udp + usize::from(datagram), udp, sum })
    }

    /// The smallest frame, of a protocol that no host knows: it ends where it arrives. Source and destination.
    pub(crate) fn unknown(macs: [[u8; 6]; 2]) -> Self {
        let mut front = [0; FRONT];
        front[..6].copy_from_slice(&macs[1]);
        front[6..12].copy_from_slice(&macs[0]);
        front[12..14].copy_from_slice(&EXPERIMENTAL);
        Self { front, length: LEAST, udp: 34, sum: 0 }
    }

    /// Octets of a frame, without its check sequence.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// For the program that sends by itself: the front with the magic, the place of the UDP header, and the sum with the magic.
    pub(crate) fn parts(&self) -> ([u8; FRONT], u64, u64) {
        let mut front = self.front;
        front[self.udp + UDP..self.udp + UDP + 2].copy_from_slice(&MAGIC.to_be_bytes());
        (front, self.udp as u64, u64::from(self.sum) + u64::from(MAGIC))
    }

    /// Writes a frame into memory of [`Template::length`] octets, whose octets from [`FRONT`] on are zeros.
    pub(crate) fn write(&self, ports: [u16; 2], tag: Tag, frame: &mut [u8]) {
        let mut front = self.front;
        let tag = tag.to_octets();
        front[self.udp..self.udp + 2].copy_from_slice(&ports[0].to_be_bytes());
        front[self.udp + 2..self.udp + 4].copy_from_slice(&ports[1].to_be_bytes());
        let all = self.sum + u32::from(ports[0]) + u32::from(ports[1]) + sum(&tag);
        let checksum = transmitted(!folded(all));
        front[self.udp + 6..self.udp + 8].copy_from_slice(&checksum.to_be_bytes());
        front[self.udp + UDP..self.udp + UDP + TAG].copy_from_slice(&tag);
        let length = frame.len().min(FRONT);
        frame[..length].copy_from_slice(&front[..length]);
    }
}

/// UDP's checksum as it is sent: a zero would say "no checksum" (RFC 768).
fn transmitted(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

/// The sum of 16-bit words, not folded (RFC 1071); an odd last octet is padded with zero. Of at most 2^16 words.
fn sum(octets: &[u8]) -> u32 {
    let words = octets.chunks_exact(2);
    let last = words.remainder().first().map_or(0, |octet| u32::from(*octet) << 8);
    words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u32>() + last
}

/// A sum folded to 16 bits.
fn folded(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}

/// What arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) tag: Tag,
    pub(crate) tuple: Tuple,
    /// Octets of payload.
    pub(crate) payload: u16,
    /// Whether UDP's checksum is right. A missing one is wrong: the sender has put one in, and translation keeps it
    /// (RFC 7915 sections 4.5 and 5.5).
    pub(crate) intact: bool,
}

/// Reads a frame: `None` if it has no tag or its lengths contradict each other.
pub(crate) fn parse(frame: &[u8]) -> Option<Arrived> {
    let word = |at: usize| Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?));
    let (udp, end, source, target, addresses): (_, _, IpAddr, IpAddr, _) = match word(12)? {
        0x0800 if *frame.get(LINK)? == 0x45 && *frame.get(23)? == UDP_PROTOCOL => {
            let address = |at: usize| <[u8; 4]>::try_from(frame.get(at..at + 4)?).ok();
            let end = LINK + usize::from(word(16)?);
            (34, end, address(26)?.into(), address(30)?.into(), 26..34)
        }
        0x86dd if *frame.get(20)? == UDP_PROTOCOL => {
            let address = |at: usize| <[u8; 16]>::try_from(frame.get(at..at + 16)?).ok();
            let end = LINK + 40 + usize::from(word(18)?);
            (54, end, address(22)?.into(), address(38)?.into(), 22..54)
        }
        _ => return None,
    };
    let datagram = frame.get(udp..end)?;
    let length = word(udp + 4)?;
    if usize::from(length) != datagram.len() {
        return None;
    }
    let covered = sum(&frame[addresses]) + u32::from(UDP_PROTOCOL) + u32::from(length);
    Some(Arrived {
        tag: Tag::parse(datagram.get(UDP..)?)?,
        tuple: Tuple { source, source_port: word(udp)?, target, target_port: word(udp + 2)? },
        payload: length - UDP as u16,
        intact: word(udp + 6)? != 0 && folded(covered + sum(datagram)) == 0xffff,
    })
}

#[cfg(test)]
mod tests;
