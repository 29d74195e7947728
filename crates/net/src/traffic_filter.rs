//! Filters of traffic control (tc).

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};

use crate::{Netlink, Result};

/// A filter of the clsact queueing discipline, of any software.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficFilter {
    /// The lower, the earlier it runs.
    pub priority: u32,
    /// Tells it from others of its priority.
    pub handle: u32,
    /// Such as `bpf` or `flower`.
    pub kind: String,
}

impl Netlink {
    /// Lists the filters at a device's egress, or at its ingress, in the order in which they run.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Netlink`], [`crate::Error::Answer`].
    pub fn traffic_filters(&mut self, index: u32, egress: bool) -> Result<Vec<TrafficFilter>> {
        let mut message = TcMessage::default();
        message.header.index = index.cast_signed();
        // The hooks of clsact, ffff:fff3 and ffff:fff2.
        let minor = if egress { 0xfff3 } else { 0xfff2 };
        message.header.parent = TcHandle { major: 0xffff, minor };
        let request = RouteNetlinkMessage::GetTrafficFilter(message);
        let answers = self.dump(&request, "list traffic filters")?.into_iter();
        Ok(answers.filter_map(into_filter).collect())
    }
}

fn into_filter(answer: RouteNetlinkMessage) -> Option<TrafficFilter> {
    let RouteNetlinkMessage::NewTrafficFilter(found) = answer else { return None };
    let TcHandle { major, minor } = found.header.handle;
    let handle = u32::from(major) << 16 | u32::from(minor);
    let kind = found.attributes.into_iter().find_map(|attribute| match attribute {
        TcAttribute::Kind(kind) => Some(kind),
        _ => None,
    });
    // The kernel's `tcm_info`: the priority, then the protocol. A classifier without a filter has no handle.
    let priority = found.header.info >> 16;
    (handle != 0).then(|| TrafficFilter { priority, handle, kind: kind.unwrap_or_default() })
}
