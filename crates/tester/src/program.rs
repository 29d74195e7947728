//! The program of `c/tester.bpf.c` at a device.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder};

use crate::frame::MAGIC;

/// The compiled object. ELF structures are read where they lie.
#[repr(C, align(8))]
struct Compiled<T: ?Sized>(T);

static OBJECT: &Compiled<[u8]> = &Compiled(*include_bytes!(concat!(env!("OUT_DIR"), "/tester.o")));

/// The program at a device. Dropping it takes the program off; so does the end of the process, however it ends.
#[derive(Debug)]
pub(crate) struct Program {
    // Dropped first.
    _link: Link,
    object: Object,
}

impl Program {
    /// Puts the program at a device of the calling thread's namespace that has queues up to `queues`, at the driver's hook
    /// where it has one.
    pub(crate) fn attach(device: u32, queues: u32) -> Result<Self> {
        let mut open = ObjectBuilder::default().open_memory(&OBJECT.0).map_err(explained)?;
        for mut map in open.maps_mut() {
            if map.name() == "sockets" {
                map.set_max_entries(queues).map_err(explained)?;
            } else if map.name().to_string_lossy().ends_with(".rodata") {
                // The only constant.
                let content = map.initial_value_mut().unwrap_or_default();
                let magic = content.get_mut(..2).ok_or_else(|| missing("variable"))?;
                magic.copy_from_slice(&MAGIC.to_ne_bytes());
            }
        }
        let object = open.load().map_err(explained)?;
        let program = object.progs_mut().find(|it| it.name() == "receive");
        let program = program.ok_or_else(|| missing("program"))?;
        let link = program.attach_xdp(device as i32).map_err(explained)?;
        Ok(Self { _link: link, object })
    }

    /// Frames that came to queues without a socket.
    pub(crate) fn missed(&self) -> Result<u64> {
        let map = self.object.maps().find(|map| map.name().to_string_lossy().ends_with(".bss"));
        let map = map.ok_or_else(|| missing("counter"))?;
        let octets = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(explained)?;
        // The only variable.
        let word = octets.as_ref().and_then(|octets| octets.first_chunk());
        Ok(u64::from_ne_bytes(*word.ok_or_else(|| missing("counter"))?))
    }

    /// Sends what arrives at a queue to a socket.
    pub(crate) fn redirect(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<()> {
        let map = self.object.maps().find(|map| map.name() == "sockets");
        let descriptor = socket.as_fd().as_raw_fd();
        map.ok_or_else(|| missing("map"))?
            .update(&queue.to_ne_bytes(), &descriptor.to_ne_bytes(), MapFlags::ANY)
            .map_err(explained)
    }
}

fn missing(what: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("the tester's object has no {what}"))
}

#[allow(clippy::needless_pass_by_value, reason = "an argument of map_err")]
fn explained(error: libbpf_rs::Error) -> Error {
    Error::other(format!("the tester's program: {error:#}"))
}
