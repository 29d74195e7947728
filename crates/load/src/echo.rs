//! Round-trip times of datagrams at a steady rate: open loop, timed from the moment each was due.
//!
//! Sender and receiver are one loop that never sleeps, so that neither the schedule nor the arrival
//! of an answer waits for a processor to wake. A slow path can't slow the sender down: what it holds
//! up is late by the full time (no coordinated omission), and what it loses is counted.

use std::cell::OnceCell;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Octets of payload: number, mark of the run, and filling to the size of the other small packets.
const SIZE: usize = super::SMALL;
/// Leading bits of a time that a histogram keeps: 11 are 0.05 %.
pub(super) const PRECISION: u32 = 11;

/// What to send.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// The echo.
    pub target: SocketAddr,
    /// Datagrams per second.
    pub rate: u32,
    /// How many.
    pub count: u64,
    /// An answer later than this is lost.
    pub patience: Duration,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Echoes {
    /// Datagrams that were due.
    pub sent: u64,
    /// Of them without an answer in time.
    pub lost: u64,
    /// How late the sender itself was at worst, µs.
    pub worst_lag_us: f64,
    /// Time from the first datagram to the end of the last one's patience, or its answer.
    pub seconds: f64,
    /// Processor time of the tester.
    pub cpu_s: f64,
    /// Round-trip times in ns, to 0.05 %, and how often each came; in ascending order.
    pub histogram: Vec<(u64, u64)>,
}

/// Measures.
pub fn measure(wanted: &Wanted) -> std::io::Result<Echoes> {
    let any = if wanted.target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect(wanted.target)?;
    socket.set_nonblocking(true)?;
    super::widen(&socket);
    let start = OnceCell::new();
    Ok(exchange(wanted, &socket, &|| start.get_or_init(Instant::now).elapsed()))
}

/// Measures over this socket by this clock, which begins to run when it is first read.
fn exchange(wanted: &Wanted, socket: &UdpSocket, clock: &dyn Fn() -> Duration) -> Echoes {
    let mark = rand::random::<u64>();
    let gap = |number: u64| Duration::from_secs_f64(number as f64 / f64::from(wanted.rate));
    let mut waiting = vec![true; usize::try_from(wanted.count).unwrap_or(0)];
    let mut times: std::collections::BTreeMap<u64, u64> = std::collections::BTreeMap::new();
    let (mut next, mut answered, mut worst) = (0, 0, Duration::ZERO);
    let mut payload = [0; SIZE];
    payload[8..16].copy_from_slice(&mark.to_be_bytes());
    let cpu = super::own_cpu();
    let end = gap(wanted.count.saturating_sub(1)) + wanted.patience;
    while answered < wanted.count && clock() <= end {
        let mut idle = true;
        while next < wanted.count && clock() >= gap(next) {
            payload[..8].copy_from_slice(&next.to_be_bytes());
            // What cannot be sent gets no answer: it counts as lost.
            let _ = socket.send(&payload);
            worst = worst.max(clock().saturating_sub(gap(next)));
            next += 1;
            idle = false;
        }
        loop {
            let mut answer = [0; SIZE + 1];
            match socket.recv(&mut answer) {
                Ok(length) => {
                    let now = clock();
                    idle = false;
                    let Some(number) = number_of(&answer[..length], mark) else { continue };
                    let Some(open) = usize::try_from(number).ok().and_then(|n| waiting.get_mut(n))
                    else {
                        continue;
                    };
                    let took = now.saturating_sub(gap(number));
                    // The second answer to one datagram is no second measurement.
                    if std::mem::take(open) && took <= wanted.patience {
                        answered += 1;
                        *times.entry(rounded(took.as_nanos() as u64, PRECISION)).or_default() += 1;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // An ICMP error for an earlier datagram: that one is lost, the others go on.
                Err(_) => {}
            }
        }
        if idle {
            std::thread::yield_now();
        }
    }
    Echoes {
        sent: wanted.count,
        lost: wanted.count - answered,
        worst_lag_us: worst.as_secs_f64() * 1e6,
        seconds: clock().as_secs_f64(),
        cpu_s: super::own_cpu() - cpu,
        histogram: times.into_iter().collect(),
    }
}

/// The number in an answer of this run.
fn number_of(answer: &[u8], mark: u64) -> Option<u64> {
    let word = |at: usize| Some(u64::from_be_bytes(answer.get(at..at + 8)?.try_into().ok()?));
    (answer.len() == SIZE && word(8)? == mark).then(|| word(0)).flatten()
}

/// A time to so many leading bits: the middle of the values that share them.
pub(super) fn rounded(ns: u64, bits: u32) -> u64 {
    let spare = (u64::BITS - ns.leading_zeros()).saturating_sub(bits);
    if spare == 0 {
        return ns;
    }
    (ns >> spare << spare) + (1 << (spare - 1))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// An echo that answers each datagram as `answer` says: how many times. It does so whenever the sender looks at its
    /// clock, which goes 10 µs further each time.
    fn against(rate: u32, count: u64, answer: impl Fn(u64) -> u32) -> Echoes {
        let echo = UdpSocket::bind("127.0.0.1:0").unwrap();
        let target = echo.local_addr().unwrap();
        echo.set_nonblocking(true).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(target).unwrap();
        socket.set_nonblocking(true).unwrap();
        let now = Cell::new(Duration::ZERO);
        let clock = || {
            let mut buffer = [0; 64];
            while let Ok((length, from)) = echo.recv_from(&mut buffer) {
                let number = u64::from_be_bytes(buffer[..8].try_into().unwrap());
                for _ in 0..answer(number) {
                    echo.send_to(&buffer[..length], from).unwrap();
                }
            }
            now.set(now.get() + Duration::from_micros(10));
            now.get()
        };
        let patience = Duration::from_millis(500);
        exchange(&Wanted { target, rate, count, patience }, &socket, &clock)
    }

    #[test]
    fn every_answer_counts_once_and_missing_ones_are_lost() {
        let echoes = against(2000, 100, |number| match number % 10 {
            0 => 0,
            1 => 2,
            _ => 1,
        });
        assert_eq!((echoes.sent, echoes.lost), (100, 10));
        assert_eq!(echoes.histogram.iter().map(|h| h.1).sum::<u64>(), 90);
        assert!(echoes.histogram.windows(2).all(|w| w[0].0 < w[1].0));
    }

    #[test]
    fn an_answer_of_another_run_is_not_taken() {
        let mut answer = [0; SIZE];
        answer[7] = 5;
        answer[8..16].copy_from_slice(&77u64.to_be_bytes());
        assert_eq!(number_of(&answer, 77), Some(5));
        assert_eq!(number_of(&answer, 78), None);
        assert_eq!(number_of(&answer[..SIZE - 1], 77), None);
    }

    #[test]
    fn times_keep_their_leading_digits() {
        for ns in [0, 1, 31, 64, 65, 2047, 2048, 123_456, 987_654_321, u64::from(u32::MAX) * 7] {
            for (bits, share) in [(PRECISION, 0.0005), (6, 0.016)] {
                let error = rounded(ns, bits).abs_diff(ns) as f64;
                assert!(error <= ns as f64 * share, "{ns} became {}", rounded(ns, bits));
            }
        }
        assert_eq!((rounded(2047, PRECISION), rounded(63, 6)), (2047, 63));
    }
}
