//! Forwarded ports.

use std::net::{Ipv4Addr, SocketAddrV4};

use fordway_xlat::addr::classify;
use fordway_xlat::nat64::Protocol;

use crate::keys::form::{Plain, texts};
use crate::problem::{Problem, Problems, Value};
use crate::value;

type Parsed<T> = Result<T, Problems>;

/// A port that is forwarded to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Forward {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// The outer address; `None`: whatever addresses the uplinks have.
    pub address: Option<Ipv4Addr>,
    /// The outer port.
    pub port: u16,
    /// The host, and its port.
    pub to: (Ipv4Addr, u16),
}

pub(super) const FORWARD: Plain<Forward> = Plain {
    read: forward,
    write: |it| {
        let outside = it.address.map_or(it.port.to_string(), |ip| format!("{ip}:{}", it.port));
        let protocol = it.protocol.label().to_owned();
        toml::Value::from(vec![protocol, outside, format!("{}:{}", it.to.0, it.to.1)])
    },
    named: ("triple", "triples", "PROTOCOL:[V4:]PORT=V4:PORT"),
    schema: || texts(3),
};

const PROTOCOLS: [(&str, Protocol); 2] = [("tcp", Protocol::Tcp), ("udp", Protocol::Udp)];

/// One forwarded port: protocol, outer transport address or port, host and port.
fn forward(v: &Value<'_>) -> Parsed<Forward> {
    let help = "write [\"tcp\", \"192.0.2.1:80\", \"198.51.100.10:8080\"]: tcp or udp, then the outer \
                address and port (or the port alone, for the addresses of the uplink), then the host";
    let wrong =
        |v: &Value<'_>, message: String| Problems::from(Problem::new(v.span(), message, help));
    let Some(items) = v.get_ref().as_array() else {
        return Err(wrong(v, "this is no list of three".to_owned()));
    };
    let [protocol, outside, inside] = &items[..] else {
        return Err(wrong(v, format!("a forwarded port has 3 parts, not {}", items.len())));
    };
    let protocol = value::choice(protocol, &PROTOCOLS)?;
    let (address, port) = match outside.get_ref().as_str().map(str::parse::<u16>) {
        Some(Ok(port)) => (None, port),
        _ => {
            let at: SocketAddrV4 = value::address(outside, "an IPv4 address with a port", help)?;
            (Some(*at.ip()), at.port())
        }
    };
    let to: SocketAddrV4 = value::address(inside, "an IPv4 address with a port", help)?;
    for (v, address) in [(outside, address), (inside, Some(*to.ip()))] {
        if let Some(address) = address.filter(|it| classify::illegal_v4(*it).is_some()) {
            return Err(wrong(v, format!("{address} can't be a host's address on a wire")));
        }
    }
    for (v, port) in [(outside, port), (inside, to.port())] {
        if port == 0 {
            return Err(wrong(v, "port 0 can't be used".to_owned()));
        }
    }
    Ok(Forward { protocol, address, port, to: (*to.ip(), to.port()) })
}
