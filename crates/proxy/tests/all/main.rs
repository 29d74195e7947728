//! The proxy with raw octets on both sides.

mod bodies;
mod certificates;
mod checks;
mod clients;
mod destinations;
mod eyeballs;
mod front;
mod http2;
mod limits;
mod log;
mod nginx;
mod passthrough;
mod site;
mod smuggling;
mod tunnels;
mod world;
