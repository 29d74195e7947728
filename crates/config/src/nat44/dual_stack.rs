//! Mode `dual-stack`: the host forwards both families between devices, and that is all.

use ipnet::IpNet;

use super::Devices;
use crate::diagnostic::Sink;
use crate::keys::common::NAME;
use crate::keys::form::{List, Plain, list, texts};
use crate::keys::{Read, keys};
use crate::name::InterfaceName;
use crate::problem::{Problem, Problems, Value};
use crate::value;

const NAME_HELP: &str = "write a name such as name = \"dual\"";
const DEVICES: &str =
    "write the devices between which packets are forwarded: devices = [\"lan0\", \"wan0\"]";
const PAIRS: &str =
    "write a list of pairs: [[\"lan0\", \"198.51.100.1/24\"], [\"lan0\", \"2001:db8:1::1/64\"]]";

const ADDRESSES: List<Plain<(InterfaceName, IpNet)>> = list(
    Plain {
        read: address,
        write: |(device, net)| toml::Value::from(vec![device.to_string(), net.to_string()]),
        named: ("pair", "pairs", "DEV=ADDR/LEN"),
        schema: || texts(2),
    },
    PAIRS,
);

keys! {
    /// One `[[translator]]` of mode `dual-stack`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct DualStack {
        /// Name of the entry
        name: InterfaceName = NAME, needed(InterfaceName::placeholder(), NAME_HELP);
        /// Devices between which packets are forwarded
        devices: Vec<InterfaceName> = Devices(DEVICES), needed(Vec::new(), DEVICES);
        /// Addresses that devices get. Each is `["lan0", "2001:db8:1::1/64"]`
        addresses: Vec<(InterfaceName, IpNet)> = ADDRESSES, or(Vec::new());
    }
}

/// Each address is one of the devices'.
pub(crate) fn check(draft: &Read<DualStack>, sink: &mut Sink) {
    let DualStack { devices, addresses, .. } = &draft.value;
    for address in draft.at.each("addresses", addresses) {
        let (device, net) = address.get_ref();
        if !devices.contains(device) {
            let message = format!("`addresses`: {device} is none of the devices");
            let help = format!("add it: devices = [..., \"{device}\"], or leave {net} out");
            sink.error(address.span(), message, help);
        }
    }
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
