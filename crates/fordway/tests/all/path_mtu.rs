//! IPv4 packets that are too long for the path by what translation adds, at each place where packets are taken.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use fordway_testhost::{PATIENCE, can_use_tun, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};

use crate::common::daemon::{Daemon, RunDir, count, dropped};
use crate::common::netns::Netns;
use crate::common::topology::{Access, BORDER, Border, PREF64, SERVER, V6_HOST_AS_V4};
use crate::common::{can_test_kernel, traffic};

/// Octets of payload behind headers of 28 octets, for IPv4 packets of 1481 and of 1500 octets.
const PAYLOADS: [usize; 2] = [1453, 1472];

/// Engines and attach points of a host's CLAT, and of a gateway.
const HOST: [&str; 3] = ["user", "kernel --attach interface", "kernel --uplink c0"];
const GATEWAY: [&str; 4] = [
    "user",
    "kernel --attach interface",
    "kernel --attach ingress --device g4 --device g6",
    "kernel --attach xdp --device g4 --device g6",
];

/// Whether `engine` can be tested here.
fn can_test(engine: &str) -> bool {
    if engine == "user" { can_use_tun() } else { can_test_kernel() }
}

/// A host with an IPv4 address, and one with an IPv6 address that it knows by an IPv4 address.
struct Ends<'a> {
    v4: &'a Netns,
    v6: &'a Netns,
    /// The device on which the IPv6 host hears.
    device: &'a str,
    /// The IPv6 host, as the IPv4 host knows it, and as it is.
    to: (IpAddr, IpAddr),
}

impl Ends<'_> {
    /// Fragments that the IPv6 host hears, from now on.
    fn fragments(&self) -> impl Fn() -> u64 {
        self.v6.counter(&format!("iifname {} exthdr frag exists", self.device))
    }

    /// Echo requests that have come to the IPv6 host.
    fn echo_requests(&self) -> u64 {
        let path = "/proc/thread-self/net/snmp6";
        let text = self.v6.inside(|| std::fs::read_to_string(path).unwrap());
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Icmp6InEchos"));
        lines.next().and_then(|value| value.trim().parse().ok()).unwrap()
    }

    /// Packets without DF of 1481 and of 1500 octets arrive whole, in two fragments each.
    fn carry_whole(&self) {
        // Sockets set DF unless they are told otherwise.
        self.v4.sysctl("net.ipv4.ip_no_pmtu_disc", "1");
        for payload in PAYLOADS {
            let (before, fragments) = (self.echo_requests(), self.fragments());
            // The reply, of IPv6 fragments of ICMPv6, can't be translated (RFC 7915 section 1.2).
            self.v4.try_run(&format!("ping -n -M dont -c 1 -W 1 -s {payload} {}", self.to.0));
            poll("the echo request", || (self.echo_requests() > before).then_some(()));
            assert_eq!(fragments(), 2, "{payload}");

            let fragments = self.fragments();
            traffic::udp_echo(self.v4, self.v6, self.to, payload);
            assert_eq!(fragments(), 2, "{payload}");

            let fragments = self.fragments();
            self.send_without_checksum(payload);
            assert_eq!(fragments(), 2, "{payload}");
        }
        self.v4.sysctl("net.ipv4.ip_no_pmtu_disc", "0");
    }

    /// A datagram whose sender has computed no checksum arrives.
    fn send_without_checksum(&self, payload: usize) {
        let heard = self.v6.inside(|| UdpSocket::bind((self.to.1, 0)).unwrap());
        heard.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut datagram = vec![0xc0, 0x00];
        datagram.extend(heard.local_addr().unwrap().port().to_be_bytes());
        datagram.extend((8 + payload as u16).to_be_bytes());
        datagram.extend([0, 0]);
        datagram.extend(traffic::pattern(payload, 7));
        let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
        let open = || socket_with(family, SocketType::RAW, flags, Some(ipproto::UDP)).unwrap();
        let socket: UdpSocket = self.v4.inside(open).into();
        socket.send_to(&datagram, SocketAddr::new(self.to.0, 0)).unwrap();
        let mut buffer = vec![0; 2048];
        let len = heard.recv(&mut buffer).unwrap();
        assert!(buffer[..len] == datagram[8..], "{len} octets");
    }

    /// The sender of a packet with DF hears of the path MTU, and what it then sends passes.
    fn tell(&self) {
        let to = self.to.0;
        let longest = self.v4.run(&format!("ping -n -M do -c 1 -W 30 -s 1452 {to}"));
        assert!(longest.contains("1 received"), "{longest}");
        let longer = self.v4.try_run(&format!("ping -n -M do -c 1 -W 30 -s 1453 {to}"));
        let text = String::from_utf8_lossy(&longer.stdout);
        assert!(text.contains("Frag needed and DF set (mtu = 1480)"), "{text}");
        let route = self.v4.ip(&format!("route get {to}"));
        assert!(route.contains("mtu 1480"), "{route}");
        // The host itself cuts now.
        traffic::udp_echo(self.v4, self.v6, self.to, 1472);
    }
}

