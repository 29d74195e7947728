//! How long it takes from a link that comes up to the first IPv4 octet through a CLAT that sets itself up.
//!
//! Nothing is demanded of the times, which are those of the machine; to see them:
//! `cargo test --release -p fordway --test all clat_auto_speed -- --ignored --nocapture`

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fordway_net::Netlink;
use fordway_testhost::{can_use_tun, poll};

use crate::common::advertiser::{Advertiser, Content};
use crate::common::daemon::{Daemon, RunDir};
use crate::common::laptop::{Laptop, NET, PREF64, until_state};

/// How often it is measured.
const ROUNDS: usize = 5;

/// The server's IPv4 address, and what stands for it.
const SERVER_V4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const SERVER_V6: &str = "2001:db8:64::c633:6401";

/// What happened when, after the link came up.
struct Times {
    /// The kernel has a default route from a router.
    route: Duration,
    /// The first answer from an IPv4 address.
    octet: Duration,
}

/// Brings the link up and measures.
fn measure(net: &Laptop) -> Times {
    let echo = net.router.inside(|| UdpSocket::bind((SERVER_V6, 0)).unwrap());
    echo.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let server = SocketAddr::new(SERVER_V4.into(), echo.local_addr().unwrap().port());
    let done = AtomicBool::new(false);
    let up = Instant::now();
    net.host.ip("link set c0 up");
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 64];
            while !done.load(Ordering::Relaxed) {
                if let Ok((len, from)) = echo.recv_from(&mut buffer) {
                    // Its answer is lost if the way back is not known.
                    let _ = echo.send_to(&buffer[..len], from);
                }
            }
        });
        let route = scope.spawn(|| {
            net.host.inside(|| {
                let mut netlink = Netlink::open().unwrap();
                poll("a default route", || {
                    thread::sleep(Duration::from_millis(1));
                    (!netlink.default_routes6().unwrap().is_empty()).then(|| up.elapsed())
                })
            })
        });
        let octet = net.host.inside(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            poll("an answer", || {
                // Without a route there is an error.
                let _ = socket.send_to(b"first", server);
                socket.recv(&mut [0; 64]).is_ok().then(|| up.elapsed())
            })
        });
        done.store(true, Ordering::Relaxed);
        Times { route: route.join().unwrap(), octet }
    })
}

/// Measures several times and tells.
fn rounds(what: &str, net: &Laptop, daemon: &Daemon<'_>) {
    let mut all: Vec<Times> = Vec::new();
    for _ in 0..ROUNDS {
        net.host.ip("link set c0 down");
        until_state(daemon, "waiting");
        all.push(measure(net));
        until_state(daemon, "active");
    }
    all.sort_by_key(|times| times.octet);
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    for times in &all {
        eprintln!(
            "{what}: link up to default route {:.1} ms, to first IPv4 octet {:.1} ms",
            ms(times.route),
            ms(times.octet)
        );
    }
    let after = |times: &Times| times.octet.saturating_sub(times.route);
    let mut after: Vec<Duration> = all.iter().map(after).collect();
    after.sort_unstable();
    eprintln!(
        "{what}: median of {ROUNDS}: {:.1} ms after the link, {:.1} ms after the default route",
        ms(all[ROUNDS / 2].octet),
        ms(after[ROUNDS / 2])
    );
}

#[test]
#[ignore = "measures for more than a minute, and asserts nothing about time"]
fn from_link_up_to_the_first_ipv4_octet() {
    if !can_use_tun() {
        return;
    }
    for engine in ["user", "kernel"] {
        let net = Laptop::new();
        let daemon = net.start(&format!("--engine {engine}"));
        // What it takes if nobody waits for the router.
        let content = Content::new(NET, &[PREF64]);
        let router = Advertiser::every(Duration::from_millis(5), &net.router, "s0", content);
        until_state(&daemon, "active");
        rounds(&format!("{engine} engine, advertisements all the time"), &net, &daemon);
        drop(router);
        // A router answers after up to half a second (RFC 4861 section 6.2.6), and hosts wait before they ask.
        let dir = RunDir::in_memory();
        let text =
            format!("[[advertise]]\ndevice = 's0'\nprefix = ['{NET}']\npref64 = ['{PREF64}']\n");
        let file = dir.file("router.toml", &text);
        let arguments = format!("run -c {}", file.display());
        let gateway = Daemon::start(&dir, &net.router, &arguments);
        rounds(&format!("{engine} engine, a router that is asked"), &net, &daemon);
        gateway.stop();
        daemon.stop();
    }
}
