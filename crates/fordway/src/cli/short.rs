//! The short forms: options that stand for a configuration file with one translator.

use clap::{Args, ValueHint};
use fordway_config::{Loaded, parse};
use toml::{Table, Value};

use crate::failure::Failure;

/// The name under which errors show the file that the options stand for.
const ORIGIN: &str = "(the options, as a file)";

/// `fordway clat`.
#[derive(Debug, Args)]
pub(crate) struct ClatArgs {
    /// The PLAT's translation prefix; auto: discover it, and follow the network
    #[arg(long, value_name = "PREFIX|auto")]
    pref64: String,
    /// With --pref64 auto: go on where the network has native IPv4
    #[arg(long)]
    always: bool,
    /// Device towards the IPv6 network [default: by the route to the prefix]
    #[arg(long, value_name = "DEV", value_hint = ValueHint::Other)]
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
    mappings: MappingArgs,
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
    mappings: MappingArgs,
    #[command(flatten)]
    common: CommonArgs,
}

/// `fordway nat64`.
#[derive(Debug, Args)]
pub(crate) struct Nat64Args {
    /// Translation prefix; may be given several times
    #[arg(long, value_name = "PREFIX", required = true)]
    pool6: Vec<String>,
    /// IPv4 addresses and ports that IPv6 hosts get; may be given several times
    ///
    /// ADDR, ADDR/LEN or ADDR-ADDR, with :LO-HI behind it for other ports than 1024-65535; or
    /// interface:DEV[:LO-HI] for the addresses of a device.
    #[arg(long, value_name = "ADDR[:LO-HI]", required = true)]
    pool4: Vec<String>,
    /// BIB entry: a port that is forwarded to an IPv6 host; may be given several times
    #[arg(long, value_name = "PROTOCOL:V4:PORT=[V6]:PORT")]
    bib: Vec<String>,
    /// Which packets from IPv4 pass: endpoint-independent or address-dependent
    #[arg(long, value_name = "WORD", hide_possible_values = true)]
    #[arg(value_parser = ["endpoint-independent", "address-dependent"])]
    filtering: Option<String>,
    /// Application level gateway: ftp; may be given several times
    #[arg(long, value_name = "NAME", hide_possible_values = true, value_parser = ["ftp"])]
    alg: Vec<String>,
    /// Give each subscriber ports of its own, in blocks of this size
    #[arg(long, value_name = "PORTS")]
    port_blocks: Option<u32>,
    /// Bits of an IPv6 address that name a subscriber [default: 128]
    #[arg(long, value_name = "BITS")]
    subscriber_len: Option<String>,
    /// Sessions that the tables hold [default: 262144]
    #[arg(long, value_name = "NUMBER")]
    max_sessions: Option<String>,
    /// Name of the translator and its interface
    #[arg(long, value_name = "NAME", default_value = "nat64")]
    interface: String,
    #[command(flatten)]
    common: CommonArgs,
}

/// `fordway nat-pt`.
#[derive(Debug, Args)]
pub(crate) struct NatPtArgs {
    /// Translation prefix; may be given several times
    #[arg(long, value_name = "PREFIX", required = true)]
    pool6: Vec<String>,
    /// IPv4 addresses that IPv6 hosts get for themselves while they are in use; may be given several times
    ///
    /// A question for a name takes one for a while, so that strangers can use all of them up (RFC 4966 section 3.4):
    /// say with --dns-client who may ask.
    #[arg(long, value_name = "NET", required_unless_present_any = ["pool4", "binding"])]
    addresses: Vec<String>,
    /// IPv4 addresses and ports for what IPv6 hosts begin (NAPT-PT); may be given several times
    ///
    /// Without it they send from --addresses, and a stranger's questions can keep them from it. Written as in
    /// fordway nat64.
    #[arg(long, value_name = "ADDR[:LO-HI]")]
    pool4: Vec<String>,
    /// Binding that stays: an IPv4 address for an IPv6 host; may be given several times
    #[arg(long, value_name = "V4=V6")]
    binding: Vec<String>,
    /// BIB entry: a port that is forwarded to an IPv6 host; may be given several times
    #[arg(long, value_name = "PROTOCOL:V4:PORT=[V6]:PORT")]
    bib: Vec<String>,
    /// IPv4 network whose hosts may begin sessions [default: all]; may be given several times
    ///
    /// With the default, every host that IPv4 can name is open to everybody (RFC 4966 section 6).
    #[arg(long, value_name = "NET")]
    initiator: Vec<String>,
    /// IPv4 network whose questions for names are translated [default: all]; may be given several times
    #[arg(long, value_name = "NET", conflicts_with = "no_dns_alg")]
    dns_client: Vec<String>,
    /// Application level gateway: ftp; may be given several times
    #[arg(long, value_name = "NAME", hide_possible_values = true, value_parser = ["ftp"])]
    alg: Vec<String>,
    /// Leave DNS messages alone
    ///
    /// The gateway changes what servers have said, so that those who check signatures refuse it (RFC 4966
    /// section 4.5); and what a server remembers of it is wrong everywhere else (section 4.2).
    #[arg(long)]
    no_dns_alg: bool,
    /// How long an address that was asked for by name waits for its first packet [default: 60s]
    #[arg(long, value_name = "TIME")]
    hold: Option<String>,
    /// How long an address that nobody uses stays bound [default: 10m]
    #[arg(long, value_name = "TIME")]
    idle: Option<String>,
    /// Name of the translator and its interface
    #[arg(long, value_name = "NAME", default_value = "natpt0")]
    interface: String,
    #[command(flatten)]
    common: CommonArgs,
}

