//! The store is there, but ill: it answers now and then, or late, or its disk is full.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use fordway_testhost::has_programs;
use fordway_testhost::namespace::can_test;
use nix::sys::signal::Signal;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};
use serde_json::{Value, json};

use crate::gateway::timing;
use crate::late::Late;
use crate::ownership::{fill, longer_than_a_lease};
use crate::world::{World, owned};

/// A disk in memory that is mounted nowhere: it is seen through this process, and ends with it.
struct Disk(OwnedFd);

impl Disk {
    fn new(octets: u32) -> Self {
        let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).unwrap();
        fsconfig_set_string(&context, "size", octets.to_string()).unwrap();
        fsconfig_create(&context).unwrap();
        let flags = FsMountFlags::FSMOUNT_CLOEXEC;
        Disk(fsmount(&context, flags, MountAttrFlags::empty()).unwrap())
    }

    fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()).into()
    }

    /// Leaves no octet free.
    fn fill(&self) {
        let mut file = fs::File::create(self.path().join("ballast")).unwrap();
        let full = loop {
            if let Err(error) = file.write_all(&[0; 4096]) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::StorageFull);
    }

    fn free(&self) {
        fs::remove_file(self.path().join("ballast")).unwrap();
    }
}

/// Three gateways and so many servers, of which the first one's files are on this disk.
fn on(disk: &Disk, servers: u16) -> World {
    World::with([servers, 3, 16], |folder, _| {
        std::os::unix::fs::symlink(disk.path(), folder.join("nats0")).unwrap();
        (String::new(), Value::Null)
    })
}

/// Waits until all leases last without the store, longer than any of its own answers would let them.
fn silent(world: &mut World, what: &str) {
    let is = |all: &[(usize, Value)]| {
        all.iter().all(|(_, one)| one["is_silent"] == true && one["left_ms"].as_u64() > Some(0))
    };
    world.until(what, is);
    longer_than_a_lease();
    world.until(what, is);
}

/// Which gateway owns which shards.
fn owners(all: &[(usize, Value)]) -> Vec<Value> {
    all.iter().map(|(_, one)| one["owned"].clone()).collect()
}

/// The store is well: shards move with their records.
fn moves_again(world: &mut World) {
    let before = world.settled(&[0, 1, 2]);
    world.tell(0, "drain");
    let drained = world.settled(&[1, 2]);
    assert_eq!(owned(&before), owned(&drained));
}

#[test]
fn nothing_moves_while_the_store_answers_now_and_then() {
    if !can_test() || !has_programs(&["nats-server"]) {
        return;
    }
    let mut world = World::new(1, 3, 16);
    let before = world.settled(&[0, 1, 2]);
    for _ in 0..3 {
        world.nats.signal(0, Signal::SIGSTOP);
        silent(&mut world, "the store is silent, and leases last");
        world.nats.signal(0, Signal::SIGCONT);
        // Some renewals arrive, others don't.
        std::thread::sleep(Duration::from_nanos(timing().renew / 4));
    }
    assert_eq!(owners(&before), owners(&fill(&mut world)));
    moves_again(&mut world);
    world.check();
}

#[test]
fn nothing_moves_by_itself_while_the_store_is_slow() {
    if !can_test() || !has_programs(&["nats-server"]) {
        return;
    }
    let mut world =
        World::with([1, 3, 16], |_, _| (String::new(), json!({ "servers": [Late::url()] })));
    let late = Late::start(&world.middle);
    let before = world.settled(&[0, 1, 2]);
    // Acknowledgements come after half a lease, and after two, when promises of the others are what lasts.
    let ttl = Duration::from_nanos(timing().ttl);
    for delay in [ttl / 4, ttl] {
        late.set(delay);
        for _ in 0..4 {
            std::thread::sleep(ttl / 2);
            let all = world.all();
            let lasts = |(_, one): &(usize, Value)| one["left_ms"].as_u64() > Some(0);
            assert!(all.iter().all(lasts), "{delay:?}: {all:?}");
            assert_eq!(owners(&before), owners(&all), "{delay:?}: nothing moves");
        }
        assert!(world.all().iter().all(|(_, one)| one["is_silent"] == true), "{delay:?}");
        fill(&mut world);
    }
    // What an operator wants happens, late.
    late.set(ttl / 4);
    moves_again(&mut world);
    late.set(Duration::ZERO);
    world.tell(0, "join");
    world.settled(&[0, 1, 2]);
    world.check();
}

#[test]
fn translation_goes_on_while_the_disk_of_the_store_is_full() {
    if !can_test() || !has_programs(&["nats-server"]) {
        return;
    }
    let disk = Disk::new(16 << 20);
    let mut world = on(&disk, 1);
    let before = world.settled(&[0, 1, 2]);
    disk.fill();
    silent(&mut world, "no write is acknowledged, and leases last");
    assert_eq!(owners(&before), owners(&world.all()), "nothing moves");
    world.tell(1, "traffic 300");
    disk.free();
    // A server whose disk was full takes nothing more until it is started anew.
    world.nats.kill(0);
    world.nats.start_one(0);
    world.until("the store is back", |all| all.iter().all(|(_, one)| one["is_silent"] == false));
    assert_eq!(owners(&before), owners(&fill(&mut world)));
    moves_again(&mut world);
    world.check();
}

/// A server of 2.9 whose disk is full goes on to take part in elections, and watches at it stand still.
#[test]
fn a_full_disk_of_one_of_three_harms_no_more_than_its_server() {
    if !can_test() || !has_programs(&["nats-server"]) {
        return;
    }
    let disk = Disk::new(16 << 20);
    let mut world = on(&disk, 3);
    let before = world.settled(&[0, 1, 2]);
    disk.fill();
    longer_than_a_lease();
    let full = world
        .until("leases last", |all| all.iter().all(|(_, one)| one["left_ms"].as_u64() > Some(0)));
    assert_eq!(owners(&before), owners(&full), "nothing moves");
    world.nats.kill(0);
    fill(&mut world);
    moves_again(&mut world);
    disk.free();
    world.nats.start_one(0);
    world.tell(0, "join");
    world.settled(&[0, 1, 2]);
    world.check();
}
