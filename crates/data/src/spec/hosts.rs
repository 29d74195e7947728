//! The hosts file: two machines joined by a wire.

use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Load, Metric};
use crate::error::{DataError, Result};

/// A hosts file with comments, to copy and change.
pub const EXAMPLE: &str = include_str!("../../experiments/hosts-example.toml");

/// Octets of a link that one small datagram takes: payload 18, UDP 8, IPv6 40, Ethernet 18, preamble and gap 20.
const SMALL_ON_WIRE: f64 = 104.0;

/// The hosts of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hosts {
    /// Name of the host with client, translators and router.
    pub client: String,
    /// Name of the host with the server.
    pub server: String,
    /// All hosts of the file.
    #[serde(rename = "host")]
    pub hosts: Vec<HostSpec>,
}

/// One host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// Its name in this file, in reports and errors.
    pub name: String,
    /// Where ssh finds it: `root@2001:db8::1`, or a name of the user's ssh_config; none: this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// TCP port of its SSH server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Private key to log in with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<PathBuf>,
    /// Configuration of ssh instead of the user's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_config: Option<PathBuf>,
    /// Whether it may be loaded and changed.
    #[serde(default)]
    pub lab_host: bool,
    /// Its network device on the wire to the other host.
    pub uplink: String,
    /// Most that any load may put on the wire, in Gbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_gbit_s: Option<f64>,
}

impl Hosts {
    /// Reads a hosts file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            DataError::Usage(format!(
                "--hosts {}: {error}; `fordway-lab hosts --example` prints a file to start from",
                path.display()
            ))
        })?;
        Self::parse(&text).map_err(|why| DataError::Usage(format!("{}: {why}", path.display())))
    }

    fn parse(text: &str) -> std::result::Result<Self, String> {
        let hosts: Self = toml::from_str(text).map_err(|e| e.to_string())?;
        let line_of = |name: &str| {
            let quoted = format!("\"{name}\"");
            let names = |l: &str| l.trim_start().starts_with("name") && l.contains(&quoted);
            text.lines().position(names).map_or(0, |at| at + 1)
        };
        for (at, host) in hosts.hosts.iter().enumerate() {
            let wrong =
                |why: &str| format!("line {}: host {}: {why}", line_of(&host.name), host.name);
            if hosts.hosts[..at].iter().any(|other| other.name == host.name) {
                return Err(wrong("two hosts have this name: give each its own"));
            }
            host.fault().map_or(Ok(()), |why| Err(wrong(&why)))?;
        }
        for (role, name) in [("client", &hosts.client), ("server", &hosts.server)] {
            if !hosts.hosts.iter().any(|host| host.name == *name) {
                return Err(format!("{role} = \"{name}\": no [[host]] has this name"));
            }
        }
        if hosts.client == hosts.server {
            return Err(format!(
                "client and server are both {}: two hosts are needed; one machine alone needs no --hosts",
                hosts.client
            ));
        }
        let local = |host: &HostSpec| host.address.is_none();
        if local(hosts.client()) && local(hosts.server()) {
            return Err("neither client nor server has an address: one of them has to be another \
                        host than this one"
                .into());
        }
        Ok(hosts)
    }

    fn of(&self, name: &str) -> &HostSpec {
        // A name of nobody is refused when the file is read, and when a run's spec is.
        self.hosts.iter().find(|host| host.name == name).unwrap_or(&self.hosts[0])
    }

    /// The host with client, translators and router.
    pub fn client(&self) -> &HostSpec {
        self.of(&self.client)
    }

    /// The host with the server.
    pub fn server(&self) -> &HostSpec {
        self.of(&self.server)
    }

    /// Both, with their roles.
    pub fn both(&self) -> [(&'static str, &HostSpec); 2] {
        [("client", self.client()), ("server", self.server())]
    }

    /// What of them can't be, in words; for a run's own `spec.toml`.
    pub fn fault(&self) -> Option<String> {
        let text = toml::to_string(self).unwrap_or_default();
        Self::parse(&text).err()
    }

    /// An error unless both are marked as lab hosts in the file; before anything else is done to them.
    pub fn allowed(&self) -> Result<()> {
        for (role, host) in self.both() {
            if !host.lab_host {
                return Err(DataError::Usage(format!(
                    "host {} ({role}) is not marked as a lab host: the lab loads a host to its limits, makes \
                     namespaces and devices on it, and may switch its clock source. If it serves nobody, \
                     write lab_host = true in its [[host]] table",
                    host.name
                )));
            }
        }
        Ok(())
    }

    /// The rate cap: the lower of both hosts'.
    pub fn cap_gbit_s(&self) -> Option<f64> {
        self.both().into_iter().filter_map(|(_, host)| host.max_gbit_s).reduce(f64::min)
    }

    /// Small datagrams per second under the cap.
    pub fn cap_packets_s(&self) -> Option<u64> {
        self.cap_gbit_s().map(|cap| (cap * 1e9 / 8.0 / SMALL_ON_WIRE) as u64)
    }

    /// Why a metric is not measured over two hosts; `None`: it is. `steady` is the rate of datagrams that the profile
    /// sends steadily.
    pub fn unmeasured(&self, metric: Metric, steady: u32) -> Option<String> {
        let one_machine = |what: &str| Some(format!("{what} needs both ends on one machine"));
        if matches!(metric, Metric::CyclesPerPacketUp | Metric::CyclesPerPacketDown) {
            return one_machine("perf");
        }
        match metric.load()? {
            Load::Flow(_) | Load::Ping | Load::Sessions(_) | Load::Pages(_) => None,
            Load::Datagrams(_) if self.cap_gbit_s().is_none() => Some(
                "floods of datagrams go to hosts under a cap alone: write max_gbit_s in the hosts file".into(),
            ),
            Load::Probe if self.cap_packets_s().is_some_and(|most| most < u64::from(steady)) => Some(format!(
                "{steady} datagrams per second are more than max_gbit_s in the hosts file allows"
            )),
            Load::Datagrams(_) | Load::Probe => None,
            Load::Frames(_) | Load::Pairs(_) | Load::Imix(_) => one_machine("the sender of frames"),
            Load::NewFlows(_) | Load::Recycled | Load::Hold => one_machine("the tester of flows"),
            Load::Start | Load::Initiation | Load::Failover => one_machine("the clock of this measurement"),
            _ => Some("is not measured over two hosts".into()),
        }
    }
}

