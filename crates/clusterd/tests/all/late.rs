//! A way to the store on which all octets take their time, in both directions and in their order.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use fordway_testhost::namespace::Namespace;
use fordway_testhost::nats::PORT;

use crate::world::MIDDLE;

/// Where the way begins.
const ENTRANCE: u16 = 4999;

/// It lasts as long as the test's process.
pub(crate) struct Late(Arc<AtomicU64>);

impl Late {
    /// What gateways take for the store.
    pub(crate) fn url() -> String {
        format!("nats://[{MIDDLE}]:{ENTRANCE}")
    }

    /// Without delay at first.
    pub(crate) fn start(middle: &Arc<Namespace>) -> Late {
        let delay = Arc::new(AtomicU64::new(0));
        let (late, middle) = (Late(Arc::clone(&delay)), Arc::clone(middle));
        let listener = middle.run(|| TcpListener::bind((MIDDLE, ENTRANCE)).unwrap());
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                // Who finds no server finds no way either.
                let Ok(far) = middle.run(|| TcpStream::connect((MIDDLE, PORT))) else { continue };
                let copies = [&near, &far].map(|one| one.try_clone().unwrap());
                let [back, there] = copies;
                carry(near, there, Arc::clone(&delay));
                carry(far, back, Arc::clone(&delay));
            }
        });
        late
    }

    /// From now on octets take so long in each direction.
    pub(crate) fn set(&self, delay: Duration) {
        self.0.store(delay.as_nanos() as u64, Ordering::SeqCst);
    }
}

/// Carries octets one way until either end closes.
fn carry(mut from: TcpStream, mut to: TcpStream, delay: Arc<AtomicU64>) {
    let (queue, queued) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        for (at, octets) in queued {
            thread::sleep(at.saturating_duration_since(Instant::now()));
            if to.write_all(&octets).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
    thread::spawn(move || {
        let mut octets = vec![0; 1 << 16];
        while let Ok(read @ 1..) = from.read(&mut octets) {
            let at = Instant::now() + Duration::from_nanos(delay.load(Ordering::SeqCst));
            if queue.send((at, octets[..read].to_vec())).is_err() {
                break;
            }
        }
    });
}
