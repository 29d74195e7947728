//! Router advertisements and stateless DHCPv6 for the hosts of an IPv6-only network.
//!
//! One server advertises on any number of devices, as RFC 4861 section 6.2 wishes: a burst at first,
//! then at random intervals, and when a host asks. Hosts hear of prefixes, of DNS servers and search
//! lists (RFC 8106), of the NAT64 prefix (RFC 8781), of routes and preferences (RFC 4191). What is no
//! longer so is taken back: by lifetimes of zero, prefixes by deprecation.
//!
//! | part | what it does | pure |
//! |---|---|---|
//! | `schedule` | when to send | yes |
//! | `content` | what to say, of settings and of what the device has | yes |
//! | `ledger` | what has been said and must be taken back | yes |
//! | `encode` | messages, none longer than the link takes | yes |
//! | `others` | what other routers say, and whether it agrees | yes |
//! | `dhcp` | the answer to an INFORMATION-REQUEST | yes |
//! | `device` | joins these for one device | yes |
//! | `host`, `serve` | sockets, netlink, the one thread | |
//!
//! ```text
//! let lan = Device { dhcpv6: true, ..Device::new("lan0") };
//! let bound = router::bind(&Settings { devices: vec![lan] })?;   // needs privileges
//! let server = bound.start()?;                                   // needs none
//! server.stop();                                                 // says goodbye
//! ```
#![forbid(unsafe_code)]

mod content;
mod device;
mod dhcp;
mod encode;
mod host;
mod ledger;
mod others;
mod schedule;
mod serve;
mod server;
mod settings;
mod stats;

pub use fordway_dns64::ndp::Preference;
pub use server::{Bound, Error, Server, bind};
pub use settings::{Device, Prefixes, Rdnss, Route, Settings, WrongSetting};
pub use stats::{DeviceStats, State, Stats};
