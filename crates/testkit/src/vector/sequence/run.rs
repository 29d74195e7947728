//! Running sequences.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use fordway_xlat::Offload;
use toml::{Table, Value};

use super::bind::Bindings;
use super::flow::{From, table};
use super::spec::{Operator, Sequence, SequenceError, StepSpec};
use super::tables::Tables;
use super::time::Time;
use crate::packet::{Context, PacketSpec};
use crate::segment::{complete, segments};
use crate::vector::case::{CaseStep, Expected, build};
use crate::vector::format::{ExpectSpec, OffloadSpec};
use crate::vector::report::{Mismatch, compare, side_by_side};
use crate::vector::run::{Observation, Sent, SubjectError};
use crate::view::View;

/// How often the sweeper runs while the clock moves.
const SWEEP: Duration = Duration::from_secs(1);

/// Something that translates with state and can be held against sequences.
pub trait Stateful {
    /// Its name in the `skip` table.
    fn name(&self) -> &'static str;

    /// Makes a translator for a sequence, with empty tables.
    fn begin(&mut self, sequence: &Sequence) -> Result<Box<dyn Gateway>, SubjectError>;
}

/// One translator, for the time of a sequence.
pub trait Gateway {
    /// Lets the sweeper look at every entry; gives what it sends.
    fn sweep(&mut self, at: Duration) -> Result<Vec<Sent>, SubjectError>;

    /// Feeds a packet. `None`: it is kept (a fragment, a SYN).
    fn feed(
        &mut self,
        at: Duration,
        input: &[u8],
        offload: &Offload,
        mark: u32,
    ) -> Result<Option<Observation>, SubjectError>;

    /// What the operator does.
    fn operate(&mut self, at: Duration, operator: &Operator) -> Result<(), SubjectError>;

    /// What the tables hold; `None`: can't be seen.
    fn tables(&mut self, at: Duration) -> Result<Option<Tables>, SubjectError>;

    /// By how much its clock may be ahead of the sequence's.
    fn ahead(&self) -> Duration {
        Duration::ZERO
    }
}

/// Reads a sequence.
pub fn load_sequence(name: &str, path: &Path) -> Result<Sequence, SequenceError> {
    Sequence::parse(name, &fs::read_to_string(path).unwrap_or_default())
}

/// Tries a sequence on a subject. `Ok(None)`: as demanded; `Ok(Some(_))`: the differences.
pub fn check_sequence(
    subject: &mut dyn Stateful,
    sequence: &Sequence,
) -> Result<Option<Mismatch>, SubjectError> {
    let mut run = Run {
        gateway: subject.begin(sequence)?,
        sequence,
        bindings: Bindings::default(),
        now: Duration::ZERO,
        sent: Vec::new(),
    };
    let mut text = String::new();
    for (index, step) in sequence.steps.iter().enumerate() {
        let difference = match run.step(step) {
            // What a step before should have shown is missing now.
            Err(_) if !text.is_empty() => break,
            step => step?,
        };
        if !difference.is_empty() {
            let note = step.note.as_deref().unwrap_or("");
            let _ = writeln!(text, "step {index} at {:?} {note}:\n{difference}", run.now);
        }
    }
    let heading = format!("{}\n{} ({})", sequence.name, sequence.title, sequence.source);
    Ok((!text.is_empty()).then(|| Mismatch::new(format!("{heading}\n{text}"))))
}

struct Run<'a> {
    gateway: Box<dyn Gateway>,
    sequence: &'a Sequence,
    bindings: Bindings,
    now: Duration,
    /// By the sweeper, since the last step.
    sent: Vec<Sent>,
}

