//! Attaching programs to devices, and switching what is attached to other programs.
//!
//! Links (tcx, XDP) are pinned and vanish with their pin; filters stay until they are removed. If a step fails, the earlier
//! steps are rolled back.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use libbpf_rs::Link;
use libbpf_rs::query::{LinkInfo, LinkTypeInfo};

use crate::clsact::Filter;
use crate::device::Device;
use crate::error::io_error;
use crate::object::Programs;
use crate::pins::{Pin, Pins};
use crate::sys::{self, LinkType, TcxHook};
use crate::{Error, Place, Program, Result};

/// One program at one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The device.
    pub ifindex: u32,
    /// Where at the device.
    pub place: Place,
    /// By which means of the kernel.
    pub kind: Kind,
    /// The program's number in the kernel.
    pub program_id: u32,
    /// At XDP in front of the stack: why the driver refused the program.
    pub refusal: Option<String>,
}

/// How a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A tcx link.
    Tcx,
    /// A filter of the clsact queueing discipline.
    Clsact,
    /// An XDP link in the driver.
    XdpNative,
    /// An XDP link in front of the stack.
    XdpGeneric,
}

impl Kind {
    /// The name in status.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Kind::Tcx => "tcx",
            Kind::Clsact => "clsact",
            Kind::XdpNative => "xdp native",
            Kind::XdpGeneric => "xdp generic",
        }
    }
}

/// A program that has to be at a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) ifindex: u32,
    pub(crate) place: Place,
    pub(crate) program: Program,
    pub(crate) from: &'a Programs,
}

impl Wanted<'_> {
    /// Whether no other program may run before it. At an uplink's egress, a program that ends the chain would let IPv4
    /// leave untranslated. Everywhere else a packet that bypasses a program reaches the interface, and with it the user
    /// engine; and other software that drops packets at an ingress still sees them untranslated.
    pub(crate) fn is_first(&self) -> bool {
        matches!(self.program, Program::UplinkEgress | Program::SoftwireUplinkEgress)
    }
}

/// Brings each wanted program to its device; where an earlier one of ours is, it is switched over
/// atomically. `held` are programs that may be attached now.
pub(crate) fn switch<'a>(
    pins: &'a Pins,
    wanted: &[Wanted<'_>],
    clsact: bool,
    held: &'a [&'a Programs],
) -> Result<Vec<Attachment>> {
    let mut switching = Switching { pins, held, undo: Vec::new() };
    let mut attachments = Vec::new();
    for wanted in wanted {
        match switching.put(*wanted, clsact) {
            Ok(attachment) => attachments.push(attachment),
            Err(error) => {
                // Errors are ignored: the first error is the one to report.
                switching.undo.into_iter().rev().for_each(|step| step());
                return Err(error);
            }
        }
    }
    Ok(attachments)
}

/// Takes off what is pinned and not among `attachments`.
pub(crate) fn remove_others(pins: &Pins, attachments: &[Attachment]) -> Result<()> {
    let wanted: Vec<Pin> = attachments.iter().map(pin_of).collect();
    for pin in pins.list()?.unwrap_or_default() {
        match pin {
            Pin::Link(..) if !wanted.contains(&pin) => remove_link(pins, pin)?,
            Pin::Filter(place, ifindex) if !wanted.contains(&pin) => {
                Filter { pins, place, ifindex, first: false }.take_down()?;
            }
            _ => {}
        }
    }
    // A mark whose filters are gone already.
    for pin in pins.list()?.unwrap_or_default() {
        let Pin::Clsact(ifindex) = pin else { continue };
        let filters = [Place::Egress, Place::Ingress].map(|place| Pin::Filter(place, ifindex));
        if !filters.iter().any(|filter| wanted.contains(filter)) {
            Filter { pins, place: Place::Egress, ifindex, first: false }.release()?;
        }
    }
    Ok(())
}

fn pin_of(attachment: &Attachment) -> Pin {
    let Attachment { place, ifindex, kind, .. } = *attachment;
    if kind == Kind::Clsact { Pin::Filter(place, ifindex) } else { Pin::Link(place, ifindex) }
}

fn remove_link(pins: &Pins, pin: Pin) -> Result<()> {
    if let Ok(link) = Link::open(pins.path(pin)) {
        // Fails if the device has gone. The pin goes nevertheless, and with it the link.
        let _ = link.detach();
    }
    pins.remove(pin)
}

/// A change that is on its way.
struct Switching<'a> {
    pins: &'a Pins,
    held: &'a [&'a Programs],
    /// How to take each step back.
    undo: Vec<Box<dyn FnOnce() + 'a>>,
}