#[test]
fn a_clats_host_loses_nothing_to_the_longer_header() {
    for engine in HOST.into_iter().filter(|engine| can_test(engine)) {
        let (net, run) = (Access::new(), RunDir::new());
        let arguments = format!("clat --pref64 {PREF64} --engine {engine}");
        let daemon = Daemon::start(&run, &net.client, &arguments);
        let ends = Ends { v4: &net.client, v6: &net.server, device: "s0", to: SERVER };
        ends.carry_whole();
        ends.tell();
        let stats = daemon.stats("clat0");
        // Of the two echo replies.
        assert_eq!(count(&stats, "drops/fragmented_icmp"), 4, "{stats}");
        assert_eq!(dropped(&stats), 4 + count(&stats, "drops/too_big"), "{stats}");
        traffic::tcp_both_ways(&net.client, &net.server, SERVER.0, 1 << 20);
        daemon.stop();
    }
}

#[test]
fn a_gateway_loses_nothing_to_the_longer_header() {
    for engine in GATEWAY.into_iter().filter(|engine| can_test(engine)) {
        let (net, run) = (Border::new(), RunDir::new());
        let daemon = Daemon::start(&run, &net.gateway, &format!("{BORDER} --engine {engine}"));
        let to = (V6_HOST_AS_V4.parse().unwrap(), "2001:db8:6::2".parse().unwrap());
        let ends = Ends { v4: &net.v4, v6: &net.v6, device: "h6", to };
        ends.carry_whole();
        ends.tell();
        let stats = daemon.stats("siit0");
        assert_eq!(count(&stats, "drops/fragmented_icmp"), 4, "{stats}");
        assert_eq!(dropped(&stats), 4 + count(&stats, "drops/too_big"), "{stats}");
        daemon.stop();
    }
}

/// An IPv6 host on a link with long frames says a greater MSS than the path to it allows, and nobody clamps it.
#[test]
fn streams_find_the_path_mtu_where_the_mss_is_too_great() {
    for engine in GATEWAY.into_iter().filter(|engine| can_test(engine)) {
        let (net, run) = (Border::new(), RunDir::new());
        net.gateway.ip("link set g6 mtu 9000");
        net.v6.ip("link set h6 mtu 9000");
        let arguments = format!("{BORDER} --mtu 1400 --engine {engine}");
        let daemon = Daemon::start(&run, &net.gateway, &arguments);
        let too_long = net.v6.counter("iifname h6 meta length > 1400");
        let to = V6_HOST_AS_V4.parse().unwrap();
        traffic::tcp_both_ways(&net.v4, &net.v6, to, 1 << 20);
        let route = net.v4.ip(&format!("route get {to}"));
        assert!(route.contains("mtu 1380"), "{route}");
        // Segments that came as one may be longer together.
        net.gateway.run("ethtool -K g6 tso off gso off");
        let before = too_long();
        traffic::tcp_both_ways(&net.v4, &net.v6, to, 1 << 20);
        assert_eq!(too_long(), before);
        daemon.stop();
    }
}

/// Where no error may be sent, senders with DF still hear of the path MTU: from the kernel.
#[test]
fn without_errors_of_its_own_the_kernel_tells_the_path_mtu() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let daemon = Daemon::start(&run, &net.gateway, &format!("{BORDER} --icmp-source4 off"));
    let ping = net.v4.try_run(&format!("ping -n -M do -c 1 -W 30 -s 1453 {V6_HOST_AS_V4}"));
    let text = String::from_utf8_lossy(&ping.stdout);
    assert!(text.contains("From 198.51.100.1") && text.contains("(mtu = 1480)"), "{text}");
    daemon.stop();
}
