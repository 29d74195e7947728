//! Mode nat44 left out (feature `nat44`): an entry of it is refused.

use fordway_config::{Feature, Nat44};
use fordway_net::Netlink;

use super::Plan;
use crate::failure::Failure;

pub(super) fn plan(_entry: &Nat44, _netlink: &mut Netlink) -> Result<Plan, Failure> {
    Err(Feature::Nat44.into())
}