impl<'a> Switching<'a> {
    fn put(&mut self, wanted: Wanted<'_>, clsact: bool) -> Result<Attachment> {
        let Wanted { ifindex, place, program, from } = wanted;
        let first = wanted.is_first();
        let mut refusal = None;
        let missing = || self.failed("attach to", ifindex, io::ErrorKind::NotFound.into());
        let program = from.program(program).ok_or_else(missing)?;
        let kind = match place {
            Place::Xdp => self.put_xdp(ifindex, program, &mut refusal)?,
            _ if clsact => self.put_filter(place, ifindex, first, program)?,
            _ => self.put_tcx(place, ifindex, first, program)?,
        };
        let program_id = libbpf_rs::Program::id_from_fd(program)
            .map_err(|error| self.failed("look at", ifindex, io_error(&error)))?;
        Ok(Attachment { ifindex, place, kind, program_id, refusal })
    }

    fn put_tcx(
        &mut self,
        place: Place,
        ifindex: u32,
        first: bool,
        program: BorrowedFd<'_>,
    ) -> Result<Kind> {
        let pin = Pin::Link(place, ifindex);
        if self.update_link(pin, ifindex, program)? {
            return Ok(Kind::Tcx);
        }
        let link_type = match place {
            Place::Ingress => LinkType::TcxIngress,
            _ if first => LinkType::TcxEgressFirst,
            _ => LinkType::TcxEgress,
        };
        let link = sys::link_create(program, ifindex, link_type).map_err(|source| {
            self.failed(&format!("attach to the {} of", place.label()), ifindex, source)
        })?;
        self.keep_link(pin, link.as_fd())?;
        Ok(Kind::Tcx)
    }

    /// In the driver if that supports it, else in front of the stack; `refusal` is then the driver's error.
    fn put_xdp(
        &mut self,
        ifindex: u32,
        program: BorrowedFd<'_>,
        refusal: &mut Option<String>,
    ) -> Result<Kind> {
        let pin = Pin::Link(Place::Xdp, ifindex);
        if self.update_link(pin, ifindex, program)? {
            let state = sys::xdp_state(ifindex);
            let generic = state.is_ok_and(|state| state.generic);
            return Ok(if generic { Kind::XdpGeneric } else { Kind::XdpNative });
        }
        for (link_type, kind) in
            [(LinkType::XdpNative, Kind::XdpNative), (LinkType::XdpGeneric, Kind::XdpGeneric)]
        {
            match sys::link_create(program, ifindex, link_type) {
                Ok(link) => {
                    self.keep_link(pin, link.as_fd())?;
                    return Ok(kind);
                }
                Err(error) if is_taken(&error) => {
                    return Err(Error::Busy { device: device_name(ifindex) });
                }
                Err(error) if kind == Kind::XdpNative && is_driver_refusal(&error) => {
                    *refusal = Some(error.to_string());
                }
                Err(error) => return Err(self.failed("attach XDP to", ifindex, error)),
            }
        }
        Err(self.failed("attach XDP to", ifindex, io::ErrorKind::Unsupported.into()))
    }

    fn put_filter(
        &mut self,
        place: Place,
        ifindex: u32,
        first: bool,
        program: BorrowedFd<'_>,
    ) -> Result<Kind> {
        let pins = self.pins;
        let filter = Filter { pins, place, ifindex, first };
        let pin = Pin::Filter(place, ifindex);
        filter.prepare(program)?;
        let earlier = filter.attached(program);
        let former = earlier.and_then(|id| self.program(id));
        // Before the first filter, so that a killed process leaves none without a pin; else after
        // the switch, so that the pin is never ahead of the filter.
        if earlier.is_none() {
            pins.put(pin, program)?;
        }
        self.undo.push(Box::new(move || {
            let filter = Filter { pins, place, ifindex, first };
            if let Some(former) = former {
                let _ = filter.put(former.as_fd());
                let _ = filter.pin(former.as_fd());
            } else {
                let _ = filter.take_down();
            }
        }));
        filter.put(program).map_err(|source| {
            self.failed(&format!("attach a filter to the {} of", place.label()), ifindex, source)
        })?;
        filter.pin(program)?;
        Ok(Kind::Clsact)
    }

