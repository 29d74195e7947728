//! Looks at each packet that gateways send: no transport address may be translated by two of them at a time.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fordway_testhost::poll;
use nix::sys::socket::{LinkAddr, recvfrom};
use socket2::{Domain, Protocol, Socket, Type};

use crate::common::netns::Netns;

/// All protocols (`linux/if_ether.h`), in network byte order.
const ETH_P_ALL: u16 = 3_u16.to_be();
/// A frame that leaves by the device (`linux/if_packet.h`).
const OUTGOING: u8 = 4;

/// What a translator alone sends: by IPv4 from a transport address of `pool4`, by IPv6 from `pool6` to a host's.
type Key = (IpAddr, u16);

/// Which ports of the bridge packets of a transport address came from, one after the other; and how many packets.
#[derive(Default)]
struct Seen {
    senders: HashMap<Key, Vec<usize>>,
    packets: u64,
}

/// A look at the segment. It ends with it.
pub(super) struct Observer {
    seen: Arc<Mutex<Seen>>,
    /// How often nothing was left to look at.
    idle: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Observer {
    /// Looks at what comes in by the ports `gw1` and so on of the router's bridge.
    pub(super) fn start(router: &Netns) -> Observer {
        let socket = router.inside(|| {
            Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(i32::from(ETH_P_ALL))))
                .unwrap()
        });
        socket.set_nonblocking(true).unwrap();
        socket.set_recv_buffer_size(4 << 20).unwrap();
        let ports = router.inside(|| {
            let all = nix::net::if_::if_nameindex().unwrap();
            let names = all.iter().filter(|one| one.name().to_bytes().starts_with(b"gw"));
            names.map(|one| one.index() as usize).collect::<Vec<_>>()
        });
        let (seen, over) = (Arc::<Mutex<Seen>>::default(), Arc::<AtomicBool>::default());
        let idle = Arc::<AtomicU64>::default();
        let thread = thread::spawn({
            let (seen, over, idle) = (Arc::clone(&seen), Arc::clone(&over), Arc::clone(&idle));
            let socket = OwnedFd::from(socket);
            move || {
                while !over.load(Ordering::Relaxed) {
                    if !look(&socket, &ports, &seen) {
                        idle.fetch_add(1, Ordering::SeqCst);
                        thread::sleep(Duration::from_millis(5));
                    }
                }
            }
        });
        Observer { seen, idle, over, thread: Some(thread) }
    }

    /// Asserts that since the last call each transport address went to another gateway so often at most, and that there were packets.
    /// How many did.
    pub(super) fn check(&self, what: &str, most: usize) -> usize {
        if self.thread.is_some() {
            let before = self.idle.load(Ordering::SeqCst);
            let is_idle = || self.idle.load(Ordering::SeqCst) > before;
            poll("what was sent so far is looked at", || is_idle().then_some(()));
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(seen.packets > 0, "{what}: no packet was seen");
        seen.packets = 0;
        let moved = seen.senders.values().filter(|senders| senders.len() > 1).count();
        for (key, senders) in &mut seen.senders {
            assert!(
                senders.len() <= most + 1,
                "{what}: packets of {key:?} came from ports {senders:?}"
            );
            senders.drain(..senders.len() - 1);
        }
        moved
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Takes a frame. `false`: there is none.
fn look(socket: &OwnedFd, ports: &[usize], seen: &Mutex<Seen>) -> bool {
    let mut frame = [0; 128];
    let Ok((len, from)) = recvfrom::<LinkAddr>(socket.as_raw_fd(), &mut frame) else {
        return false;
    };
    let from = from.filter(|it| it.pkttype() != OUTGOING && ports.contains(&it.ifindex()));
    if let (Some(from), Some(key)) = (from, translated(&frame[..len.min(frame.len())])) {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.packets += 1;
        let senders = seen.senders.entry(key).or_default();
        if senders.last() != Some(&from.ifindex()) {
            senders.push(from.ifindex());
        }
    }
    true
}

/// The transport address that a frame says something about, if a translator has sent it.
fn translated(frame: &[u8]) -> Option<Key> {
    let port = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    match (port(12)?, frame.get(14..)?) {
        (0x0800, packet) => {
            let source = Ipv4Addr::from(*packet.get(12..)?.first_chunk()?);
            let is_ours = source.octets()[..3] == [203, 0, 113] && packet[9] == 6;
            is_ours.then_some((source.into(), port(14 + 20)?))
        }
        (0x86dd, packet) => {
            let address = |at: usize| Some(Ipv6Addr::from(*packet.get(at..)?.first_chunk::<16>()?));
            let (source, target) = (address(8)?, address(24)?);
            let is_ours = source.segments()[..4] == [0x2001, 0xdb8, 0x64, 0] && packet[6] == 6;
            is_ours.then_some((target.into(), port(14 + 40 + 2)?))
        }
        _ => None,
    }
}

#[test]
fn a_second_sender_is_found() {
    let seen = |senders: &[usize]| Seen {
        senders: HashMap::from([((IpAddr::from([203, 0, 113, 1]), 7), senders.to_vec())]),
        packets: 1,
    };
    let check = |senders: &[usize], most| {
        let observer = Observer {
            seen: Arc::new(Mutex::new(seen(senders))),
            idle: Arc::default(),
            over: Arc::default(),
            thread: None,
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| observer.check("", most))).is_ok()
    };
    assert!(check(&[1], 0) && check(&[1, 2], 1) && check(&[1, 2, 1], 2));
    assert!(!check(&[1, 2], 0) && !check(&[1, 2, 1], 1));
}