impl Run<'_> {
    fn step(&mut self, step: &StepSpec) -> Result<String, SubjectError> {
        let mut text = String::new();
        if let Some(Time(at)) = step.at {
            self.advance(at)?;
        }
        text.push_str(&self.swept(step)?);
        if let Some(operator) = &step.operator {
            let operator = self.operator(operator)?;
            self.gateway.operate(self.now, &operator)?;
        }
        if let Some((input, default)) = self.input(step)? {
            text.push_str(&self.packet(step, &input, default)?);
        }
        if let Some(tables) = self.gateway.tables(self.now)? {
            let flow = self.sequence.flow(step);
            match tables.compare(step, flow, &self.bindings, self.gateway.ahead()) {
                Ok(difference) => text.push_str(&difference),
                Err(missing) => {
                    let _ = writeln!(text, "  {missing}");
                }
            }
        }
        Ok(text)
    }

    /// Moves the clock, sweeping as time goes by.
    fn advance(&mut self, at: Duration) -> Result<(), SubjectError> {
        if at < self.now {
            return Err(SubjectError::Other("a step before the one in front of it".into()));
        }
        while self.now < at {
            self.now = (self.now + SWEEP).min(at);
            self.sent.extend(self.gateway.sweep(self.now)?);
        }
        Ok(())
    }

    fn swept(&mut self, step: &StepSpec) -> Result<String, SubjectError> {
        let mut text = String::new();
        let sent = std::mem::take(&mut self.sent);
        if sent.len() != step.sends.len() {
            let _ = writeln!(text, "  sweeper: {} sent, expected {}", sent.len(), step.sends.len());
        }
        for (index, sent) in sent.iter().enumerate() {
            let wanted = match step.sends.get(index) {
                Some(packet) => {
                    let packet = self.learned(packet, &sent.bytes)?;
                    let plain = OffloadSpec::default();
                    build(&packet, &plain, Context::default()).map_err(other)?.0
                }
                None => Vec::new(),
            };
            if wanted != sent.bytes {
                let _ = writeln!(text, "  packet {index} of the sweeper:");
                text.push_str(&side_by_side(&wanted, &sent.bytes));
            }
        }
        Ok(text)
    }

    fn operator(&self, operator: &Operator) -> Result<Operator, SubjectError> {
        Ok(match operator {
            Operator::Add(value) => Operator::Add(self.known(value)?),
            Operator::Remove(value) => Operator::Remove(self.known(value)?),
            Operator::Drain(drains) => Operator::Drain(*drains),
        })
    }

    /// The packet that comes in, and what the flow makes of it.
    fn input(&self, step: &StepSpec) -> Result<Option<(Table, Table)>, SubjectError> {
        let (from, word) = match (&step.v6, &step.v4, &step.input) {
            (Some(word), _, _) => (From::V6, word),
            (_, Some(word), _) => (From::V4, word),
            (_, _, Some(input)) => return Ok(Some((input.clone(), Table::new()))),
            _ => return Ok(None),
        };
        let flow = self.sequence.flow(step).ok_or_else(|| other("no such flow"))?;
        flow.packets(from, word, step.payload.as_ref()).map(Some).map_err(other)
    }

    fn packet(
        &mut self,
        step: &StepSpec,
        input: &Table,
        default: Table,
    ) -> Result<String, SubjectError> {
        let resolved = self.known(&Value::Table(input.clone()))?;
        let spec: PacketSpec = resolved.try_into().map_err(other)?;
        let (input, offload) = build(&spec, &step.offload, Context::default()).map_err(other)?;
        let fed = self.gateway.feed(self.now, &input, &offload, step.mark)?;
        let mut expect = self.expected(step, &input, default)?;
        let holds = expect.get("verdict").and_then(Value::as_str) == Some("hold");
        let seen = match fed {
            None if holds => return Ok(String::new()),
            None => return Ok("  not expected to be kept\n".into()),
            Some(seen) if holds => {
                return Ok(format!("  expected to be kept, got {:?}\n", seen.verdict));
            }
            Some(seen) => seen,
        };
        if let Some(Value::Array(packets)) = expect.get_mut("packet") {
            for (packet, sent) in packets.iter_mut().zip(&seen.sent) {
                if let Value::Table(packet) = packet {
                    self.bindings.learn(packet, &sent.bytes);
                }
            }
        }
        let resolved = match self.bindings.resolve(&Value::Table(expect)) {
            Ok(resolved) => resolved,
            // Nothing was sent that could have told it: say what happened instead.
            Err(name) => return Ok(format!("  no `${name}` was seen: {:?}\n", seen.verdict)),
        };
        let spec: ExpectSpec = resolved.try_into().map_err(other)?;
        let whole = complete(&input, &offload);
        let cut = segments(&input, &offload).unwrap_or_default();
        let context = Context { input: Some(&whole), segment: cut.first().map(Vec::as_slice) };
        let expected = Expected::build(&spec, &input, &offload, context).map_err(other)?;
        let step = CaseStep { at: self.now, input, offload, expected };
        Ok(compare(&step, &seen))
    }

    /// The `expect` of a step as a table, whatever its form.
    fn expected(
        &self,
        step: &StepSpec,
        input: &[u8],
        default: Table,
    ) -> Result<Table, SubjectError> {
        let text = match &step.expect {
            Some(Value::Table(table)) => return Ok(table.clone()),
            Some(Value::String(text)) => text,
            _ => return Err(other("`expect` is a string or a table")),
        };
        let mut expect = Table::new();
        let words: Vec<&str> = text.split(' ').collect();
        let mut set = |key: &str, value: Value| expect.insert(key.into(), value);
        match words[..] {
            ["forward"] if !default.is_empty() => {
                set("verdict", Value::String("forward".into()));
                set("packet", Value::Array(vec![Value::Table(default)]));
            }
            ["hold"] => {
                set("verdict", Value::String("hold".into()));
            }
            ["drop", reason] => {
                set("verdict", Value::String("drop".into()));
                set("reason", Value::String(reason.into()));
            }
            ["reply", error, reason] => {
                set("verdict", Value::String("reply".into()));
                set("error", Value::String(error.into()));
                set("reason", Value::String(reason.into()));
                set("packet", Value::Array(vec![self.reply(error, input)?]));
            }
            _ => return Err(other(format!("expect: `{text}` is not understood"))),
        }
        Ok(expect)
    }

    /// The ICMP error that answers a packet.
    fn reply(&self, error: &str, input: &[u8]) -> Result<Value, SubjectError> {
        let view = View::of(input).ok_or_else(|| other("no error about what is no packet"))?;
        let (v4, v6) = match error {
            "administratively_prohibited" => ((3, 13), (1, 1)),
            "address_unreachable" => ((3, 1), (1, 3)),
            "port_unreachable" => ((3, 3), (1, 4)),
            "protocol_unreachable" => ((3, 2), (1, 4)),
            "time_exceeded" => ((11, 0), (3, 0)),
            _ => return Err(other(format!("write out what `{error}` looks like"))),
        };
        let text = |addr: Option<String>| Value::String(addr.unwrap_or_default());
        let config = &self.sequence.config;
        let (family, header, (kind, code)) = if view.v4 {
            let octets = <[u8; 4]>::try_from(view.src).unwrap_or_default();
            let dst = std::net::Ipv4Addr::from(octets).to_string();
            // From the address that the packet was sent to.
            let octets = <[u8; 4]>::try_from(view.dst).ok();
            let src = text(octets.map(|octets| std::net::Ipv4Addr::from(octets).to_string()));
            let tos = Value::Integer(0xc0);
            ("v4", vec![("src", src), ("dst", Value::String(dst)), ("tos", tos)], v4)
        } else {
            let octets = <[u8; 16]>::try_from(view.src).unwrap_or_default();
            let dst = std::net::Ipv6Addr::from(octets).to_string();
            let src = text(config.icmp_source6.map(|addr| addr.to_string()));
            ("v6", vec![("src", src), ("dst", Value::String(dst))], v6)
        };
        let icmp = [("type", Value::Integer(kind)), ("code", Value::Integer(code))];
        Ok(table([
            (family, table(header)),
            ("icmp", table(icmp)),
            ("quote", Value::String("input".into())),
        ]))
    }

    /// The packet with what it can't know filled in from the one that came.
    fn learned(&mut self, packet: &Table, seen: &[u8]) -> Result<PacketSpec, SubjectError> {
        let mut packet = packet.clone();
        self.bindings.learn(&mut packet, seen);
        self.known(&Value::Table(packet))?.try_into().map_err(other)
    }

    fn known(&self, value: &Value) -> Result<Value, SubjectError> {
        self.bindings.resolve(value).map_err(|name| other(format!("`${name}` has no value yet")))
    }
}

fn other(error: impl std::fmt::Display) -> SubjectError {
    SubjectError::Other(error.to_string())
}
