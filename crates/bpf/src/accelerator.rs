//! The kernel engine of one translator.

use std::io;
use std::path::Path;

use fordway_xlat::Config;

use crate::abi::ABI_VERSION;
use crate::engine::Engine;
use crate::pins::{Pin, Pins};
use crate::{Attachment, Events, Options, Result, Totals, attach, sys};

/// The kernel engine of one translator: its programs, attached and pinned.
///
/// Dropping it leaves everything attached and pinned; [`detach`](Accelerator::detach) takes it down.
#[derive(Debug)]
pub struct Accelerator {
    engine: Engine,
    attachments: Vec<Attachment>,
    pins: Pins,
}

impl Accelerator {
    /// Loads, attaches and pins. Where an earlier process left attachments under the pins, these are
    /// switched over without a gap, and its counters go on. On error everything is as before.
    pub fn start(config: &Config, options: &Options) -> Result<Accelerator> {
        let pins = Pins::create(&options.pins)?;
        let (engine, attachments) = match switch(config, options, &pins, None) {
            Ok(switched) => switched,
            Err(error) => {
                // Only an empty folder can be removed.
                let _ = pins.remove_folder();
                return Err(error);
            }
        };
        if let Err(error) = tidy(&engine, &attachments, &pins) {
            // No value would own the attachments.
            let _ = take_down(pins.folder());
            return Err(error);
        }
        Ok(Accelerator { engine, attachments, pins })
    }

    /// Loads programs for another configuration or other options, and switches each attachment atomically.
    /// The pins stay where they were. On error the old programs stay attached, unless only the removal
    /// of an old attachment failed: then the new ones are attached.
    pub fn replace(&mut self, config: &Config, options: &Options) -> Result<()> {
        // The folder may have been removed.
        self.pins = Pins::create(self.pins.folder())?;
        (self.engine, self.attachments) = switch(config, options, &self.pins, Some(&self.engine))?;
        tidy(&self.engine, &self.attachments, &self.pins)
    }

    /// Whether its pins can be moved. Filters of clsact are told from others' by the folder.
    pub fn can_move(&self) -> Result<bool> {
        let pins = self.pins.list()?.unwrap_or_default();
        Ok(!pins.iter().any(|pin| matches!(pin, Pin::Filter(..) | Pin::Clsact(_))))
    }

    /// Moves its pins to another folder beside it, which may not have any.
    pub fn move_to(&mut self, folder: &Path) -> Result<()> {
        self.pins = self.pins.moved(folder)?;
        Ok(())
    }

    /// What the programs counted.
    pub fn totals(&self) -> Result<Totals> {
        self.engine.totals()
    }

    /// What is attached where.
    #[must_use]
    pub fn attachments(&self) -> &[Attachment] {
        &self.attachments
    }

    /// Programs and filters of other software that run before the one at an uplink's egress, by device, as texts: packets
    /// that they accept may leave untranslated.
    pub fn ahead(&self) -> io::Result<Vec<(u32, Vec<String>)>> {
        attach::ahead(&self.pins, &self.engine.wanted(), &self.attachments)
    }

    /// What the programs in front of routing counted; `None` if there are none.
    pub fn front_totals(&self) -> Result<Option<Totals>> {
        self.engine.front_totals()
    }

    /// A reader of trace events; `None` if tracing is off. One reader at a time: two would share the
    /// events. It goes on over a [`replace`](Accelerator::replace) that leaves tracing on.
    pub fn events(&self) -> Result<Option<Events>> {
        self.engine.trace().map(Events::open).transpose()
    }

    /// Takes everything down: links, filters, clsact queueing disciplines that were made here and that
    /// nothing else uses, pins. It is no error if some are missing already.
    pub fn detach(self) -> Result<()> {
        take_down(self.pins.folder()).map(drop)
    }
}

/// Takes down what an earlier process left under `pins`. `false`: there was nothing.
pub fn take_down(pins: &Path) -> Result<bool> {
    let pins = Pins::at(pins);
    if pins.list()?.is_none() {
        return Ok(false);
    }
    attach::remove_others(&pins, &[])?;
    for pin in pins.list()?.unwrap_or_default() {
        pins.remove(pin)?;
    }
    pins.remove_folder()?;
    Ok(true)
}

/// Loads new programs and switches everything over to them.
fn switch(
    config: &Config,
    options: &Options,
    pins: &Pins,
    earlier: Option<&Engine>,
) -> Result<(Engine, Vec<Attachment>)> {
    let engine = Engine::load(config, options, pins, earlier)?;
    let clsact = options.force_clsact || !sys::has_tcx();
    let held = earlier.map(Engine::programs).unwrap_or_default();
    let switched =
        engine.fill_devices().and_then(|()| attach::switch(pins, &engine.wanted(), clsact, &held));
    match switched {
        Ok(attachments) => Ok((engine, attachments)),
        Err(error) => {
            engine.discard(pins);
            Err(error)
        }
    }
}

/// Cleans up once the new programs are attached.
fn tidy(engine: &Engine, attachments: &[Attachment], pins: &Pins) -> Result<()> {
    engine.fill_devices()?;
    attach::remove_others(pins, attachments)?;
    engine.pin_programs(pins)?;
    for pin in pins.list()?.unwrap_or_default() {
        let stale = match pin {
            Pin::Counters(_, version) | Pin::Layout(version) => version != ABI_VERSION,
            Pin::Program(program) => !engine.has(program),
            Pin::State(_) => !engine.is_stateful(),
            Pin::Gates => !engine.is_shared(),
            Pin::Unfinished => true,
            Pin::Link(..) | Pin::Filter(..) | Pin::Clsact(_) => false,
        };
        if stale {
            pins.remove(pin)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_and_readers_move_between_threads() {
        fn moves<T: Send>() {}
        moves::<Accelerator>();
        moves::<Events>();
    }
}