    /// Switches a pinned link over. `false`: there is none at this device.
    fn update_link(&mut self, pin: Pin, ifindex: u32, program: BorrowedFd<'_>) -> Result<bool> {
        let Some(link) = self.pins.open(pin)? else { return Ok(false) };
        let info = LinkInfo::from_fd(link.as_fd())
            .map_err(|error| self.failed("look at the link to", ifindex, io_error(&error)))?;
        // 0 when the device has gone, even if another has its index now.
        let at = match info.info {
            LinkTypeInfo::Tcx(tcx) => tcx.ifindex,
            LinkTypeInfo::Xdp(xdp) => xdp.ifindex,
            _ => 0,
        };
        if at != ifindex {
            self.pins.remove(pin)?;
            return Ok(false);
        }
        let earlier = self.program(info.prog_id);
        sys::link_update(link.as_fd(), program)
            .map_err(|source| self.failed("switch the program at", ifindex, source))?;
        if let Some(earlier) = earlier {
            self.undo.push(Box::new(move || {
                let _ = sys::link_update(link.as_fd(), earlier.as_fd());
            }));
        }
        Ok(true)
    }

    fn keep_link(&mut self, pin: Pin, link: BorrowedFd<'_>) -> Result<()> {
        self.pins.put(pin, link)?;
        let pins = self.pins;
        self.undo.push(Box::new(move || drop(remove_link(pins, pin))));
        Ok(())
    }

    /// A program that may have to come back.
    fn program(&self, id: u32) -> Option<OwnedFd> {
        let held = self.held.iter().find_map(|programs| programs.by_id(id));
        if let Some(program) = held {
            return program.try_clone_to_owned().ok();
        }
        // An earlier process's: looking it up by its number would need all of root's rights.
        Program::ALL.into_iter().find_map(|program| {
            let program = sys::open_pin(&self.pins.path(Pin::Program(program))).ok()?;
            let found = libbpf_rs::Program::id_from_fd(program.as_fd()).ok()?;
            (found == id).then_some(program)
        })
    }

    fn failed(&self, operation: &str, ifindex: u32, source: io::Error) -> Error {
        Error::Attach { operation: operation.to_owned(), device: device_name(ifindex), source }
    }
}

/// Programs and filters of other software that run before ours where they must not, by device, as texts.
pub(crate) fn ahead(
    pins: &Pins,
    wanted: &[Wanted<'_>],
    attachments: &[Attachment],
) -> io::Result<Vec<(u32, Vec<String>)>> {
    let mut found = Vec::new();
    let translators = translators_beside(pins);
    for wanted in wanted.iter().filter(|wanted| wanted.is_first()) {
        let (ifindex, place) = (wanted.ifindex, wanted.place);
        let here = |it: &&Attachment| it.ifindex == ifindex && it.place == place;
        let Some(ours) = attachments.iter().find(here) else { continue };
        let ahead = if ours.kind == Kind::Clsact {
            Filter { pins, place, ifindex, first: true }.ahead(&translators)?
        } else {
            let programs = sys::tcx_programs(ifindex, TcxHook::Egress)?;
            let before = programs.iter().take_while(|number| **number != ours.program_id);
            let others = before.filter(|number| !is_of_one(&translators, **number));
            others.map(|number| format!("program {number}")).collect()
        };
        if !ahead.is_empty() {
            found.push((ifindex, ahead));
        }
    }
    Ok(found)
}

/// The folders of pins of this namespace's translators, which leave each other's packets alone.
fn translators_beside(pins: &Pins) -> Vec<PathBuf> {
    let folders = pins.folder().parent().and_then(|folder| folder.read_dir().ok());
    folders.into_iter().flatten().flatten().map(|folder| folder.path()).collect()
}

/// Whether it is a program of one of the translators with these folders.
fn is_of_one(folders: &[PathBuf], number: u32) -> bool {
    folders.iter().any(|folder| {
        let pins = Pins::at(folder);
        Program::ALL.into_iter().any(|program| {
            sys::open_pin(&pins.path(Pin::Program(program))).is_ok_and(|program| {
                libbpf_rs::Program::id_from_fd(program.as_fd()).is_ok_and(|found| found == number)
            })
        })
    })
}

pub(crate) fn device_name(ifindex: u32) -> String {
    Device::by_index(ifindex).map_or_else(|_| format!("device {ifindex}"), |device| device.name)
}

/// Another program has the hook.
fn is_taken(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let number = error.raw_os_error();
    number == Some(Errno::BUSY.raw_os_error()) || number == Some(Errno::EXIST.raw_os_error())
}

/// The driver can't, or not with the device's present settings.
fn is_driver_refusal(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let own = [Errno::PERM, Errno::ACCESS, Errno::NODEV, Errno::NOMEM].map(Errno::raw_os_error);
    error.raw_os_error().is_none_or(|number| !own.contains(&number))
}
