//! The daemon's end of the control socket; `fordway_control` has the protocol and the client.

mod desired;
mod idle;
mod peer;
mod server;
mod socket;

pub(crate) use server::serve;
pub(crate) use socket::{Guard, Listeners, listen, readers};
