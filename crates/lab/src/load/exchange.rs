//! Requests over connections that are kept: nginx at the server, the lab's own client in front of the mechanism.

use std::net::SocketAddr;
use std::time::Duration;

use fordway_data::addresses::SITE_PORT;
use fordway_data::spec::Exchange;
use fordway_load::web::exchange::Exchanged;

use super::fetch::host_of;
use super::read_json;
use crate::backend::Backend;
use crate::error::Result;
use crate::process::own_program;
use crate::process::{Finished, Output};
use crate::topology::Network;

/// Octets of content that go up with a large request: a dozen full packets.
pub(crate) const UP: usize = 16_384;
/// Time that a load may take beside its requests, each of which may take a fiftieth of a second.
const PATIENCE_S: f64 = 20.0;

/// Asks over so many connections at a time, so often on each.
pub(crate) fn measure(
    backend: &dyn Backend,
    network: &Network,
    what: Exchange,
    connections: u64,
    requests: u32,
) -> Result<(Finished, Exchanged)> {
    let (path, up) = match what {
        Exchange::Small => ("/tiny", 0),
        Exchange::Up => ("/sink", UP),
        Exchange::Down => ("/page", 0),
    };
    let host = host_of(network.target);
    let proxy = network.proxy()?;
    let target = proxy.unwrap_or(SocketAddr::new(network.target, SITE_PORT));
    // Who asks a proxy names the whole address (RFC 9112 section 3.2.2).
    let request = proxy.map_or_else(|| path.to_owned(), |_| format!("http://{host}{path}"));
    let limit = PATIENCE_S + 0.02 * f64::from(requests) * connections as f64;
    let argv = [
        own_program()?,
        "tester".into(),
        "exchange".into(),
        "--target".into(),
        target.to_string(),
        "--request".into(),
        request,
        "--host".into(),
        host,
        "--up".into(),
        up.to_string(),
        "--connections".into(),
        connections.to_string(),
        "--requests".into(),
        requests.to_string(),
        "--limit".into(),
        limit.to_string(),
    ];
    let wait = Duration::from_secs_f64(limit + 10.0);
    let finished = backend.run(Some(&network.app), &argv, Output::Keep)?.wait(wait)?.ok()?;
    let exchanged = read_json(&finished.stdout)?;
    Ok((finished, exchanged))
}
