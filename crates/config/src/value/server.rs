//! Values of servers: addresses that they listen on, networks of clients, names of the DNS.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use hickory_proto::rr::Name;
use ipnet::IpNet;

use super::{Parsed, Value, net4, net6, network, per_second, string, wrong};

/// Whether packets can be sent to a server of this address.
pub(crate) fn is_host(address: IpAddr) -> bool {
    let broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    !(address.is_unspecified() || address.is_multicast() || broadcast)
}

/// A name of the DNS, in small letters and from the root. What a text can't be written as plainly is refused.
fn plain_name(text: &str) -> Option<Name> {
    let mut name = Name::from_str(text).ok()?.to_lowercase();
    name.set_fqdn(true);
    let plain = |octet: &u8| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_');
    let is_plain = !name.is_root() && name.iter().all(|label| label.iter().all(plain));
    is_plain.then_some(name)
}

/// A name of the DNS as people write it: without the dot of the root.
pub(crate) fn name_text(name: &Name) -> String {
    let text = name.to_ascii();
    text.strip_suffix('.').unwrap_or(&text).to_owned()
}

/// The name of a server, as certificates have it.
pub(crate) fn server_name(text: &str) -> Option<String> {
    plain_name(text).map(|name| name_text(&name))
}

const DNS_NAME_HELP: &str = "write a name such as \"example.net\"";

/// A name of the DNS.
pub(crate) fn dns_name(value: &Value<'_>) -> Parsed<Name> {
    let text = string(value, "a name of the DNS", DNS_NAME_HELP)?;
    plain_name(text)
        .ok_or_else(|| wrong(value, format!("\"{text}\" is no name of the DNS"), DNS_NAME_HELP))
}

/// An address to listen on; `port` unless another is written.
pub(crate) fn listen(value: &Value<'_>, port: u16) -> Parsed<SocketAddr> {
    let help = format!(
        "write an address such as \"2001:db8:1::1\", with another port than {port} as \
         \"[2001:db8:1::1]:5353\""
    );
    let text = string(value, "an address", &help)?;
    let alone = text.parse().map(|address: IpAddr| SocketAddr::new(address, port));
    let address = alone.or_else(|_| text.parse::<SocketAddr>());
    let address = address
        .map_err(|_| wrong(value, format!("\"{text}\" is no address to listen on"), &help))?;
    if address.port() == 0 {
        return Err(wrong(value, "port 0 would be another one at each start", help));
    }
    let unspecified = address.ip().is_unspecified();
    if !unspecified && !is_host(address.ip()) {
        let message = format!("{} can't be a host's address", address.ip());
        return Err(wrong(value, message, help));
    }
    Ok(address)
}

/// An IPv6 address that a server on the link can have; link-local ones, too.
pub(crate) fn server6(value: &Value<'_>) -> Parsed<Ipv6Addr> {
    let help = "write an IPv6 address such as \"2001:db8:1::1\"";
    let address: Ipv6Addr = super::address(value, "an IPv6 address", help)?;
    if address.is_loopback() || !is_host(address.into()) {
        return Err(wrong(value, format!("{address} can't be another host's server"), help));
    }
    Ok(address)
}

/// A network of either family, or an address as the network of its own.
pub(crate) fn net(value: &Value<'_>) -> Parsed<IpNet> {
    let help = "write a network such as \"2001:db8:1::/64\" or \"192.0.2.0/24\"";
    let parse = |text: &str| net6(text).map(IpNet::V6).or_else(|| net4(text).map(IpNet::V4));
    network(value, "a network", help, parse, IpNet::trunc)
}

/// `unlimited`, or a rate such as `100/s`.
pub(crate) fn rate(value: &Value<'_>) -> Parsed<Option<u32>> {
    let help = "write \"unlimited\" or a rate such as \"100/s\"";
    match string(value, "a rate", help)? {
        "unlimited" => Ok(None),
        text => per_second(value, text, help).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_small_and_from_the_root() {
        for (text, written) in [
            ("Example.NET", "example.net"),
            ("example.net.", "example.net"),
            ("_dns.example", "_dns.example"),
            ("bücher.example", "xn--bcher-kva.example"),
        ] {
            let name = plain_name(text).unwrap();
            assert!(name.is_fqdn());
            assert_eq!(name_text(&name), written);
        }
        let long = format!("{}.example", "a".repeat(64));
        for text in ["", ".", "a..b", "a b", "a\\.b", "*.example", "a/b", &long] {
            assert_eq!(plain_name(text), None, "{text}");
        }
    }
}
