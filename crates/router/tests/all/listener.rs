//! A host's ear: reads router advertisements as they are on the link.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use fordway_dns64::ndp::{ALL_NODES, ALL_ROUTERS, Advertisement, NdOption, Writer, solicitation};
use fordway_testhost::PATIENCE;
use hickory_proto::rr::Name;
use ipnet::Ipv6Net;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockaddrIn6, recv, recvfrom};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::world::UP;
use fordway_testhost::namespace::Namespace;

/// A raw ICMPv6 socket on the client's device.
pub(crate) struct Listener {
    socket: Socket,
    index: u32,
}

/// An advertisement, read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    pub(crate) from: Option<Ipv6Addr>,
    pub(crate) fields: Advertisement,
    pub(crate) link_layer: Option<Vec<u8>>,
    pub(crate) mtu: Option<u32>,
    /// Prefix, L, A, valid, preferred.
    pub(crate) prefixes: Vec<(Ipv6Net, bool, bool, u32, u32)>,
    pub(crate) routes: Vec<(Ipv6Net, u32)>,
    pub(crate) rdnss: Vec<(Ipv6Addr, u32)>,
    pub(crate) dnssl: Vec<(Name, u32)>,
    pub(crate) pref64: Vec<(Ipv6Net, u32)>,
    /// Name, addresses, lifetime.
    pub(crate) dnr: Vec<(String, Vec<Ipv6Addr>, u32)>,
    pub(crate) captive_portal: Option<String>,
}

impl Listener {
    pub(crate) fn new(client: &Namespace) -> Listener {
        let index = client.index(UP);
        let socket = client.run(move || {
            let socket =
                Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).expect("a raw socket");
            socket.set_multicast_hops_v6(255).expect("a hop limit");
            socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
            socket.bind_device(Some(UP.as_bytes())).expect("a device");
            socket
        });
        Listener { socket, index }
    }

    /// Sends an ICMPv6 message to all routers, or to all nodes.
    pub(crate) fn send(&self, message: &[u8], to: Ipv6Addr, hop_limit: u32) {
        self.socket.set_multicast_hops_v6(hop_limit).expect("a hop limit");
        let to = SockAddr::from(SocketAddrV6::new(to, 0, 0, self.index));
        let sent = self.socket.send_to(message, &to).expect("sent");
        assert_eq!(sent, message.len());
    }

    /// Asks all routers.
    pub(crate) fn solicit(&self) {
        let mut buffer = [0; 64];
        let mut writer = Writer::solicitation(&mut buffer).expect("room");
        writer.source_link_layer(&[2, 0, 0, 0, 0, 2]).expect("room");
        // The kernel fills the checksum in.
        let message = writer.finish(Ipv6Addr::UNSPECIFIED, ALL_ROUTERS).to_vec();
        assert!(solicitation::parse(&message).is_ok());
        self.send(&message, ALL_ROUTERS, 255);
    }

    /// Sends an advertisement of another router.
    pub(crate) fn advertise(&self, build: impl FnOnce(&mut Writer<'_>), fields: &Advertisement) {
        let mut buffer = [0; 1280];
        let mut writer = Writer::advertisement(&mut buffer, fields).expect("room");
        build(&mut writer);
        let message = writer.finish(Ipv6Addr::UNSPECIFIED, ALL_NODES).to_vec();
        self.send(&message, ALL_NODES, 255);
    }

    /// All advertisements that have come and were not heard yet.
    pub(crate) fn heard_so_far(&self) -> Vec<Heard> {
        let mut octets = [0; 9000];
        let mut all = Vec::new();
        loop {
            match recv(self.socket.as_raw_fd(), &mut octets, MsgFlags::MSG_DONTWAIT) {
                Ok(len) => all.extend(read(&octets[..len], None)),
                Err(Errno::EAGAIN) => return all,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The first advertisement for which `wanted` holds.
    pub(crate) fn hear(&self, what: &str, wanted: impl Fn(&Heard) -> bool) -> Heard {
        let deadline = Instant::now() + PATIENCE;
        let mut last = None;
        loop {
            assert!(Instant::now() < deadline, "{what}: not heard; last heard {last:#?}");
            let mut octets = [0; 9000];
            let (len, from) = match recvfrom::<SockaddrIn6>(self.socket.as_raw_fd(), &mut octets) {
                Ok(received) => received,
                Err(Errno::EAGAIN | Errno::EINTR) => continue,
                Err(error) => panic!("{error}"),
            };
            let octets = &octets[..len];
            let from = from.map(|it| it.ip());
            // The socket also hears what is not an advertisement.
            if let Some(heard) = read(octets, from) {
                if wanted(&heard) {
                    return heard;
                }
                last = Some(heard);
            }
        }
    }
}

fn read(message: &[u8], from: Option<Ipv6Addr>) -> Option<Heard> {
    let (fields, options) = Advertisement::parse(message).ok()?;
    let net = |prefix, len| Ipv6Net::new(prefix, len).expect("a length that the view has checked");
    let mut heard = Heard { from, fields, ..Heard::default() };
    for option in options {
        match option {
            NdOption::SourceLinkLayer(address) => heard.link_layer = Some(address.to_vec()),
            NdOption::Mtu(mtu) => heard.mtu = Some(mtu),
            NdOption::Prefix(it) => heard.prefixes.push((
                net(it.prefix, it.prefix_len),
                it.on_link,
                it.autonomous,
                it.valid_lifetime,
                it.preferred_lifetime,
            )),
            NdOption::Route(it) => {
                heard.routes.push((net(it.prefix, it.prefix_len), it.lifetime));
            }
            NdOption::Rdnss(it) => {
                heard.rdnss.extend(it.addresses().map(|server| (server, it.lifetime)));
            }
            NdOption::Dnssl(it) => heard.dnssl.extend(
                it.names()
                    .map(|name| (Name::from_labels(name.labels()).expect("a name"), it.lifetime)),
            ),
            NdOption::Pref64(it) => {
                heard.pref64.push((net(it.prefix(), it.prefix_len()), it.lifetime().seconds()));
            }
            NdOption::EncryptedDns(it) => {
                heard.dnr.push((it.name.to_string(), it.addresses().collect(), it.lifetime));
            }
            NdOption::CaptivePortal(uri) => heard.captive_portal = Some(uri.to_owned()),
            other => panic!("an option that nobody sends: {other:?}"),
        }
    }
    Some(heard)
}
