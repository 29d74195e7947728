//! The short forms: options that stand for a configuration file with one translator.

use clap::Args;
use fordway_config::{Loaded, parse};
use toml::{Table, Value};

use crate::failure::Failure;

/// The name under which errors show the file that the options stand for.
const ORIGIN: &str = "(the options, as a file)";

/// `fordway clat`.
#[derive(Debug, Args)]
pub(crate) struct ClatArgs {
    /// The PLAT's translation prefix
    #[arg(long, value_name = "PREFIX")]
    pref64: String,
    /// Device towards the IPv6 network [default: by the route to the prefix]
    #[arg(long, value_name = "DEV")]
    uplink: Option<String>,
    /// Name of the translator and its interface
    #[arg(long, value_name = "NAME", default_value = "clat0")]
    interface: String,
    /// The host's IPv4 address
    #[arg(long, value_name = "ADDR", default_value = "192.0.0.1")]
    v4: String,
    /// Its IPv6 counterpart [default: made from the uplink's /64]
    #[arg(long, value_name = "ADDR")]
    v6: Option<String>,
    #[command(flatten)]
    common: CommonArgs,
}

/// `fordway siit`.
#[derive(Debug, Args)]
pub(crate) struct SiitArgs {
    /// Translation prefix; may be given several times, addresses are made in the first
    #[arg(long, value_name = "PREFIX", required_unless_present = "eam")]
    pool6: Vec<String>,
    /// Name of the translator and its interface
    #[arg(long, value_name = "NAME", default_value = "siit0")]
    interface: String,
    #[command(flatten)]
    common: CommonArgs,
}

/// Options of both.
#[derive(Debug, Args)]
struct CommonArgs {
    /// Explicit address mapping (RFC 7757); may be given several times
    #[arg(long, value_name = "V4=V6")]
    eam: Vec<String>,
    /// IPv4 network to route into the interface; may be given several times
    #[arg(long, value_name = "NET")]
    routes4: Vec<String>,
    /// auto, kernel or user
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    /// Where packets are taken: auto, interface, uplink or xdp
    #[arg(long, value_name = "POINT")]
    attach: Option<String>,
    /// Device for --attach xdp; may be given several times
    #[arg(long, value_name = "DEV")]
    device: Vec<String>,
    /// Let the kernel engine take the time of each packet; fordway status shows the mean
    #[arg(long)]
    measure: bool,
    /// IPv6 path MTU in octets [default: found on the host]
    #[arg(long, value_name = "OCTETS")]
    mtu: Option<String>,
    /// Queues and threads [default: by the number of processors]
    #[arg(long, value_name = "NUMBER")]
    queues: Option<String>,
    /// Source of ICMPv4 errors, or off [default: 192.0.0.8]
    #[arg(long, value_name = "ADDR")]
    icmp_source4: Option<String>,
    /// Source of ICMPv6 errors, or off [default: the host's address]
    #[arg(long, value_name = "ADDR")]
    icmp_source6: Option<String>,
    /// Let 64:ff9b::/96 carry non-global IPv4 addresses (against RFC 6052 section 3.1)
    #[arg(long)]
    allow_private: bool,
    /// Leave addresses, routes and settings of the host alone
    #[arg(long)]
    no_manage: bool,
    /// Any key of a [[translator]] with its value as in the file; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Write the configuration that the options stand for to standard output, and end
    #[arg(long)]
    print_config: bool,
}

/// Options that stand for a translator in `explain` and `pcap`.
#[derive(Debug, Args)]
pub(crate) struct InlineArgs {
    /// Instead of a file: a CLAT with this prefix
    #[arg(long, value_name = "PREFIX", conflicts_with_all = ["config", "pool6"])]
    pref64: Option<String>,
    /// The CLAT's IPv4 address
    #[arg(long, value_name = "ADDR", requires = "pref64")]
    v4: Option<String>,
    /// Instead of a file: a stateless translator with this prefix
    #[arg(long, value_name = "PREFIX", conflicts_with = "config")]
    pool6: Vec<String>,
    /// Instead of a file: an explicit address mapping
    #[arg(long, value_name = "V4=V6", conflicts_with = "config")]
    eam: Vec<String>,
    /// Any key of the translator with its value as in the file
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "config")]
    set: Vec<String>,
}

impl ClatArgs {
    /// The configuration that the options stand for.
    pub(crate) fn load(&self) -> Result<Loaded, Failure> {
        let mut entry = Entry::new(&self.interface, "clat");
        entry.text("pref64", Some(&self.pref64));
        entry.text("v4", Some(&self.v4));
        entry.text("v6", self.v6.as_ref());
        entry.text("uplink", self.uplink.as_ref());
        self.common.add_to(&mut entry)?;
        entry.load()
    }

    pub(crate) fn print_config(&self) -> bool {
        self.common.print_config
    }
}

