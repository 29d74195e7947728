//! Router advertisements and stateless DHCPv6 for the hosts of an IPv6-only network.
//!
//! One server advertises on any number of devices, as RFC 4861 section 6.2 has it: a burst at first, then at random
//! intervals, and when a host asks. It advertises prefixes, DNS servers and search lists (RFC 8106), the NAT64 prefix
//! (RFC 8781), routes and preferences (RFC 4191), encrypted DNS resolvers (RFC 9463), a captive portal (RFC 8910). What is no longer true is withdrawn: by lifetimes of zero, prefixes
//! by deprecation.
//!
//! | part | what it does | pure |
//! |---|---|---|
//! | `schedule` | when to send | yes |
//! | `content` | what to advertise, from settings and the state of the device | yes |
//! | `ledger` | what was advertised, and what of it must be withdrawn | yes |
//! | `encode` | messages, none longer than the link takes | yes |
//! | `others` | what other routers advertise, and whether it agrees | yes |
//! | `resolver` | encrypted DNS resolvers, as both kinds of options have them | yes |
//! | `dhcp` | the answer to an INFORMATION-REQUEST | yes |
//! | `device` | joins these for one device | yes |
//! | `host`, `serve` | sockets, netlink, the one thread | |
//!
//! ```text
//! let lan = Device { dhcpv6: true, ..Device::new("lan0") };
//! let bound = Server::bind(&Settings { devices: vec![lan] })?;   // needs privileges
//! let server = Server::start(bound)?;                            // needs none
//! server.stop();                                                 // withdraws all
//! ```
#![forbid(unsafe_code)]

mod content;
mod device;
mod dhcp;
mod encode;
mod host;
mod ledger;
mod others;
mod resolver;
mod schedule;
mod serve;
mod server;
mod settings;

pub use fordway_counters::router::{DeviceStats, State, Stats};
pub use fordway_dns64::ndp::Preference;
pub use resolver::Resolver;
pub use server::{Bound, Error, Server};
pub use settings::{Device, Prefixes, Rdnss, Route, Settings, WrongSetting};
