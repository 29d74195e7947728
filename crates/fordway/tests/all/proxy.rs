//! An HTTP proxy with real clients and servers: for clients, in front of a site, set up, changed, killed and ended.

mod browser;
mod forward;
mod life;
mod load;
mod pref64;
mod refused;
mod site;
pub(crate) mod world;
