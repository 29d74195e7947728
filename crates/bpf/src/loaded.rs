//! Programs that are loaded but not attached, for tests and benchmarks.

use std::sync::Arc;

use fordway_xlat::Config;
use libbpf_rs::ProgramInput;

use crate::abi::{Abi, FwCounters, FwDirectionCounters};
use crate::convert::{
    Extra, convert, convert_stateful, convert_tunnels, eam_in_maps, relevant, softwire_config,
};
use crate::counters::{self, Snapshot};
use crate::error::io_error;
use crate::events::drop_reason;
use crate::object::{Programs, Request};
use crate::{
    Error, Events, Forwarding, Outcome, PassReason, Program, Result, RoutingNews, Stateful, Totals,
    Tunnels, Unsupported,
};

/// What the time is for the programs of a stateful translator. The tables'
/// [`Meta`](fordway_xlat::nat64::layout::Meta) has the offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// `CLOCK_MONOTONIC`, as for the daemon's programs.
    Machine = 0,
    /// `CLOCK_MONOTONIC` and the offset.
    #[default]
    Moved = 1,
    /// The offset alone: time passes only when that is changed.
    Stands = 2,
}

/// How programs are loaded for tests.
#[derive(Clone, Debug, Default)]
pub struct TestOptions {
    /// The interface index that the programs take for the translator's TUN device.
    pub tun: u32,
    /// Take the time that each translation needs.
    pub measure: bool,
    /// Write events, at most so many per second and processor.
    pub trace: Option<u32>,
    /// As in [`Options`](crate::Options).
    pub pass_rate: Option<u32>,
    /// The interface indices that XDP may send to.
    pub devices: Vec<u32>,
    /// Of a stateful translator: its settings and tables.
    pub stateful: Option<Stateful>,
    /// Of a stateful translator.
    pub clock: Clock,
    /// Of softwires: settings and bindings.
    pub tunnels: Option<Tunnels>,
    /// Pass on packets without DF that follow one which needs fragments, for a while, as the daemon's programs do.
    pub keep_order: bool,
    /// As in [`Options`](crate::Options).
    pub forward: Forwarding,
    /// What programs in front of routing know of changes. `None`: they keep the kernel's answers for a tick of its clock.
    pub routing: Option<Arc<RoutingNews>>,
}

/// Programs that are loaded but not attached. They go when this is dropped.
#[derive(Debug)]
pub struct Loaded {
    /// Of softwires, or of a translator.
    tc: Option<Programs>,
    /// At most one of its two objects.
    xdp: Option<Programs>,
    /// The counters of `tc` and of `xdp` after the last run: nothing else moves them.
    counted: [Snapshot; 2],
    mark: u32,
}

/// What a program told the kernel to do with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Go on with the frame as it is now: `TC_ACT_UNSPEC`, `XDP_PASS`.
    Continue,
    /// Send it elsewhere: `TC_ACT_REDIRECT`, `XDP_REDIRECT`.
    Redirect,
    /// Drop it: `TC_ACT_SHOT`, `XDP_DROP`.
    Drop,
    /// Another return code.
    Other(i32),
}

/// A program's run on a frame.
#[derive(Clone, Debug)]
pub struct Run {
    /// What the program told the kernel to do.
    pub action: Action,
    /// The program's return code.
    pub code: i32,
    /// By the counters; `None` if nothing, or more than one thing, was counted.
    pub outcome: Option<Outcome>,
    /// The frame afterwards, with its Ethernet header.
    pub frame: Vec<u8>,
    /// Nanoseconds per run.
    pub ns: u32,
}

