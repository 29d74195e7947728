//! Small datagrams from a socket of one end, counted at the other.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use fordway_data::spec::Way;
use fordway_load::SINK_PORT;
use fordway_load::datagrams::Sent;

use super::sink::Sink;
use super::{perf, read_json};
use crate::backend::{Backend, Place};
use crate::error::Result;
use crate::process::own_program;
use crate::process::{Finished, Output};
use crate::topology::Network;

/// What one load did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Burst {
    /// What the sender says.
    pub(crate) sent: Sent,
    /// Datagrams that arrived.
    pub(crate) arrived: u64,
}

impl Burst {
    /// Share of the datagrams that did not arrive, 0 to 1.
    pub(crate) fn lost(&self) -> f64 {
        self.sent.packets.saturating_sub(self.arrived) as f64 / self.sent.packets.max(1) as f64
    }

    /// Thousands per second that were sent.
    pub(crate) fn offered(&self) -> f64 {
        self.sent.packets as f64 / self.sent.seconds / 1e3
    }

    /// Thousands per second that arrived. What queues held at the end counts as arrived while the
    /// sender ran: a thousand packets at most.
    pub(crate) fn rate(&self) -> f64 {
        self.arrived as f64 / self.sent.seconds / 1e3
    }
}

/// The ends of datagrams that go one way.
pub(crate) struct Ends<'a> {
    /// Where they are sent.
    pub(crate) from: &'a Place,
    /// Where they arrive.
    pub(crate) to: &'a Place,
    /// The sender's own address.
    pub(crate) source: IpAddr,
    /// The receiver, as the sender addresses it.
    pub(crate) target: IpAddr,
    /// Whether they arrive as IPv4.
    pub(crate) arrives_v4: bool,
}

/// The ends of datagrams between application and server.
pub(crate) fn ends(network: &Network, way: Way) -> Ends<'_> {
    match way {
        Way::Up => Ends {
            from: &network.app,
            to: &network.server,
            source: network.app_address,
            target: network.target,
            arrives_v4: network.server_address.is_ipv4(),
        },
        Way::Down => Ends {
            from: &network.server,
            to: &network.app,
            source: network.server_address,
            target: network.seen_address,
            arrives_v4: network.app_address.is_ipv4(),
        },
    }
}

/// Opens the sink at the end that receives. Whoever counts processor time does so after that and until
/// [`send`] is done: neither is part of the load.
pub(crate) fn sink<'a>(backend: &'a dyn Backend, network: &Network, way: Way) -> Result<Sink<'a>> {
    let Ends { to, arrives_v4, .. } = ends(network, way);
    Sink::open(backend, to, arrives_v4)
}

/// Sends for `seconds` at a rate, or as fast as the sender can. With a file for `perf`, cycles are counted, which come
/// with what was sent.
pub(crate) fn send(
    backend: &dyn Backend,
    network: &Network,
    way: Way,
    (seconds, rate): (f64, Option<u64>),
    counters: Option<&Path>,
) -> Result<(Finished, Sent, Option<f64>)> {
    let Ends { from, source, target, .. } = ends(network, way);
    let mut argv: Vec<String> = [
        &own_program()?,
        "tester",
        "datagrams",
        "--target",
        &SocketAddr::new(target, SINK_PORT).to_string(),
        "--source",
        &source.to_string(),
        "--seconds",
        &seconds.to_string(),
    ]
    .map(str::to_owned)
    .into();
    let cap = backend.cap().map(|cap| cap.packets_s);
    if let Some(rate) = [rate, cap].into_iter().flatten().min() {
        argv.extend(["--rate".to_owned(), rate.to_string()]);
    }
    if let Some(file) = counters {
        argv = perf::around(&argv, file);
    }
    let limit = Duration::from_secs_f64(seconds + 10.0);
    let finished = backend.run(Some(from), &argv, Output::Keep)?.wait(limit)?.ok()?;
    let sent: Sent = read_json(&finished.stdout)?;
    let cycles = counters.map(perf::cycles).transpose()?;
    Ok((finished, sent, cycles))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_per_second_of_sending() {
        let sent =
            Sent { packets: 500_000, refused: 0, seconds: 0.5, cpu_s: 0.5, worst_lag_us: 0.0 };
        let burst = Burst { sent, arrived: 100_000 };
        assert_eq!((burst.offered(), burst.rate()), (1000.0, 200.0));
        assert_eq!(burst.lost(), 0.8);
    }
}