/// Options of stateless translators.
#[derive(Debug, Args)]
struct MappingArgs {
    /// Explicit address mapping (RFC 7757); may be given several times
    #[arg(long, value_name = "V4=V6")]
    eam: Vec<String>,
    /// IPv4 network to route into the interface; may be given several times
    #[arg(long, value_name = "NET")]
    routes4: Vec<String>,
}

/// Options of all of them.
#[derive(Debug, Args)]
pub(super) struct CommonArgs {
    /// auto, kernel or user
    #[arg(long, value_name = "ENGINE", hide_possible_values = true, value_parser = ["auto", "kernel", "user"])]
    engine: Option<String>,
    /// Where packets are taken: auto, interface, xdp; uplink (a CLAT); ingress (others)
    #[arg(long, value_name = "POINT", hide_possible_values = true)]
    #[arg(value_parser = ["auto", "interface", "uplink", "ingress", "xdp"])]
    attach: Option<String>,
    /// Device for --attach ingress or xdp; may be given several times
    #[arg(long, value_name = "DEV", value_hint = ValueHint::Other)]
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
    pub(super) print_config: bool,
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
    /// Instead of a file: with --pool6, a stateful translator with these IPv4 addresses
    #[arg(long, value_name = "ADDR[:LO-HI]", conflicts_with_all = ["config", "pref64", "eam"])]
    pool4: Vec<String>,
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
        if self.always {
            entry.put("always", Value::Boolean(true));
        }
        entry.text("v4", Some(&self.v4));
        entry.text("v6", self.v6.as_ref());
        entry.text("uplink", self.uplink.as_ref());
        self.mappings.add_to(&mut entry)?;
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
        self.mappings.add_to(&mut entry)?;
        self.common.add_to(&mut entry)?;
        entry.load()
    }

    pub(crate) fn print_config(&self) -> bool {
        self.common.print_config
    }
}

impl Nat64Args {
    /// The configuration that the options stand for.
    pub(crate) fn load(&self) -> Result<Loaded, Failure> {
        let mut entry = Entry::new(&self.interface, "nat64");
        entry.list("pool6", &self.pool6);
        entry.list("pool4", &self.pool4);
        entry.bib(&self.bib)?;
        entry.text("filtering", self.filtering.as_ref());
        entry.list("alg", &self.alg);
        if let Some(size) = self.port_blocks {
            let table = Table::from_iter([("size".to_owned(), Value::from(size))]);
            entry.put("port_blocks", Value::Table(table));
        }
        entry.number_or_text("subscriber_len", self.subscriber_len.as_ref());
        entry.number_or_text("max_sessions", self.max_sessions.as_ref());
        self.common.add_to(&mut entry)?;
        entry.load()
    }

    pub(crate) fn print_config(&self) -> bool {
        self.common.print_config
    }
}

impl NatPtArgs {
    /// The configuration that the options stand for.
    pub(crate) fn load(&self) -> Result<Loaded, Failure> {
        let mut entry = Entry::new(&self.interface, "nat-pt");
        entry.list("pool6", &self.pool6);
        entry.list("addresses", &self.addresses);
        entry.list("pool4", &self.pool4);
        entry.pairs("address_bindings", "--binding", &self.binding)?;
        entry.bib(&self.bib)?;
        entry.list("initiators", &self.initiator);
        entry.list("dns_clients", &self.dns_client);
        entry.list("alg", &self.alg);
        if self.no_dns_alg {
            entry.put("dns_alg", Value::Boolean(false));
        }
        entry.text("hold", self.hold.as_ref());
        entry.text("idle", self.idle.as_ref());
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
            None if !self.pool4.is_empty() => Entry::new("nat64", "nat64"),
            None => Entry::new("siit0", "siit"),
        };
        entry.list("pool6", &self.pool6);
        entry.list("pool4", &self.pool4);
        entry.mappings(&self.eam)?;
        entry.set(&self.set)?;
        entry.load().map(Some)
    }
}

impl MappingArgs {
    fn add_to(&self, entry: &mut Entry) -> Result<(), Failure> {
        entry.mappings(&self.eam)?;
        entry.list("routes4", &self.routes4);
        Ok(())
    }
}

