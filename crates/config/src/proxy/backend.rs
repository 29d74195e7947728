//! How servers of a site are chosen, asked and checked: keys of `mode = "reverse"` and `mode = "passthrough"`.

use std::ops::RangeInclusive;
use std::time::Duration;

use fordway_proxy::{Authority, SendProxy};
use serde_json::json;

use super::{Parsed, mode, server};
use crate::keys::form::{Choice, Given, Plain, integer, text, time};
use crate::keys::{keys, usual};
use crate::problem::{Problem, Value};
use crate::value;

const PATH_HELP: &str = "write a path such as path = \"/healthz\"";
const STATUS_HELP: &str = "write a status such as 200, or a range such as \"200-299\"";
const HOST_HELP: &str = "write a host such as \"www.example.net\"";

const SEND_PROXY: Choice<SendProxy> =
    Choice(&[("off", SendProxy::Off), ("v1", SendProxy::V1), ("v2", SendProxy::V2)]);
const KIND: Choice<ProxyCheckKind> = Choice(&[
    ("off", ProxyCheckKind::Off),
    ("tcp", ProxyCheckKind::Tcp),
    ("tls", ProxyCheckKind::Tls),
    ("http", ProxyCheckKind::Http),
]);
const PATH: Plain<String> = text(path, ("path", "paths", "PATH"));
const NAME: Plain<String> = text(host, ("host", "hosts", "HOST"));
const STATUS: Plain<RangeInclusive<u16>> = Plain {
    read: status,
    write: |it| match (it.start(), it.end()) {
        (first, last) if first == last => first.to_string().into(),
        (first, last) => format!("{first}-{last}").into(),
    },
    named: ("status or range", "statuses and ranges", "STATUS"),
    schema: || json!({"type": ["integer", "string"]}),
};

keys! {
    /// Keys of `[[proxy]]` in front of sites.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ProxyBackend {
        /// The first server that can be reached, or one after the other
        balance: bool = Choice(&[("first", false), ("turns", true)]), or(false);
        /// How long a server that could not be reached is tried last
        pause: Duration = time(100, 3_600_000), or(Duration::from_secs(10));
        /// Servers are told the client's address and port first, by the PROXY protocol of this version. Each client's
        /// connection then has connections to servers of its own
        send_proxy: SendProxy = SEND_PROXY, or(SendProxy::Off);
        /// Checks of servers beside requests. A server that has failed its checks is tried last
        check: ProxyCheck, table("check", usual()), if(check.kind != ProxyCheckKind::Off);
    }
}

keys! {
    /// `[proxy.check]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ProxyCheck {
        /// What has to succeed: a connection, a TLS handshake (with any certificate), or a request
        kind: ProxyCheckKind = KIND, or(ProxyCheckKind::Off);
        /// Path to ask for, of `http`
        path: String = PATH, or("/".to_owned());
        /// Host of the request of `http`, and name to ask for of `tls`
        host: Option<String> = Given(NAME), or(None, "that of requests, else the server's");
        /// Statuses that are good, of `http`
        status: RangeInclusive<u16> = STATUS, or(200..=399);
        /// Time between two checks of a server
        interval: Duration = time(100, 3_600_000), or(Duration::from_secs(5));
        /// Time that one may take
        timeout: Duration = time(10, 60_000), or(Duration::from_secs(2));
        /// So many checks in a row that succeed make a server usable again
        rise: u32 = integer(1..=100, ""), or(2);
        /// So many in a row that fail make it unusable
        fall: u32 = integer(1..=100, ""), or(3);
    }
}

/// What a check has to achieve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyCheckKind {
    /// `"off"`: there are none.
    Off,
    /// `"tcp"`.
    Tcp,
    /// `"tls"`.
    Tls,
    /// `"http"`.
    Http,
}

/// A server of a site, with this port unless another is written.
pub(super) const fn servers(read: fn(&Value<'_>) -> Parsed<Authority>) -> Plain<Authority> {
    text(read, ("server", "servers", "ADDR[:PORT]"))
}

fn path(v: &Value<'_>) -> Parsed<String> {
    let text = value::string(v, "a path", PATH_HELP)?;
    let good = text.starts_with('/')
        && text.len() <= 1024
        && text.bytes().all(|it| it.is_ascii_graphic() && it != b'#');
    match good {
        true => Ok(text.to_owned()),
        false => Err(Problem::new(v.span(), format!("\"{text}\" is no path"), PATH_HELP).into()),
    }
}

fn host(v: &Value<'_>) -> Parsed<String> {
    let text = value::string(v, "a host", HOST_HELP)?;
    match server::parse(text, 80) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(Problem::new(v.span(), format!("\"{text}\" is no host"), HOST_HELP).into()),
    }
}

fn status(v: &Value<'_>) -> Parsed<RangeInclusive<u16>> {
    let range = mode::range(v, "a status", STATUS_HELP)?;
    match *range.start() >= 100 && *range.end() <= 599 {
        true => Ok(range),
        false => {
            let message = "statuses are numbers from 100 to 599";
            Err(Problem::new(v.span(), message, STATUS_HELP).into())
        }
    }
}
