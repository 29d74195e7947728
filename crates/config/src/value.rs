//! Values: from TOML to the types of the configuration.

mod server;

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use fordway_xlat::addr::{Eam, EamError, Pool6, Pool6Error, classify};
use fordway_xlat::{DropReason, IcmpErrors};
use ipnet::{Ipv4Net, Ipv6Net};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::name::InterfaceName;
use crate::problem::{Problem, Problems, Value, closest};

pub(crate) use server::{dns_name, is_host, listen, name_text, net, rate, server_name, server6};

type Parsed<T> = Result<T, Problems>;

fn wrong(value: &Value<'_>, message: impl Into<String>, help: impl Into<String>) -> Problems {
    Problem::new(value.span(), message, help).into()
}

fn mistyped(value: &Value<'_>, wanted: &str, help: &str) -> Problems {
    let found = match value.get_ref() {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a decimal number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    wrong(value, format!("this is {found}, not {wanted}"), help)
}

/// A table and its place.
pub(crate) type Table<'t, 'i> = (&'t DeTable<'i>, Range<usize>);

/// Reads a value that is a table.
pub(crate) fn table<'t, 'i>(value: &'t Value<'i>) -> Parsed<Table<'t, 'i>> {
    match value.get_ref().as_table() {
        Some(table) => Ok((table, value.span())),
        None => Err(Problem::new(
            value.span(),
            "this is the name of a section",
            "write it in brackets on a line of its own, and its keys below",
        )
        .into()),
    }
}

/// Reads a list of tables, whose lines people begin with `title`.
pub(crate) fn tables<'t, 'i>(value: &'t Value<'i>, title: &str) -> Parsed<Vec<Table<'t, 'i>>> {
    match value.get_ref() {
        DeValue::Array(items) => Problems::collect(items.iter().map(table)),
        _ => {
            let message = "there may be several, so this is a list";
            let help = format!("write {title}, with two brackets");
            Err(Problem::new(value.span(), message, help).into())
        }
    }
}

pub(crate) fn boolean(value: &Value<'_>) -> Parsed<bool> {
    value.get_ref().as_bool().ok_or_else(|| {
        mistyped(value, "true or false", "write true or false, without quotation marks")
    })
}

pub(crate) fn string<'v>(value: &'v Value<'_>, wanted: &str, help: &str) -> Parsed<&'v str> {
    value.get_ref().as_str().ok_or_else(|| mistyped(value, wanted, help))
}

pub(crate) fn integer(value: &Value<'_>, range: RangeInclusive<i64>, unit: &str) -> Parsed<i64> {
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    let help = format!("write a number from {} to {}{unit}", range.start(), range.end());
    let Some(number) = value.get_ref().as_integer() else {
        return Err(mistyped(value, "a whole number", &help));
    };
    match i64::from_str_radix(number.as_str(), number.radix()) {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(wrong(value, format!("{} is out of range", number.as_str()), help)),
    }
}

/// One of several words.
pub(crate) fn choice<T: Copy>(value: &Value<'_>, words: &[(&str, T)]) -> Parsed<T> {
    let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    let help = match quoted.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("write {} or {last}", first.join(", ")),
        _ => format!("write {}", quoted.concat()),
    };
    let word = string(value, "a word", &help)?;
    if let Some((_, chosen)) = words.iter().find(|(name, _)| *name == word) {
        return Ok(*chosen);
    }
    let message = match closest(word, &names) {
        Some(near) => format!("\"{word}\" is no choice here; did you mean \"{near}\"?"),
        None => format!("\"{word}\" is no choice here"),
    };
    Err(wrong(value, message, help))
}

/// A list; each item keeps its place.
pub(crate) fn list<'t, 'i, T>(
    value: &'t Value<'i>,
    help: &str,
    item: impl Fn(&'t Value<'i>) -> Parsed<T>,
) -> Parsed<Vec<Spanned<T>>> {
    let Some(items) = value.get_ref().as_array() else {
        return Err(mistyped(value, "a list", help));
    };
    Problems::collect(items.iter().map(|value| Ok(Spanned::new(value.span(), item(value)?))))
}

const NAME_HELP: &str =
    "write an interface name such as \"siit0\": 1 to 15 letters, digits, '-', '_' or '.'";

pub(crate) fn name(value: &Value<'_>) -> Parsed<InterfaceName> {
    string(value, "a name", NAME_HELP)?
        .parse()
        .map_err(|error: String| wrong(value, error, NAME_HELP))
}

