//! The tester of RFC 8219 section 9: the client that asks a DNS64 server, and the authoritative server
//! that this one asks in turn.
//!
//! Messages are ready-made octets of one form (`message`): tens of thousands per second go through one
//! processor here, beside the server under test. Names are numbered, so that each reply can be held
//! against the one right answer to its question without a word between the two halves.

pub mod authority;
pub mod client;
pub mod message;
mod sockets;

/// Port of DNS.
pub const PORT: u16 = 53;
