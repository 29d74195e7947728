//! The kernel engine of one translator.

use std::path::Path;

use fordway_xlat::Config;

use crate::{Events, Options, Result, Totals};

/// The kernel engine of one translator: its programs, attached and pinned.
///
/// Dropping it leaves everything attached and pinned; [`detach`](Accelerator::detach) takes it down.
#[derive(Debug)]
pub struct Accelerator {
    attachments: Vec<Attachment>,
}

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
}

/// Where at a device a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// On what the host sends.
    Egress,
    /// On what the host receives.
    Ingress,
    /// On what the driver receives.
    Xdp,
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

impl Accelerator {
    /// Loads, attaches and pins. Where an earlier process left attachments under the pins, these are
    /// switched over without a gap, and its counters go on. On error everything is as before.
    pub fn start(config: &Config, options: &Options) -> Result<Accelerator> {
        let _ = (config, options);
        todo!()
    }

    /// The same with another configuration or other options, each attachment switched atomically. On
    /// error the old programs go on. The pins stay where they were.
    pub fn replace(&mut self, config: &Config, options: &Options) -> Result<()> {
        let _ = (config, options);
        todo!()
    }

    /// What the programs counted.
    pub fn totals(&self) -> Result<Totals> {
        todo!()
    }

    /// What is attached where.
    #[must_use]
    pub fn attachments(&self) -> &[Attachment] {
        &self.attachments
    }

    /// A reader of trace events; `None` if tracing is off. One reader at a time: two would share the
    /// events. After [`replace`](Accelerator::replace) a new one is needed.
    pub fn events(&self) -> Result<Option<Events>> {
        todo!()
    }

    /// Takes everything down: links, filters, clsact queueing disciplines that were made here and that
    /// nobody else uses, pins. What is gone already is no error.
    pub fn detach(self) -> Result<()> {
        todo!()
    }
}

/// Takes down what an earlier process left under `pins`. `false`: there was nothing.
pub fn take_down(pins: &Path) -> Result<bool> {
    let _ = pins;
    todo!()
}
