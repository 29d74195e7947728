//! Wall time of the tests of RFC 8219 and RFC 9693.

use fordway_procedures::plan as procedures;
use fordway_procedures::suite::Benchmark;
use fordway_procedures::traffic::Start;

use super::{DEPLOY_S, TESTER_S, points};
use crate::spec::{Load, Profile};

/// Frames per second each way, and new connections per second, that a plan counts on.
const USUAL_RATE: f64 = 500_000.0;
/// See [`USUAL_RATE`].
const USUAL_CONNECTIONS: f64 = 400_000.0;
/// Seconds to take a mechanism with its network down, and to start both again with the tester.
const RENEW_S: f64 = 0.7;

/// Wall time of a test of RFC 8219 or RFC 9693 on one deployment: what its procedures estimate for a usual gateway.
pub(super) fn seconds(load: Load, profile: &Profile) -> f64 {
    let own = profile.rfc();
    let (waits, points) = (own.waits.total(), points(load, profile).len() as f64);
    let cost = |all: &[Benchmark]| {
        all.iter().map(|one| procedures::benchmark(&own, *one, USUAL_RATE).seconds).sum::<f64>()
    };
    let rate = USUAL_CONNECTIONS / 2.0;
    // Each step has a deployment of its own.
    let renewed = |cost: procedures::Cost| cost.seconds + cost.trials as f64 * RENEW_S;
    let connections = |n: &u64| {
        let established = procedures::establishment(&own, *n, USUAL_CONNECTIONS as u64, rate);
        let classic = [Benchmark::Throughput, Benchmark::Latency]
            .map(|one| procedures::benchmark(&own, one, USUAL_RATE));
        let [throughput, latency] = classic
            .map(|one| procedures::over_filled_table(one, &own, *n, own.stateful.fill * rate));
        let torn_down = procedures::tear_down(&own, *n, own.stateful.fill * rate);
        renewed(established.and(throughput).and(latency).and(torn_down))
    };
    match load {
        Load::Forwarding => {
            use Benchmark::{Latency, Mlrsearch, Throughput, Variation};
            points * (TESTER_S + cost(&[Throughput, Mlrsearch, Latency, Variation]))
        }
        Load::Disturbance => {
            use Benchmark::{BackToBack, Recovery, Throughput};
            points * (TESTER_S + cost(&[Throughput, BackToBack, Recovery]))
        }
        Load::Reset => {
            points * (DEPLOY_S + TESTER_S + cost(&[Benchmark::Throughput, Benchmark::Reset]))
        }
        Load::FrameLoss => points * (TESTER_S + own.frame_loss_rate.seconds + waits),
        Load::Overload => points * (TESTER_S + 2.0 * cost(&[Benchmark::Throughput])),
        Load::Incremental => {
            let start = Start::Incremental(profile.flow_start_s);
            let all = [Benchmark::Throughput];
            let flows = profile.overload_flows.iter().map(|n| *n as u32);
            let each = flows.map(|n| procedures::overload(&own, &all, USUAL_RATE, n, start));
            each.map(|it| TESTER_S + it.seconds).sum()
        }
        Load::Connections => profile.table_connections.iter().map(connections).sum(),
        _ => {
            let safe = profile.safe_connections;
            renewed(procedures::capacity(&own, safe, 4 * safe, USUAL_CONNECTIONS as u64, rate))
        }
    }
}
