//! A vector, built: octets and verdicts.

use std::time::Duration;

use fordway_softwire::Softwire;
use fordway_xlat::counters::Direction;
use fordway_xlat::{Config, DropReason, IcmpError, IcmpErrorKind, Offload, Verdict};

use super::config::ConfigSpecError;
use super::format::{
    CounterMap, ErrorSpec, ExpectSpec, OffloadSpec, StepSpec, Vector, VerdictSpec,
};
use super::softwire::{SoftwireSpec, SoftwireSpecError};
use crate::packet::{BuildError, Context, Fill, PacketSpec};
use crate::segment::{complete, segment_count, segments};

/// A vector, ready to be tried on a subject.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its path below the folder of vectors, without `.toml`.
    pub name: String,
    /// The file's content.
    pub vector: Vector,
    /// The configuration of a translator.
    pub config: Config,
    /// One end of softwires; then there is no translator.
    pub softwire: Option<Softwire>,
    /// The packets in turn.
    pub steps: Vec<CaseStep>,
}

/// One packet and what becomes of it.
#[derive(Clone, Debug)]
pub struct CaseStep {
    /// When it arrives.
    pub at: Duration,
    /// Its octets.
    pub input: Vec<u8>,
    /// Its offload state.
    pub offload: Offload,
    /// What must come out.
    pub expected: Expected,
}

/// What must come out.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The verdict.
    pub verdict: Verdict,
    /// The packets that leave; with [`Verdict::Pass`] the packet unchanged.
    pub packets: Vec<Vec<u8>>,
    /// Their offload state.
    pub offload: Offload,
    /// The counters that this packet moves, by how much.
    pub counters: CounterMap,
}

