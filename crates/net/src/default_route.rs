//! Which interfaces the host sends by what it has no other route for.

use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::{Netlink, Result};

/// A default route, or one next hop of one with several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefaultRoute {
    /// Index of the interface it leads out of.
    pub index: u32,
    /// Its metric, the lower the better.
    pub metric: u32,
}

impl Netlink {
    /// Lists the IPv6 default routes of all tables.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Netlink`], [`crate::Error::Answer`].
    pub fn default_routes6(&mut self) -> Result<Vec<DefaultRoute>> {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet6;
        let request = RouteNetlinkMessage::GetRoute(message);
        let answers = match self.dump(&request, "list IPv6 default routes") {
            Ok(answers) => answers,
            Err(error) if error.is_unsupported() => Vec::new(),
            Err(error) => return Err(error),
        };
        let is_default = |message: &RouteMessage| {
            message.header.destination_prefix_length == 0
                && message.header.kind == RouteType::Unicast
        };
        let mut routes = Vec::new();
        for answer in answers {
            if let RouteNetlinkMessage::NewRoute(message) = answer
                && is_default(&message)
            {
                routes.extend(next_hops(&message));
            }
        }
        Ok(routes)
    }
}

fn next_hops(message: &RouteMessage) -> Vec<DefaultRoute> {
    let (mut metric, mut indices) = (0, Vec::new());
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Priority(value) => metric = *value,
            RouteAttribute::Oif(index) => indices.push(*index),
            RouteAttribute::MultiPath(hops) => {
                indices.extend(hops.iter().map(|hop| hop.interface_index));
            }
            _ => {}
        }
    }
    indices.into_iter().map(|index| DefaultRoute { index, metric }).collect()
}
