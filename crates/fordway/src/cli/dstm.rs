//! `fordway dstm-server`, `fordway dstm-client` and `fordway leases`.

use clap::{Args, ValueHint};
use fordway_config::Loaded;
use toml::{Table, Value};

use super::short::{Entry, parsed_table};
use crate::failure::Failure;

/// `fordway dstm-server`.
#[derive(Debug, Args)]
pub(crate) struct DstmServerArgs {
    /// Address of this host that clients ask, with a port other than 13653 as [ADDR]:PORT; may be given several times
    #[arg(long, value_name = "ADDR", required = true)]
    listen: Vec<String>,
    /// The tunnel's own IPv6 address, which is routed to this host and is on no device
    #[arg(long, value_name = "ADDR")]
    local: String,
    /// IPv4 addresses to lend; may be given several times
    #[arg(long, value_name = "NET", required = true)]
    pool: Vec<String>,
    /// A client with a key of its own, and perhaps an address that it always gets; may be given several times
    #[arg(long, value_name = "ID=KEYFILE[,V4]", required_unless_present = "prefix")]
    client: Vec<String>,
    /// A prefix whose clients share a key; may be given several times
    #[arg(long, value_name = "PREFIX=KEYFILE")]
    prefix: Vec<String>,
    /// Share addresses: so many ports for each client, a power of two from 64 to 32768
    #[arg(long, value_name = "PORTS")]
    ports_per_client: Option<u32>,
    /// How long a lease lasts [default: 1h]
    #[arg(long, value_name = "TIME")]
    lifetime: Option<String>,
    /// Where leases are kept [default: /var/lib/fordway/dstm.leases]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    state: Option<String>,
    /// Name of the tunnel end point and its interface
    #[arg(long, value_name = "NAME", default_value = "tep0")]
    interface: String,
    /// auto, kernel or user
    #[arg(long, value_name = "ENGINE", hide_possible_values = true, value_parser = ["auto", "kernel", "user"])]
    engine: Option<String>,
    /// Where the tunnel end point takes packets: auto, interface, ingress
    #[arg(long, value_name = "POINT", hide_possible_values = true, value_parser = ["auto", "interface", "ingress"])]
    attach: Option<String>,
    /// Device for --attach ingress; may be given several times
    #[arg(long, value_name = "DEV", value_hint = ValueHint::Other)]
    device: Vec<String>,
    /// Any key of [dstm_server] with its value as in the file; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Write the configuration that the options stand for to standard output, and end
    #[arg(long)]
    print_config: bool,
}

/// `fordway dstm-client`.
#[derive(Debug, Args)]
pub(crate) struct DstmClientArgs {
    /// Address of a server, with a port other than 13653 as [ADDR]:PORT; may be given several times
    #[arg(long, value_name = "ADDR", required = true)]
    server: Vec<String>,
    /// File with the key
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    key_file: String,
    /// Name of this client, if the key is its own [default: it is known by its address]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Give the address back when nothing has used it for so long, or off [default: 10m]
    #[arg(long, value_name = "TIME")]
    idle: Option<String>,
    /// IPv4 network to route into the tunnel [default: all]; may be given several times
    #[arg(long, value_name = "NET")]
    routes4: Vec<String>,
    /// This end's own IPv6 address [default: made from the uplink's /64]
    #[arg(long, value_name = "ADDR")]
    local: Option<String>,
    /// Device towards the IPv6 network [default: by the route to the server]
    #[arg(long, value_name = "DEV", value_hint = ValueHint::Other)]
    uplink: Option<String>,
    /// Name of the client and its interface
    #[arg(long, value_name = "NAME", default_value = "dstm0")]
    interface: String,
    /// auto, kernel or user
    #[arg(long, value_name = "ENGINE", hide_possible_values = true, value_parser = ["auto", "kernel", "user"])]
    engine: Option<String>,
    /// Any key of a [[dstm_client]] with its value as in the file; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Write the configuration that the options stand for to standard output, and end
    #[arg(long)]
    print_config: bool,
}

