//! `fordway dns64`: options that stand for a configuration file with a DNS64 server alone.

use clap::{Args, ValueHint};
use fordway_config::Loaded;

use super::service::ServiceArgs;
use super::short::Entry;
use crate::failure::Failure;

/// `fordway dns64`.
#[derive(Debug, Args)]
pub(crate) struct Dns64Args {
    /// Address to listen on, with a port other than 53 as [ADDR]:PORT; may be given several times
    #[arg(long, value_name = "ADDR", required = true)]
    listen: Vec<String>,
    /// Server to pass questions on to; may be given several times, or with several
    ///
    /// An address, with a port other than the usual one as [ADDR]:PORT; in front of it tcp://, tls:// or https:// for
    /// another way than UDP, behind it #NAME for the name in the certificate.
    #[arg(long, value_name = "ADDR", required = true, num_args = 1..)]
    upstream: Vec<String>,
    /// Translation prefix of the network's NAT64; may be given several times
    #[arg(long, value_name = "PREFIX", required = true)]
    pref64: Vec<String>,
    /// Network whose hosts may ask; may be given several times [default: networks of this host]
    #[arg(long, value_name = "NET")]
    allow: Vec<String>,
    /// Name for which, and below which, nothing is synthesised; may be given several times
    #[arg(long, value_name = "NAME")]
    exempt: Vec<String>,
    /// Prefix of AAAA records that count as none; may be given several times [default: ::ffff:0:0/96]
    #[arg(long, value_name = "PREFIX")]
    exclude: Vec<String>,
    /// Validate what upstream servers answer (DNSSEC)
    #[arg(long)]
    validate: bool,
    /// CA certificates for servers over tls:// and https:// [default: the system's]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    ca: Option<String>,
    #[command(flatten)]
    service: ServiceArgs,
}

impl Dns64Args {
    /// The configuration that the options stand for.
    pub(crate) fn load(&self) -> Result<Loaded, Failure> {
        let mut entry = Entry::empty();
        entry.list("listen", &self.listen);
        entry.list("upstream", &self.upstream);
        entry.list("pool6", &self.pref64);
        entry.list("allow", &self.allow);
        entry.list("exempt", &self.exempt);
        entry.list("exclude", &self.exclude);
        if self.validate {
            entry.put("validate", true.into());
        }
        entry.text("ca", self.ca.as_ref());
        self.service.add_to(&mut entry)?;
        entry.load_section("dns64")
    }

    pub(crate) fn print_config(&self) -> bool {
        self.service.print_config
    }
}
