//! A router that advertises what a test wants (RFC 4861, RFC 8781).

use std::net::Ipv6Addr;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use fordway_dns64::ndp::{
    ALL_NODES, Advertisement, Pref64, PrefixInformation, ScaledLifetime, Writer,
};
use fordway_net::{Ipv6Net, NeighbourSocket, Netlink};

use super::netns::Netns;

/// The link-layer address of all nodes.
const ALL_NODES_MAC: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];

/// How often it says it.
const INTERVAL: Duration = Duration::from_millis(200);

/// What a router advertises; lifetimes in seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    /// How long it is a default router.
    pub(crate) lifetime: u16,
    /// Prefix, valid and preferred lifetime.
    pub(crate) prefixes: Vec<(Ipv6Net, u32, u32)>,
    pub(crate) pref64: Vec<(Ipv6Net, u32)>,
    /// Recursive DNS servers (RFC 8106).
    pub(crate) rdnss: Vec<Ipv6Addr>,
    /// The MTU of the link, if it is another than the device's.
    pub(crate) mtu: Option<u32>,
}

impl Content {
    /// A router with one network and translation prefixes.
    pub(crate) fn new(net: &str, pref64: &[&str]) -> Content {
        Content {
            lifetime: 1800,
            prefixes: vec![(net.parse().unwrap(), 3600, 1800)],
            pref64: pref64.iter().map(|net| (net.parse().unwrap(), 1800)).collect(),
            ..Content::default()
        }
    }

    /// The same, without this translation prefix any more.
    pub(crate) fn withdraws(mut self, pref64: &str) -> Content {
        self.pref64.push((pref64.parse().unwrap(), 0));
        self
    }
}

/// A router on one link, which advertises from time to time until it is dropped.
pub(crate) struct Advertiser {
    say: Option<Sender<Content>>,
    thread: Option<JoinHandle<()>>,
}

impl Advertiser {
    /// Begins to advertise, at once.
    pub(crate) fn start(netns: &Netns, device: &str, content: Content) -> Advertiser {
        Advertiser::every(INTERVAL, netns, device, content)
    }

    /// Begins to advertise, as often as this.
    pub(crate) fn every(
        interval: Duration,
        netns: &Netns,
        device: &str,
        content: Content,
    ) -> Advertiser {
        let (socket, index, source) = netns.inside(|| {
            let mut netlink = Netlink::open().unwrap();
            let link = netlink.link(device).unwrap();
            let addresses = netlink.addresses_v6().unwrap().into_iter();
            let mut local = addresses.filter(|it| it.index == link.index && it.link_local());
            let source = local.next().unwrap().address.addr();
            (NeighbourSocket::open().unwrap(), link.index, source)
        });
        let (say, said) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut packet = build(&content, source);
            loop {
                // The link may be down.
                let _ = socket.send(&packet, index, ALL_NODES_MAC);
                match said.recv_timeout(interval) {
                    Ok(content) => packet = build(&content, source),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        Advertiser { say: Some(say), thread: Some(thread) }
    }

    /// Advertises this from now on.
    pub(crate) fn say(&self, content: Content) {
        self.say.as_ref().unwrap().send(content).unwrap();
    }
}

impl Drop for Advertiser {
    fn drop(&mut self) {
        self.say = None;
        let _ = self.thread.take().unwrap().join();
    }
}

fn build(content: &Content, source: Ipv6Addr) -> Vec<u8> {
    let mut buffer = [0; 1280];
    let advertisement =
        Advertisement { router_lifetime: content.lifetime, ..Advertisement::default() };
    let mut writer = Writer::advertisement(&mut buffer, &advertisement).unwrap();
    for (net, valid, preferred) in &content.prefixes {
        let info = PrefixInformation {
            prefix: net.network(),
            prefix_len: net.prefix_len(),
            on_link: true,
            autonomous: true,
            valid_lifetime: *valid,
            preferred_lifetime: *preferred,
        };
        writer.prefix(&info).unwrap();
    }
    for (net, lifetime) in &content.pref64 {
        let lifetime = ScaledLifetime::from_seconds(*lifetime);
        writer.pref64(&Pref64::new(net.network(), net.prefix_len(), lifetime).unwrap()).unwrap();
    }
    if !content.rdnss.is_empty() {
        writer.rdnss(1800, &content.rdnss).unwrap();
    }
    if let Some(mtu) = content.mtu {
        writer.mtu(mtu).unwrap();
    }
    let message = writer.finish(source, ALL_NODES);
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(u16::try_from(message.len()).unwrap().to_be_bytes());
    packet.extend([58, 255]);
    packet.extend(source.octets());
    packet.extend(ALL_NODES.octets());
    packet.extend(message);
    packet
}