/// `fordway leases`.
#[derive(Debug, Args)]
pub(crate) struct LeasesArgs {
    /// End the lease of a client: its name, or the address that it asks from
    #[arg(long, value_name = "CLIENT")]
    pub(crate) release: Option<String>,
    /// Write the leases as JSON
    #[arg(long, conflicts_with = "release")]
    pub(crate) json: bool,
}

impl DstmServerArgs {
    /// The configuration that the options stand for.
    pub(crate) fn load(&self) -> Result<Loaded, Failure> {
        let mut tep = Entry::new(&self.interface, "softwire");
        tep.text("role", Some(&"tep".to_owned()));
        tep.text("local", Some(&self.local));
        tep.text("engine", self.engine.as_ref());
        tep.text("attach", self.attach.as_ref());
        tep.list("devices", &self.device);
        let mut server = Entry::empty();
        server.list("listen", &self.listen);
        server.list("pool", &self.pool);
        if let Some(ports) = self.ports_per_client {
            server.put("ports_per_client", ports.into());
        }
        server.text("lifetime", self.lifetime.as_ref());
        server.text("tep", Some(&self.interface));
        server.text("state", self.state.as_ref());
        server.set(&self.set)?;
        let clients = self.client.iter().map(|text| {
            let (mut table, rest) =
                key_of("--client", "id", text, "laptop=/etc/fordway/laptop.key")?;
            let (file, v4) =
                rest.split_once(',').map_or((rest, None), |(file, v4)| (file, Some(v4)));
            table.insert("key_file".to_owned(), file.trim().into());
            if let Some(v4) = v4 {
                table.insert("v4".to_owned(), v4.trim().into());
            }
            Ok(Value::Table(table))
        });
        let prefixes = self.prefix.iter().map(|text| {
            let example = "2001:db8:1::/64=/etc/fordway/lan.key";
            let (mut table, file) = key_of("--prefix", "prefix", text, example)?;
            table.insert("key_file".to_owned(), file.into());
            Ok(Value::Table(table))
        });
        let lists = [
            ("client", clients.collect::<Result<Vec<_>, Failure>>()?),
            ("prefix", prefixes.collect::<Result<Vec<_>, Failure>>()?),
        ];
        for (key, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            server.put(key, list.into());
        }
        let tep = Value::from(vec![tep.value()]);
        parsed_table(&Table::from_iter([
            ("translator".to_owned(), tep),
            ("dstm_server".to_owned(), server.value()),
        ]))
    }

    pub(crate) fn print_config(&self) -> bool {
        self.print_config
    }
}

/// `WHO=FILE`: a table with who, and the rest.
fn key_of<'t>(
    option: &str,
    key: &str,
    text: &'t str,
    example: &str,
) -> Result<(Table, &'t str), Failure> {
    let Some((who, rest)) = text.split_once('=') else {
        return Err(Failure::usage(
            format!("{option} {text}: there is no '='"),
            format!("write {option} {example}"),
        ));
    };
    Ok((Table::from_iter([(key.to_owned(), Value::from(who.trim()))]), rest.trim()))
}

impl DstmClientArgs {
    /// The configuration that the options stand for.
    pub(crate) fn load(&self) -> Result<Loaded, Failure> {
        let mut entry = Entry::empty();
        entry.text("name", Some(&self.interface));
        entry.list("server", &self.server);
        entry.text("id", self.id.as_ref());
        entry.text("key_file", Some(&self.key_file));
        entry.text("idle", self.idle.as_ref());
        entry.list("routes4", &self.routes4);
        entry.text("local", self.local.as_ref());
        entry.text("uplink", self.uplink.as_ref());
        entry.text("engine", self.engine.as_ref());
        entry.set(&self.set)?;
        entry.load_entry("dstm_client")
    }

    pub(crate) fn print_config(&self) -> bool {
        self.print_config
    }
}
