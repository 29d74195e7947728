//! The kinds of servers: their settings by the configuration, and what is said of them.

use std::collections::BTreeMap;

use fordway_nameserver as dns64;
use fordway_net::privilege::Capability::{self, CAP_NET_BIND_SERVICE, CAP_NET_RAW};
use fordway_proxy as proxy;
use fordway_relay as trt;
use fordway_router as router;
use fordway_serve::Service;

use super::Inputs;
use super::servers::Kind;
use crate::failure::Failure;
use crate::output::{joined, joined_or};
use crate::settings;

/// A kind of which there is one server at most, under the kind's own name.
pub(super) fn at_most_one<S: Service>(
    settings: Option<S::Settings>,
) -> BTreeMap<String, S::Settings> {
    settings.map(|settings| (S::NAME.to_owned(), settings)).into_iter().collect()
}

impl Kind for dns64::Server {
    const KEEPS: &'static [Capability] = &[CAP_NET_BIND_SERVICE];

    fn wanted(inputs: &Inputs<'_>) -> Result<BTreeMap<String, dns64::Settings>, Failure> {
        Ok(at_most_one::<dns64::Server>(settings::dns64(inputs.config, &inputs.seen.local)?))
    }

    fn announcement(name: &str, settings: &dns64::Settings) -> Option<String> {
        let (mut listen, threads) = (joined_or(&settings.listen, "none"), settings.threads);
        for (transport, also) in [("TLS", &settings.listen_tls), ("HTTPS", &settings.listen_https)]
        {
            if !also.is_empty() {
                listen += &format!(", by {transport} on {}", joined(also));
            }
        }
        let pool6 = settings.policies.iter().next().map(|it| it.pool6.clone()).unwrap_or_default();
        let pool6 = joined_or(&pool6, "none");
        Some(format!("{name}: listening on {listen} with {threads} threads; prefixes {pool6}"))
    }
}

impl Kind for router::Server {
    const KEEPS: &'static [Capability] = &[CAP_NET_BIND_SERVICE, CAP_NET_RAW];
    const ENDS_FIRST: bool = true;

    fn wanted(inputs: &Inputs<'_>) -> Result<BTreeMap<String, router::Settings>, Failure> {
        Ok(at_most_one::<router::Server>(settings::router(inputs.config)))
    }

    fn labels(_: &str, settings: &router::Settings) -> Vec<String> {
        settings.devices.iter().map(|it| format!("advertisements on {}", it.device)).collect()
    }
}

impl Kind for trt::Server {
    const KEEPS: &'static [Capability] = &[CAP_NET_RAW];

    fn wanted(inputs: &Inputs<'_>) -> Result<BTreeMap<String, trt::Settings>, Failure> {
        Ok(settings::relays(inputs.config, &inputs.seen.local, &inputs.seen.own4))
    }

    fn announcement(name: &str, settings: &trt::Settings) -> Option<String> {
        let (threads, pool6) = (settings.threads, joined_or(&settings.pool6, "none"));
        Some(format!("{name}: transport relay with {threads} threads; prefixes {pool6}"))
    }

    fn failure(name: &str, error: trt::Error) -> Failure {
        Failure::from(error).prefix(&format!("[[trt]] {name}: "))
    }
}

impl Kind for proxy::Server {
    const KEEPS: &'static [Capability] = &[CAP_NET_BIND_SERVICE];

    fn wanted(inputs: &Inputs<'_>) -> Result<BTreeMap<String, proxy::Settings>, Failure> {
        Ok(settings::proxies(inputs.config, &inputs.seen.local))
    }

    fn labels(name: &str, _: &proxy::Settings) -> Vec<String> {
        vec![format!("proxy {name}")]
    }

    fn announcement(name: &str, settings: &proxy::Settings) -> Option<String> {
        let (listen, threads) = (joined_or(&settings.listen, "none"), settings.threads);
        Some(format!("proxy {name}: listening on {listen} with {threads} threads"))
    }
}