/// A file that is no vector.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// Not the file format.
    #[error(transparent)]
    Format(#[from] toml::de::Error),
    /// The `config` table.
    #[error("config: {0}")]
    Config(#[from] ConfigSpecError),
    /// The `softwire` table.
    #[error("softwire: {0}")]
    Softwire(#[from] SoftwireSpecError),
    /// A packet.
    #[error("{0}: {1}")]
    Packet(&'static str, BuildError),
    /// Neither one packet nor steps, or both.
    #[error("give either input and expect, or step")]
    Steps,
    /// No such reason.
    #[error("`{0}` is no drop reason")]
    Reason(String),
    /// A key that this verdict needs.
    #[error("this verdict needs `{0}`")]
    Missing(&'static str),
    /// A key that this verdict does not have.
    #[error("this verdict has no `{0}`")]
    Surplus(&'static str),
}

impl Case {
    /// Reads a vector and builds its packets.
    pub fn parse(name: &str, text: &str) -> Result<Case, CaseError> {
        let vector: Vector = toml::from_str(text)?;
        let config = vector.config.config()?;
        let softwire = vector.softwire.as_ref().map(SoftwireSpec::softwire).transpose()?;
        let single = match (&vector.input, &vector.expect) {
            (Some(input), Some(expect)) => Some(StepSpec {
                at: 0,
                input: input.clone(),
                offload: vector.offload.clone(),
                expect: expect.clone(),
            }),
            (None, None) => None,
            _ => return Err(CaseError::Steps),
        };
        if single.is_some() != vector.step.is_empty() {
            return Err(CaseError::Steps);
        }
        let steps =
            single.iter().chain(&vector.step).map(CaseStep::build).collect::<Result<_, _>>()?;
        Ok(Case { name: name.to_owned(), config, softwire, steps, vector })
    }
}

impl CaseStep {
    fn build(step: &StepSpec) -> Result<CaseStep, CaseError> {
        let (input, offload) = build(&step.input, &step.offload, Context::default())
            .map_err(|error| CaseError::Packet("input", error))?;
        let whole = complete(&input, &offload);
        let cut = segments(&input, &offload).unwrap_or_default();
        let context = Context { input: Some(&whole), segment: cut.first().map(Vec::as_slice) };
        let expected = Expected::build(&step.expect, &input, &offload, context)?;
        Ok(CaseStep { at: Duration::from_millis(step.at), input, offload, expected })
    }
}

pub(super) fn build(
    spec: &PacketSpec,
    offload: &OffloadSpec,
    context: Context<'_>,
) -> Result<(Vec<u8>, Offload), BuildError> {
    let fill = if offload.is_partial() { Fill::Partial } else { Fill::Complete };
    let built = spec.build_with(fill, context)?;
    let offload = offload.resolve(built.transport, built.checksum, built.headers);
    Ok((built.bytes, offload))
}

impl Expected {
    pub(super) fn build(
        spec: &ExpectSpec,
        input: &[u8],
        arrived: &Offload,
        context: Context<'_>,
    ) -> Result<Expected, CaseError> {
        let verdict = verdict(spec)?;
        let leaves = matches!(verdict, Verdict::Forward | Verdict::Reply(_));
        match (leaves, spec.packet.is_empty()) {
            (true, true) => return Err(CaseError::Missing("packet")),
            (false, false) => return Err(CaseError::Surplus("packet")),
            _ => {}
        }
        let mut packets = Vec::new();
        let mut offload = if verdict == Verdict::Pass { *arrived } else { Offload::default() };
        for packet in &spec.packet {
            let (bytes, state) = build(packet, &spec.offload, context)
                .map_err(|error| CaseError::Packet("expect.packet", error))?;
            packets.push(bytes);
            offload = state;
        }
        if verdict == Verdict::Pass {
            packets.push(input.to_vec());
        }
        let mut counters = usual_counters(verdict, input, arrived, packets.len());
        counters.extend(spec.counters.iter().map(|(name, value)| (name.clone(), *value)));
        counters.retain(|_, value| *value != 0);
        Ok(Expected { verdict, packets, offload, counters })
    }
}

fn verdict(spec: &ExpectSpec) -> Result<Verdict, CaseError> {
    let reason = spec.reason.as_ref().map(|label| {
        let found = DropReason::ALL.iter().find(|reason| reason.label() == label);
        found.copied().ok_or_else(|| CaseError::Reason(label.clone()))
    });
    let reason = reason.transpose()?;
    let kind = match spec.error {
        None => None,
        Some(ErrorSpec::TimeExceeded) => Some(IcmpErrorKind::TimeExceeded),
        Some(ErrorSpec::TooBig) => {
            Some(IcmpErrorKind::TooBig { mtu: spec.mtu.ok_or(CaseError::Missing("mtu"))? })
        }
        Some(ErrorSpec::AdministrativelyProhibited) => {
            Some(IcmpErrorKind::AdministrativelyProhibited)
        }
        Some(ErrorSpec::SourceRouteFailed) => Some(IcmpErrorKind::SourceRouteFailed),
        Some(ErrorSpec::ParameterProblem) => Some(IcmpErrorKind::ParameterProblem {
            pointer: spec.pointer.ok_or(CaseError::Missing("pointer"))?,
        }),
        Some(ErrorSpec::AddressUnreachable) => Some(IcmpErrorKind::AddressUnreachable),
        Some(ErrorSpec::PortUnreachable) => Some(IcmpErrorKind::PortUnreachable),
        Some(ErrorSpec::ProtocolUnreachable) => Some(IcmpErrorKind::ProtocolUnreachable),
        Some(ErrorSpec::SourcePolicy) => Some(IcmpErrorKind::SourcePolicy),
    };
    match (spec.verdict, kind, reason) {
        (VerdictSpec::Reply, Some(kind), Some(reason)) => {
            Ok(Verdict::Reply(IcmpError { kind, reason }))
        }
        (VerdictSpec::Reply, None, _) => Err(CaseError::Missing("error")),
        (VerdictSpec::Reply | VerdictSpec::Drop, _, None) => Err(CaseError::Missing("reason")),
        (_, Some(_), _) => Err(CaseError::Surplus("error")),
        (VerdictSpec::Drop, None, Some(reason)) => Ok(Verdict::Drop(reason)),
        (_, None, Some(_)) => Err(CaseError::Surplus("reason")),
        (VerdictSpec::Forward, None, None) => Ok(Verdict::Forward),
        (VerdictSpec::Pass, None, None) => Ok(Verdict::Pass),
        (VerdictSpec::Stored, None, None) => Ok(Verdict::Stored),
    }
}

/// The counters that a verdict moves by itself.
fn usual_counters(verdict: Verdict, input: &[u8], offload: &Offload, packets: usize) -> CounterMap {
    let direction = Direction::of(input).map_or("none", Direction::label);
    let mut counters = CounterMap::new();
    let mut set = |name: String, value: usize| counters.insert(name, value as u64);
    match verdict {
        Verdict::Forward => {
            set(format!("{direction}.packets"), 1);
            let segments = segment_count(input, offload);
            set(format!("{direction}.segments"), segments);
            set(format!("{direction}.octets"), input.len());
            // Of a super-packet the segments alone are none.
            if packets > segments {
                set(format!("{direction}.fragments"), packets);
            }
        }
        Verdict::Reply(error) => {
            set(format!("drop.{}", error.reason.label()), 1);
            set(format!("icmp_errors.{direction}"), 1);
        }
        Verdict::Drop(reason) => {
            set(format!("drop.{}", reason.label()), 1);
        }
        Verdict::Stored => {}
        Verdict::Pass => {
            set("passed".into(), 1);
        }
        Verdict::Elsewhere(_) => {
            set("handed_over".into(), 1);
        }
    }
    counters
}