impl Loaded {
    /// Loads `programs` for `config`, all with an Ethernet header of 14 octets and with the hop-limit
    /// setting of `config`.
    pub fn load(config: &Config, programs: &[Program], options: &TestOptions) -> Result<Loaded> {
        let extra = Extra {
            tun: options.tun,
            link_layer_len: ETHERNET_LEN as u32,
            decrement_hop_limit: config.decrement_hop_limit,
            measure: options.measure,
            trace: options.trace,
            pass_rate: options.pass_rate,
            keep_order: options.keep_order,
            forward: options.forward,
        };
        let stateful = options.stateful.as_ref();
        let config = &*relevant(config, stateful);
        let fw = match &options.tunnels {
            Some(tunnels) => convert_tunnels(&tunnels.settings, extra),
            None => convert(config, extra)?,
        };
        let tunnels = options.tunnels.as_ref();
        let softwire = tunnels.map(|tunnels| softwire_config(&tunnels.settings));
        let mut nat64 = stateful.map(convert_stateful).transpose()?;
        if let Some(nat64) = &mut nat64 {
            nat64.clock = options.clock as u8;
        }
        let load = |file, wanted: &dyn Fn(Program) -> bool| -> Result<Option<Programs>> {
            let programs: Vec<Program> =
                programs.iter().copied().filter(|&program| wanted(program)).collect();
            if programs.is_empty() {
                return Ok(None);
            }
            let eam = eam_in_maps(config).then(|| config.eam.entries());
            let request = Request {
                file,
                programs: &programs,
                config: &fw,
                eam,
                state: stateful.map(|stateful| &*stateful.maps).zip(nat64.as_ref()),
                tunnels: tunnels.map(|tunnels| &*tunnels.maps).zip(softwire.as_ref()),
                gates: stateful.and_then(Stateful::gates),
                routing: options.routing.as_ref().map(|news| news.map()),
                pods: None,
                counters: None,
                trace: None,
            };
            Programs::load(request).map(Some)
        };
        let mut loaded = Loaded {
            tc: match programs.iter().copied().find(|program| !program.is_xdp()) {
                Some(wanted) => load(wanted.file(), &|program| !program.is_xdp())?,
                None => None,
            },
            xdp: match programs.iter().copied().find(|program| program.is_xdp()) {
                Some(wanted) => load(wanted.file(), &|program| program == wanted)?,
                None => None,
            },
            counted: [Snapshot::default(), Snapshot::default()],
            mark: 0,
        };
        for (counted, programs) in loaded.counted.iter_mut().zip([&loaded.tc, &loaded.xdp]) {
            if let Some(programs) = programs {
                *counted = Snapshot::of(&programs.counters)?;
            }
        }
        // Test runs come in at the loopback device, whose address is all zeros.
        loaded.xdp.as_ref().map_or(Ok(()), |xdp| xdp.take_address(LOOPBACK, 0))?;
        for &device in &options.devices {
            loaded.xdp.as_ref().map_or(Ok(()), |xdp| xdp.take_redirected(device))?;
        }
        Ok(loaded)
    }

    /// From now on frames have this mark (not for XDP).
    pub fn set_mark(&mut self, mark: u32) {
        self.mark = mark;
    }

    /// Runs `program` on an Ethernet frame, which arrives at the loopback device: its destination address
    /// has to be zero, or it is for another host. A super-packet if `gso_size` is not 0 (not for XDP).
    ///
    /// With `repeat` above 1 the kernel runs the program on the same buffer again, as the run before
    /// left it.
    pub fn run(
        &mut self,
        program: Program,
        frame: &[u8],
        gso_size: u32,
        repeat: u32,
    ) -> Result<Run> {
        let is_xdp = program.is_xdp();
        let loaded = if is_xdp { &self.xdp } else { &self.tc };
        let missing = || Unsupported::new(format!("the program {} was not loaded", program.name()));
        let loaded = loaded.as_ref().ok_or_else(missing)?;
        let found = loaded.object.progs_mut().find(|found| found.name() == program.name());
        let found = found.filter(|_| loaded.program(program).is_some()).ok_or_else(missing)?;

        let mut context = [0; sk_buff::SIZE];
        self.mark.write(&mut context[sk_buff::MARK..]);
        gso_size.write(&mut context[sk_buff::GSO_SIZE..]);
        segments(frame, gso_size).write(&mut context[sk_buff::GSO_SEGS..]);
        let mut out = vec![0; frame.len() + ROOM];
        let output = found.test_run(ProgramInput {
            context_in: (!is_xdp).then_some(context.as_mut_slice()),
            data_in: Some(frame),
            data_out: Some(&mut out),
            repeat,
            ..ProgramInput::default()
        });
        let counted = &mut self.counted[usize::from(is_xdp)];
        let before = std::mem::replace(counted, Snapshot::of(&loaded.counters)?);
        let output = output
            .map_err(|error| Error::Run { program: program.name(), source: io_error(&error) })?;
        let (code, duration) = (output.return_value as i32, output.duration);
        let len = output.data.map_or(0, |data| data.len());
        out.truncate(len);
        Ok(Run {
            action: if is_xdp { xdp_action(code) } else { tc_action(code) },
            code,
            outcome: outcome(&before, counted),
            frame: out,
            ns: u32::try_from(duration.as_nanos()).unwrap_or(u32::MAX),
        })
    }

    /// The counters so far.
    pub fn totals(&self) -> Result<Totals> {
        let mut totals = Totals::default();
        if let Some(tc) = &self.tc {
            counters::add(&mut totals, &counters::read(&tc.counters)?, false);
        }
        if let Some(xdp) = &self.xdp {
            counters::add(&mut totals, &counters::read(&xdp.counters)?, true);
        }
        Ok(totals)
    }

    /// A reader of trace events of the tc programs, or else of XDP; `None` if tracing is off.
    pub fn events(&self) -> Result<Option<Events>> {
        let programs = self.tc.as_ref().or(self.xdp.as_ref());
        programs.and_then(|programs| programs.trace.as_ref()).map(Events::open).transpose()
    }
}

