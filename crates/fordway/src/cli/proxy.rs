//! `fordway proxy`: options that stand for a configuration file with one HTTP proxy.

use clap::{Args, ValueHint};
use fordway_config::Loaded;

use super::service::ServiceArgs;
use super::short::Entry;
use crate::failure::Failure;

/// `fordway proxy`.
#[derive(Debug, Args)]
pub(crate) struct ProxyArgs {
    /// Address to listen on, with another port than 3128 (a site: 80, 443) as [ADDR]:PORT; may be given several times
    #[arg(long, value_name = "ADDR", required = true)]
    listen: Vec<String>,
    /// Stand in front of a site: its server, as ADDR, ADDR:PORT or NAME:PORT; may be given several times
    #[arg(long, value_name = "ADDR[:PORT]", num_args = 1..)]
    upstream: Vec<String>,
    /// Network whose hosts may use it; may be given several times [default: networks of this host; a site: all]
    #[arg(long, value_name = "NET")]
    allow: Vec<String>,
    /// Port that CONNECT reaches, or LO-HI; may be given several times [default: 443]
    #[arg(long, value_name = "PORT", conflicts_with = "upstream")]
    connect_port: Vec<String>,
    /// Server that looks names up; may be given several times [default: the system's]
    #[arg(long, value_name = "ADDR")]
    resolver: Vec<String>,
    /// Reach IPv4 servers through the network's NAT64 with this prefix
    #[arg(long, value_name = "PREFIX")]
    pref64: Vec<String>,
    /// Certificate for clients that speak TLS, with --key
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "key")]
    certificate: Option<String>,
    /// Its key
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "certificate")]
    key: Option<String>,
    /// Access log: stdout, or an absolute path
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    log: Option<String>,
    #[command(flatten)]
    service: ServiceArgs,
}

impl ProxyArgs {
    /// The configuration that the options stand for.
    pub(crate) fn load(&self) -> Result<Loaded, Failure> {
        let mut entry = Entry::empty();
        entry.put("name", "proxy".into());
        entry.list("listen", &self.listen);
        if !self.upstream.is_empty() {
            entry.put("mode", "reverse".into());
        }
        entry.list("upstream", &self.upstream);
        entry.list("allow", &self.allow);
        entry.list("connect_ports", &self.connect_port);
        entry.list("resolver", &self.resolver);
        entry.list("pref64", &self.pref64);
        entry.text("certificate", self.certificate.as_ref());
        entry.text("key", self.key.as_ref());
        entry.text("log", self.log.as_ref());
        self.service.add_to(&mut entry)?;
        entry.load_entry("proxy")
    }

    pub(crate) fn print_config(&self) -> bool {
        self.service.print_config
    }
}
