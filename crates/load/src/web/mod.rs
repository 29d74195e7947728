//! What a user of the network waits for: a session's first octet, a page. A small HTTP/1.1 server
//! (RFC 9112), and a client that resolves, connects and loads as applications do.

pub mod exchange;
mod fetch;
pub mod page;
pub mod resolve;
pub mod server;
pub mod session;

/// TCP port of the server.
pub const PORT: u16 = 8080;
/// Connections to one server at a time: what browsers allow themselves with HTTP/1.1.
const CONNECTIONS: usize = 6;

/// The path of an object of so many octets.
fn object(number: u32, size: u32) -> String {
    format!("/object/{number}/{size}")
}

/// The path of a page with so many objects.
fn page_path(objects: u32, size: u32) -> String {
    format!("/page/{objects}/{size}")
}

/// The octets of an object: both ends can compute them.
fn content(number: u32, size: u32) -> Vec<u8> {
    (0..size).map(|at| (at.wrapping_mul(31).wrapping_add(number * 7) >> 3) as u8).collect()
}
