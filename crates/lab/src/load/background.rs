//! Background traffic beside another load: UDP flows from one end or both, counted at the other.

use std::net::SocketAddr;
use std::time::Duration;

use fordway_data::spec::Way;
use fordway_load::SINK_PORT;
use fordway_load::background::Sent;

use super::datagrams::ends;
use super::read_json;
use super::sink::Sink;
use crate::backend::Backend;
use crate::error::Result;
use crate::process::own_program;
use crate::process::{Output, Running};
use crate::topology::Network;

/// What is sent one way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Wanted {
    /// The way.
    pub(crate) way: Way,
    /// Datagrams per second, over all flows.
    pub(crate) rate: u64,
    /// Flows.
    pub(crate) flows: u64,
    /// Octets of payload of each.
    pub(crate) size: u32,
}

/// Traffic under way.
pub(crate) struct Background<'a> {
    senders: Vec<(Running, Sink<'a>)>,
    patience: Duration,
}

/// What became of it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Carried {
    /// Datagrams that were sent, both ways.
    pub(crate) sent: u64,
    /// Of them, those that arrived.
    pub(crate) arrived: u64,
}

/// Starts it, for so many seconds.
pub(crate) fn start<'a>(
    backend: &'a dyn Backend,
    network: &Network,
    wanted: &[Wanted],
    seconds: f64,
) -> Result<Background<'a>> {
    let mut senders = Vec::new();
    for flows in wanted {
        let ends = ends(network, flows.way);
        let argv = [
            own_program()?,
            "tester".into(),
            "background".into(),
            "--target".into(),
            SocketAddr::new(ends.target, SINK_PORT).to_string(),
            "--source".into(),
            ends.source.to_string(),
            "--seconds".into(),
            seconds.to_string(),
            "--rate".into(),
            flows.rate.to_string(),
            "--flows".into(),
            flows.flows.to_string(),
            "--size".into(),
            flows.size.to_string(),
        ];
        let sink = Sink::open(backend, ends.to, ends.arrives_v4)?;
        senders.push((backend.run(Some(ends.from), &argv, Output::Keep)?, sink));
    }
    Ok(Background { senders, patience: Duration::from_secs_f64(seconds + 10.0) })
}

impl Background<'_> {
    /// Waits for its end.
    pub(crate) fn finish(self) -> Result<Carried> {
        let mut carried = Carried::default();
        for (sender, sink) in self.senders {
            let finished = sender.wait(self.patience)?.ok()?;
            let sent: Sent = read_json(&finished.stdout)?;
            carried.sent += sent.packets;
            carried.arrived += sink.settled()?;
        }
        Ok(carried)
    }
}
