//! Queries of the kernel's routing netlink: the kind of a device, and the filters at it.

use std::io;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, InfoPortKind, LinkAttribute, LinkInfo, LinkMessage};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

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
    part_of: Option<InfoPortKind>,
    kind: Option<InfoKind>,
}

impl Device {
    /// Asks for the device with this index.
    pub(crate) fn by_index(ifindex: u32) -> Result<Device> {
        let failed = |source| Error::Attach {
            operation: "look up".to_owned(),
            device: format!("device {ifindex}"),
            source,
        };
        let mut message = LinkMessage::default();
        message.header.index = ifindex;
        let answers = match request(RouteNetlinkMessage::GetLink(message), 0) {
            Ok(answers) => answers,
            Err(error) if is_no_device(&error) => return Err(Error::NoDevice { ifindex }),
            Err(error) => return Err(failed(error)),
        };
        for answer in answers {
            let RouteNetlinkMessage::NewLink(link) = answer else { continue };
            let name = link.attributes.iter().find_map(|attribute| match attribute {
                LinkAttribute::IfName(name) => Some(name.clone()),
                _ => None,
            });
            let mac = link.attributes.iter().find_map(|attribute| match attribute {
                LinkAttribute::Address(address) => address.as_slice().try_into().ok(),
                _ => None,
            });
            let infos = link.attributes.iter().find_map(|attribute| match attribute {
                LinkAttribute::LinkInfo(infos) => Some(infos.as_slice()),
                _ => None,
            });
            let infos = infos.unwrap_or_default();
            return Ok(Device {
                mac,
                part_of: infos.iter().find_map(|info| match info {
                    LinkInfo::PortKind(kind) => Some(kind.clone()),
                    _ => None,
                }),
                kind: infos.iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.clone()),
                    _ => None,
                }),
                name: name.unwrap_or_else(|| format!("device {ifindex}")),
                link_layer: link.header.link_layer_type.into(),
            });
        }
        Err(Error::NoDevice { ifindex })
    }

    /// The link-layer address as the XDP program compares it (`mac_number`).
    pub(crate) fn mac_number(&self) -> Option<u64> {
        self.mac.map(mac_number)
    }

    /// Whether routing sees this device's frames as its own: those of a bond's, a team's or a bridge's parts it sees as
    /// the whole's. `xdp`: programs at a bond or a team run at its parts.
    pub(crate) fn check_in_front(&self, xdp: bool) -> Result<(), Unsupported> {
        let name = &self.name;
        match &self.part_of {
            None | Some(InfoPortKind::Vrf) => {}
            Some(whole) => {
                return Err(Unsupported::with_hint(
                    format!("{name} is part of a {whole}, by which its packets are routed"),
                    format!("name the {whole} in devices, with attach = \"ingress\""),
                ));
            }
        }
        let kind = self.kind.as_ref().map(ToString::to_string).unwrap_or_default();
        if xdp && ["bond", "team"].contains(&kind.as_str()) {
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

/// An address as the XDP program compares it (`mac_number`).
pub(crate) fn mac_number([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from(u32::from_ne_bytes([a, b, c, d])) | u64::from(u16::from_ne_bytes([e, f])) << 32
}

/// A filter, of any software.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundFilter {
    pub(crate) priority: u32,
    pub(crate) handle: u32,
    /// Such as `bpf` or `flower`.
    pub(crate) kind: String,
}

/// The filters at a device's egress, in the order in which they run.
pub(crate) fn egress_filters(ifindex: u32) -> io::Result<Vec<FoundFilter>> {
    let into_filter = |answer| {
        let RouteNetlinkMessage::NewTrafficFilter(found) = answer else { return None };
        let TcHandle { major, minor } = found.header.handle;
        let kind = found.attributes.iter().find_map(|attribute| match attribute {
            TcAttribute::Kind(kind) => Some(kind.clone()),
            _ => None,
        });
        let handle = u32::from(major) << 16 | u32::from(minor);
        // The kernel's `tcm_info`: the priority, then the protocol. A classifier without a filter has no handle.
        (handle != 0).then(|| FoundFilter {
            priority: found.header.info >> 16,
            handle,
            kind: kind.unwrap_or_default(),
        })
    };
    Ok(filters(ifindex, EGRESS)?.into_iter().filter_map(into_filter).collect())
}

/// The hooks of the clsact queueing discipline, ffff:fff2 and ffff:fff3.
const INGRESS: u16 = 0xfff2;
const EGRESS: u16 = 0xfff3;

fn filters(ifindex: u32, minor: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
    let mut message = TcMessage::default();
    message.header.index = i32::try_from(ifindex).map_err(|_| io::ErrorKind::InvalidInput)?;
    message.header.parent = TcHandle { major: 0xffff, minor };
    request(RouteNetlinkMessage::GetTrafficFilter(message), NLM_F_DUMP)
}

/// Whether any filters are at a device's ingress or egress.
pub(crate) fn has_filters(ifindex: u32) -> io::Result<bool> {
    Ok(!filters(ifindex, INGRESS)?.is_empty() || !filters(ifindex, EGRESS)?.is_empty())
}

fn is_no_device(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

/// Sends a request in the calling thread's network namespace and gives the answers.
fn request(message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut request = NetlinkMessage::from(message);
    request.header.flags = NLM_F_REQUEST | flags;
    request.header.sequence_number = 1;
    request.finalize();
    let mut octets = vec![0; request.buffer_len()];
    request.serialize(&mut octets);
    socket.send(&octets, 0)?;

    let mut answers = Vec::new();
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        let mut rest = datagram.as_slice();
        while !rest.is_empty() {
            let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            let length = (answer.header.length as usize).max(1).next_multiple_of(4);
            rest = rest.get(length..).unwrap_or_default();
            match answer.payload {
                NetlinkPayload::InnerMessage(message) => answers.push(message),
                NetlinkPayload::Error(error) if error.raw_code() != 0 => return Err(error.to_io()),
                NetlinkPayload::Done(done) if done.code != 0 => {
                    return Err(io::Error::from_raw_os_error(done.code.saturating_abs()));
                }
                NetlinkPayload::Done(_) | NetlinkPayload::Error(_) => return Ok(answers),
                _ => {}
            }
        }
        if flags & NLM_F_DUMP == 0 {
            return Ok(answers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(part_of: Option<InfoPortKind>, kind: Option<InfoKind>) -> Device {
        Device { name: "eth0".to_owned(), link_layer: 1, mac: None, part_of, kind }
    }

    #[test]
    fn parts_of_others_are_refused() {
        let refused = |device: Device, xdp| device.check_in_front(xdp).err();
        for whole in [InfoPortKind::Bond, InfoPortKind::Bridge, InfoPortKind::Team] {
            for xdp in [false, true] {
                let found = refused(device(Some(whole.clone()), None), xdp).expect("a refusal");
                assert!(found.reason.contains(&format!("part of a {whole}")), "{found}");
                assert!(found.hint.unwrap().contains(&whole.to_string()));
            }
        }
        assert_eq!(refused(device(Some(InfoPortKind::Vrf), Some(InfoKind::Veth)), true), None);
        assert_eq!(refused(device(None, Some(InfoKind::Bond)), false), None);
        let bond = refused(device(None, Some(InfoKind::Bond)), true).expect("a refusal");
        assert!(bond.hint.unwrap().contains("ingress"));
    }
}
