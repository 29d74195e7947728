//! BIB entries of the configuration: port forwards.

use std::net::{SocketAddrV4, SocketAddrV6};

use fordway_xlat::addr::classify;
use fordway_xlat::nat64::{Protocol, StaticBib};

use crate::keys::form::{Plain, texts};
use crate::problem::{Problem, Problems, Value};
use crate::value;

type Parsed<T> = Result<T, Problems>;

pub(super) const BIB: Plain<StaticBib> = Plain {
    read: static_bib,
    write: |bib| {
        let ((v4, v4_port), (v6, v6_port)) = (bib.v4, bib.v6);
        let parts = [
            bib.protocol.label().to_owned(),
            format!("{v4}:{v4_port}"),
            format!("[{v6}]:{v6_port}"),
        ];
        toml::Value::from(parts.to_vec())
    },
    named: ("triple", "triples", "PROTOCOL:V4:PORT=[V6]:PORT"),
    schema: || texts(3),
};

/// One BIB entry: protocol, IPv4 transport address, IPv6 transport address.
fn static_bib(v: &Value<'_>) -> Parsed<StaticBib> {
    let help = "write [\"tcp\", \"192.0.2.1:80\", \"[2001:db8::5]:8080\"]: tcp, udp or icmp, then the \
                IPv4 side, then the IPv6 host; identifiers stand in the place of icmp's ports";
    let wrong =
        |v: &Value<'_>, message: String| Problems::from(Problem::new(v.span(), message, help));
    let Some(items) = v.get_ref().as_array() else {
        return Err(wrong(v, "this is no list of three".to_owned()));
    };
    let [protocol, v4, v6] = &items[..] else {
        return Err(wrong(v, format!("a BIB entry has 3 parts, not {}", items.len())));
    };
    let protocol = value::choice(protocol, &PROTOCOLS)?;
    let v4_at: SocketAddrV4 = value::address(v4, "an IPv4 address with a port", help)?;
    let v6_at: SocketAddrV6 = value::address(v6, "an IPv6 address with a port", help)?;
    let illegal = |v: &Value<'_>, it: &dyn std::fmt::Display| {
        wrong(v, format!("{it} can't be a host's address on a wire"))
    };
    if classify::illegal_v4(*v4_at.ip()).is_some() {
        return Err(illegal(v4, v4_at.ip()));
    }
    if classify::illegal_v6(*v6_at.ip()).is_some() || v6_at.scope_id() != 0 {
        return Err(illegal(v6, v6_at.ip()));
    }
    if protocol != Protocol::Icmp {
        for (v, port) in [(v4, v4_at.port()), (v6, v6_at.port())] {
            if port == 0 {
                return Err(wrong(v, "port 0 can't be used".to_owned()));
            }
        }
    }
    Ok(StaticBib { protocol, v4: (*v4_at.ip(), v4_at.port()), v6: (*v6_at.ip(), v6_at.port()) })
}

const PROTOCOLS: [(&str, Protocol); 3] =
    [("tcp", Protocol::Tcp), ("udp", Protocol::Udp), ("icmp", Protocol::Icmp)];
