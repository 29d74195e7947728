//! The proxy with raw octets on both sides.

mod bodies;
mod clients;
mod destinations;
mod eyeballs;
mod http2;
mod limits;
mod log;
mod site;
mod smuggling;
mod tunnels;
mod world;
