//! Dropped UDP datagrams without a checksum: each is an event (RFC 7915 section 4.5), of which the log has one line per
//! second at most.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use fordway_engine::Unchecked;
use tracing::warn;

/// What is to be said in the log.
#[derive(Debug, Default)]
struct Limit {
    /// The second after that of the last line; 0: there was none.
    next: AtomicU64,
    /// Datagrams since the last line.
    unsaid: AtomicU64,
}

impl Limit {
    /// For a datagram in this second: how many there were since the last line, if it is time for another.
    fn say(&self, second: u64) -> Option<u64> {
        let next = self.next.load(Relaxed);
        let is_time = second >= next
            && self.next.compare_exchange(next, second + 1, Relaxed, Relaxed).is_ok();
        if !is_time {
            self.unsaid.fetch_add(1, Relaxed);
        }
        is_time.then(|| self.unsaid.swap(0, Relaxed))
    }
}

/// Writes the events of a translator into the log.
pub(crate) fn log(name: &str) -> Unchecked {
    let (name, limit, began) = (name.to_owned(), Limit::default(), Instant::now());
    let say = move |src: SocketAddrV4, dst: SocketAddrV4| match limit.say(began.elapsed().as_secs())
    {
        Some(0) => warn!("{name}: UDP without checksum dropped: {src} to {dst}"),
        Some(others) => {
            warn!("{name}: UDP without checksum dropped: {src} to {dst}, and {others} before");
        }
        None => {}
    };
    Unchecked(Arc::new(say))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_in_a_second_tells_of_all() {
        let limit = Limit::default();
        assert_eq!(limit.say(0), Some(0));
        assert_eq!([limit.say(0), limit.say(0)], [None, None]);
        assert_eq!(limit.say(1), Some(2));
        assert_eq!(limit.say(1), None);
        assert_eq!(limit.say(90), Some(1));
    }
}
