//! Small datagrams from a socket: open loop, at a rate or as many as the sender can.

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};
use serde::{Deserialize, Serialize};

/// Datagrams of one system call.
const BATCH: usize = 64;

/// What to send.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Where to.
    pub target: SocketAddr,
    /// From which own address; any when absent.
    pub source: Option<IpAddr>,
    /// For how long.
    pub length: Duration,
    /// Datagrams per second; 0 is as many as the sender can.
    pub rate: u64,
    /// Octets of payload.
    pub size: usize,
}

/// What was sent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// Datagrams that the kernel took.
    pub packets: u64,
    /// System calls that it refused.
    pub refused: u64,
    /// Time from the first to the last.
    pub seconds: f64,
    /// Processor time of the sender.
    pub cpu_s: f64,
    /// How far the sender fell behind its own schedule at worst; 0 without a rate.
    pub worst_lag_us: f64,
}

/// Sends. With a rate, datagram `i` is due `i / rate` after the start whatever happened to the ones
/// before it, and goes with those of the same millisecond; a sender that fell behind makes up for it at once.
pub fn send(wanted: &Wanted) -> std::io::Result<Sent> {
    let any: IpAddr = match wanted.target {
        SocketAddr::V4(_) => [0, 0, 0, 0].into(),
        SocketAddr::V6(_) => [0u16; 8].into(),
    };
    let socket = UdpSocket::bind((wanted.source.unwrap_or(any), 0))?;
    socket.connect(wanted.target)?;
    let payload = vec![0; wanted.size];
    let slices = [IoSlice::new(&payload)];
    let mut controls: Vec<SendAncillaryBuffer<'_, '_, '_>> =
        std::iter::repeat_with(SendAncillaryBuffer::default).take(BATCH).collect();
    let mut messages: Vec<MMsgHdr<'_>> =
        controls.iter_mut().map(|control| MMsgHdr::new(&slices, control)).collect();
    let (mut packets, mut refused, mut worst) = (0, 0, Duration::ZERO);
    let (cpu, start) = (super::own_cpu(), Instant::now());
    loop {
        let elapsed = start.elapsed();
        if elapsed >= wanted.length {
            break;
        }
        let batch = match wanted.rate {
            0 => BATCH,
            rate => {
                let gone = packets + refused;
                // All of a batch go when its last is due. Until then the sender sleeps: turning in circles, it would
                // keep a processor busy, whose time is part of what is measured.
                let ready = due_at(gone + together(rate) - 1, rate);
                if let Some(early) = ready.checked_sub(elapsed).filter(|early| !early.is_zero()) {
                    std::thread::sleep(early.min(wanted.length - elapsed));
                    continue;
                }
                worst = worst.max(elapsed - ready);
                let owed = due(elapsed, rate).saturating_sub(gone);
                usize::try_from(owed).unwrap_or(BATCH).min(BATCH)
            }
        };
        match sendmmsg(&socket, &mut messages[..batch], SendFlags::empty()) {
            Ok(taken) => packets += taken as u64,
            // A route that vanished or a full buffer: the datagram is lost, the load goes on.
            Err(_) => refused += 1,
        }
    }
    Ok(Sent {
        packets,
        refused,
        seconds: start.elapsed().as_secs_f64(),
        cpu_s: super::own_cpu() - cpu,
        worst_lag_us: worst.as_secs_f64() * 1e6,
    })
}

/// Datagrams that are sent together at a rate: those of a millisecond.
fn together(rate: u64) -> u64 {
    (rate / 1000).clamp(1, BATCH as u64)
}

/// Datagrams that are due after `elapsed`, the first of them at once.
fn due(elapsed: Duration, rate: u64) -> u64 {
    (elapsed.as_secs_f64() * rate as f64) as u64 + 1
}

/// When datagram `number` is due.
fn due_at(number: u64, rate: u64) -> Duration {
    Duration::from_secs_f64(number as f64 / rate as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback(length_ms: u64, rate: u64) -> (Sent, u64) {
        let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
        sink.set_nonblocking(true).unwrap();
        let sent = send(&Wanted {
            target: sink.local_addr().unwrap(),
            source: None,
            length: Duration::from_millis(length_ms),
            rate,
            size: super::super::SMALL,
        })
        .unwrap();
        let mut buffer = [0; 64];
        let mut arrived = 0;
        while let Ok(length) = sink.recv(&mut buffer) {
            assert_eq!(length, super::super::SMALL);
            arrived += 1;
        }
        (sent, arrived)
    }

    #[test]
    fn a_rate_is_not_exceeded_and_every_datagram_is_counted() {
        let (sent, arrived) = loopback(100, 1000);
        // Due are numbers 0 to 99, and 100 if the loop turns exactly at the end; fewer where the processor was
        // somebody else's when the last were due.
        assert!((1..=101).contains(&(sent.packets + sent.refused)), "{sent:?}");
        assert_eq!(sent.packets, arrived);
        assert!(sent.seconds >= 0.1);
    }

    #[test]
    fn without_a_rate_it_sends_in_whole_batches() {
        let (sent, _) = loopback(20, 0);
        assert!(sent.packets >= BATCH as u64 && sent.worst_lag_us == 0.0, "{sent:?}");
    }

    #[test]
    fn the_schedule_does_not_depend_on_what_was_sent() {
        assert_eq!([due(Duration::ZERO, 1000), due(Duration::from_millis(5), 1000)], [1, 6]);
        assert_eq!(due_at(6, 1000), Duration::from_millis(6));
        assert_eq!([1, 999, 20_000, 1_000_000].map(together), [1, 1, 20, 64]);
    }
}
