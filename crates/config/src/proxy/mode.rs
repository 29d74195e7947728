//! What a proxy is for: `mode = "forward"`, `"reverse"` and `"passthrough"`, each with keys of its own.

use std::ops::RangeInclusive;

use fordway_proxy::{Authority, Destination};
use ipnet::IpNet;
use serde_json::json;

use super::backend::{ProxyBackend, servers};
use super::{Parsed, server};
use crate::diagnostic::Sink;
use crate::keys::common::{ALLOW, NET};
use crate::keys::form::{Choice, Form, Given, List, Plain, list, or, some, text};
use crate::keys::{Key, Keys, Section, Written, keys};
use crate::problem::{Problem, Value};
use crate::value;

/// What a proxy is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyMode {
    /// `mode = "forward"`.
    Forward(ProxyForward),
    /// `mode = "reverse"`.
    Reverse(ProxyReverse),
    /// `mode = "passthrough"`.
    Passthrough(ProxyPassthrough),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Forward,
    Reverse,
    Passthrough,
}

const MODE: Choice<Kind> = Choice(&[
    ("forward", Kind::Forward),
    ("reverse", Kind::Reverse),
    ("passthrough", Kind::Passthrough),
]);
const ACTION: Choice<bool> = Choice(&[("allow", true), ("deny", false)]);

const TO: &str = "write names, names with *. in front, and networks, such as to = [\"*.example.net\", \
                  \"192.0.2.0/24\"]";
const PORTS_HELP: &str = "write a list of ports such as [80, 443, \"1024-65535\"]";
const SERVERS: &str = "write the servers of the site such as upstream = [\"192.0.2.10:80\"]";
const SERVERS_TLS: &str = "write the servers of the site such as upstream = [\"2001:db8::10\"]";
const SITE: &str = "write names, and names with *. in front, such as name = [\"www.example.net\"]";
const EVERYBODY: &str = "write \"all\", or a list of networks such as [\"2001:db8:1::/64\"]";
const CLIENTS: &str = "write networks of clients such as client = [\"2001:db8:5::/48\"]";
const ACTION_HELP: &str = "write action = \"allow\" or action = \"deny\"";

const PORTS: List<Plain<RangeInclusive<u16>>> = list(
    Plain {
        read: ports,
        write: |ports| match (ports.start(), ports.end()) {
            (first, last) if first == last => first.to_string().into(),
            (first, last) => format!("{first}-{last}").into(),
        },
        named: ("port or range", "ports and ranges", "PORT"),
        schema: || json!({"type": ["integer", "string"]}),
    },
    PORTS_HELP,
);
const SERVER: Plain<Authority> =
    servers(|v| value::parsed(v, "a server", SERVERS, |it| server::parse(it, 80)));
const SERVER_TLS: Plain<Authority> =
    servers(|v| value::parsed(v, "a server", SERVERS_TLS, |it| server::parse(it, 443)));
const DESTINATION: Plain<Destination> =
    text(destination, ("name or network", "names and networks", "NAME|NET"));
const SITE_NAME: Plain<Destination> = text(site_name, ("name", "names", "NAME"));

/// A Host; `keep`: what the client asked for.
const HOST: Plain<Option<String>> = Plain {
    read: host,
    write: |host| host.as_deref().unwrap_or("keep").into(),
    named: ("host, `\"keep\"`", "", "HOST"),
    schema: || json!({"type": "string"}),
};

keys! {
    /// The keys of mode `forward`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ProxyForward {
        /// Whose requests are served; others get 403. `local`: as in `[dns64]`
        allow: Option<Vec<IpNet>> = ALLOW, or(None);
        /// Ports that CONNECT reaches
        connect_ports: Vec<RangeInclusive<u16>> = PORTS, or(vec![443..=443]);
        /// Ports that other requests reach
        ports: Vec<RangeInclusive<u16>> = PORTS,
            or(vec![80..=80, 443..=443, 1024..=u16::MAX]);
        /// Destinations that no rule is about
        default: bool = ACTION, or(true);
        /// The first that fits decides
        rules("rule"): Vec<ProxyRule>, tables("[[proxy.rule]]");
    }
}

keys! {
    /// The keys of mode `reverse`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ProxyReverse {
        /// Whose requests are served; others get 403
        allow: Option<Vec<IpNet>> = or("all", list(NET, EVERYBODY)), or(None);
        /// The site's servers: address or name, port 80 unless another is written
        upstream: Vec<Authority> = some(SERVER, SERVERS), needed(Vec::new(), SERVERS);
        /// The Host that servers get; `keep`: the client's
        host: Option<String> = HOST, or(None);
        /// How they are chosen, asked and checked
        backend: ProxyBackend, flat();
    }
}

keys! {
    /// The keys of mode `passthrough`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ProxyPassthrough {
        /// Whose connections are carried; others are closed
        allow: Option<Vec<IpNet>> = or("all", list(NET, EVERYBODY)), or(None);
        /// Which names lead where. A client that asks for no name, or for another, is refused
        routes("route"): Vec<ProxyRoute>, tables("[[proxy.route]]");
        /// How servers are chosen, asked and checked
        backend: ProxyBackend, flat();
    }
}

keys! {
    /// `[[proxy.route]]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ProxyRoute {
        /// Names that TLS clients ask for (Server Name Indication): a name, or `*.` and a name for all below it. The
        /// longest that fits decides
        names("name"): Vec<Destination> = some(SITE_NAME, SITE), needed(Vec::new(), SITE);
        /// The servers of these names: address or name, port 443 unless another is written
        upstream: Vec<Authority> = some(SERVER_TLS, SERVERS_TLS), needed(Vec::new(), SERVERS_TLS);
    }
}

