//! The wire between two hosts, before anything is measured over it.

use std::time::Duration;

use fordway_data::artefacts;
use fordway_data::environment::Rtt;
use fordway_data::files::write_file;

use super::{Runner, deploy};
use crate::error::{LabError, Result};
use crate::load::ping;
use crate::probe::gate;
use crate::state::Guard;
use crate::topology::{Network, Shape};
use fordway_data::spec::Family;

/// Echo requests.
const PINGS: u32 = 20;

impl Runner {
    /// Makes sure that two hosts reach each other over the wire, and notes the round-trip time in the environment
    /// record. On one machine there is no wire.
    pub(super) fn examine_wire(&mut self, guard: &Guard) -> Result<()> {
        let Some(pair) = self.backend.pair() else { return Ok(()) };
        let hosts = pair.hosts.clone();
        let name = self.next_name(guard);
        let network =
            Network::build(&self.backend, &name, Shape::calibration(Family::V6, true), None)?;
        if !gate::wait_ready(&self.backend, &network, deploy::READY, || false)? {
            let (client, server) = (hosts.client(), hosts.server());
            return Err(LabError::Usage(format!(
                "{}'s {} and {}'s {} do not reach each other: no ping passes between them. Are these the devices at \
                 the two ends of one cable, or of one switch, and does it pass link addresses that it has not seen \
                 before?",
                client.name, client.uplink, server.name, server.uplink
            )));
        }
        let argv = ping::argv(network.target, PINGS, 0.05);
        let expected = Duration::from_secs(2);
        let (_, pings) = ping::measure(&self.backend, &network.app, &argv, expected)?;
        let all = &pings.replies_ms;
        let rtt = (!all.is_empty()).then(|| Rtt {
            min: all.iter().copied().fold(f64::INFINITY, f64::min),
            mean: fordway_stats::describe::mean(all),
            max: all.iter().copied().fold(0.0, f64::max),
            n: all.len(),
        });
        let Some(mut environment) = artefacts::read_environment(&self.out)? else { return Ok(()) };
        if let Some(record) = environment.hosts.as_mut().filter(|record| record.rtt_ms.is_none()) {
            record.rtt_ms = rtt;
            let text = serde_json::to_vec_pretty(&environment).unwrap_or_default();
            write_file(&self.out.join("environment.json"), &text)?;
        }
        Ok(())
    }
}
