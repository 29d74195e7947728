//! Gateways that share the load, on sockets. The protocol is `fordway-cluster`'s, which has none.
//!
//! | module | content |
//! |---|---|
//! | `store` | leases and owners of shards in a key-value bucket of NATS JetStream |
//! | `channel` | messages between gateways: TLS 1.3, both sides with certificates |
//! | `data_path` | what translates, as a member sees it |
//! | `tables` | the NAT64 tables of an engine as a data path |
//! | `owners` | who owns each shard, for those who hand packets over |
//! | `announced` | the same, with routes that a routing daemon redistributes |
//! | `member` | gives the protocol what has happened, and does what it wants |
//!
//! `docs/cluster.md` has the failure model and the protocol.
#![forbid(unsafe_code)]

mod announced;
mod channel;
mod data_path;
mod member;
mod owners;
mod store;
mod tables;

pub use announced::{Announced, Announcement};
pub use channel::{ChannelError, ChannelSettings, PeerSettings};
pub use data_path::{Change, DataPath};
pub use member::{Ended, Error, Handle, Member, MemberSettings, Overview};
pub use owners::Owners;
pub use store::{Login, StoreError, StoreSettings};
pub use tables::{Tables, TablesError, TablesSettings};
