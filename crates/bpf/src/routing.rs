//! What programs know of the kernel's routing between two of its answers.

use std::fmt;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use libbpf_rs::{MapHandle, MapType, libbpf_sys};
use rustix::time::{ClockId, clock_gettime};

use crate::abi::{Abi, FwRouting};
use crate::maps::ROUTING;
use crate::sys::Mapped;
use crate::{Error, Result, maps};

/// Tells programs in front of routing ([`Hook::Ingress`](crate::Hook::Ingress), [`Hook::Xdp`](crate::Hook::Xdp)) how long
/// they may keep the kernel's answers to where packets go: for some time, while somebody hears of changes and says so; else
/// until the kernel's clock's next tick. One value serves the programs of all translators of a network namespace.
pub struct RoutingNews {
    map: MapHandle,
    memory: Mapped,
}

// Places of the value's fields.
const GENERATION: usize = offset_of!(FwRouting, generation) / size_of::<AtomicU64>();
const UNTIL: usize = offset_of!(FwRouting, until) / size_of::<AtomicU64>();
const BY_DESTINATION: usize = offset_of!(FwRouting, by_destination) / size_of::<AtomicU64>();
const LIFE: usize = offset_of!(FwRouting, life) / size_of::<AtomicU64>();

impl RoutingNews {
    /// Makes a map of which nobody says anything yet. Answers are kept for `life` at most, whatever is said.
    pub fn new(life: Duration) -> Result<RoutingNews> {
        let sizes = [size_of::<u32>(), FwRouting::SIZE];
        let options = maps::flags(libbpf_sys::BPF_F_MMAPABLE);
        let map = maps::make(MapType::Array, ROUTING, sizes, 1, options)?;
        let failed = |source| Error::Map { operation: "open", map: ROUTING, source };
        let memory = Mapped::of(map.as_fd(), FwRouting::SIZE).map_err(failed)?;
        let news = RoutingNews { map, memory };
        news.words()[LIFE].store(nanoseconds(life), Release);
        // 0 is of answers that are not kept.
        news.changed();
        Ok(news)
    }

    /// Something has changed, or may have: programs ask the kernel again.
    pub fn changed(&self) {
        self.words()[GENERATION].fetch_add(1, Release);
    }

    /// Whether routes are chosen by destination, arriving device and Type of Service alone, so that packets of all sources,
    /// ports and protocols to a destination share an answer. Counts as a change if it was otherwise.
    pub fn set_by_destination(&self, is: bool) {
        if self.words()[BY_DESTINATION].swap(is.into(), Release) != u64::from(is) {
            self.changed();
        }
    }

    /// All changes until now have been told, and the next ones will be in less than `time`.
    pub fn heard(&self, time: Duration) {
        let now = clock_gettime(ClockId::Monotonic);
        let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
        self.words()[UNTIL].store(nanoseconds(now.saturating_add(time)), Release);
    }

    /// The number of changes so far.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.words()[GENERATION].load(Acquire) - 1
    }

    /// Whether answers are shared by all sources.
    #[must_use]
    pub fn is_by_destination(&self) -> bool {
        self.words()[BY_DESTINATION].load(Acquire) != 0
    }

    fn words(&self) -> &[AtomicU64] {
        self.memory.slice()
    }

    pub(crate) fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Debug for RoutingNews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (changes, by_destination) = (self.changes(), self.is_by_destination());
        f.debug_struct("RoutingNews")
            .field("changes", &changes)
            .field("by_destination", &by_destination)
            .finish_non_exhaustive()
    }
}
