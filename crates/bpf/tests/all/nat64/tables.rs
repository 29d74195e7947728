//! The tables of stateful translation as maps of the kernel: their memory, who takes them over, and their sizes. Needs root.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use fordway_bpf::{Error, Origin, Outcome, Program, StateMaps, StateMemory};
use fordway_xlat::nat64::{Memory, Sizes, Sweeper, TcpState};
use libbpf_rs::{MapHandle, MapType, libbpf_sys};

use super::{Shared, check, frame, from_v6, host, remote, settings};
use crate::common::{Folder, in_namespace};

#[test]
fn tables_in_memory_take_it_when_they_are_used() {
    let sizes = Sizes { bibs: Sizes::MAX, sessions: Sizes::MAX, subscribers: Sizes::MAX };
    let memory = StateMemory::new(&sizes, [1, 2]).unwrap();
    assert!(fordway_xlat::nat64::memory::fits(memory.regions().meta, &sizes));
    let last = memory.regions().sessions.last().unwrap();
    last.remote.store(7, SeqCst);
    assert_eq!((last.remote.load(SeqCst), last.life.load(SeqCst)), (7, 0));
}

/// An earlier version made up to twice as many heads of chains.
#[test]
fn tables_with_more_heads_are_adopted() {
    in_namespace(|| {
        let folder = Folder::new();
        let sizes = settings().sizes;
        let (maps, _) = StateMaps::open(folder.path(), &sizes, [7, 8]).unwrap();
        let heads = maps.regions().heads[2].len() as u32 * 2;
        let pin = folder.path().join("nat64_session");
        std::fs::remove_file(&pin).unwrap();
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            map_flags: libbpf_sys::BPF_F_MMAPABLE,
            ..Default::default()
        };
        let mut more =
            MapHandle::create(MapType::Array, Some("heads"), 4, 8, heads, &options).unwrap();
        more.pin(&pin).unwrap();
        assert!(StateMaps::open(folder.path(), &sizes, [1, 1]).is_err(), "not what the tables say");
        maps.regions().meta.masks[2].store(heads - 1, SeqCst);
        drop(maps);
        let (maps, origin) = StateMaps::open(folder.path(), &sizes, [1, 1]).unwrap();
        assert_eq!(origin, Origin::Adopted);
        assert_eq!(maps.regions().heads[2].len() as u32, heads);
        assert_eq!(maps.regions().octets(), sizes.octets() + 8 * u64::from(heads / 2));
    });
}

/// Programs and the core find each other's entries at the end of a large table.
#[test]
fn an_index_may_have_more_than_24_bits() {
    const FIRST: u32 = 1 << 24;
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap();
    let available = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    let available: u64 = available.split_whitespace().next().unwrap().parse().unwrap();
    if available < 3 << 20 {
        return fordway_testhost::skip("a table of 16.8 million sessions needs 1.2 GB of memory");
    }
    in_namespace(|| {
        let mut settings = settings();
        settings.sizes.sessions = FIRST + 64;
        let shared = Shared::new(settings);
        let fresh = &shared.maps.regions().meta.fresh[1];
        fresh.store(FIRST, SeqCst);
        // The core makes the subscriber.
        shared.core(1).translate(&from_v6(host(0), 4000, remote(0)));
        let mut program = shared.program();
        for number in 0..3 {
            let packet = frame(&from_v6(host(number), 5000, remote(1)));
            for _ in 0..2 {
                let run = program.run(Program::Interface, &packet, 0, 1).unwrap();
                assert_eq!(run.outcome, Some(Outcome::Translated));
            }
        }
        assert_eq!(
            fresh.load(SeqCst),
            FIRST + 1 + 16,
            "one of the core's, and what a program takes at once"
        );
        let sessions: Vec<_> = shared.nat.sessions(shared.now()).collect();
        assert_eq!(sessions.len(), 4);
        for session in sessions.iter().filter(|session| session.binding.v6.1 == 5000) {
            assert_eq!(session.counts[1].0, 2, "found again: {session:?}");
        }
        shared.wait(Duration::from_secs(10_000));
        let mut sweeper = Sweeper::new();
        assert_eq!(sweeper.sweep(&shared.nat, shared.now(), &mut |_| {}).sessions, [0; 3]);
        sweeper.release(&shared.nat);
        assert_eq!(shared.maps.regions().sessions[FIRST as usize].life.load(SeqCst), 0, "free");
    });
}

