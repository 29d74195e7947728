//! Packets with their offload state, into an interface and out of it.

use std::io;

use fordway_xlat::{ChecksumState, Gso, GsoKind, Offload};

use crate::sys::{PacketSocket, VNET_LEN, interface_index};

/// A place at an interface where packets are put in and taken out, as the host's own stack would.
#[derive(Debug)]
pub struct Tap(PacketSocket);

impl Tap {
    /// On the interface of this name, in the thread's network namespace.
    pub fn open(interface: &str) -> io::Result<Tap> {
        PacketSocket::open(interface_index(interface)?).map(Tap)
    }

    /// A place behind the programs at the interface's ingress, for packets of one protocol (an
    /// EtherType). It only receives.
    pub fn behind_ingress(interface: &str, protocol: u16) -> io::Result<Tap> {
        PacketSocket::open_for(interface_index(interface)?, protocol).map(Tap)
    }

    /// Sends a packet out through the interface. That a program at its egress drops it is no error.
    pub fn send(&self, packet: &[u8], offload: &Offload) -> io::Result<()> {
        match self.0.send(&to_vnet(offload), packet) {
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(()),
            result => result,
        }
    }

    /// Takes the packets that have come in from the interface. Of the offload state `header_len` is
    /// left 0: the kernel does not keep it.
    pub fn receive_all(&self) -> io::Result<Vec<(Vec<u8>, Offload)>> {
        let mut all = Vec::new();
        while let Some((header, packet)) = self.0.receive()? {
            all.push((packet, from_vnet(&header)));
        }
        Ok(all)
    }
}

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const ECN: u8 = 0x80;

/// The offload state as a header of 10 octets: Virtual I/O Device specification 1.2 section 5.1.6; words in the byte order
/// of the host.
pub fn to_vnet(offload: &Offload) -> [u8; VNET_LEN] {
    let (flags, start, offset) = match offload.checksum {
        ChecksumState::Complete => (0, 0, 0),
        ChecksumState::Verified => (DATA_VALID, 0, 0),
        ChecksumState::Partial { start, offset } => (NEEDS_CSUM, start, offset),
    };
    let kind = match offload.gso.kind {
        GsoKind::None => 0,
        GsoKind::TcpV4 => 1,
        GsoKind::TcpV6 => 4,
        GsoKind::Udp => 5,
    };
    let ecn = if offload.gso.ecn && kind != 0 { ECN } else { 0 };
    let mut header = [flags, kind | ecn, 0, 0, 0, 0, 0, 0, 0, 0];
    let words = [offload.gso.header_len, offload.gso.size, start, offset];
    for (field, word) in header[2..].chunks_mut(2).zip(words) {
        field.copy_from_slice(&word.to_ne_bytes());
    }
    header
}

/// The offload state that such a header tells.
pub fn from_vnet(header: &[u8; VNET_LEN]) -> Offload {
    let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let checksum = match header[0] {
        flags if flags & NEEDS_CSUM != 0 => {
            ChecksumState::Partial { start: word(6), offset: word(8) }
        }
        flags if flags & DATA_VALID != 0 => ChecksumState::Verified,
        _ => ChecksumState::Complete,
    };
    let kind = match header[1] & !ECN {
        1 => GsoKind::TcpV4,
        4 => GsoKind::TcpV6,
        5 => GsoKind::Udp,
        _ => return Offload { checksum, gso: Gso::default() },
    };
    let gso = Gso { kind, ecn: header[1] & ECN != 0, size: word(4), header_len: 0 };
    Offload { checksum, gso }
}
