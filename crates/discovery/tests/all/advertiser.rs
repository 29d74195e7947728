//! A router's side: hears solicitations, and says whatever it is told, right or wrong.

use std::io::Read;
use std::net::{Ipv6Addr, SocketAddrV6};

use fordway_dns64::ndp::{
    self, Advertisement, NdOption, Pref64, ScaledLifetime, Writer, solicitation,
};
use fordway_testhost::PATIENCE;
use ipnet::Ipv6Net;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// A raw socket on one interface of a namespace.
pub(crate) struct Advertiser {
    socket: Socket,
    device: u32,
}

impl Advertiser {
    /// Opens it in the calling thread's namespace; it speaks from `source`.
    pub(crate) fn open(device: u32, source: Ipv6Addr) -> Advertiser {
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).unwrap();
        let from = SocketAddrV6::new(source, 0, 0, device);
        socket.set_multicast_hops_v6(255).unwrap();
        socket.set_multicast_loop_v6(false).unwrap();
        socket.bind(&SockAddr::from(from)).unwrap();
        Advertiser { socket, device }
    }

    /// Says an advertisement: router lifetime, prefixes and resolvers with lifetimes, in seconds.
    pub(crate) fn say(&self, lifetime: u16, pref64: &[(&str, u32)], rdnss: &[&str]) {
        self.send_octets(&message(lifetime, pref64, rdnss));
    }

    /// Says one as if a router had forwarded it.
    pub(crate) fn forge_hop_limit(&self, hops: u32, pref64: &[(&str, u32)]) {
        self.socket.set_multicast_hops_v6(hops).unwrap();
        self.say(1800, pref64, &[]);
        self.socket.set_multicast_hops_v6(255).unwrap();
    }

    /// Sends octets to all nodes. The kernel puts in the checksum.
    pub(crate) fn send_octets(&self, octets: &[u8]) {
        let to = SocketAddrV6::new(ndp::ALL_NODES, 0, 0, self.device);
        self.socket.send_to(octets, &SockAddr::from(to)).unwrap();
    }
}

/// Hears solicitations on one interface.
pub(crate) struct Listener {
    socket: Socket,
}

impl Listener {
    /// Opens it in the calling thread's namespace.
    pub(crate) fn open(device: u32) -> Listener {
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).unwrap();
        socket.join_multicast_v6(&ndp::ALL_ROUTERS, device).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Listener { socket }
    }

    /// Waits for a solicitation with a link-layer address. The kernel sends none here.
    pub(crate) fn wait(&mut self) {
        let mut buffer = [0; 2048];
        loop {
            let len = self.socket.read(&mut buffer).expect("a solicitation");
            let Ok(mut options) = solicitation::parse(&buffer[..len]) else { continue };
            if options.any(|option| matches!(option, NdOption::SourceLinkLayer(_))) {
                return;
            }
        }
    }
}

fn message(lifetime: u16, pref64: &[(&str, u32)], rdnss: &[&str]) -> Vec<u8> {
    let mut buffer = [0; 1400];
    let header = Advertisement { router_lifetime: lifetime, ..Advertisement::default() };
    let mut writer = Writer::advertisement(&mut buffer, &header).unwrap();
    for (prefix, lifetime) in pref64 {
        let net: Ipv6Net = prefix.parse().unwrap();
        let lifetime = ScaledLifetime::from_seconds(*lifetime);
        let option = Pref64::new(net.addr(), net.prefix_len(), lifetime).unwrap();
        writer.pref64(&option).unwrap();
    }
    let servers: Vec<Ipv6Addr> = rdnss.iter().map(|text| text.parse().unwrap()).collect();
    if !servers.is_empty() {
        writer.rdnss(1800, &servers).unwrap();
    }
    writer.finish(Ipv6Addr::UNSPECIFIED, ndp::ALL_NODES).to_vec()
}

/// Messages that are wrong in one way each, and would tell 2001:db8:a::/96 otherwise.
pub(crate) fn broken() -> Vec<Vec<u8>> {
    let whole = message(1800, &[("2001:db8:a::/96", 600)], &[]);
    let changed = |at: usize, octet: u8| {
        let mut octets = whole.clone();
        octets[at] = octet;
        octets
    };
    let option = 16;
    vec![
        // Code 1.
        changed(1, 1),
        // Options of length zero, one and three units.
        changed(option + 1, 0),
        changed(option + 1, 1),
        changed(option + 1, 3),
        // Codes of a prefix length that mean nothing.
        changed(option + 3, whole[option + 3] & !7 | 6),
        changed(option + 3, whole[option + 3] & !7 | 7),
        // Octet u of a /96, and prefixes that none can be.
        changed(option + 4 + 8, 1),
        changed(option + 4, 0xff),
        // Cut short, everywhere.
        whole[..15].to_vec(),
        whole[..option + 1].to_vec(),
        whole[..option + 15].to_vec(),
    ]
}