/// A program takes entries that were never used several at once; the last ones of a table, too.
#[test]
fn programs_fill_a_table_to_its_last_entry() {
    in_namespace(|| {
        let mut settings = settings();
        (settings.sizes.sessions, settings.sizes.bibs) = (41, 41);
        let shared = Shared::new(settings);
        // Entry 0 is none.
        let entries = shared.maps.regions().sessions.len() - 1;
        assert!(!(entries - 1).is_multiple_of(16), "the last ones are fewer");
        // The core makes the subscriber.
        shared.core(1).translate(&from_v6(host(0), 4000, remote(0)));
        let mut program = shared.program();
        let mut open = |port| {
            let packet = frame(&from_v6(host(0), port, remote(1)));
            program.run(Program::Interface, &packet, 0, 1).unwrap().outcome
        };
        let full = (5000..).find(|&port| open(port) != Some(Outcome::Translated)).unwrap();
        assert_eq!(usize::from(full - 5000), entries - 1);
        assert!(matches!(open(full), Some(Outcome::PassedOn(_))));
        assert_eq!(open(5000), Some(Outcome::Translated), "what is in it");
        assert_eq!(shared.nat.sessions(shared.now()).count(), entries);
        check(&shared);
    });
}

/// An earlier version hashed sessions by address where filtering is address-dependent: such tables would be misread.
#[test]
fn tables_of_an_earlier_version_are_replaced() {
    in_namespace(|| {
        let folder = Folder::new();
        let sizes = settings().sizes;
        let (old, _) = StateMaps::open(folder.path(), &sizes, [7, 8]).unwrap();
        let live = u64::from(TcpState::Established as u8) << 32;
        old.regions().sessions[3].life.store(live, SeqCst);
        old.regions().meta.by_address.store(1, SeqCst);
        // The table for permissions is larger.
        let sizes = Sizes { sessions: sizes.sessions * 2, ..sizes };
        let (maps, origin) = StateMaps::open(folder.path(), &sizes, [9, 10]).unwrap();
        assert_eq!(origin, Origin::Replaced(1));
        assert_eq!(maps.regions().meta.secret[0].load(SeqCst), 9);
        assert_eq!(old.regions().sessions[3].life.load(SeqCst), live, "programs may still use it");
        drop((maps, old));
        let (_, origin) = StateMaps::open(folder.path(), &sizes, [1, 1]).unwrap();
        assert_eq!(origin, Origin::Adopted);
    });
}

#[test]
fn tables_outlive_their_process() {
    in_namespace(|| {
        let folder = Folder::new();
        let sizes = settings().sizes;
        let (maps, origin) = StateMaps::open(folder.path(), &sizes, [7, 8]).unwrap();
        assert_eq!(origin, Origin::Made);
        assert_eq!(maps.regions().octets(), sizes.octets());
        maps.regions().bibs[5].v4_port.store(77, SeqCst);
        drop(maps);
        // The secret is that of who made them.
        let (maps, origin) = StateMaps::open(folder.path(), &sizes, [9, 10]).unwrap();
        assert_eq!(origin, Origin::Adopted);
        assert_eq!(maps.regions().bibs[5].v4_port.load(SeqCst), 77);
        assert_eq!(maps.regions().meta.secret[0].load(SeqCst), 7);

        let others = Sizes { sessions: sizes.sessions * 2, ..sizes };
        let refused = StateMaps::open(folder.path(), &others, [1, 1]).unwrap_err();
        assert!(matches!(refused, Error::Unsupported(_)), "{refused}");
        assert!(refused.hint().is_some());
        maps.regions().meta.layout.store(0, SeqCst);
        assert!(StateMaps::open(folder.path(), &sizes, [1, 1]).is_err(), "another layout");

        StateMaps::discard(folder.path()).unwrap();
        assert!(!folder.path().exists(), "nothing else was there");
        let (_, origin) = StateMaps::open(folder.path(), &others, [1, 1]).unwrap();
        assert_eq!(origin, Origin::Made);
        assert!(fordway_bpf::take_down(folder.path()).unwrap());
        assert!(!folder.path().exists());
    });
}
