//! New flows in tables whose entries were all used before, while parts of the tables are held.
//!
//! The mechanism is deployed with tables of a size of its own, and with lifetimes of a second for sessions of UDP and for
//! closed sessions of TCP ([`Room::recycles`](crate::mechanism::Room)). A round opens UDP flows and TCP connections,
//! closes these, and waits until all are gone. Sessions of open TCP connections live for hours: they are what is held.

use std::time::Duration;

use fordway_data::spec::{Metric, Transport};
use fordway_data::trial::Trial;
use fordway_load::flows::{Order, Packet, Passed};

use super::sessions::{limit, note};
use super::{Before, Measured, Values, now};
use crate::error::Result;
use crate::load::flows::{Generator, faults, rate, subscribers};

/// Rounds before anything is timed.
const BEFORE: u32 = 5;
/// The sessions of a round are gone after this at the earliest: their lifetime of a second, half a second to the sweep of a gateway
/// that sweeps its tables, and time for that.
const GONE: Duration = Duration::from_secs(3);
/// The same for a larger table, for each of its entries.
const GONE_OF_EACH: Duration = Duration::from_micros(1);
/// How often connections that were not opened or closed are tried again.
const ROUNDS: u32 = 10;

/// Shares of the table that are held, in percent, and what is measured then.
const LEVELS: [(u32, Metric, Metric); 3] = [
    (0, Metric::RecycledUdpFlows, Metric::RecycledTcpConnections),
    (50, Metric::HalfHeldUdpFlows, Metric::HalfHeldTcpConnections),
    (90, Metric::MostHeldUdpFlows, Metric::MostHeldTcpConnections),
];

/// Flows of each transport in a round, of a table that is held to so many percent. UDP flows, their ports in hold-down
/// and TCP connections take nine tenths of what is free together.
fn each(entries: u32, held: u32) -> u32 {
    (u64::from(entries) * u64::from(100 - held) * 3 / 1000) as u32
}

/// When the sessions of a round are gone.
fn gone(entries: u32) -> Duration {
    GONE.max(GONE_OF_EACH * entries)
}

/// The testers of both transports: the programs of one are at the devices while it works.
struct Testers {
    udp: Generator,
    tcp: Generator,
    /// The first flow that is not held.
    first: u32,
    /// TCP connections that are held.
    held: u32,
    /// What it takes until sessions are gone, where there are any.
    gone: Option<Duration>,
    /// Flows and connections that got through.
    done: u64,
    faults: Vec<String>,
}

impl Testers {
    fn run(&mut self, transport: Transport, order: &Order) -> Result<Passed> {
        let tester = match transport {
            Transport::Udp => &mut self.udp,
            Transport::Tcp => &mut self.tcp,
        };
        let passed = tester.run(order)?;
        tester.rest()?;
        Ok(passed)
    }

    /// Opens connections until so many are held.
    fn hold(&mut self, wanted: u32) -> Result<()> {
        if wanted <= self.held {
            return Ok(());
        }
        let order = self.tcp.once(Packet::Syn, self.held, wanted, limit(wanted));
        let passed = self.run(Transport::Tcp, &Order { rounds: ROUNDS, ..order })?;
        let missing = u64::from(wanted - self.held).saturating_sub(passed.done);
        if missing > 0 {
            self.faults.push(format!("{missing} of {wanted} connections can't be held"));
        }
        self.done += passed.done;
        self.held = wanted;
        Ok(())
    }

