//! What programs know of the kernel's routing between two of its answers.

use std::fmt;
use std::mem::offset_of;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use libbpf_rs::{MapHandle, MapType, libbpf_sys};
use rustix::time::{ClockId, clock_gettime};

use crate::abi::{Abi, CELL4, CELL6, FINE_BITS, FINE_WORDS, FwRouting};
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
const FINE: usize = offset_of!(FwRouting, fine) / size_of::<AtomicU64>();

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
        news.set_fine(None::<&[IpAddr]>);
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

    /// Of each IP version the prefix length up to which destinations of a network share an answer, if no longer prefix in it is
    /// routed or in a rule.
    pub const CELLS: [u8; 2] = [CELL4, CELL6];

    /// The longer prefixes that are routed or in a rule, by any address of each; `None`: too many. Does not count as a change.
    pub fn set_fine<'a>(&self, prefixes: Option<impl IntoIterator<Item = &'a IpAddr>>) {
        let mut words = [0_u64; FINE_WORDS];
        match prefixes {
            None => words.fill(u64::MAX),
            Some(prefixes) => prefixes.into_iter().map(fine_bit).for_each(|bit| {
                words[bit / 64] |= 1 << (bit % 64);
            }),
        }
        for (there, word) in self.words()[FINE..].iter().zip(words) {
            there.store(word, Release);
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

/// The bit of an address's cell: a hash of its octets as programs read them (`is_fine` in `routing.h`).
fn fine_bit(address: &IpAddr) -> usize {
    let word = |octets: &[u8]| octets.try_into().map_or(0, u64::from_ne_bytes);
    let [hi, lo] = match address {
        IpAddr::V4(ip) => {
            let cell = ip.to_bits() & u32::MAX << (32 - CELL4);
            [u32::from_ne_bytes(cell.to_be_bytes()).into(), 0]
        }
        IpAddr::V6(ip) => {
            let cell = (ip.to_bits() & u128::MAX << (128 - CELL6)).to_be_bytes();
            [word(&cell[..8]), word(&cell[8..])]
        }
    };
    let mixed = hi.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ lo.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    (mixed.wrapping_mul(0x1656_67b1_9e37_79f9) >> (64 - FINE_BITS)) as usize
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
