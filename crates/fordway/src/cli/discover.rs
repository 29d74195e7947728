//! `fordway discover`: what it is asked.

use std::time::Duration;

use clap::Args;
use hickory_proto::rr::Name;

/// `fordway discover`.
#[derive(Debug, Args)]
pub(crate) struct DiscoverArgs {
    /// The only interface to look at [default: all with an IPv6 default route]
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// How long to wait for routers and resolvers at most
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = humantime::parse_duration)]
    pub(crate) timeout: Duration,
    /// Believe names in this domain that DNSSEC proves (RFC 7050 section 3.1.2); may be repeated
    #[arg(long = "trust", value_name = "DOMAIN", value_parser = domain)]
    pub(crate) trusted: Vec<Name>,
    /// Write the result as JSON; with --watch one line per change
    #[arg(long)]
    pub(crate) json: bool,
    /// Stay, and tell every change
    #[arg(long, conflicts_with = "timeout")]
    pub(crate) watch: bool,
}

fn domain(text: &str) -> Result<Name, String> {
    let mut name = Name::from_ascii(text).map_err(|_| "write a domain, such as example.net")?;
    name.set_fqdn(true);
    Ok(name.to_lowercase())
}
