//! Reading an entry of mode `dual-stack`.

use ipnet::IpNet;
use toml::Spanned;

use super::DualStack;
use super::read::{list, one_or_several, values};
use crate::diagnostic::{Diagnostic, Sink};
use crate::name::InterfaceName;
use crate::section::{Problem, Problems, Section, Value};
use crate::sections::Table;
use crate::value;

/// An entry as read, with the places that checks point at.
pub(crate) struct Draft {
    pub(crate) dual_stack: Option<DualStack>,
    pub(crate) name: Option<Spanned<InterfaceName>>,
}

/// Reads an entry.
pub(crate) fn dual_stack((table, span): Table<'_, '_>, sink: &mut Sink) -> Draft {
    let mut section = Section::new("[[translator]]", table, span);
    // Known already: it is what has led here.
    section.read(sink, "mode", |_| Ok(()));
    let name_help = "write a name such as name = \"dual\"";
    let name = section.require(sink, "name", name_help, value::translator_name);
    let help =
        "write the devices between which packets are forwarded: devices = [\"lan0\", \"wan0\"]";
    let devices = section.require(sink, "devices", help, |v| one_or_several(v, help));
    let devices = list(devices);
    let help = "write a list of pairs: [[\"lan0\", \"198.51.100.1/24\"], [\"lan0\", \"2001:db8:1::1/64\"]]";
    let addresses = list(section.read(sink, "addresses", |v| value::list(v, help, address)));
    for address in &addresses {
        let (device, net) = address.get_ref();
        if !devices.iter().any(|it| it.get_ref() == device) {
            let message = format!("`addresses`: {device} is none of the devices");
            let help = format!("add it: devices = [..., \"{device}\"], or leave {net} out");
            sink.push(Diagnostic::error(address.span(), message).help(help));
        }
    }
    let why = "mode dual-stack has no interface and translates nothing";
    for key in ["engine", "attach", "queues", "mtu", "pool4", "pool6", "eam", "routes4", "manage"] {
        section.refuse(sink, key, why, "leave it out");
    }
    section.finish(sink);
    let dual_stack = name.as_ref().map(|name| DualStack {
        name: name.get_ref().clone(),
        devices: values(&devices),
        addresses: values(&addresses),
    });
    Draft { dual_stack, name }
}

/// A device, and an address with the length of its network.
fn address(v: &Value<'_>) -> Result<(InterfaceName, IpNet), Problems> {
    let help = "write [\"lan0\", \"2001:db8:1::1/64\"]: a device, then an address and the length of its network";
    let Some([device, address]) = v.get_ref().as_array().map(|items| &items[..]) else {
        return Err(Problem::new(v.span(), "this is no pair", help).into());
    };
    let device = value::name(device)?;
    let net: IpNet = value::address(address, "an address with a length", help)?;
    let in_network = u32::from(net.max_prefix_len() - net.prefix_len());
    if in_network > 1 && net.addr() == net.network() && net.addr().is_ipv4() {
        let message = format!("{net} is a network, not an address in it");
        return Err(Problem::new(address.span(), message, help).into());
    }
    if !value::is_host(net.addr()) {
        let message = format!("{} can't be a host's address on a wire", net.addr());
        return Err(Problem::new(address.span(), message, help).into());
    }
    Ok((device, net))
}