const ETHERNET_LEN: usize = 14;

/// Its interface index, in every network namespace.
const LOOPBACK: u32 = 1;

/// Places in `struct __sk_buff` of the kernel's interface.
mod sk_buff {
    pub(super) const MARK: usize = 8;
    pub(super) const GSO_SEGS: usize = 164;
    pub(super) const GSO_SIZE: usize = 176;
    pub(super) const SIZE: usize = 192;
}

/// How many packets a super-packet is: what its headers leave, in pieces of `gso_size`.
fn segments(frame: &[u8], gso_size: u32) -> u32 {
    let octet = |at: usize| usize::from(frame.get(at).copied().unwrap_or(0));
    let (transport, protocol) = match octet(ETHERNET_LEN) >> 4 {
        4 => (ETHERNET_LEN + (octet(ETHERNET_LEN) & 15) * 4, octet(ETHERNET_LEN + 9)),
        _ => (ETHERNET_LEN + 40, octet(ETHERNET_LEN + 6)),
    };
    let header = if protocol == 6 { (octet(transport + 12) >> 4) * 4 } else { 8 };
    let payload = frame.len().saturating_sub(transport + header) as u32;
    if gso_size == 0 { 0 } else { payload.div_ceil(gso_size) }
}

/// By how much a program may lengthen a frame: an IPv6 and a Fragment Header instead of an IPv4
/// header, twice in an ICMP error.
const ROOM: usize = 128;

fn tc_action(code: i32) -> Action {
    const UNSPEC: i32 = -1;
    const SHOT: i32 = 2;
    const REDIRECT: i32 = 7;
    match code {
        UNSPEC => Action::Continue,
        SHOT => Action::Drop,
        REDIRECT => Action::Redirect,
        other => Action::Other(other),
    }
}

fn xdp_action(code: i32) -> Action {
    const DROP: i32 = 1;
    const PASS: i32 = 2;
    const REDIRECT: i32 = 4;
    match code {
        DROP => Action::Drop,
        PASS => Action::Continue,
        REDIRECT => Action::Redirect,
        other => Action::Other(other),
    }
}

/// The one thing that was counted in between.
fn outcome(before: &Snapshot, after: &Snapshot) -> Option<Outcome> {
    let mut found = before.changed(after).into_iter().filter_map(counted);
    match (found.next(), found.next()) {
        (Some(outcome), None) => outcome,
        _ => None,
    }
}

/// What the word at this offset of the counters counts. Outer `None`: not an outcome; inner `None`: an unknown one.
fn counted(at: usize) -> Option<Option<Outcome>> {
    let field =
        FwCounters::FIELDS.iter().find(|(_, begin, size)| (*begin..begin + size).contains(&at));
    let &(name, begin, _) = field?;
    let number = || u8::try_from((at - begin) / size_of::<u64>()).ok();
    match name {
        // `packets` is the first of a direction.
        "directions" => (at - begin)
            .is_multiple_of(FwDirectionCounters::SIZE)
            .then_some(Some(Outcome::Translated)),
        "drops" => Some(number().and_then(drop_reason).map(Outcome::Dropped)),
        "passed_on" => Some(number().and_then(PassReason::from_number).map(Outcome::PassedOn)),
        "unmatched" => Some(Some(Outcome::Unmatched)),
        "handed_over" => Some(Some(Outcome::HandedOver)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use fordway_xlat::DropReason;

    use super::*;

    #[test]
    fn the_counters_tell_the_outcome() {
        let zero = FwCounters::zeroed();
        let outcome = |after: &FwCounters| {
            let snapshot = |counters: &FwCounters| Snapshot::from(vec![counters.to_octets()]);
            super::outcome(&snapshot(&zero), &snapshot(after))
        };
        assert_eq!(outcome(&zero), None);
        let mut after = zero;
        after.drops[1] = 1;
        assert_eq!(outcome(&after), Some(Outcome::Dropped(DropReason::Truncated)));
        after.unmatched = 1;
        assert_eq!(outcome(&after), None, "two things were counted");
        let mut after = zero;
        after.passed_on[4] = 3;
        assert_eq!(outcome(&after), Some(Outcome::PassedOn(PassReason::HopLimit)));
        let mut after = zero;
        after.unmatched = 1;
        assert_eq!(outcome(&after), Some(Outcome::Unmatched));
        let mut after = zero;
        after.directions[1].packets = 1;
        assert_eq!(outcome(&after), Some(Outcome::Translated));
        after.directions[1].octets = 100;
        after.measured_ns = 100;
        assert_eq!(outcome(&after), Some(Outcome::Translated));
        after.directions[0].packets = 1;
        assert_eq!(outcome(&after), None, "once in each direction");
        let mut after = zero;
        after.drops[127] = 1;
        assert_eq!(outcome(&after), None, "no such reason");
    }
}