impl HostSpec {
    /// What of it can't be.
    fn fault(&self) -> Option<String> {
        let named = |text: &str| {
            !text.is_empty()
                && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
                && !text.starts_with('-')
        };
        if !named(&self.name) {
            return Some("a name has letters, digits, `.`, `_` and `-`".into());
        }
        if !named(&self.uplink) || self.uplink.len() > 15 {
            return Some(format!("uplink = \"{}\" is no name of a network device", self.uplink));
        }
        if self.max_gbit_s.is_some_and(|cap| !(cap.is_finite() && cap > 0.0)) {
            return Some("max_gbit_s has to be above 0".into());
        }
        let address = self.address.as_ref()?;
        let foreign = |c: char| c.is_whitespace() || c.is_control();
        if address.is_empty() || address.starts_with('-') || address.contains(foreign) {
            return Some(format!("address = \"{address}\" is nothing that ssh can connect to"));
        }
        let inside = address.rsplit_once('@').map_or(address.as_str(), |(_, host)| host);
        if let Some(v6) = inside.strip_prefix('[') {
            let v6 = v6.strip_suffix(']').unwrap_or_default();
            let bare = v6.split('%').next().unwrap_or_default();
            if bare.parse::<Ipv6Addr>().is_err() {
                return Some(format!(
                    "address = \"{address}\": between brackets stands an IPv6 address alone; a port goes into \
                     port = 22"
                ));
            }
        }
        None
    }

    /// The destination as `ssh` takes it: an IPv6 address without brackets.
    pub fn destination(&self) -> Option<String> {
        Some(self.address.as_ref()?.replace(['[', ']'], ""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(from: &str, to: &str) -> std::result::Result<Hosts, String> {
        assert!(EXAMPLE.contains(from), "{from}");
        Hosts::parse(&EXAMPLE.replacen(from, to, 1))
    }

    #[test]
    fn the_example_is_a_hosts_file_and_survives_a_spec() {
        let hosts = Hosts::parse(EXAMPLE).unwrap();
        assert_eq!((hosts.client().name.as_str(), hosts.server().name.as_str()), ("left", "right"));
        assert!(hosts.allowed().is_ok() && hosts.fault().is_none());
        assert_eq!(hosts.cap_gbit_s(), Some(1.0));
        let again: Hosts = toml::from_str(&toml::to_string(&hosts).unwrap()).unwrap();
        assert_eq!(again, hosts);
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_line() {
        let line = EXAMPLE.lines().position(|l| l.starts_with("name = \"right\"")).unwrap() + 1;
        for (from, to, words) in [
            ("name = \"right\"", "name = \"left\"", "two hosts have this name".to_owned()),
            ("server = \"right\"", "server = \"left\"", "client and server are both left".into()),
            ("server = \"right\"", "server = \"middle\"", "no [[host]] has this name".into()),
            ("uplink = \"eth2\"", "uplink = \"-x\"", format!("line {line}: host right: uplink")),
            (
                "address = \"root@[2001:db8::2]\"",
                "address = \"-oProxyCommand=x\"",
                "nothing that ssh".into(),
            ),
            (
                "address = \"root@[2001:db8::2]\"",
                "address = \"root@[2001:db8::2]:22\"",
                "port = 22".into(),
            ),
            ("uplink = \"eth2\"", "upling = \"eth2\"", "unknown field `upling`".into()),
        ] {
            let why = with(from, to).unwrap_err();
            assert!(why.contains(&words), "{to}: {why}");
        }
    }

    #[test]
    fn a_host_without_its_mark_is_refused() {
        let hosts = with("lab_host = true", "lab_host = false").unwrap();
        let why = hosts.allowed().unwrap_err().to_string();
        assert!(
            why.contains("host left (client) is not marked") && why.contains("lab_host = true"),
            "{why}"
        );
    }

    #[test]
    fn loads_keep_below_the_cap_or_are_left_out() {
        let hosts = Hosts::parse(EXAMPLE).unwrap();
        assert_eq!(hosts.cap_packets_s(), Some(1_201_923));
        assert_eq!(hosts.unmeasured(Metric::UdpRateUp, 10_000), None);
        assert_eq!(hosts.unmeasured(Metric::LatencyP50, 10_000), None);
        let slow =
            Hosts::parse(&EXAMPLE.replace("max_gbit_s = 1.0", "max_gbit_s = 0.001")).unwrap();
        assert!(slow.unmeasured(Metric::LatencyP50, 10_000).unwrap().contains("max_gbit_s"));
        let free = Hosts::parse(&EXAMPLE.replace("max_gbit_s = 1.0", "")).unwrap();
        assert!(free.unmeasured(Metric::UdpRateUp, 10_000).unwrap().contains("max_gbit_s"));
        assert_eq!(free.unmeasured(Metric::LatencyP50, 10_000), None);
        assert!(free.unmeasured(Metric::FrameRateUp, 10_000).unwrap().contains("one machine"));
    }
}