impl SiitArgs {
    /// The configuration that the options stand for.
    pub(crate) fn load(&self) -> Result<Loaded, Failure> {
        let mut entry = Entry::new(&self.interface, "siit");
        entry.list("pool6", &self.pool6);
        self.common.add_to(&mut entry)?;
        entry.load()
    }

    pub(crate) fn print_config(&self) -> bool {
        self.common.print_config
    }
}

impl InlineArgs {
    /// The configuration that the options stand for; `None` if there are none.
    pub(crate) fn load(&self, v6: Option<&String>) -> Result<Option<Loaded>, Failure> {
        let mut entry = match &self.pref64 {
            Some(pref64) => {
                let mut entry = Entry::new("clat0", "clat");
                entry.text("pref64", Some(pref64));
                entry.text("v4", self.v4.as_ref());
                entry.text("v6", v6);
                entry
            }
            None if self.pool6.is_empty() && self.eam.is_empty() => return Ok(None),
            None => Entry::new("siit0", "siit"),
        };
        entry.list("pool6", &self.pool6);
        entry.mappings(&self.eam)?;
        entry.set(&self.set)?;
        entry.load().map(Some)
    }
}

impl CommonArgs {
    fn add_to(&self, entry: &mut Entry) -> Result<(), Failure> {
        entry.text("engine", self.engine.as_ref());
        entry.text("attach", self.attach.as_ref());
        entry.list("devices", &self.device);
        if self.measure {
            entry.put("measure", Value::Boolean(true));
        }
        entry.mappings(&self.eam)?;
        entry.list("routes4", &self.routes4);
        entry.number_or_text("mtu", self.mtu.as_ref());
        entry.number_or_text("queues", self.queues.as_ref());
        entry.text("icmp_source4", self.icmp_source4.as_ref());
        entry.text("icmp_source6", self.icmp_source6.as_ref());
        if self.allow_private {
            entry.put("allow_private", Value::Boolean(true));
        }
        if self.no_manage {
            entry.put("manage", Value::Boolean(false));
        }
        entry.set(&self.set)
    }
}

/// A `[[translator]]` in the making. What is wrong with its values is found by the parser of
/// configuration files, which then shows them as they would stand in a file.
struct Entry(Table);

impl Entry {
    fn new(name: &str, mode: &str) -> Entry {
        let mut entry = Entry(Table::new());
        entry.put("name", name.into());
        entry.put("mode", mode.into());
        entry
    }

    fn put(&mut self, key: &str, value: Value) {
        self.0.insert(key.to_owned(), value);
    }

    fn text(&mut self, key: &str, value: Option<&String>) {
        if let Some(value) = value {
            self.put(key, value.as_str().into());
        }
    }

    fn number_or_text(&mut self, key: &str, value: Option<&String>) {
        let Some(value) = value else { return };
        match value.parse::<i64>() {
            Ok(number) => self.put(key, number.into()),
            Err(_) => self.put(key, value.as_str().into()),
        }
    }

    fn list(&mut self, key: &str, values: &[String]) {
        if !values.is_empty() {
            let values = values.iter().map(|value| Value::from(value.as_str()));
            self.put(key, values.collect::<Vec<_>>().into());
        }
    }

    fn mappings(&mut self, mappings: &[String]) -> Result<(), Failure> {
        let pair = |mapping: &String| match mapping.split_once('=') {
            Some((v4, v6)) => Ok(Value::from(vec![v4.trim(), v6.trim()])),
            None => Err(Failure::usage(
                format!("--eam {mapping}: there is no '='"),
                "write --eam 198.51.100.0/24=2001:db8:1::/120",
            )),
        };
        let pairs = mappings.iter().map(pair).collect::<Result<Vec<_>, _>>()?;
        if !pairs.is_empty() {
            self.put("eam", pairs.into());
        }
        Ok(())
    }

    fn set(&mut self, settings: &[String]) -> Result<(), Failure> {
        for setting in settings {
            let Some((key, value)) = setting.split_once('=') else {
                return Err(Failure::usage(
                    format!("--set {setting}: there is no '='"),
                    "write --set traffic_class=0",
                ));
            };
            let (key, value) = (key.trim(), value.trim());
            // A word without quotation marks is meant as text: a shell takes them away.
            let value = format!("v = {value}")
                .parse::<Table>()
                .ok()
                .and_then(|mut table| table.remove("v"))
                .unwrap_or_else(|| Value::from(value));
            self.put(key, value);
        }
        Ok(())
    }

    fn load(self) -> Result<Loaded, Failure> {
        let mut top = Table::new();
        top.insert("translator".to_owned(), Value::from(vec![Value::Table(self.0)]));
        let text = toml::to_string(&top)
            .map_err(|error| Failure::failed(format!("cannot write the options: {error}")))?;
        parse(ORIGIN, &text).map_err(Failure::Config)
    }
}