keys! {
    /// `[[proxy.rule]]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ProxyRule {
        /// Clients that it is for
        clients("client"): Option<Vec<IpNet>> = Given(some(NET, CLIENTS)), or(None, "all");
        /// Destinations: a name, `*.` and a name for all below it, a network
        to: Option<Vec<Destination>> = Given(some(DESTINATION, TO)), or(None, "all");
        /// Ports
        ports: Option<Vec<RangeInclusive<u16>>> = Given(PORTS), or(None, "all");
        /// What becomes of such a request
        allow("action"): bool = ACTION, needed(false, ACTION_HELP);
    }
}

impl Keys for ProxyMode {
    fn read(section: &mut Section<'_, '_>, sink: &mut Sink) -> (ProxyMode, bool) {
        let kind = section.read(sink, "mode", |v| MODE.read(v)).map(toml::Spanned::into_inner);
        let kind = kind.unwrap_or(Kind::Forward);
        let mut refuse = |keys: &[&'static str], whose: &str, help: &str| {
            for key in keys {
                let message = format!("this is a key of mode = \"{whose}\"");
                section.refuse(sink, key, &message, help);
            }
        };
        if kind != Kind::Passthrough {
            refuse(&["route"], "passthrough", "leave it out, or write the mode");
        }
        match kind {
            Kind::Forward => {
                let keys = ["upstream", "balance", "host", "pause", "send_proxy", "check"];
                refuse(&keys, "reverse", "leave it out, or write the mode");
                let (forward, complete) = ProxyForward::read(section, sink);
                (ProxyMode::Forward(forward), complete)
            }
            Kind::Reverse => {
                let help = "leave it out: `upstream` says where requests go";
                refuse(&["connect_ports", "ports", "default", "rule"], "forward", help);
                let (reverse, complete) = ProxyReverse::read(section, sink);
                (ProxyMode::Reverse(reverse), complete)
            }
            Kind::Passthrough => {
                let help = "leave it out: [[proxy.route]] says where connections go";
                refuse(&["connect_ports", "ports", "default", "rule"], "forward", help);
                refuse(&["upstream", "host"], "reverse", help);
                let (passthrough, complete) = ProxyPassthrough::read(section, sink);
                (ProxyMode::Passthrough(passthrough), complete)
            }
        }
    }

    fn write(&self, to: &mut Written) {
        match self {
            ProxyMode::Forward(forward) => {
                to.put_some("mode", MODE.write(&Kind::Forward));
                forward.write(to);
            }
            ProxyMode::Reverse(reverse) => {
                to.put_some("mode", MODE.write(&Kind::Reverse));
                reverse.write(to);
            }
            ProxyMode::Passthrough(passthrough) => {
                to.put_some("mode", MODE.write(&Kind::Passthrough));
                passthrough.write(to);
            }
        }
    }

    /// The mode alone: its keys are those of [`ProxyForward`], [`ProxyReverse`] and [`ProxyPassthrough`].
    fn keys() -> Vec<Key> {
        let doc = "For clients that know it; in the place of a server; or for TLS that servers terminate themselves";
        vec![Key::new("mode", &MODE, "`\"forward\"`".to_owned(), doc)]
    }
}

fn destination(v: &Value<'_>) -> Parsed<Destination> {
    let text = value::string(v, "a name or a network", TO)?;
    let looks_like_net =
        text.contains(['/', ':']) || text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'.'));
    if looks_like_net {
        return value::net(v).map(Destination::Net);
    }
    let (name, below) = match text.strip_prefix("*.") {
        Some(name) => (name, true),
        None => (text, false),
    };
    let name = value::server_name(name).ok_or_else(|| {
        Problem::new(v.span(), format!("\"{text}\" is neither a name nor a network"), TO)
    })?;
    Ok(if below { Destination::Below(name) } else { Destination::Name(name) })
}

/// A name, or `*.` and a name.
fn site_name(v: &Value<'_>) -> Parsed<Destination> {
    match destination(v)? {
        Destination::Net(net) => {
            let message = format!("{net} is no name, and TLS clients ask for names alone");
            Err(Problem::new(v.span(), message, SITE).into())
        }
        name => Ok(name),
    }
}

/// Ports: a number, or a range such as `"1024-65535"`.
fn ports(v: &Value<'_>) -> Parsed<RangeInclusive<u16>> {
    range(v, "a port", PORTS_HELP)
}

/// A number from 1 on, or a range.
pub(super) fn range(v: &Value<'_>, what: &str, help: &str) -> Parsed<RangeInclusive<u16>> {
    if v.get_ref().is_integer() {
        let number = value::integer(v, 1..=65_535, "")? as u16;
        return Ok(number..=number);
    }
    let text = value::string(v, what, help)?;
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first @ 1u16..), Ok(last)) if first <= last => Ok(first..=last),
        _ => {
            let message = format!("\"{text}\" is neither {what} nor a range");
            Err(Problem::new(v.span(), message, help).into())
        }
    }
}

/// `keep`, or a Host.
fn host(v: &Value<'_>) -> Parsed<Option<String>> {
    let help =
        "write \"keep\" for what the client asked for, or a host such as \"www.example.net\"";
    let text = value::string(v, "a host", help)?;
    if text == "keep" {
        return Ok(None);
    }
    let bracketed = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let good = server::parse(text, 80).is_ok()
        || bracketed.is_some_and(|it| it.parse::<std::net::Ipv6Addr>().is_ok());
    match good {
        true => Ok(Some(text.to_owned())),
        false => Err(Problem::new(v.span(), format!("\"{text}\" is no host"), help).into()),
    }
}
