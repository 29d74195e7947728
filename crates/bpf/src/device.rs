//! Network devices, as far as attaching programs has to know them.

use std::io;

use fordway_net::Netlink;

use crate::{Error, Result, Unsupported};

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) name: String,
    /// `ARPHRD_*` of the kernel's interface.
    link_layer: u16,
    /// The link-layer address, of devices that have one of six octets.
    mac: Option<[u8; 6]>,
    /// Of a device that is part of another: the kind of the other, to which its frames belong.
    part_of: Option<String>,
    kind: Option<String>,
}

impl Device {
    /// Asks for the device with this index.
    pub(crate) fn by_index(ifindex: u32) -> Result<Device> {
        let found = Netlink::open().and_then(|mut netlink| netlink.find_link_by_index(ifindex));
        let link = found.map_err(|error| Error::Attach {
            operation: "look up".to_owned(),
            device: format!("device {ifindex}"),
            source: into_io(&error),
        })?;
        let link = link.ok_or(Error::NoDevice { ifindex })?;
        Ok(Device {
            name: link.name,
            link_layer: link.link_layer,
            mac: link.hardware_address.try_into().ok(),
            part_of: link.part_of,
            kind: link.kind,
        })
    }

    /// The link-layer address as the XDP program compares it (`mac_number`).
    pub(crate) fn mac_number(&self) -> Option<u64> {
        self.mac.map(mac_number)
    }

    /// Whether routing sees this device's frames as its own: those of a bond's, a team's or a bridge's parts it sees as
    /// the whole's. `xdp`: programs at a bond or a team run at its parts.
    pub(crate) fn check_in_front(&self, xdp: bool) -> Result<(), Unsupported> {
        let name = &self.name;
        if let Some(whole) = self.part_of.as_ref().filter(|whole| *whole != "vrf") {
            return Err(Unsupported::with_hint(
                format!("{name} is part of a {whole}, by which its packets are routed"),
                format!("name the {whole} in devices, with attach = \"ingress\""),
            ));
        }
        let kind = self.kind.as_deref().unwrap_or_default();
        if xdp && ["bond", "team"].contains(&kind) {
            return Err(Unsupported::with_hint(
                format!(
                    "{name} is a {kind}: XDP would run at its parts, whose packets are routed by {name}"
                ),
                format!("use attach = \"ingress\", which works at {name}"),
            ));
        }
        Ok(())
    }

    /// Octets of the link-layer header.
    pub(crate) fn link_layer_len(&self) -> Result<u32, Unsupported> {
        const ETHERNET: u16 = 1;
        const PPP: u16 = 512;
        const RAW_IP: u16 = 519;
        const NONE: u16 = 0xfffe;
        match self.link_layer {
            ETHERNET => Ok(14),
            PPP | RAW_IP | NONE => Ok(0),
            other => Err(Unsupported::with_hint(
                format!(
                    "{} has a link layer of type {other}, and the kernel engine knows Ethernet and \
                     devices without a link-layer header",
                    self.name
                ),
                "use attach = \"interface\"",
            )),
        }
    }
}

/// Octets of the link-layer header of the device with this index.
pub fn link_layer_len(ifindex: u32) -> Result<u32> {
    Ok(Device::by_index(ifindex)?.link_layer_len()?)
}

/// An address as the XDP program compares it (`mac_number`).
pub(crate) fn mac_number([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from(u32::from_ne_bytes([a, b, c, d])) | u64::from(u16::from_ne_bytes([e, f])) << 32
}

/// An error of the network's calls as the system's.
pub(crate) fn into_io(error: &fordway_net::Error) -> io::Error {
    error.errno().map_or_else(|| io::Error::other(error.to_string()), io::Error::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(part_of: Option<&str>, kind: Option<&str>) -> Device {
        let [part_of, kind] = [part_of, kind].map(|it| it.map(str::to_owned));
        Device { name: "eth0".to_owned(), link_layer: 1, mac: None, part_of, kind }
    }

    #[test]
    fn parts_of_others_are_refused() {
        let refused = |device: Device, xdp| device.check_in_front(xdp).err();
        for whole in ["bond", "bridge", "team"] {
            for xdp in [false, true] {
                let found = refused(device(Some(whole), None), xdp).expect("a refusal");
                assert!(found.reason.contains(&format!("part of a {whole}")), "{found}");
                assert!(found.hint.unwrap().contains(whole));
            }
        }
        assert_eq!(refused(device(Some("vrf"), Some("veth")), true), None);
        assert_eq!(refused(device(None, Some("bond")), false), None);
        let bond = refused(device(None, Some("bond")), true).expect("a refusal");
        assert!(bond.hint.unwrap().contains("ingress"));
    }
}
