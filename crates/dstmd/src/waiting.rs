//! The packets that wait for an address.
//!
//! The first packet of a connection is kept here until the tunnel is set up. There is room for a few; further ones are
//! dropped and counted.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fordway_wire::checksum::{self, Sum};
use tokio::sync::Notify;

use fordway_serve::clock;

/// Most packets that wait.
const PACKETS: usize = 64;

/// Most octets of all of them.
const OCTETS: usize = 128 << 10;

/// Longest time that one waits; its sender has retransmitted it by then.
const AGE: Duration = Duration::from_secs(4);

/// Packets that wait, in the order in which they came. Engines put them in, from their own threads.
#[derive(Debug, Default)]
pub struct Waiting {
    packets: Mutex<Packets>,
    news: Notify,
    held: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Packets {
    queue: VecDeque<(Instant, Vec<u8>)>,
    octets: usize,
}

impl Waiting {
    /// Keeps a copy of an IPv4 packet, if there is room; `partial`: its transport checksum is partial.
    pub fn push(&self, packet: &[u8], partial: bool) {
        let mut packets = self.packets.lock().unwrap_or_else(PoisonError::into_inner);
        let room = packets.queue.len() < PACKETS && packets.octets + packet.len() <= OCTETS;
        if room {
            let mut packet = packet.to_vec();
            if partial {
                finish_checksum(&mut packet);
            }
            packets.octets += packet.len();
            packets.queue.push_back((clock::now(), packet));
        }
        drop(packets);
        let counter = if room { &self.held } else { &self.dropped };
        counter.fetch_add(1, Ordering::Relaxed);
        self.news.notify_one();
    }

    /// Takes all packets that have not waited for too long.
    pub fn take(&self) -> Vec<Vec<u8>> {
        let packets = {
            let mut packets = self.packets.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *packets)
        };
        let count = packets.queue.len();
        let fresh = packets.queue.into_iter().filter(|(since, _)| clock::since(*since) <= AGE);
        let fresh: Vec<Vec<u8>> = fresh.map(|(_, packet)| packet).collect();
        self.dropped.fetch_add((count - fresh.len()) as u64, Ordering::Relaxed);
        fresh
    }

    /// Drops all packets.
    pub(super) fn clear(&self) {
        let count = {
            let mut packets = self.packets.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *packets).queue.len()
        };
        self.dropped.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Waits until a packet was added since the last call.
    pub(super) async fn come(&self) {
        self.news.notified().await;
    }

    /// Packets that have waited.
    pub(super) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Packets that there was no room for, or that waited until they were dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// Finishes the transport checksum of a whole packet, which the kernel has left to the device.
fn finish_checksum(packet: &mut [u8]) {
    let [first, ..] = *packet else { return };
    let header = usize::from(first & 0xf) * 4;
    if first >> 4 != 4 || header < 20 || packet.len() < header {
        return;
    }
    let address =
        |at: usize| Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]);
    let (source, destination, protocol) = (address(12), address(16), packet[9]);
    let at = match protocol {
        6 => 16,
        17 => 6,
        _ => return,
    };
    let transport = &mut packet[header..];
    let Some(field) = transport.get_mut(at..at + 2) else { return };
    field.fill(0);
    // At most 65535.
    let len = transport.len() as u32;
    let pseudo: Sum = checksum::pseudo_v4(source, destination, protocol, len);
    let sum = match (pseudo.add_bytes(transport).finish(), protocol) {
        // 0 means no checksum (RFC 768).
        (0, 17) => 0xffff,
        (sum, _) => sum,
    };
    transport[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A UDP datagram with `payload` octets.
    fn packet(payload: usize) -> Vec<u8> {
        let len = 28 + payload;
        let mut packet = vec![0x45, 0, (len >> 8) as u8, len as u8, 0, 0, 0, 0, 64, 17, 0, 0];
        packet.extend([192, 0, 0, 2, 198, 51, 100, 1]);
        packet.extend([0x10, 0, 0, 53, ((len - 20) >> 8) as u8, (len - 20) as u8, 0xab, 0xcd]);
        packet.resize(len, 0x41);
        packet
    }

    #[test]
    fn they_come_out_as_they_came_in() {
        let waiting = Waiting::default();
        let all: Vec<Vec<u8>> = (1..5).map(packet).collect();
        for packet in &all {
            waiting.push(packet, false);
        }
        assert_eq!(waiting.take(), all);
        assert!(waiting.take().is_empty());
        assert_eq!((waiting.held(), waiting.dropped()), (4, 0));
    }

    #[test]
    fn there_is_room_for_so_many_and_so_much() {
        let waiting = Waiting::default();
        for _ in 0..PACKETS + 10 {
            waiting.push(&packet(10), false);
        }
        assert_eq!((waiting.take().len(), waiting.dropped()), (PACKETS, 10));
        for _ in 0..3 {
            waiting.push(&packet(65_000), false);
        }
        assert_eq!((waiting.take().len(), waiting.dropped()), (2, 11));
        waiting.push(&packet(1), false);
        waiting.clear();
        assert_eq!((waiting.take().len(), waiting.dropped()), (0, 12));
    }

    #[test]
    fn a_checksum_that_was_left_to_the_device_is_finished() {
        let waiting = Waiting::default();
        waiting.push(&packet(100), true);
        let packet = waiting.take().remove(0);
        let sum = checksum::pseudo_v4([192, 0, 0, 2].into(), [198, 51, 100, 1].into(), 17, 108);
        assert_eq!(sum.add_bytes(&packet[20..]).finish(), 0, "over all, with the checksum");
        // Whatever comes, nothing panics.
        for len in 0..40 {
            let mut cut = packet[..len].to_vec();
            finish_checksum(&mut cut);
        }
        finish_checksum(&mut [0x4f; 30]);
    }
}
