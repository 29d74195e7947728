//! What BIRD is told on a gateway of a cluster, as docs/cluster.md has it.

use std::net::IpAddr;

/// Between two packets of BFD, in ms.
pub const BFD_INTERVAL: u32 = 50;

/// What every BIRD is told. `lost`: packets of BFD in a row without which a neighbour is gone.
#[must_use]
pub fn common(lost: u32) -> String {
    format!(
        "protocol device {{ scan time 1; }}\nprotocol bfd {{ interface \"*\" {{ min rx interval {BFD_INTERVAL} ms; \
         min tx interval {BFD_INTERVAL} ms; multiplier {lost}; }}; }}\n"
    )
}

/// A gateway's BIRD learns the kernel's table and tells a router; by IPv4 with the metric as the MED (RFC 4271 section 5.1.4).
#[must_use]
pub fn gateway(own: IpAddr, router: IpAddr, table: u32) -> String {
    let (family, export) = match own {
        IpAddr::V4(_) => ("ipv4", "filter { bgp_med = krt_metric; accept; }"),
        IpAddr::V6(_) => ("ipv6", "all"),
    };
    format!(
        "{family} table fordway_{family};\n\
         protocol kernel {{ kernel table {table}; learn; scan time 1; {family} {{ table fordway_{family}; import all; export none; }}; }}\n\
         protocol bgp {{ local {own} as 65001; neighbor {router} as 65000; bfd on; connect retry time 1; connect delay time 1;\n\
           error wait time 1, 2; {family} {{ table fordway_{family}; import none; next hop self; export {export}; }}; }}\n"
    )
}