/// The name of a translator. There are files, owners of host changes and an nftables table of it, which
/// take less than Linux takes for an interface.
pub(crate) fn translator_name(value: &Value<'_>) -> Parsed<InterfaceName> {
    let parsed = name(value)?;
    let bad = |c: &char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_' | '.');
    let reason = match parsed.as_str().chars().find(bad) {
        Some(character) => format!("the name of a translator can't contain {character:?}"),
        // Programs would take it for an option.
        None if parsed.as_str().starts_with('-') => {
            "the name of a translator can't begin with '-'".to_owned()
        }
        None => return Ok(parsed),
    };
    Err(wrong(value, reason, NAME_HELP))
}

/// The name of a group of the host, or its number.
pub(crate) fn group(value: &Value<'_>) -> Parsed<String> {
    let help = "write the name of a group such as \"fordway\", or its number as \"998\"";
    let name = string(value, "a group", help)?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match !name.is_empty() && name.len() <= 32 && name.chars().all(is_plain) {
        true => Ok(name.to_owned()),
        false => Err(wrong(value, format!("{name:?} is no name of a group"), help)),
    }
}

/// An absolute path.
pub(crate) fn file(value: &Value<'_>, example: &str) -> Parsed<PathBuf> {
    let help = format!("write an absolute path such as \"{example}\"");
    let path = PathBuf::from(string(value, "a path", &help)?);
    match path.is_absolute() {
        true => Ok(path),
        false => Err(wrong(value, "the path must be absolute", help)),
    }
}

/// The path of a socket.
pub(crate) fn path(value: &Value<'_>) -> Parsed<PathBuf> {
    let example = "/run/fordway/control.sock";
    let path = file(value, example)?;
    // sun_path has 108 octets, the last of which is zero.
    if path.as_os_str().len() > 107 {
        let help = format!("write a shorter one, such as \"{example}\"");
        Err(wrong(value, "a socket's path has at most 107 octets", help))
    } else {
        Ok(path)
    }
}

pub(crate) fn duration(value: &Value<'_>, range: RangeInclusive<Duration>) -> Parsed<Duration> {
    let show = |duration: &Duration| humantime::format_duration(*duration).to_string();
    let help = format!(
        "write a duration with its unit, such as \"5s\" or \"500ms\", from {} to {}",
        show(range.start()),
        show(range.end())
    );
    let text = string(value, "a duration", &help)?;
    match humantime::parse_duration(text) {
        Ok(duration) if range.contains(&duration) => Ok(duration),
        Ok(_) => Err(wrong(value, format!("{text} is out of range"), help)),
        Err(error) => Err(wrong(value, format!("\"{text}\" is no duration: {error}"), help)),
    }
}

/// A number of octets: a plain number, or a string with a unit. `auto` where it is allowed.
pub(crate) fn octets(value: &Value<'_>, range: RangeInclusive<i64>) -> Parsed<u32> {
    let number = match value.get_ref().as_str() {
        None => integer(value, range, "octets")?,
        Some(text) => {
            let help = format!(
                "write a number of octets from {} to {}, such as 1500, \"1500 B\" or \"9 kB\"",
                range.start(),
                range.end()
            );
            match size(text) {
                Some(number) if range.contains(&number) => number,
                Some(_) => return Err(wrong(value, format!("{text} is out of range"), help)),
                None => return Err(wrong(value, format!("\"{text}\" is no size"), help)),
            }
        }
    };
    // The range lies within u32 for every caller; out of it, the greatest is the safest.
    Ok(u32::try_from(number).unwrap_or(u32::MAX))
}

fn size(text: &str) -> Option<i64> {
    sized(text, &[("kB", 1000), ("KB", 1000), ("KiB", 1 << 10), ("K", 1 << 10)])
}

/// A number of octets, with one of these units or none.
fn sized(text: &str, units: &[(&str, i64)]) -> Option<i64> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim() {
        "" | "B" | "octets" => 1,
        unit => units.iter().find(|(known, _)| *known == unit)?.1,
    };
    number.parse::<i64>().ok()?.checked_mul(factor)
}

