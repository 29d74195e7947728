//! What the runtime asks for: environment variables, and the network configuration on standard input.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use fordway_net::Ipv6Net;
use fordway_xlat::addr::Pool6;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::{Code, Failure, Result};

/// Versions of the specification whose configurations and results the plugin reads.
pub(crate) const VERSIONS: [&str; 4] = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// Where GC names what is still valid. libcni writes both names; the first is the specification's.
const VALID: [&str; 2] = ["cni.dev/valid-attachments", "cni.dev/attachments"];

/// Keys that the specification defines; the runtime or other tools read them.
const STANDARD: [&str; 12] = [
    "cniVersion",
    "cniVersions",
    "name",
    "type",
    "args",
    "capabilities",
    "dns",
    "ipMasq",
    "ipam",
    "prevResult",
    "runtimeConfig",
    "disableCheck",
];

/// The plugin's own keys.
const OWN: [&str; 4] = ["pref64", "clatPrefix", "nameservers", "allowPrivate"];

/// A command of the specification; VERSION needs no request ([`versions`](crate::versions)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Give a pod a CLAT.
    Add,
    /// Take it away.
    Del,
    /// Is it as ADD left it?
    Check,
    /// Remove what belongs to no valid attachment.
    Gc,
    /// Could ADD work?
    Status,
}

impl Command {
    /// By its name in `CNI_COMMAND`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "ADD" => Command::Add,
            "DEL" => Command::Del,
            "CHECK" => Command::Check,
            "GC" => Command::Gc,
            "STATUS" => Command::Status,
            _ => return None,
        })
    }

    /// Whether it has to remove what is there, whatever the plugin's own keys say: they may have changed since ADD.
    const fn removes(self) -> bool {
        matches!(self, Command::Del | Command::Gc)
    }

    /// Whether it is about one pod.
    const fn has_pod(self) -> bool {
        matches!(self, Command::Add | Command::Del | Command::Check)
    }
}

/// A command with all that belongs to it.
#[derive(Clone, Debug)]
pub struct Request {
    /// What to do.
    pub command: Command,
    pub(crate) network: Network,
    /// Only of ADD, DEL and CHECK.
    pub(crate) attachment: Option<Attachment>,
    /// The pod's namespace; DEL may come without.
    pub(crate) netns: Option<PathBuf>,
}

/// The network configuration.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) version: String,
    pub(crate) name: String,
    pub(crate) own: Own,
    pub(crate) previous: Option<Value>,
    /// Only of GC.
    pub(crate) valid: Option<BTreeSet<u64>>,
}

/// What the plugin's own keys say.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub(crate) pref64: Pref64,
    pub(crate) clat_prefix: Option<Ipv6Net>,
    pub(crate) nameservers: Vec<IpAddr>,
    pub(crate) allow_private: bool,
}

/// The translation prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pref64 {
    Fixed(Pool6),
    Auto,
}

/// One interface of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attachment {
    pub(crate) container: String,
    pub(crate) interface: String,
}

impl Attachment {
    /// The key of its entry.
    pub(crate) fn key(&self, network: &str) -> u64 {
        number(&[network, &self.container, &self.interface])
    }
}

/// The first 64 bits of the SHA-256 of texts.
pub(crate) fn number(texts: &[&str]) -> u64 {
    let mut hash = Sha256::new();
    for text in texts {
        // No text has this octet.
        hash.update(text.as_bytes());
        hash.update([0xff]);
    }
    let digest = hash.finalize();
    let mut octets = [0; 8];
    octets.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(octets)
}

/// The keys of the specification that the plugin needs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    cni_version: String,
    name: String,
}

/// The plugin's own keys.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenOwn {
    #[serde(default = "auto")]
    pref64: String,
    clat_prefix: Option<String>,
    #[serde(default)]
    nameservers: Vec<IpAddr>,
    #[serde(default)]
    allow_private: bool,
}

fn auto() -> String {
    "auto".to_owned()
}

#[derive(Deserialize)]
struct ValidAttachment {
    #[serde(rename = "containerID")]
    container: String,
    ifname: String,
}

impl Request {
    /// Reads a request. `variable`: the value of an environment variable.
    ///
    /// # Errors
    ///
    /// The codes 1, 2, 4, 6 and 7 of [`Code`].
    pub fn read(
        command: Command,
        variable: impl Fn(&str) -> Option<String>,
        configuration: &[u8],
    ) -> Result<Request> {
        let needed = |name: &str| {
            let value = variable(name).filter(|value| !value.is_empty());
            value.ok_or_else(|| Failure::new(Code::Environment, format!("{name} is not set")))
        };
        let attachment = if command.has_pod() {
            let (container, interface) = (needed("CNI_CONTAINERID")?, needed("CNI_IFNAME")?);
            check_names(&container, &interface)?;
            Some(Attachment { container, interface })
        } else {
            None
        };
        let netns = match command {
            Command::Add | Command::Check => Some(needed("CNI_NETNS")?),
            Command::Del => variable("CNI_NETNS").filter(|value| !value.is_empty()),
            _ => None,
        };
        let network = Network::read(command, configuration)?;
        Ok(Request { command, network, attachment, netns: netns.map(PathBuf::from) })
    }

