//! `fordway trt`: options that stand for a configuration file with a transport relay alone.

use clap::Args;
use fordway_config::Loaded;

use super::service::ServiceArgs;
use super::short::Entry;
use crate::failure::Failure;

/// `fordway trt`.
#[derive(Debug, Args)]
pub(crate) struct TrtArgs {
    /// Prefix that is routed to this host, whose addresses stand for IPv4 servers; may be given several times
    #[arg(long, value_name = "PREFIX", required = true)]
    pool6: Vec<String>,
    /// Network whose hosts may use the relay; may be given several times [default: networks of this host]
    #[arg(long, value_name = "NET")]
    allow: Vec<String>,
    /// IPv4 network that is not to be reached; may be given several times
    #[arg(long, value_name = "NET")]
    refuse4: Vec<String>,
    /// IPv4 address of this host that connections come from; may be given several times
    #[arg(long, value_name = "ADDR")]
    source4: Vec<String>,
    /// Let 64:ff9b::/96 stand for non-global IPv4 addresses (against RFC 6052 section 3.1)
    #[arg(long)]
    allow_private: bool,
    /// What becomes of urgent data: carry, inline or discard
    #[arg(long, value_name = "WORD", hide_possible_values = true, value_parser = ["carry", "inline", "discard"])]
    urgent: Option<String>,
    /// Name of the relay
    #[arg(long, value_name = "NAME", default_value = "trt0")]
    name: String,
    #[command(flatten)]
    service: ServiceArgs,
}

impl TrtArgs {
    /// The configuration that the options stand for.
    pub(crate) fn load(&self) -> Result<Loaded, Failure> {
        let mut entry = Entry::empty();
        entry.text("name", Some(&self.name));
        entry.list("pool6", &self.pool6);
        entry.list("allow", &self.allow);
        entry.list("refuse4", &self.refuse4);
        entry.list("source4", &self.source4);
        if self.allow_private {
            entry.put("allow_private", true.into());
        }
        entry.text("urgent", self.urgent.as_ref());
        self.service.add_to(&mut entry)?;
        entry.load_entry("trt")
    }

    pub(crate) fn print_config(&self) -> bool {
        self.service.print_config
    }
}
