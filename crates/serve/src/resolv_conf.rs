//! The DNS servers of resolv.conf(5).

use std::net::{SocketAddr, SocketAddrV6};
use std::path::Path;

use nix::net::if_::if_nametoindex;
use resolv_conf::{Config, ScopedIp};

/// Where hosts have it.
pub const PATH: &str = "/etc/resolv.conf";

/// The servers of a file, in their order, with port 53; none if it can't be read. Lines that can't be parsed are skipped,
/// and so are servers on interfaces that do not exist.
pub fn servers(path: &Path) -> Vec<SocketAddr> {
    let text = std::fs::read(path).unwrap_or_default();
    let (config, _) = Config::parse_with_errors(&text);
    config.nameservers.into_iter().filter_map(socket_address).collect()
}

fn socket_address(server: ScopedIp) -> Option<SocketAddr> {
    const DNS: u16 = 53;
    Some(match server {
        ScopedIp::V4(address) => (address, DNS).into(),
        ScopedIp::V6(address, None) => (address, DNS).into(),
        ScopedIp::V6(address, Some(scope)) => {
            let scope = scope.parse().ok().or_else(|| if_nametoindex(scope.as_str()).ok())?;
            SocketAddrV6::new(address, DNS, 0, scope).into()
        }
    })
}
