//! Where a stateful translator logs what it gives to whom: `[[translator.log]]`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use crate::diagnostic::Sink;
use crate::keys::common::file;
use crate::keys::form::{BOOLEAN, Choice, Form, Given, List, NUMBER, Plain, some, text};
use crate::keys::{Places, keys};
use crate::value;

const WHAT_HELP: &str = "write a list such as what = [\"blocks\", \"bindings\", \"sessions\"]";
const TO_HELP: &str = "write to = \"json:/var/log/fordway/nat64.json\", \"syslog:udp:192.0.2.9:514\", \
                       \"syslog:unix:/dev/log\", \"ipfix:udp:192.0.2.9:4739\", \"ipfix:tcp:192.0.2.9:4739\" or \
                       \"ipfix:tls:192.0.2.9:4740#collector.example\"";

const WHAT: List<Choice<LogEvent>> = some(
    Choice(&[
        ("blocks", LogEvent::Blocks),
        ("bindings", LogEvent::Bindings),
        ("sessions", LogEvent::Sessions),
    ]),
    WHAT_HELP,
);
const TO: Plain<LogTarget> = text(
    |v| value::parsed(v, "a place", TO_HELP, str::parse::<LogTarget>),
    (
        "`\"json:PATH\"`, `\"syslog:udp:ADDR:PORT\"`, `\"syslog:unix:PATH\"`, `\"ipfix:udp:ADDR:PORT\"`, \
         `\"ipfix:tcp:ADDR:PORT\"`, `\"ipfix:tls:ADDR:PORT#NAME\"`",
        "",
        "PLACE",
    ),
);

keys! {
    /// A log.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct NatLog {
        /// What is logged: addresses and blocks of ports given to subscribers, BIB entries, sessions
        what: Vec<LogEvent> = WHAT, needed(Vec::new(), WHAT_HELP), read(|v| {
            let mut events = WHAT.read(v)?;
            events.sort_unstable();
            events.dedup();
            Ok(events)
        });
        /// Where to: lines of JSON at the end of a file, syslog (RFC 5424), or IPFIX (RFC 7011, RFC 8158) over UDP, TCP or
        /// TLS; behind `#` the name in the collector's certificate, by default its address
        to: LogTarget = TO, needed(LogTarget::Json(PathBuf::new()), TO_HELP);
        /// Records of sessions name the IPv4 host at the other end. RFC 6888 REQ-12 is against it
        destinations: bool = BOOLEAN, or(false);
        /// IPFIX: the observation domain (RFC 7011 section 3.1)
        domain: u32 = NUMBER, or(1), if(*domain != 1 || to.is_ipfix());
        /// IPFIX over TLS: certificates that vouch for the collector's
        ca: Option<PathBuf> = PEM, or(None, "the system's");
        /// IPFIX over TLS: this gateway's certificate, for a collector that asks for one (RFC 7011 section 11.3)
        certificate: Option<PathBuf> = PEM, or(None);
        /// Its key
        key: Option<PathBuf> = PEM, or(None);
    }
}

const PEM: Given<Plain<PathBuf>> = Given(file(|v| value::file(v, "/etc/fordway/collector.pem")));

/// Warns of what has no effect, and refuses half of what belongs together.
pub(super) fn check(at: &Places, log: &NatLog, sink: &mut Sink) {
    if let Some(span) = at.key("destinations")
        && log.destinations
        && !log.what.contains(&LogEvent::Sessions)
    {
        let message = "`destinations` has no effect: only records of sessions have any";
        sink.warn(span, message, "leave it out");
    }
    if let Some(span) = at.key("domain")
        && at.key("to").is_some()
        && !log.to.is_ipfix()
    {
        let message = "`domain` has no effect: only IPFIX has observation domains";
        sink.warn(span, message, "leave it out");
    }
    for key in ["ca", "certificate", "key"] {
        if let Some(span) = at.key(key)
            && at.key("to").is_some()
            && !matches!(log.to, LogTarget::IpfixTls(..))
        {
            let message = format!("`{key}` has no effect: only ipfix:tls: has certificates");
            sink.warn(span, message, "leave it out");
        }
    }
    if let (Some(one), None) | (None, Some(one)) = (at.key("certificate"), at.key("key")) {
        let message = "a certificate needs its key, and a key its certificate";
        sink.error(one, message, "write `certificate` and `key`");
    }
}