    /// The version of the specification that the configuration is written in.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.network.version
    }
}

/// The specification's rules for `CNI_CONTAINERID` and `CNI_IFNAME`.
fn check_names(container: &str, interface: &str) -> Result<()> {
    let begins = container.starts_with(|first: char| first.is_ascii_alphanumeric());
    let may_be = |one: char| one.is_ascii_alphanumeric() || "_.-".contains(one);
    if !begins || !container.chars().all(may_be) {
        let what = format!("CNI_CONTAINERID {container:?} is no container's name");
        return Err(Failure::new(Code::Environment, what));
    }
    let wrong = |one: char| one == '/' || one == ':' || one.is_whitespace();
    if interface.len() > 15 || [".", ".."].contains(&interface) || interface.contains(wrong) {
        let what = format!("CNI_IFNAME {interface:?} is no interface's name");
        return Err(Failure::new(Code::Environment, what));
    }
    Ok(())
}

/// What serde says of a configuration.
fn undecodable(error: &serde_json::Error) -> Failure {
    Failure::new(Code::Decoding, "the network configuration can't be read")
        .details(error.to_string())
}

impl Own {
    fn read(map: Map<String, Value>) -> Result<Own> {
        let written: WrittenOwn =
            serde_json::from_value(Value::Object(map)).map_err(|error| undecodable(&error))?;
        Ok(Own {
            pref64: pref64(&written.pref64)?,
            clat_prefix: written.clat_prefix.as_deref().map(clat_prefix).transpose()?,
            nameservers: written.nameservers,
            allow_private: written.allow_private,
        })
    }
}

impl Network {
    fn read(command: Command, configuration: &[u8]) -> Result<Network> {
        let map: Map<String, Value> =
            serde_json::from_slice(configuration).map_err(|error| undecodable(&error))?;
        let (mut own, map): (Map<_, _>, Map<_, _>) =
            map.into_iter().partition(|(key, _)| OWN.contains(&key.as_str()));
        if command.removes() {
            own.retain(|key, value| {
                Own::read(Map::from_iter([(key.clone(), value.clone())])).is_ok()
            });
        } else if let Some((key, value)) = map.iter().find(|(key, _)| !is_known(key)) {
            let what = format!("unsupported field {key:?} with value {value}");
            return Err(Failure::new(Code::Field, what)
                .details(format!("the plugin's own fields are {}", OWN.join(", "))));
        }
        let previous = map.get("prevResult").filter(|value| !value.is_null()).cloned();
        let valid = VALID.iter().find_map(|key| map.get(*key)).cloned();
        let written: Written =
            serde_json::from_value(Value::Object(map)).map_err(|error| undecodable(&error))?;
        if !VERSIONS.contains(&written.cni_version.as_str()) {
            let what = format!("CNI version {} is not supported", written.cni_version);
            return Err(Failure::new(Code::Version, what)
                .details(format!("supported are {}", VERSIONS.join(", "))));
        }
        let valid = match command {
            Command::Gc => Some(valid_keys(&written.name, valid)?),
            _ => None,
        };
        Ok(Network {
            version: written.cni_version,
            name: written.name,
            own: Own::read(own)?,
            previous,
            valid,
        })
    }

    /// The number that stands for it in entries.
    pub(crate) fn number(&self) -> u64 {
        number(&[&self.name])
    }
}

/// Whether a key that is not the plugin's own may be there.
fn is_known(key: &str) -> bool {
    STANDARD.contains(&key) || key.starts_with("cni.dev/")
}

/// Without a list nothing is known to be garbage.
fn valid_keys(network: &str, list: Option<Value>) -> Result<BTreeSet<u64>> {
    let missing = || Failure::new(Code::Configuration, format!("GC needs {}", VALID[0]));
    let list: Vec<ValidAttachment> =
        serde_json::from_value(list.ok_or_else(missing)?).map_err(|error| {
            Failure::new(Code::Decoding, format!("{} can't be read", VALID[0]))
                .details(error.to_string())
        })?;
    let attachments = list.into_iter().map(|ValidAttachment { container, ifname }| {
        Attachment { container, interface: ifname }.key(network)
    });
    Ok(attachments.collect())
}

fn pref64(text: &str) -> Result<Pref64> {
    if text == "auto" {
        return Ok(Pref64::Auto);
    }
    let parsed: Result<Pool6, _> = text.parse();
    parsed.map(Pref64::Fixed).map_err(|error| {
        Failure::new(Code::Configuration, format!("pref64 {text:?} is no translation prefix"))
            .details(format!("{error}; \"auto\" discovers it"))
    })
}

fn clat_prefix(text: &str) -> Result<Ipv6Net> {
    let invalid = |why: String| {
        Failure::new(Code::Configuration, format!("clatPrefix {text:?} is no prefix for CLATs"))
            .details(why)
    };
    let net: Ipv6Net = text.parse().map_err(|error| invalid(format!("{error}")))?;
    if net.prefix_len() > 112 {
        return Err(invalid("it has to be of 112 bits or less".to_owned()));
    }
    Ok(net.trunc())
}

#[cfg(test)]
mod tests;
