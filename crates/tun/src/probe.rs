//! What exists under an interface's name, asked over netlink.
//!
//! Not asked of /sys: a mounted /sys may show another network namespace than
//! the one the thread is in.

use std::io;

use netlink_packet_core::{DefaultNla, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload, Nla};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoTun, LinkAttribute, LinkInfo, LinkMessage,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// An interface that exists.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    /// A TUN device.
    Tun {
        multi_queue: bool,
        /// Queues that some process has open; not known of a single-queue one.
        open_queues: u32,
    },
    /// A TAP device.
    Tap,
    /// Something else; its kind as the kernel names it.
    Other(String),
}

/// Whether a TUN interface `name` is there and some process has it open, in the calling thread's network
/// namespace. Not known of single-queue interfaces, for which it is `false`.
///
/// # Errors
///
/// What the system reports.
pub fn is_open(name: &str) -> io::Result<bool> {
    let existing = probe(name)?;
    Ok(matches!(existing, Some(Existing::Tun { open_queues: 1.., .. })))
}

/// Looks `name` up in the calling thread's network namespace.
pub(crate) fn probe(name: &str) -> io::Result<Option<Existing>> {
    let mut request = LinkMessage::default();
    request.attributes.push(LinkAttribute::IfName(name.to_owned()));
    let mut message = NetlinkMessage::from(RouteNetlinkMessage::GetLink(request));
    message.header.flags = NLM_F_REQUEST;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);

    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&bytes, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let answer: NetlinkMessage<RouteNetlinkMessage> =
        NetlinkMessage::deserialize(&answer).map_err(io::Error::other)?;
    match answer.payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
            Ok(Some(classify(&link)))
        }
        NetlinkPayload::Error(error) if error.raw_code() == -libc::ENODEV => Ok(None),
        NetlinkPayload::Error(error) => Err(error.to_io()),
        other => Err(io::Error::other(format!(
            "unexpected netlink message of type {}",
            other.message_type()
        ))),
    }
}

fn classify(link: &LinkMessage) -> Existing {
    let infos = link
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::LinkInfo(infos) => Some(infos.as_slice()),
            _ => None,
        })
        .unwrap_or_default();
    let kind = infos.iter().find_map(|info| match info {
        LinkInfo::Kind(kind) => Some(kind),
        _ => None,
    });
    match kind {
        Some(InfoKind::Tun) => {}
        Some(kind) => return Existing::Other(kind.to_string()),
        None => return Existing::Other("physical".to_owned()),
    }
    let data = infos.iter().find_map(|info| match info {
        LinkInfo::Data(InfoData::Tun(data)) => Some(data.as_slice()),
        _ => None,
    });
    let data = data.unwrap_or_default();
    // Kernels from 4.18 on say all of this; the defaults let TUNSETIFF decide.
    if attribute(data, IFLA_TUN_TYPE).is_some_and(|kind| kind != IFF_TUN) {
        return Existing::Tap;
    }
    Existing::Tun {
        multi_queue: attribute(data, IFLA_TUN_MULTI_QUEUE).is_none_or(|value| value != 0),
        open_queues: attribute(data, IFLA_TUN_NUM_QUEUES).unwrap_or(0)
            + attribute(data, IFLA_TUN_NUM_DISABLED_QUEUES).unwrap_or(0),
    }
}

const IFLA_TUN_TYPE: u16 = 3;
const IFLA_TUN_MULTI_QUEUE: u16 = 7;
const IFLA_TUN_NUM_QUEUES: u16 = 8;
const IFLA_TUN_NUM_DISABLED_QUEUES: u16 = 9;
/// Value of `IFLA_TUN_TYPE`.
const IFF_TUN: u32 = 1;

/// Value of an attribute of one or four octets in host byte order.
fn attribute(data: &[InfoTun], kind: u16) -> Option<u32> {
    data.iter().find_map(|item| match item {
        InfoTun::Other(nla) if nla.kind() == kind => number(nla),
        _ => None,
    })
}

fn number(nla: &DefaultNla) -> Option<u32> {
    let mut value = vec![0; nla.value_len()];
    nla.emit_value(&mut value);
    match value.as_slice() {
        &[value] => Some(u32::from(value)),
        value => value.try_into().ok().map(u32::from_ne_bytes),
    }
}