/// Units of memory, the greatest first.
const MEMORY: [(&str, i64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// An amount of memory: a plain number of octets, or a string with a unit.
pub(crate) fn memory(value: &Value<'_>, range: RangeInclusive<i64>) -> Parsed<u64> {
    let (least, most) = (memory_text(range.start()), memory_text(range.end()));
    let help = format!("write an amount of memory from {least} to {most}, such as \"32 MiB\"");
    let number = match value.get_ref() {
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok(),
        _ => {
            let text = string(value, "an amount of memory", &help)?;
            let number = sized(text, &MEMORY);
            Some(number.ok_or_else(|| wrong(value, format!("\"{text}\" is no amount"), &help))?)
        }
    };
    match number {
        Some(number) if range.contains(&number) => Ok(number.unsigned_abs()),
        _ => Err(wrong(value, "this is out of range", help)),
    }
}

/// An amount of memory as it is written, in the greatest unit in which it is a whole number.
pub(crate) fn memory_text(octets: &i64) -> String {
    let unit = MEMORY.iter().find(|(_, factor)| *octets > 0 && octets % factor == 0);
    match unit {
        Some((unit, factor)) => format!("{} {unit}", octets / factor),
        None => format!("{octets} B"),
    }
}

/// `auto`, or what `other` reads.
pub(crate) fn auto_or<'t, 'i, T>(
    value: &'t Value<'i>,
    other: impl FnOnce(&'t Value<'i>) -> Parsed<T>,
) -> Parsed<Option<T>> {
    match value.get_ref().as_str() {
        Some("auto") => Ok(None),
        _ => other(value).map(Some),
    }
}

fn address4(value: &Value<'_>) -> Parsed<Ipv4Addr> {
    address(value, "an IPv4 address", "write an IPv4 address such as \"192.0.2.1\"")
}

fn address6(value: &Value<'_>) -> Parsed<Ipv6Addr> {
    address(value, "an IPv6 address", "write an IPv6 address such as \"2001:db8::1\"")
}

/// An IPv4 address that a host can have.
pub(crate) fn host4(value: &Value<'_>) -> Parsed<Ipv4Addr> {
    let address = address4(value)?;
    match classify::illegal_v4(address) {
        None => Ok(address),
        Some(reason) => Err(no_host(value, address.into(), reason, "\"192.0.2.1\"")),
    }
}

/// An IPv6 address that a host can have and that routers forward to.
pub(crate) fn host6(value: &Value<'_>) -> Parsed<Ipv6Addr> {
    let address = address6(value)?;
    match classify::illegal_v6(address) {
        None => Ok(address),
        Some(reason) => Err(no_host(value, address.into(), reason, "\"2001:db8::1\"")),
    }
}

fn no_host(value: &Value<'_>, address: IpAddr, reason: DropReason, example: &str) -> Problems {
    let message = format!("{address} can't be a host's address on a wire");
    let help = format!("{} Write a unicast address such as {example}", reason.text());
    wrong(value, message, help)
}

pub(crate) fn address<T: FromStr>(value: &Value<'_>, wanted: &str, help: &str) -> Parsed<T> {
    let text = string(value, wanted, help)?;
    text.parse().map_err(|_| wrong(value, format!("\"{text}\" is not {wanted}"), help))
}

/// A text in a type whose error says what is wrong with it.
pub(crate) fn parsed<T, E: Display>(
    value: &Value<'_>,
    wanted: &str,
    help: &str,
    parse: fn(&str) -> Result<T, E>,
) -> Parsed<T> {
    parse(string(value, wanted, help)?).map_err(|error| wrong(value, error.to_string(), help))
}

pub(crate) fn socket_address(value: &Value<'_>) -> Parsed<SocketAddr> {
    let help = "write an address and a port such as \"[::1]:9464\" or \"192.0.2.1:9464\"";
    let at: SocketAddr = address(value, "an address with a port", help)?;
    match at.port() {
        0 => Err(wrong(value, "port 0 would be another one at each start", help)),
        _ => Ok(at),
    }
}

pub(crate) fn pool6(value: &Value<'_>) -> Parsed<Pool6> {
    let help = "write a translation prefix such as \"64:ff9b::/96\" or \"2001:db8:64::/96\"";
    let text = string(value, "a translation prefix", help)?;
    text.parse().map_err(|error| match error {
        Pool6Error::Syntax => wrong(value, format!("\"{text}\" is not an IPv6 prefix"), help),
        Pool6Error::HostBits => {
            let net = text.parse::<Ipv6Net>().map(|net| net.trunc().to_string());
            let help = net.map_or(help.to_owned(), |net| format!("write \"{net}\""));
            wrong(value, format!("in {text}, {error}"), help)
        }
        _ => wrong(value, format!("{text}: {error}"), help),
    })
}

pub(crate) fn prefix4(value: &Value<'_>) -> Parsed<Ipv4Net> {
    let help = "write an IPv4 network such as \"198.51.100.0/24\"";
    network(value, "an IPv4 network", help, net4, Ipv4Net::trunc)
}

pub(crate) fn prefix6(value: &Value<'_>) -> Parsed<Ipv6Net> {
    let help = "write an IPv6 prefix such as \"2001:db8:1::/48\"";
    network(value, "an IPv6 prefix", help, net6, Ipv6Net::trunc)
}

/// A network without bits behind its length, which `trunc` takes off.
fn network<T: Display + PartialEq>(
    value: &Value<'_>,
    wanted: &str,
    help: &str,
    parse: impl Fn(&str) -> Option<T>,
    trunc: impl Fn(&T) -> T,
) -> Parsed<T> {
    let net = prefix(value, wanted, help, parse)?;
    if trunc(&net) != net {
        let text = string(value, wanted, help)?;
        let help = format!("write \"{}\"", trunc(&net));
        return Err(wrong(value, format!("in {text}, bits are set behind the length"), help));
    }
    Ok(net)
}

/// One explicit address mapping: a list of an IPv4 and an IPv6 prefix, in this order.
pub(crate) fn eam(value: &Value<'_>) -> Parsed<Eam> {
    let help =
        "write [\"198.51.100.0/24\", \"2001:db8:1::/120\"]: an IPv4 prefix, then an IPv6 one";
    let Some(pair) = value.get_ref().as_array() else {
        return Err(mistyped(value, "a pair of prefixes", help));
    };
    let [v4, v6] = &pair[..] else {
        return Err(wrong(value, format!("a mapping has 2 prefixes, not {}", pair.len()), help));
    };
    let v4 = prefix(v4, "an IPv4 prefix", help, net4)?;
    let v6 = prefix(v6, "an IPv6 prefix", help, net6)?;
    Eam::new(v4, v6).map_err(|error| match error {
        EamError::HostBits(_) => {
            let help = format!("write [\"{}\", \"{}\"]", v4.trunc(), v6.trunc());
            wrong(value, "bits are set behind a prefix length", help)
        }
        EamError::Suffix(_) => {
            let longest = 128 - (32 - u16::from(v4.prefix_len()));
            let help = format!("make the IPv6 prefix /{longest} or shorter");
            wrong(value, error.to_string(), help)
        }
        EamError::NotUnicast(_) | EamError::Duplicate(..) => wrong(value, error.to_string(), help),
    })
}

fn prefix<T: Display>(
    value: &Value<'_>,
    wanted: &str,
    help: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Parsed<T> {
    let text = string(value, wanted, help)?;
    parse(text).ok_or_else(|| wrong(value, format!("\"{text}\" is not {wanted}"), help))
}

/// A network, or an address as the network of its own.
fn net4(text: &str) -> Option<Ipv4Net> {
    text.parse().ok().or_else(|| text.parse::<Ipv4Addr>().ok().map(Ipv4Net::from))
}

fn net6(text: &str) -> Option<Ipv6Net> {
    text.parse().ok().or_else(|| text.parse::<Ipv6Addr>().ok().map(Ipv6Net::from))
}

/// `off`, `unlimited`, or a rate such as `1000/s`; the burst is filled in later.
pub(crate) fn icmp_errors(value: &Value<'_>) -> Parsed<IcmpErrors> {
    let help = "write \"off\", \"unlimited\" or a rate such as \"1000/s\"";
    match string(value, "a rate", help)? {
        "off" => Ok(IcmpErrors::Off),
        "unlimited" => Ok(IcmpErrors::Unlimited),
        text => Ok(IcmpErrors::Limited { per_second: per_second(value, text, help)?, burst: 0 }),
    }
}

/// A rate such as `1000/s`.
fn per_second(value: &Value<'_>, text: &str, help: &str) -> Parsed<u32> {
    match text.strip_suffix("/s").and_then(|number| number.trim().parse().ok()) {
        Some(per_second @ 1..) => Ok(per_second),
        _ => Err(wrong(value, format!("\"{text}\" is no rate"), help)),
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_have_units() {
        for (text, octets) in [
            ("1500", Some(1500)),
            ("1500 B", Some(1500)),
            ("9000octets", Some(9000)),
            ("9 kB", Some(9000)),
            ("64 KiB", Some(65_536)),
            ("64 MiB", None),
            ("B", None),
            ("-1", None),
            ("99999999999999999999", None),
            ("9223372036854775807 KiB", None),
        ] {
            assert_eq!(size(text), octets, "{text}");
        }
    }
}
