//! One outsider's SYNs to what somebody inside has opened.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use fordway_testhost::{can_use_tun, poll};
use fordway_wire::checksum::pseudo_v4;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};

use super::size;
use crate::common::connection::Connection;
use crate::common::daemon::{Daemon, RunDir, count};
use crate::common::topology::{Border, V4_HOST_AS_V6};
use crate::common::{can_test_kernel, traffic};

/// Its address, beside that of the server.
const OUTSIDER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 3);

const TCP: u8 = 6;

/// A SYN without options (RFC 9293 section 3.1).
fn syn(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> [u8; 20] {
    let mut segment = [0; 20];
    segment[..2].copy_from_slice(&from.1.to_be_bytes());
    segment[2..4].copy_from_slice(&to.1.to_be_bytes());
    segment[12..14].copy_from_slice(&[5 << 4, 2]);
    segment[14..16].copy_from_slice(&1024u16.to_be_bytes());
    let sum = pseudo_v4(from.0, to.0, TCP, 20).add_bytes(&segment).finish();
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    segment
}

#[test]
fn syns_of_one_outsider_from_all_its_ports() {
    if !can_use_tun() {
        return;
    }
    for engine in ["user", "kernel"].into_iter().filter(|it| *it == "user" || can_test_kernel()) {
        for filtering in ["endpoint-independent", "address-dependent"] {
            from_all_ports(engine, filtering, 262_144);
        }
        from_all_ports(engine, "endpoint-independent", 4096);
    }
}

/// Where `max_sessions` are fewer than the SYNs, a forwarded port can't be reached by anybody (docs/threats.md), and hosts
/// inside notice nothing.
fn from_all_ports(engine: &str, filtering: &str, max_sessions: usize) {
    let (net, run) = (Border::new(), RunDir::new());
    net.v4.ip(&format!("addr add {OUTSIDER}/24 dev h4"));
    let service = traffic::listen(&net.v6);
    let forwarded = service.local_addr().unwrap().port();
    let file = run.file(
        "nat64.toml",
        &format!(
            "[[translator]]\nname = 'nat64'\nmode = 'nat64'\nengine = '{engine}'\npool6 = ['2001:db8:64::/96']\n\
             pool4 = ['192.0.2.1']\nfiltering = '{filtering}'\nmax_sessions = {max_sessions}\n\
             bib = [['tcp', '192.0.2.1:80', '[2001:db8:6::2]:{forwarded}']]\n"
        ),
    );
    let daemon = Daemon::start(&run, &net.gateway, &format!("run -c {}", file.display()));
    let server: IpAddr = V4_HOST_AS_V6.parse().unwrap();
    let pool = Ipv4Addr::new(192, 0, 2, 1);
    let others_are_served = |old: &mut Connection| {
        old.check();
        Connection::open(&net.v6, &net.v4, server).check();
        if filtering == "endpoint-independent" && max_sessions > 65_536 {
            traffic::assert_connects(&net.v4, pool.into(), 80);
        }
    };
    let mut old = Connection::open(&net.v6, &net.v4, server);
    // The outsider is somebody whom the host inside has spoken to, by the same port.
    let listener = net.v4.inside(|| std::net::TcpListener::bind((OUTSIDER, 0)).unwrap());
    let as_v6: IpAddr = "2001:db8:64::c633:6403".parse().unwrap();
    let known = net.v6.inside(|| {
        std::net::TcpStream::connect(SocketAddr::new(as_v6, listener.local_addr().unwrap().port()))
    });
    let (_known, (_accepted, mapped)) = (known.unwrap(), listener.accept().unwrap());
    let flags = SocketFlags::CLOEXEC;
    let raw = || socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(ipproto::TCP));
    let raw: UdpSocket = net.v4.inside(|| raw().unwrap()).into();
    rustix::net::bind(&raw, &SocketAddr::new(OUTSIDER.into(), 0)).unwrap();
    let packets = || count(&daemon.stats("nat64"), "v4_to_v6/packets");
    let dropped = || crate::common::daemon::dropped(&daemon.stats("nat64"));
    let before = packets() + dropped();
    let mut sent = 0;
    for port in 1024..1024 + size(8_000, 60_000) as u16 {
        let to = if port.is_multiple_of(2) { mapped.port() } else { 80 };
        let segment = syn((OUTSIDER, port), (pool, to));
        // One that there is no room for is lost, as on the way.
        sent += u64::from(raw.send_to(&segment, SocketAddr::new(pool.into(), 0)).is_ok());
        if port.is_multiple_of(1000) {
            others_are_served(&mut old);
        }
    }
    poll("the SYNs have arrived", || (packets() + dropped() >= before + sent / 2).then_some(()));
    others_are_served(&mut old);
    let sessions = count(&daemon.stats("nat64"), "nat64/sessions/tcp");
    let most = max_sessions * 7 / 8 + 100;
    assert!(sessions <= most as u64, "{engine}, {filtering}: {sessions} of {max_sessions}");
    daemon.stop();
}