impl CommonArgs {
    pub(super) fn add_to(&self, entry: &mut Entry) -> Result<(), Failure> {
        entry.text("engine", self.engine.as_ref());
        entry.text("attach", self.attach.as_ref());
        entry.list("devices", &self.device);
        if self.measure {
            entry.put("measure", Value::Boolean(true));
        }
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

/// A section in the making, most often a `[[translator]]`. What is wrong with its values is found by the parser of
/// configuration files, which then shows them as they would stand in a file.
pub(super) struct Entry(Table);

impl Entry {
    pub(super) fn empty() -> Entry {
        Entry(Table::new())
    }

    pub(super) fn new(name: &str, mode: &str) -> Entry {
        let mut entry = Entry::empty();
        entry.put("name", name.into());
        entry.put("mode", mode.into());
        entry
    }

    pub(super) fn put(&mut self, key: &str, value: Value) {
        self.0.insert(key.to_owned(), value);
    }

    pub(super) fn text(&mut self, key: &str, value: Option<&String>) {
        if let Some(value) = value {
            self.put(key, value.as_str().into());
        }
    }

    pub(super) fn number_or_text(&mut self, key: &str, value: Option<&String>) {
        let Some(value) = value else { return };
        match value.parse::<i64>() {
            Ok(number) => self.put(key, number.into()),
            Err(_) => self.put(key, value.as_str().into()),
        }
    }

    pub(super) fn list(&mut self, key: &str, values: &[String]) {
        if !values.is_empty() {
            let values = values.iter().map(|value| Value::from(value.as_str()));
            self.put(key, values.collect::<Vec<_>>().into());
        }
    }

    /// Lists of texts; no key where there is none.
    pub(super) fn lists(&mut self, key: &str, items: Vec<Vec<String>>) {
        if !items.is_empty() {
            self.put(key, Value::from(items));
        }
    }

    fn mappings(&mut self, mappings: &[String]) -> Result<(), Failure> {
        self.pairs("eam", "--eam", mappings)
    }

    /// `IPV4=IPV6`, under this key, of this option.
    fn pairs(&mut self, key: &str, option: &str, mappings: &[String]) -> Result<(), Failure> {
        let example = match key {
            "eam" => "198.51.100.0/24=2001:db8:1::/120",
            _ => "192.0.2.10=2001:db8::5",
        };
        let pair = |mapping: &String| match mapping.split_once('=') {
            Some((v4, v6)) => Ok(Value::from(vec![v4.trim(), v6.trim()])),
            None => Err(Failure::usage(
                format!("{option} {mapping}: there is no '='"),
                format!("write {option} {example}"),
            )),
        };
        let pairs = mappings.iter().map(pair).collect::<Result<Vec<_>, _>>()?;
        if !pairs.is_empty() {
            self.put(key, pairs.into());
        }
        Ok(())
    }

    /// `tcp:192.0.2.1:80=[2001:db8::5]:8080`.
    fn bib(&mut self, entries: &[String]) -> Result<(), Failure> {
        let parse = |entry: &String| {
            let split = entry.split_once('=').and_then(|(v4, v6)| {
                let (protocol, v4) = v4.split_once(':')?;
                Some(Value::from(vec![protocol.trim(), v4.trim(), v6.trim()]))
            });
            split.ok_or_else(|| {
                Failure::usage(
                    format!("--bib {entry}: this is no BIB entry"),
                    "write --bib tcp:192.0.2.1:80=[2001:db8::5]:8080",
                )
            })
        };
        let entries = entries.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        if !entries.is_empty() {
            self.put("bib", entries.into());
        }
        Ok(())
    }

    pub(super) fn set(&mut self, settings: &[String]) -> Result<(), Failure> {
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

    /// The table.
    pub(super) fn value(self) -> Value {
        Value::Table(self.0)
    }

    pub(super) fn load(self) -> Result<Loaded, Failure> {
        self.load_entry("translator")
    }

    /// As the only one of a section of which there may be several.
    pub(super) fn load_entry(self, section: &str) -> Result<Loaded, Failure> {
        parsed(section, Value::from(vec![Value::Table(self.0)]))
    }

    /// As the section of which there is one.
    pub(super) fn load_section(self, section: &str) -> Result<Loaded, Failure> {
        parsed(section, Value::Table(self.0))
    }
}

/// A file with one section alone.
fn parsed(section: &str, value: Value) -> Result<Loaded, Failure> {
    parsed_table(&Table::from_iter([(section.to_owned(), value)]))
}

/// A file with these sections.
pub(super) fn parsed_table(top: &Table) -> Result<Loaded, Failure> {
    let text = toml::to_string(top)
        .map_err(|error| Failure::failed(format!("cannot write the options: {error}")))?;
    parse(ORIGIN, &text).map_err(Failure::Config)
}