    /// Opens so many flows of each transport, closes the connections, and waits until all are gone.
    fn round(&mut self, each: u32) -> Result<[Passed; 2]> {
        let until = self.first + each;
        let once = |tester: &Generator, packet| tester.once(packet, self.first, until, limit(each));
        let orders = [
            (Transport::Udp, once(&self.udp, Packet::Datagram)),
            (Transport::Tcp, once(&self.tcp, Packet::Syn)),
        ];
        let closing = Order { rounds: ROUNDS, ..once(&self.tcp, Packet::Fin) };
        let mut opened = [Passed::default(); 2];
        for (passed, (transport, order)) in opened.iter_mut().zip(orders) {
            *passed = self.run(transport, &order)?;
            self.done += passed.done;
            // The outer source of a flow may have been another's in an earlier round.
            let outer_tuples = passed.flows_seen;
            self.faults.extend(faults(&Passed { outer_tuples, ..*passed }, each));
        }
        let closed = self.run(Transport::Tcp, &closing)?;
        if closed.done < opened[1].done {
            let open = opened[1].done - closed.done;
            self.faults.push(format!("{open} connections could not be closed"));
        }
        if let Some(gone) = self.gone {
            std::thread::sleep(gone);
        }
        Ok(opened)
    }
}

pub(super) fn measure(at: &Measured<'_>, trial: &mut Trial, values: &mut Values) -> Result<()> {
    let entries = at.profile.table_entries;
    let nine_tenths = entries / 10 * 9;
    let subscribers = subscribers(nine_tenths + each(entries, 0));
    let first = nine_tenths.max(subscribers);
    let all = (subscribers, first + each(entries, 0));
    trial.started = now();
    let open = |transport| {
        let patience_s = at.profile.flow_patience_s;
        Generator::open(at.backend, at.network, transport, all, false, patience_s)
    };
    // Only one has its programs at the devices.
    let mut udp = open(Transport::Udp)?;
    udp.rest()?;
    let mut tcp = open(Transport::Tcp)?;
    trial.argv = tcp.argv().to_vec();
    let before = Before::read(at)?;
    tcp.warm_up()?;
    tcp.rest()?;
    let waits = at.mechanism.is_some();
    let mut testers = Testers {
        udp,
        tcp,
        first,
        held: subscribers,
        gone: waits.then(|| gone(entries)),
        done: 0,
        faults: Vec::new(),
    };
    // Without a mechanism there is no table.
    if waits {
        for _ in 0..BEFORE {
            testers.round(each(entries, 0))?;
        }
    }
    let mut last = Passed::default();
    for (percent, udp, tcp) in LEVELS {
        testers.hold((u64::from(entries) * u64::from(percent) / 100) as u32)?;
        let opened = testers.round(each(entries, percent))?;
        for (metric, passed) in [udp, tcp].into_iter().zip(&opened) {
            values.insert(metric, Ok(rate(passed)));
        }
        last = opened[1];
    }
    before.finish(at, trial)?;
    let said = format!("{}{}", testers.udp.said, testers.tcp.said);
    at.keep("flows-recycled.jsonl", &said)?;
    trial.exit_status = Some(0);
    // A flow of a later round has another outer source.
    note(trial, &Passed { moved: 0, ..last });
    trial.failed.extend(testers.faults);
    let counted = at.mechanism.zip(trial.counters.as_ref());
    let created = counted.and_then(|(mechanism, (a, b))| mechanism.created(a, b));
    trial.invalid.extend(created.and_then(|created| kept(created, testers.done)));
    Ok(())
}

/// Why tables were not recycled: a flow whose session was still there needs no new one.
fn kept(created: u64, done: u64) -> Option<String> {
    let kept = done.saturating_sub(created);
    (kept > done / 100).then(|| {
        format!(
            "{kept} of {done} flows found a session of an earlier round: the table was not recycled"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_leaves_a_tenth_of_what_is_free() {
        assert_eq!([0, 50, 90].map(|held| each(1000, held)), [300, 150, 30]);
        assert_eq!(each(4_194_304, 0), 1_258_291);
    }

    #[test]
    fn a_large_table_takes_longer_until_its_sessions_are_gone() {
        assert_eq!([4096, 3_000_000, 10_000_000].map(|it| gone(it).as_secs()), [3, 3, 10]);
    }

    #[test]
    fn a_table_is_recycled_if_every_flow_has_a_session_of_its_own() {
        assert_eq!(kept(1000, 1000), None);
        assert_eq!(kept(995, 1000), None);
        assert!(kept(900, 1000).is_some_and(|why| why.starts_with("100 of 1000 flows")));
    }
}
