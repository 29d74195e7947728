//! The receiver of frames.

use std::io::{Error, ErrorKind, Result, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::load;

/// How long to wait for a first frame.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between the first frame and the measurement: caches and rings fill.
const SETTLE: Duration = Duration::from_millis(100);

/// What arrived.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// Frames that arrived during the measurement.
    pub packets: u64,
    /// Octets of their UDP payload, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub octets: Option<u64>,
    /// Length of the measurement.
    pub seconds: f64,
}

/// Counts and drops UDP of one family to `port` at a device, and with `sized` its octets as well. Says `ready` when it counts, then waits
/// for the first frame, lets the flow settle, and measures over `length`; longer, up to 10 s, if no frame arrives in that
/// time, because a sender that gets no processor is not a path that loses everything.
pub fn receive(
    device: &str,
    v4: bool,
    port: u16,
    sized: bool,
    length: Duration,
) -> Result<Received> {
    let [v4, port, is_sized] =
        [u32::from(v4), u32::from(port), u32::from(sized)].map(u32::to_ne_bytes);
    let program = load(&[("v4", &v4), ("port", &port), ("sized", &is_sized)])?;
    let _link = program.attach("receive", index_of(device)?)?;
    let counted = || program.words("packets")[0].load(Relaxed);
    let weighed = || program.words("octets")[0].load(Relaxed);
    println!("ready");
    std::io::stdout().flush()?;
    let deadline = Instant::now() + PATIENCE;
    while counted() == 0 {
        if Instant::now() > deadline {
            return Err(Error::new(
                ErrorKind::TimedOut,
                format!("no frame arrived within {} s", PATIENCE.as_secs()),
            ));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(SETTLE);
    let (before, lighter, start) = (counted(), weighed(), Instant::now());
    std::thread::sleep(length);
    while counted() == before && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (after, heavier, seconds) = (counted(), weighed(), start.elapsed().as_secs_f64());
    let octets = sized.then_some(heavier - lighter);
    Ok(Received { packets: after - before, octets, seconds })
}

/// The index of a device in this namespace.
pub(crate) fn index_of(device: &str) -> Result<u32> {
    let socket = std::net::UdpSocket::bind("[::]:0")?;
    rustix::net::netdevice::name_to_index(&socket, device)
        .map_err(|error| Error::new(error.kind(), format!("{device}: {error}")))
}
