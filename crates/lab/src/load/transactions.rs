//! Transactions by HTTP as RFC 9411 orders them: nginx at the server, which counts them, and at the client `wrk` for the
//! highest rate, `hey` for times at a given rate, and `h2load` for many connections at once.

mod h2load;
mod hey;
mod site;
mod wrk;

pub(crate) use h2load::held;
pub(crate) use hey::timed;
pub(crate) use site::{Count, Site};
pub(crate) use wrk::peak;

/// Transactions of a connection that carries several (RFC 9411 sections 7.3 and 7.5).
pub(crate) const KEPT: u32 = 10;
/// Octets of the mixed objects, each as often as the others (RFC 9411 section 7.3).
pub(crate) const MIXED: [u64; 10] =
    [205, 6144, 8192, 9216, 10_240, 25_600, 26_624, 35_840, 60_416, 355_328];
/// Connections at once while the highest rate is found.
pub(crate) const CONNECTIONS: u64 = 32;
/// Connections at once at a given rate: few, as all of them send at the same time.
pub(crate) const PACED: u64 = 16;
/// Seconds after which a transaction has failed.
const PATIENCE_S: u64 = 10;

/// Programs of this load that are not installed, with the line that installs them.
pub(crate) fn missing(held: bool) -> Option<String> {
    let client: &[_] =
        if held { &[("h2load", "nghttp2-client")] } else { &[("wrk", "wrk"), ("hey", "hey")] };
    super::to_install(&[client, &[("nginx", "nginx-light"), ("curl", "curl")]].concat())
}
