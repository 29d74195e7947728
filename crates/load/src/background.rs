//! Background traffic: several UDP flows at a steady rate together, from a sender that sleeps between datagrams.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// What to send.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Where to.
    pub target: SocketAddr,
    /// From which own address.
    pub source: IpAddr,
    /// For how long.
    pub length: Duration,
    /// Datagrams per second, over all flows.
    pub rate: u64,
    /// Flows, each from a port of its own.
    pub flows: u16,
    /// Octets of payload.
    pub size: usize,
}

/// What was sent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// Datagrams that the kernel took.
    pub packets: u64,
    /// Datagrams that it refused.
    pub refused: u64,
    /// Time from the first to the end.
    pub seconds: f64,
}

/// Sends. Datagram `i` is due `i / rate` after the start and belongs to flow `i` modulo their number; a sender that fell
/// behind makes up for it at once.
pub fn send(wanted: &Wanted) -> std::io::Result<Sent> {
    let open = |_| {
        let socket = UdpSocket::bind((wanted.source, 0))?;
        socket.connect(wanted.target)?;
        Ok(socket)
    };
    let sockets: Vec<UdpSocket> =
        (0..wanted.flows.max(1)).map(open).collect::<std::io::Result<_>>()?;
    let payload = vec![0; wanted.size];
    let (mut packets, mut refused) = (0, 0);
    let start = Instant::now();
    for (number, socket) in (0u64..).zip(sockets.iter().cycle()) {
        let due = Duration::from_secs_f64(number as f64 / wanted.rate.max(1) as f64);
        if due >= wanted.length {
            break;
        }
        if let Some(early) = due.checked_sub(start.elapsed()) {
            std::thread::sleep(early);
        }
        match socket.send(&payload) {
            Ok(_) => packets += 1,
            // An error of the path for one before: this one is lost, the load goes on.
            Err(_) => refused += 1,
        }
    }
    Ok(Sent { packets, refused, seconds: start.elapsed().as_secs_f64() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_flows_share_the_rate() {
        let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
        sink.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let sent = send(&Wanted {
            target: sink.local_addr().unwrap(),
            source: [127, 0, 0, 1].into(),
            length: Duration::from_millis(60),
            rate: 1000,
            flows: 4,
            size: 100,
        })
        .unwrap();
        assert_eq!((sent.packets, sent.refused), (60, 0));
        let mut ports = std::collections::BTreeMap::new();
        for _ in 0..sent.packets {
            let (length, from) = sink.recv_from(&mut [0; 200]).unwrap();
            assert_eq!(length, 100);
            *ports.entry(from.port()).or_insert(0) += 1;
        }
        assert_eq!(ports.into_values().collect::<Vec<_>>(), [15; 4]);
    }
}
