//! Questions to a DNS64 server: starts the two halves of the tester, gives the client its orders, and judges
//! what they say.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fordway_data::addresses::NAT64_POOL6;
use fordway_load::dns::PORT;
use fordway_load::dns::authority::Asked;
use fordway_load::dns::client::{Answered, Order};

use super::read_json;
use crate::backend::{Backend, Place};
use crate::error::Result;
use crate::mechanism::Placement;
use crate::process::Dialogue;
use crate::process::own_program;
use crate::topology::Network;

/// How long a half may take to come up.
const READY: Duration = Duration::from_secs(10);
/// The longest time limit of an answer (RFC 8219 section 9.2).
const TIME_LIMIT_S: f64 = 1.0;
/// A trial is at least this many time limits long: what a server stores and answers late may not look like
/// speed. Trials of RFC 8219 have 60 of them; shorter ones have shorter limits.
const LIMITS_PER_TRIAL: f64 = 15.0;
/// The shortest time limit: less would be the tester's own punctuality.
const LEAST_LIMIT_S: f64 = 0.04;

/// The time limit of an answer in a trial of this length.
pub(crate) fn time_limit(trial_s: f64) -> f64 {
    (trial_s / LIMITS_PER_TRIAL).clamp(LEAST_LIMIT_S, TIME_LIMIT_S)
}

/// The authoritative half, shared by those who ask what it was asked.
#[derive(Debug)]
pub(crate) struct Authority(RefCell<Dialogue>);

impl Authority {
    /// Starts it at the server of a network, on these processors (`taskset`).
    pub(crate) fn start(backend: &dyn Backend, network: &Network, on: &[String]) -> Result<Self> {
        let own = SocketAddr::new(network.server_address, PORT).to_string();
        let server = network.published();
        let flag = if server.is_ipv4() { "--v4" } else { "--v6" };
        let server = server.to_string();
        let program = own_program()?;
        let argv = [&program, "tester", "dns-serve", &own, flag, &server].map(str::to_owned);
        let argv = [on, &argv[..]].concat();
        Ok(Self(RefCell::new(backend.talk(&network.server, &argv, READY)?)))
    }

    /// What it was asked so far.
    pub(crate) fn asked(&self) -> Result<Asked> {
        read_json(&self.0.borrow_mut().ask("", READY)?)
    }
}

/// The client half.
#[derive(Debug)]
pub(crate) struct Client {
    dialogue: Dialogue,
    /// Every order and its answer as they were.
    pub(crate) said: String,
}

impl Client {
    /// Starts it in a place.
    pub(crate) fn start(
        backend: &dyn Backend,
        place: &Place,
        target: SocketAddr,
        on: &[String],
    ) -> Result<Self> {
        let prefix = NAT64_POOL6.split('/').next().unwrap_or_default();
        let (program, target) = (own_program()?, target.to_string());
        let argv = [&program, "tester", "dns-client", "--target", &target, "--prefix", prefix]
            .map(str::to_owned);
        let argv = [on, &argv[..]].concat();
        Ok(Self { dialogue: backend.talk(place, &argv, READY)?, said: String::new() })
    }

    /// Asks.
    pub(crate) fn run(&mut self, order: &Order) -> Result<Answered> {
        let text = serde_json::to_string(order)
            .map_err(|e| crate::error::LabError::Usage(e.to_string()))?;
        let limit = order.limit_s + order.patience_s + 20.0;
        let answer = self.dialogue.ask(&text, Duration::from_secs_f64(limit))?;
        self.said.push_str(&format!("{text}\n{answer}\n"));
        read_json(&answer)
    }

    /// The command line.
    pub(crate) fn argv(&self) -> &[String] {
        self.dialogue.argv()
    }
}

/// Whom the client asks: the name server in the box in the middle; where there is none, the tester's own
/// other half (RFC 8219 section 9.2.1).
pub(crate) fn target(network: &Network) -> Result<SocketAddr> {
    match network.host {
        Some(_) => network.resolver(),
        None => Ok(SocketAddr::new(network.server_address, PORT)),
    }
}

/// Questions under way in a closed loop: what `dnsperf` takes by default, for each thread of the server.
pub(crate) fn window(placement: &Placement) -> u32 {
    100 * placement.threads as u32
}

/// A name server that is asked until it answers; used before anything is timed.
pub(crate) fn wait_ready(
    backend: &dyn Backend,
    place: &Place,
    server: IpAddr,
    limit: Duration,
) -> Result<bool> {
    let argv = [&own_program()?, "probe", "names", "--server", &server.to_string(), "--wait"]
        .map(str::to_owned);
    let patience = limit + Duration::from_secs(5);
    let done = backend.run(Some(place), &argv, crate::process::Output::Keep)?.wait(patience)?;
    Ok(done.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_trials_have_the_standards_time_limit() {
        assert_eq!([time_limit(60.0), time_limit(15.0), time_limit(0.3)], [1.0, 1.0, 0.04]);
        assert!((time_limit(1.5) - 0.1).abs() < 1e-9);
    }
}
