//! New flows by the second, and many sessions at once.

use fordway_data::spec::{Metric, Transport};
use fordway_data::trial::Trial;
use fordway_load::flows::{Order, Packet, Passed};

use super::{Before, Lack, Measured, Values, now};
use crate::error::Result;
use crate::load::flows::{Generator, faults, rate, remarks, subscribers};
use crate::load::iperf;
use crate::mechanism::Memory;

/// Sessions that a mechanism may count beside the load's own: the gate's, answers to errors.
const OTHERS: u64 = 1000;
/// A phase that takes longer is given up: no translator here is slower than this many flows per second.
const SLOWEST: f64 = 4_000.0;
/// How often sessions that could not be opened are tried again.
const ROUNDS: u32 = 10;

/// Opens flows that nobody has seen before, as fast as they get through.
pub(super) fn new_flows(
    at: &Measured<'_>,
    transport: Transport,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    let flows = at.profile.new_flows;
    let subscribers = subscribers(flows);
    let all = (subscribers, subscribers + flows);
    trial.started = now();
    let patience_s = at.profile.flow_patience_s;
    let mut generator = Generator::open(at.backend, at.network, transport, all, false, patience_s)?;
    trial.argv = generator.argv().to_vec();
    generator.warm_up()?;
    let before = Before::read(at)?;
    let order = generator.once(generator.opening(), all.0, all.1, limit(flows));
    let passed = generator.run(&order)?;
    before.finish(at, trial)?;
    let (name, metric) = match transport {
        Transport::Udp => ("udp", Metric::NewUdpFlows),
        Transport::Tcp => ("tcp", Metric::NewTcpConnections),
    };
    at.keep(&format!("flows-{name}.jsonl"), &generator.said)?;
    trial.exit_status = Some(0);
    note(trial, &passed);
    trial.failed.extend(faults(&passed, flows));
    let counted = at.mechanism.zip(trial.counters.as_ref());
    if let Some(created) = counted.and_then(|(m, (a, b))| m.created(a, b)) {
        trial.invalid.extend(disagreement(created, &passed));
    }
    values.insert(metric, Ok(rate(&passed)));
    Ok(())
}

/// Opens many sessions, keeps them while a TCP flow runs, and then exchanges data with each of them.
pub(super) fn hold(
    at: &Measured<'_>,
    seconds: u64,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    let wanted = at.profile.held_sessions;
    let all = (subscribers(wanted), wanted);
    let known = all.0.min(wanted);
    let memory = || at.mechanism.and_then(|m| m.memory(at.deployed));
    trial.started = now();
    let patience_s = at.profile.flow_patience_s;
    let mut generator =
        Generator::open(at.backend, at.network, Transport::Tcp, all, true, patience_s)?;
    trial.argv = generator.argv().to_vec();
    let (before, empty) = (Before::read(at)?, memory());
    generator.warm_up()?;
    let again = generator.once(Packet::Syn, known, wanted, limit(wanted));
    let opened = generator.run(&Order { rounds: ROUNDS, ..again })?;
    let full = memory();
    generator.rest()?;
    let argv = iperf::argv(at.network.target, at.profile, seconds, false, at.backend.cap());
    let (finished, flow) = iperf::measure(at.backend, &at.network.app, &argv, at.profile, seconds)?;
    at.keep("iperf3-held.json", &finished.stdout)?;
    let order = generator.once(Packet::Data, 0, wanted, limit(wanted));
    let exchanged = generator.run(&order)?;
    before.finish(at, trial)?;
    at.keep("flows-held.jsonl", &generator.said)?;
    trial.exit_status = Some(finished.code());
    note(trial, &exchanged);
    let opened = opened.done + u64::from(known);
    if opened < u64::from(wanted) {
        trial.flags.push(format!("{opened} of {wanted} sessions could be opened"));
    }
    // That sessions are missing is the finding; that one is not what it was is a failure.
    trial.failed.extend(faults(&exchanged, 0));
    let held = exchanged.done;
    values.insert(Metric::SessionsHeld, Ok(held as f64 / 1e3));
    values.insert(Metric::MemoryPerSession, per_session(empty, full, opened));
    let all = faults(&exchanged, wanted);
    let whole = |value: f64| {
        if all.is_empty() { Ok(value) } else { Err(Lack::Failed(all.join("; "))) }
    };
    values.insert(Metric::ExchangesHeld, whole(rate(&exchanged)));
    values.insert(Metric::TcpThroughputHeld, whole(flow?.gbit_s));
    Ok(())
}

/// Seconds after which a phase over so many flows is given up.
pub(super) fn limit(flows: u32) -> f64 {
    10.0 + f64::from(flows) / SLOWEST
}

/// What a phase says goes into the trial.
pub(super) fn note(trial: &mut Trial, passed: &Passed) {
    trial.sent = Some(passed.sent);
    trial.arrived = Some(passed.done);
    trial.sender_processor = Some(passed.processor_busy);
    trial.sender_waits = Some(passed.waited as f64 / passed.sent.max(1) as f64);
    trial.generator_cpu = Some((100.0 * passed.processor_busy, 0.0));
    trial.flags.extend(remarks(passed));
}

/// Memory of a session in octets, or why there is none.
fn per_session(
    empty: Option<Memory>,
    full: Option<Memory>,
    opened: u64,
) -> std::result::Result<f64, Lack> {
    let unmeasured = |why: &str| Lack::Unmeasured(why.to_owned());
    let (empty, full) = empty.zip(full).ok_or_else(|| unmeasured("its memory cannot be told"))?;
    let octets = full.per_session(empty, opened);
    let octets = octets.ok_or_else(|| Lack::Failed("no session was opened".into()))?;
    // A kernel whose caches shrank meanwhile says nothing about sessions.
    if octets > 0.0 { Ok(octets) } else { Err(unmeasured("memory did not grow with the sessions")) }
}

/// Why a mechanism's count of new sessions can't be right.
fn disagreement(created: u64, passed: &Passed) -> Option<String> {
    let (done, sent) = (passed.done, passed.sent);
    if created < done {
        return Some(format!(
            "counters disagree: {done} flows got through, the mechanism made {created} sessions"
        ));
    }
    (created > sent + OTHERS).then(|| {
        format!("counters disagree: {sent} flows were sent, the mechanism made {created} sessions")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mechanism_makes_a_session_for_each_flow_and_no_more() {
        let passed = Passed { sent: 1000, done: 990, ..Passed::default() };
        assert_eq!(disagreement(990, &passed), None);
        assert_eq!(disagreement(1500, &passed), None);
        assert!(disagreement(989, &passed).is_some_and(|why| why.contains("got through")));
        assert!(disagreement(2001, &passed).is_some_and(|why| why.contains("were sent")));
    }

    #[test]
    fn memory_that_cannot_be_told_is_no_number() {
        let of = |growing| Some(Memory { growing, ..Memory::default() });
        assert_eq!(per_session(of(1000), of(2000), 10), Ok(100.0));
        assert!(per_session(None, of(2000), 10).is_err());
        assert!(per_session(of(1000), of(2000), 0).is_err());
        assert!(per_session(of(2000), of(1000), 10).is_err());
    }
}
