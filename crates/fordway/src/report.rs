//! Replies of the daemon as text with styles.

mod auto;
mod cluster;
mod dstm;
mod entries;
mod forwarding;
mod nat64;
mod plan;
mod proxy;
mod services;
mod status;
mod table;
mod trace;
mod trt;

pub(crate) use entries::heading;
pub(crate) use forwarding::{dual_stack_table, nat44_table};
pub(crate) use proxy::proxy_table;
pub(crate) use services::{advertise_table, dns64_table};
/// What `forward = "direct"` means for the host's rules.
pub(crate) const DIRECT: &str =
    "direct: nftables, connection tracking and IPsec policies don't see translated packets";

pub(crate) use table::{kernel_table, totals_table};

/// What is shown as it is.
pub(crate) trait Render {
    /// Whole lines, with styles.
    fn render(&self) -> String;
}

/// What is shown as lines of something larger.
trait Lines {
    /// Each line with its label.
    fn lines(&self) -> Vec<(&'static str, String)>;
}
