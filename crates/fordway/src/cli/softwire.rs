//! `fordway softwire`: options that stand for a file with one softwire.

use clap::{Args, ValueHint};
use fordway_config::Loaded;
use toml::{Table, Value};

use super::short::{CommonArgs, Entry};
use crate::failure::Failure;

/// `fordway softwire`.
#[derive(Debug, Args)]
pub(crate) struct SoftwireArgs {
    /// The tunnel end point's binding of an IPv4 address, or of ports of it; may be given several times
    ///
    /// V4=CLIENT for a whole address; V4:PSID/LEN=CLIENT for the ports whose first LEN bits are PSID, and
    /// V4:PSID/LEN@OFFSET=CLIENT where OFFSET bits come before them (RFC 7597 section 5.1).
    #[arg(long, value_name = "V4[:PSID/LEN[@OFFSET]]=CLIENT", conflicts_with_all = ["v4", "remote"])]
    binding: Vec<String>,
    /// A client's IPv4 address, or the ports of it that are the client's
    #[arg(
        long,
        value_name = "V4[:PSID/LEN[@OFFSET]]",
        requires = "remote",
        required_unless_present = "local"
    )]
    v4: Option<String>,
    /// A client's tunnel end point
    #[arg(long, value_name = "ADDR", requires = "v4")]
    remote: Option<String>,
    /// This end's own IPv6 address [default for a client: made from the uplink's /64]
    #[arg(long, value_name = "ADDR")]
    local: Option<String>,
    /// A client's device towards the IPv6 network [default: by the route to the tunnel end point]
    #[arg(long, value_name = "DEV", value_hint = ValueHint::Other, requires = "v4")]
    uplink: Option<String>,
    /// IPv4 network to route into the interface [default for a client: all]; may be given several times
    #[arg(long, value_name = "NET")]
    routes4: Vec<String>,
    /// Name of the translator and its interface
    #[arg(long, value_name = "NAME", default_value = "softwire0")]
    interface: String,
    #[command(flatten)]
    common: CommonArgs,
}

impl SoftwireArgs {
    /// The configuration that the options stand for.
    pub(crate) fn load(&self) -> Result<Loaded, Failure> {
        let mut entry = Entry::new(&self.interface, "softwire");
        match &self.v4 {
            Some(v4) => {
                entry.put("role", "client".into());
                for (key, value) in address("--v4", v4)? {
                    entry.put(&key, value);
                }
                entry.text("remote", self.remote.as_ref());
            }
            None => {
                entry.put("role", "tep".into());
                let bindings = self.binding.iter().map(|it| binding(it).map(Value::Table));
                let bindings = bindings.collect::<Result<Vec<_>, _>>()?;
                entry.put("bindings", bindings.into());
            }
        }
        entry.text("local", self.local.as_ref());
        entry.text("uplink", self.uplink.as_ref());
        entry.list("routes4", &self.routes4);
        self.common.add_to(&mut entry)?;
        entry.load()
    }

    pub(crate) fn print_config(&self) -> bool {
        self.common.print_config
    }
}

fn binding(text: &str) -> Result<Table, Failure> {
    let Some((v4, remote)) = text.split_once('=') else {
        return Err(Failure::usage(
            format!("--binding {text}: there is no '='"),
            "write --binding 192.0.2.1=2001:db8:1::1",
        ));
    };
    let mut table = address("--binding", v4)?;
    table.insert("remote".to_owned(), remote.trim().into());
    Ok(table)
}

/// `V4[:PSID/LEN[@OFFSET]]` as the keys of the file.
fn address(option: &str, text: &str) -> Result<Table, Failure> {
    let mut table = Table::new();
    let (v4, ports) = match text.split_once(':') {
        Some((v4, ports)) => (v4, Some(ports)),
        None => (text, None),
    };
    table.insert("v4".to_owned(), v4.trim().into());
    let Some(ports) = ports else { return Ok(table) };
    let (set, offset) = match ports.split_once('@') {
        Some((set, offset)) => (set, Some(offset)),
        None => (ports, None),
    };
    let (psid, len) = set.split_once('/').unwrap_or((set, ""));
    let numbers = [("psid", Some(psid)), ("psid_len", Some(len)), ("psid_offset", offset)];
    for (key, number) in numbers {
        let Some(number) = number else { continue };
        let number: i64 = number.trim().parse().map_err(|_| {
            Failure::usage(
                format!("{option} {text}: \"{ports}\" is no port set"),
                "write PSID/LEN, such as 192.0.2.1:3/4 for the fourth of 16 parts",
            )
        })?;
        table.insert(key.to_owned(), number.into());
    }
    Ok(table)
}