/// What can be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogEvent {
    /// Addresses and blocks of ports, given to subscribers and taken back.
    Blocks,
    /// BIB entries.
    Bindings,
    /// Sessions.
    Sessions,
}

/// Where a log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// One JSON object per line, at the end of a file.
    Json(PathBuf),
    /// Syslog (RFC 5424) over UDP (RFC 5426).
    SyslogUdp(SocketAddr),
    /// Syslog (RFC 5424) to a Unix datagram socket.
    SyslogUnix(PathBuf),
    /// IPFIX (RFC 7011) over UDP, with the templates of RFC 8158.
    Ipfix(SocketAddr),
    /// IPFIX over TCP.
    IpfixTcp(SocketAddr),
    /// IPFIX over TLS, with the name in the collector's certificate.
    IpfixTls(SocketAddr, Option<String>),
}

impl LogTarget {
    fn is_ipfix(&self) -> bool {
        use LogTarget::{Ipfix, IpfixTcp, IpfixTls};
        matches!(self, Ipfix(_) | IpfixTcp(_) | IpfixTls(..))
    }
}

/// The error is a sentence.
impl FromStr for LogTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<LogTarget, String> {
        let path = |path: &str| match path.starts_with('/') {
            true => Ok(PathBuf::from(path)),
            false => Err(format!("\"{path}\" is no absolute path")),
        };
        let address = |text: &str| match text.parse::<SocketAddr>() {
            Ok(address) if address.port() != 0 => Ok(address),
            _ => Err(format!("\"{text}\" is no address with a port")),
        };
        if let Some(rest) = text.strip_prefix("json:") {
            path(rest).map(LogTarget::Json)
        } else if let Some(rest) = text.strip_prefix("syslog:udp:") {
            address(rest).map(LogTarget::SyslogUdp)
        } else if let Some(rest) = text.strip_prefix("syslog:unix:") {
            path(rest).map(LogTarget::SyslogUnix)
        } else if let Some(rest) = text.strip_prefix("ipfix:udp:") {
            address(rest).map(LogTarget::Ipfix)
        } else if let Some(rest) = text.strip_prefix("ipfix:tcp:") {
            address(rest).map(LogTarget::IpfixTcp)
        } else if let Some(rest) = text.strip_prefix("ipfix:tls:") {
            let (rest, name) = match rest.split_once('#') {
                None => (rest, None),
                Some((rest, name)) => {
                    let wrong = || format!("\"{name}\" is no name of the DNS");
                    (rest, Some(value::server_name(name).ok_or_else(wrong)?))
                }
            };
            Ok(LogTarget::IpfixTls(address(rest)?, name))
        } else {
            let kinds = "json:, syslog:udp:, syslog:unix:, ipfix:udp:, ipfix:tcp: and ipfix:tls:";
            Err(format!("\"{text}\" begins with none of {kinds}"))
        }
    }
}

impl fmt::Display for LogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogTarget::Json(path) => write!(f, "json:{}", path.display()),
            LogTarget::SyslogUdp(address) => write!(f, "syslog:udp:{address}"),
            LogTarget::SyslogUnix(path) => write!(f, "syslog:unix:{}", path.display()),
            LogTarget::Ipfix(address) => write!(f, "ipfix:udp:{address}"),
            LogTarget::IpfixTcp(address) => write!(f, "ipfix:tcp:{address}"),
            LogTarget::IpfixTls(address, None) => write!(f, "ipfix:tls:{address}"),
            LogTarget::IpfixTls(address, Some(name)) => write!(f, "ipfix:tls:{address}#{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_as_they_are_written() {
        for text in [
            "json:/var/log/fordway/nat64.json",
            "syslog:udp:192.0.2.9:514",
            "syslog:udp:[2001:db8::9]:514",
            "syslog:unix:/dev/log",
            "ipfix:udp:192.0.2.9:4739",
            "ipfix:tcp:[2001:db8::9]:4739",
            "ipfix:tls:192.0.2.9:4740",
            "ipfix:tls:[2001:db8::9]:4740#collector.example",
        ] {
            assert_eq!(text.parse::<LogTarget>().unwrap().to_string(), text);
        }
        for text in [
            "json:log",
            "syslog:udp:log.example:514",
            "ipfix:udp:192.0.2.9",
            "ipfix:tls:192.0.2.9:1#a b",
            "/dev/log",
        ] {
            assert!(text.parse::<LogTarget>().is_err(), "{text}");
        }
    }
}
