//! The path MTU of a tunnel (RFC 2473 section 6.7, RFC 8201).

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use fordway_xlat::config::IPV6_MIN_MTU;

/// How long a path MTU is kept (RFC 8201 section 5.3).
pub const PATH_MTU_LIFETIME: Duration = Duration::from_secs(600);

/// The MTU of a tunnel's path, if a router has reported one; one word, shared by all threads.
///
/// The low 17 bits are octets, 0 for none; the bits above are the second in which it expires.
#[derive(Debug, Default)]
pub struct PathMtu(AtomicU64);

const MTU_BITS: u32 = 17;

impl PathMtu {
    /// The MTU for packets of the tunnel, in octets: `link` if no lower one is known.
    #[must_use]
    pub fn get(&self, link: u32, now: Duration) -> u32 {
        let word = self.0.load(Ordering::Relaxed);
        let known = (word & ((1 << MTU_BITS) - 1)) as u32;
        if known == 0 || now.as_secs() >= word >> MTU_BITS { link } else { known.min(link) }
    }

    /// The MTU that was learnt and has not expired.
    #[must_use]
    pub fn known(&self, now: Duration) -> Option<u32> {
        Some(self.get(u32::MAX, now)).filter(|mtu| *mtu != u32::MAX)
    }

    /// Learns a router's MTU; one below IPv6's minimum counts as the minimum (RFC 8201 section 4). Returns the MTU now;
    /// `None`: unchanged, since the reported one is not below `link`, or above the known one.
    pub fn learn(&self, mtu: u32, link: u32, now: Duration) -> Option<u32> {
        let mtu = mtu.max(IPV6_MIN_MTU);
        if mtu >= link || mtu > self.get(link, now) {
            return None;
        }
        let until = (now + PATH_MTU_LIFETIME).as_secs() + 1;
        self.0.store(until << MTU_BITS | u64::from(mtu), Ordering::Relaxed);
        Some(mtu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_000_000);

    #[test]
    fn what_is_learnt_holds_for_its_time() {
        let path = PathMtu::default();
        assert_eq!((path.get(1500, NOW), path.known(NOW)), (1500, None));
        assert_eq!(path.learn(1400, 1500, NOW), Some(1400));
        assert_eq!((path.get(1500, NOW), path.known(NOW)), (1400, Some(1400)));
        assert_eq!(path.get(1300, NOW), 1300);
        let last = NOW + PATH_MTU_LIFETIME;
        assert_eq!(path.get(1500, last), 1400);
        assert_eq!(path.get(1500, last + Duration::from_secs(1)), 1500);
        assert_eq!(path.learn(1450, 1500, last + Duration::from_secs(1)), Some(1450));
    }

    #[test]
    fn it_only_becomes_less_and_never_too_little() {
        let path = PathMtu::default();
        assert_eq!(path.learn(1500, 1500, NOW), None);
        assert_eq!(path.learn(1400, 1500, NOW), Some(1400));
        assert_eq!(path.learn(1450, 1500, NOW), None);
        assert_eq!(path.learn(68, 1500, NOW), Some(1280));
        assert_eq!(path.learn(u32::MAX, u32::MAX, NOW), None);
        assert_eq!(path.get(65_535, NOW), 1280);
    }
}
