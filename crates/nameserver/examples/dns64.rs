//! A DNS64 server with next to no configuration, for measurements: `dns64 LISTEN UPSTREAM POOL6 THREADS [CACHE_OCTETS]`.
//!
//! It answers everybody, as often as they ask, and prints what it has counted when standard input ends.

use std::io::Read;
use std::net::SocketAddr;
use std::num::NonZeroUsize;

use fordway_dns64::{Policies, Policy};
use fordway_nameserver::{Cookies, Limits, Server, Settings};
use fordway_resolver as upstream;
use fordway_serve::Acl;
use fordway_serve::Service as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |what: &str| arguments.next().ok_or(format!("{what} is missing"));
    let listen: SocketAddr = next("LISTEN")?.parse()?;
    let address: SocketAddr = next("UPSTREAM")?.parse()?;
    let pool6 = next("POOL6")?.parse()?;
    let threads: NonZeroUsize = next("THREADS")?.parse()?;
    let cache_octets = next("CACHE_OCTETS").ok().map_or(Ok(32 << 20), |octets| octets.parse())?;
    let policy = Policy { pool6: vec![pool6], ..Policy::default() };
    let server = upstream::Server { address, protocol: upstream::Protocol::Udp };
    let mut upstream = upstream::Settings::new(vec![server]);
    upstream.cache_octets = cache_octets;
    let settings = Settings {
        listen: vec![listen],
        threads,
        upstream,
        policies: Policies::new(policy, Vec::new())?,
        allow: Acl::new(["0.0.0.0/0".parse()?, "::/0".parse()?]),
        rate: None,
        cache_octets,
        listen_tls: Vec::new(),
        listen_https: Vec::new(),
        tls: None,
        cookies: Cookies::Drawn,
        prefetch: true,
        udp_size: 1232,
        limits: Limits::default(),
    };
    let server = Server::start(Server::bind(&settings)?)?;
    eprintln!("listening on {}", server.local_addrs()[0]);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    eprintln!("{:#?}", server.stats());
    drop(server);
    Ok(())
}
