//! `fordway nat44` and `fordway dual-stack`: options that stand for a configuration file with one entry.

use clap::{Args, ValueHint};
use fordway_config::Loaded;
use toml::Value;

use super::short::Entry;
use crate::failure::Failure;

/// `fordway nat44`.
#[derive(Debug, Args)]
pub(crate) struct Nat44Args {
    /// Network of the hosts that are translated; may be given several times
    #[arg(long, value_name = "NET", required = true)]
    clients: Vec<String>,
    /// Device that packets leave by translated; may be given several times
    #[arg(long, value_name = "DEV", required = true, value_hint = ValueHint::Other)]
    uplink: Vec<String>,
    /// Device that the hosts are behind; may be given several times [default: any]
    #[arg(long, value_name = "DEV", value_hint = ValueHint::Other)]
    device: Vec<String>,
    /// IPv4 addresses and ports that hosts get; may be given several times [default: the uplink's address]
    ///
    /// ADDR, ADDR/LEN or ADDR-ADDR, with :LO-HI behind it for other ports than 1024-65535; or
    /// interface:DEV:LO-HI for these ports of the uplink's address.
    #[arg(long, value_name = "ADDR[:LO-HI]")]
    pool4: Vec<String>,
    /// Network that is translated address by address, both ways; may be given several times
    #[arg(long, value_name = "INSIDE=OUTSIDE")]
    netmap: Vec<String>,
    /// Port that is forwarded to a host; may be given several times
    #[arg(long, value_name = "PROTOCOL:[V4:]PORT=V4:PORT")]
    forward: Vec<String>,
    /// Draw ports instead of keeping them
    #[arg(long)]
    random_ports: bool,
    /// Connections that a host may have at a time [default: no limit]
    #[arg(long, value_name = "NUMBER")]
    sessions: Option<u32>,
    /// Leave the host's own timeouts of connections as they are
    #[arg(long)]
    keep_timeouts: bool,
    /// Name of the translator, which the nftables table gets
    #[arg(long, value_name = "NAME", default_value = "nat44")]
    name: String,
    /// Any key of a [[translator]] with its value as in the file; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Write the configuration that the options stand for to standard output, and end
    #[arg(long)]
    print_config: bool,
}

/// `fordway dual-stack`.
#[derive(Debug, Args)]
pub(crate) struct DualStackArgs {
    /// Device between which and the others packets are forwarded; may be given several times
    #[arg(long, value_name = "DEV", required = true, value_hint = ValueHint::Other)]
    device: Vec<String>,
    /// Address that a device gets; may be given several times
    #[arg(long, value_name = "DEV=ADDR/LEN")]
    address: Vec<String>,
    /// Name of the entry
    #[arg(long, value_name = "NAME", default_value = "dual-stack")]
    name: String,
    /// Write the configuration that the options stand for to standard output, and end
    #[arg(long)]
    print_config: bool,
}

impl Nat44Args {
    /// The configuration that the options stand for.
    pub(crate) fn load(&self) -> Result<Loaded, Failure> {
        let mut entry = Entry::new(&self.name, "nat44");
        entry.list("clients", &self.clients);
        entry.list("uplink", &self.uplink);
        entry.list("devices", &self.device);
        entry.list("pool4", &self.pool4);
        let example = "--netmap 198.51.100.0/28=192.0.2.16/28";
        entry.lists("netmap", pairs("--netmap", &self.netmap, example)?);
        entry.lists("forward", self.forwards()?);
        if self.random_ports {
            entry.put("random_ports", Value::Boolean(true));
        }
        if let Some(sessions) = self.sessions {
            let table = toml::Table::from_iter([("sessions".to_owned(), Value::from(sessions))]);
            entry.put("quotas", Value::Table(table));
        }
        if self.keep_timeouts {
            entry.put("lifetimes", "host".into());
        }
        entry.set(&self.set)?;
        entry.load()
    }

    /// `tcp:192.0.2.1:80=198.51.100.10:8080`, or without the outer address.
    fn forwards(&self) -> Result<Vec<Vec<String>>, Failure> {
        let parse = |forward: &String| {
            let split = forward.split_once('=').and_then(|(outer, host)| {
                let (protocol, outer) = outer.split_once(':')?;
                Some([protocol, outer, host].map(|part| part.trim().to_owned()).to_vec())
            });
            split.ok_or_else(|| {
                Failure::usage(
                    format!("--forward {forward}: this is no forwarded port"),
                    "write --forward tcp:80=198.51.100.10:8080, or tcp:192.0.2.1:80=... for one address",
                )
            })
        };
        self.forward.iter().map(parse).collect()
    }

    pub(crate) fn print_config(&self) -> bool {
        self.print_config
    }
}

impl DualStackArgs {
    /// The configuration that the options stand for.
    pub(crate) fn load(&self) -> Result<Loaded, Failure> {
        let mut entry = Entry::new(&self.name, "dual-stack");
        entry.list("devices", &self.device);
        let example = "--address lan0=2001:db8:1::1/64";
        entry.lists("addresses", pairs("--address", &self.address, example)?);
        entry.load()
    }

    pub(crate) fn print_config(&self) -> bool {
        self.print_config
    }
}

/// Texts such as ONE=OTHER.
fn pairs(option: &str, texts: &[String], example: &str) -> Result<Vec<Vec<String>>, Failure> {
    let pair = |text: &String| match text.split_once('=') {
        Some((one, other)) => Ok(vec![one.trim().to_owned(), other.trim().to_owned()]),
        None => Err(Failure::usage(
            format!("{option} {text}: there is no '='"),
            format!("write {example}"),
        )),
    };
    texts.iter().map(pair).collect()
}
