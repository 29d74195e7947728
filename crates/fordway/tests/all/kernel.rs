//! The kernel engine in a daemon's life: where it is, what it tells, what outlives a kill.

use std::path::{Path, PathBuf};

use fordway_testhost::poll;
use serde_json::Value;

use crate::common::daemon::{Daemon, RunDir, count, dropped};
use crate::common::host::{assert_same, snapshot};
use crate::common::netns::Netns;
use crate::common::ping::Ping;
use crate::common::topology::{
    Access, BORDER, Border, PREF64, SERVER, SERVER_V4, V4_HOST_AS_V6, V6_HOST_AS_V4,
};
use crate::common::{can_test_kernel, traffic};

/// At each attach point of a host's CLAT.
const POINTS: [(&str, &str); 2] = [("interface", ""), ("uplink", "--uplink c0")];

fn clat(more: &str) -> String {
    format!("clat --pref64 {PREF64} --engine kernel {more}")
}

fn pins(netns: &Netns, name: &str) -> PathBuf {
    let namespace = netns.inside(|| fordway_net::NamespaceId::current().unwrap());
    fordway_bpf::pins_dir(&namespace.to_string(), name)
}

fn ping(netns: &Netns, to: &str) {
    let text = netns.run(&format!("ping -n -c 2 -i 0.1 -W 30 {to}"));
    assert!(text.contains("2 received"), "{text}");
}

fn translator(daemon: &Daemon<'_>) -> Value {
    daemon.status()["translators"][0].clone()
}

fn has_pins(path: &Path) -> bool {
    path.exists() && std::fs::read_dir(path).unwrap().count() > 0
}

#[test]
fn status_and_stats_tell_of_both_engines() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let before = snapshot(&net.client);
    for (point, arguments) in POINTS {
        let daemon = Daemon::start(&run, &net.client, &clat(&format!("{arguments} --measure")));
        let status = translator(&daemon);
        assert_eq!((&status["engine"], &status["attach"]), (&"kernel".into(), &point.into()));
        assert_eq!(status["engine_reason"], "configured");
        assert_eq!(status["adopted"], false);
        let kernel = &status["kernel"];
        assert!(["tcx", "clsact"].contains(&kernel["hook"].as_str().unwrap()), "{kernel}");
        let devices: Vec<_> = kernel["programs"].as_array().unwrap().iter().collect();
        let expected =
            if point == "uplink" { ["c0", "c0", "clat0"].as_slice() } else { &["clat0"] };
        assert_eq!(devices.iter().map(|it| &it["device"]).collect::<Vec<_>>(), expected);
        ping(&net.client, SERVER_V4);
        traffic::tcp_both_ways(&net.client, &net.server, SERVER.0, 1 << 20);
        // What has to leave in pieces is the user engine's.
        traffic::udp_echo(&net.client, &net.server, SERVER, 4000);
        let stats = daemon.stats("clat0");
        assert_eq!(dropped(&stats), 0, "{stats}");
        let kernel = &stats["kernel"];
        for direction in ["v4_to_v6", "v6_to_v4"] {
            let of_kernel = count(kernel, &format!("{direction}/packets"));
            let of_user = count(&stats["queues"][0], &format!("{direction}/packets"));
            assert!(of_kernel > 10, "{stats}");
            assert_eq!(count(&stats, &format!("{direction}/packets")), of_kernel + of_user);
        }
        assert!(count(kernel, "measured_packets") > 0, "{stats}");
        let status = translator(&daemon);
        let share = status["kernel"]["passed_on_share"].as_f64().unwrap();
        assert!((0.0..0.5).contains(&share), "{status}");
        assert!(status["kernel"]["ns_per_packet"].as_f64().unwrap() > 0.0, "{status}");
        let text = run.output(&net.client, "status");
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        assert!(text.contains("kernel engine") && text.contains("ns per packet"), "{text}");
        daemon.stop();
        assert!(!has_pins(&pins(&net.client, "clat0")));
        assert_same(&snapshot(&net.client), &before);
    }
}

#[test]
fn traffic_outlives_a_kill_and_the_next_start_takes_over() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let before = snapshot(&net.client);
    for (point, arguments) in POINTS {
        let first = Daemon::start(&run, &net.client, &clat(arguments));
        let ping = Ping::start(&net.client, SERVER_V4);
        let carried = |daemon: &Daemon<'_>| count(&daemon.stats("clat0"), "v4_to_v6/packets");
        first.counts_at_least("clat0", "v4_to_v6/packets", 11);
        let running = snapshot(&net.client);
        first.kill();
        assert_same(&snapshot(&net.client), &running);
        // Another daemon's start leaves it alone.
        let socket = run.path().join("other.sock").display().to_string();
        let other = format!("siit --pool6 2001:db8:77::/96 --socket {socket}");
        Daemon::start(&run, &net.client, &other).stop();
        assert_same(&snapshot(&net.client), &running);
        let second = Daemon::start(&run, &net.client, &clat(arguments));
        assert!(second.log().contains("surviving interface"), "{}", second.log());
        assert_eq!(translator(&second)["adopted"], false);
        assert_eq!(translator(&second)["attach"], point);
        let at_start = carried(&second);
        assert!(at_start > 10, "counters go on: {at_start}");
        second.counts_at_least("clat0", "v4_to_v6/packets", at_start + 11);
        ping.end();
        second.stop();
        assert!(!has_pins(&pins(&net.client, "clat0")));
        assert_same(&snapshot(&net.client), &before);
    }
}

/// A TUN device that nobody has open is without a carrier, and a host may be told to leave routes by such devices out.
#[test]
fn routes_outlive_the_carrier() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    for family in ["ipv4", "ipv6"] {
        let key = "ignore_routes_with_linkdown=1";
        net.gateway.run(&format!("sysctl -qw net.{family}.conf.default.{key}"));
    }
    let first = Daemon::start(&run, &net.gateway, &format!("{BORDER} --engine kernel"));
    first.kill();
    let state = net.gateway.ip("link show siit0");
    assert!(state.contains("NO-CARRIER"), "{state}");
    ping(&net.v4, V6_HOST_AS_V4);
    ping(&net.v6, V4_HOST_AS_V6);
    Daemon::start(&run, &net.gateway, &format!("{BORDER} --engine kernel")).stop();
}

#[test]
fn a_daemon_that_leaves_is_followed_by_the_next_without_a_gap() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let before = snapshot(&net.gateway);
    let mut first = Daemon::start(&run, &net.gateway, &format!("{BORDER} --engine kernel"));
    let pings = Ping::start(&net.v4, V6_HOST_AS_V4);
    first.counts_at_least("siit0", "v4_to_v6/packets", 11);
    let output = run.output(&net.gateway, "leave");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(first.wait().success());
    assert!(first.log().contains("the kernel engine goes on"), "{}", first.log());
    ping(&net.v4, V6_HOST_AS_V4);
    let second = Daemon::start(&run, &net.gateway, &format!("{BORDER} --engine kernel"));
    ping(&net.v4, V6_HOST_AS_V4);
    pings.end();
    second.stop();
    assert_same(&snapshot(&net.gateway), &before);
    // One that has the user engine alone can't leave anything.
    let mut user = Daemon::start(&run, &net.gateway, &format!("{BORDER} --engine user"));
    assert!(run.output(&net.gateway, "leave").status.success());
    assert!(user.wait().success());
    assert_same(&snapshot(&net.gateway), &before);
}

/// What was left under a name that the next file has no more is nobody's: it must not stand in the way, or go on unseen.
#[test]
fn a_translator_of_another_name_ends_the_one_that_was_left() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let before = snapshot(&net.gateway);
    for name in ["other0", "siit0"] {
        let mut first = Daemon::start(&run, &net.gateway, &format!("{BORDER} --engine kernel"));
        assert!(run.output(&net.gateway, "leave").status.success());
        assert!(first.wait().success());
        let arguments = format!("{BORDER} --engine kernel --interface {name}");
        let second = Daemon::start(&run, &net.gateway, &arguments);
        ping(&net.v4, V6_HOST_AS_V4);
        assert_eq!(second.status()["translators"].as_array().unwrap().len(), 1);
        assert_eq!(net.gateway.run("ip -br link").contains("siit0"), name == "siit0");
        second.stop();
        assert_same(&snapshot(&net.gateway), &before);
    }
}

#[test]
fn down_removes_what_a_dead_daemon_left() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let before = snapshot(&net.client);
    for (_, arguments) in POINTS {
        Daemon::start(&run, &net.client, &clat(arguments)).kill();
        assert!(has_pins(&pins(&net.client, "clat0")));
        let output = run.output(&net.client, "down clat0");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("kernel engine and set-up of a dead daemon"), "{said}");
        assert!(!has_pins(&pins(&net.client, "clat0")));
        assert_same(&snapshot(&net.client), &before);
    }
    let output = run.output(&net.client, "down clat0");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("there is nothing of a translator called clat0"), "{error}");
}

#[test]
fn down_leaves_what_a_living_daemon_runs_elsewhere() {
    if !can_test_kernel() {
        return;
    }
    let (net, run, other) = (Access::new(), RunDir::new(), RunDir::new());
    let daemon = Daemon::start(&run, &net.client, &clat("--uplink c0"));
    let output = other.output(&net.client, "down clat0");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("clat0 is in use"), "{error}");
    ping(&net.client, SERVER_V4);
    daemon.stop();
}

#[test]
fn another_mode_under_the_same_name_has_all_its_routes() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    Daemon::start(&run, &net.client, &clat("--attach interface")).kill();
    // The CLAT's address goes, and with a device's last IPv4 address the kernel takes its routes.
    let siit =
        "siit --interface clat0 --pool6 2001:db8:65::/96 --eam 198.51.100.128/25=2001:db8:9::/121";
    let daemon = Daemon::start(&run, &net.client, siit);
    let routes = net.client.ip("-4 route show 198.51.100.128/25");
    assert!(routes.contains("dev clat0"), "{routes}");
    daemon.stop();
}

#[test]
fn a_start_with_the_user_engine_takes_the_programs_of_a_dead_one_down() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let before = snapshot(&net.client);
    for (_, arguments) in POINTS {
        Daemon::start(&run, &net.client, &clat(arguments)).kill();
        let arguments = format!("clat --pref64 {PREF64} --engine user");
        let daemon = Daemon::start(&run, &net.client, &arguments);
        assert_eq!(translator(&daemon)["engine"], "user");
        assert!(!has_pins(&pins(&net.client, "clat0")));
        ping(&net.client, SERVER_V4);
        daemon.counts("clat0", "queues/0/v4_to_v6/packets", 2);
        daemon.stop();
        assert_same(&snapshot(&net.client), &before);
    }
}

#[test]
fn at_the_uplink_ipv4_follows_the_router_and_survives_a_link_that_flaps() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let before = snapshot(&net.client);
    let daemon = Daemon::start(&run, &net.client, &clat("--uplink c0"));
    let default = || net.client.ip("-4 route show default");
    assert!(default().contains("via inet6 2001:db8:1::1 dev c0"), "{}", default());
    assert!(default().contains("src 192.0.0.1 metric 2048 mtu 1500 advmss 1440"), "{}", default());
    // The server's other address on the link becomes the router.
    net.server.ip("addr add 2001:db8:1::9/64 dev s0");
    net.client.ip(&format!("-6 route replace {PREF64} via 2001:db8:1::9"));
    poll("the route follows", || default().contains("via inet6 2001:db8:1::9").then_some(()));
    ping(&net.client, SERVER_V4);
    net.client.ip("link set c0 down");
    assert_eq!(default(), "");
    net.client.configure(&[
        "link set c0 up",
        "addr add 2001:db8:1::2/64 dev c0",
        &format!("route add {PREF64} via 2001:db8:1::9"),
    ]);
    poll("the route is back", || default().contains("via inet6 2001:db8:1::9").then_some(()));
    // Whoever has forgotten where the CLAT is asks, and is answered.
    net.server.ip("-6 neigh flush dev s0");
    poll("pings pass again", || {
        let text = net.client.try_run(&format!("ping -n -c 1 -W 1 {SERVER_V4}"));
        text.status.success().then_some(())
    });
    net.client.ip(&format!("-6 route replace {PREF64} via 2001:db8:1::1"));
    daemon.stop();
    // The flap has changed what the kernel itself sets, so only ours is looked for.
    let left: Vec<String> =
        snapshot(&net.client).into_iter().filter(|line| !before.contains(line)).collect();
    assert!(
        !left.iter().any(|line| line.contains("clat0") || line.contains("inet6 2001")),
        "{left:?}"
    );
}

#[test]
fn an_uplink_that_comes_back_as_another_device_is_followed() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let v6 = "2001:db8:1::464";
    let daemon = Daemon::start(&run, &net.client, &clat(&format!("--uplink c0 --v6 {v6}")));
    ping(&net.client, SERVER_V4);
    net.client.ip("link del c0");
    net.client.link("c0", &net.server, "s0");
    net.server.configure(&[
        "addr add 2001:db8:1::1/64 dev s0",
        &format!("addr add {}/128 dev s0", SERVER.1),
    ]);
    net.client.configure(&[
        "addr add 2001:db8:1::2/64 dev c0",
        &format!("route add {PREF64} via 2001:db8:1::1"),
    ]);
    poll("it is followed", || daemon.log().contains("c0 is another device now").then_some(()));
    ping(&net.client, SERVER_V4);
    daemon.counts("clat0", "kernel/v6_to_v4/packets", 4);
    assert_eq!(translator(&daemon)["kernel"]["programs"][0]["device"], "c0");
    let log = daemon.stop();
    // Older kernels refuse some offloads of the interface, which is a warning of its own.
    let warned = log.lines().any(|line| line.contains("WARN") && !line.contains("offloads"));
    assert!(!warned, "{log}");
    assert!(!has_pins(&pins(&net.client, "clat0")));
}

#[test]
fn an_uplink_without_a_router_is_left_for_the_interface() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    net.client.ip(&format!("-6 route replace {PREF64} dev c0"));
    let daemon = Daemon::start(&run, &net.client, &clat("--uplink c0"));
    let status = translator(&daemon);
    assert_eq!((&status["engine"], &status["attach"]), (&"kernel".into(), &"interface".into()));
    let reason = status["attach_reason"].as_str().unwrap();
    assert!(reason.contains("names no router"), "{reason}");
    ping(&net.client, SERVER_V4);
    daemon.stop();
}

#[test]
fn xdp_takes_what_it_can_and_the_rest_passes_all_the_same() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let before = snapshot(&net.gateway);
    let arguments = format!("{BORDER} --engine kernel --attach xdp --device g4 --device g6");
    let daemon = Daemon::start(&run, &net.gateway, &arguments);
    let status = translator(&daemon);
    assert_eq!((&status["engine"], &status["attach"]), (&"kernel".into(), &"xdp".into()));
    assert!(status["kernel"]["hook"].as_str().unwrap().starts_with("xdp"), "{status}");
    ping(&net.v4, V6_HOST_AS_V4);
    let to = (V6_HOST_AS_V4.parse().unwrap(), "2001:db8:6::2".parse().unwrap());
    for len in [1, 1400, 4000] {
        traffic::udp_echo(&net.v4, &net.v6, to, len);
    }
    traffic::tcp_both_ways(&net.v4, &net.v6, V6_HOST_AS_V4.parse().unwrap(), 1 << 20);
    daemon.stop();
    assert!(!has_pins(&pins(&net.gateway, "siit0")));
    assert_same(&snapshot(&net.gateway), &before);
}

/// A file with more translation prefixes than programs hold.
fn too_many_prefixes(run: &RunDir, engine: &str) -> String {
    let prefixes: Vec<String> =
        (0..17).map(|number| format!("'2001:db8:64:{number:x}::/96'")).collect();
    let text = format!(
        "[[translator]]\nname = 'siit0'\nmode = 'siit'\nengine = '{engine}'\npool6 = [{}]\n\
         eam = [['192.0.2.2', '2001:db8:6::2']]\n",
        prefixes.join(", ")
    );
    format!("run -c {}", run.file("many.toml", &text).display())
}

#[test]
fn what_programs_can_not_hold_falls_to_the_user_engine() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let before = snapshot(&net.gateway);
    let daemon = Daemon::start(&run, &net.gateway, &too_many_prefixes(&run, "auto"));
    let status = translator(&daemon);
    assert_eq!(status["engine"], "user");
    let reason = status["engine_reason"].as_str().unwrap();
    assert!(reason.starts_with("engine = \"auto\": ") && reason.contains("17"), "{reason}");
    let told = daemon.log();
    let warned = told.lines().any(|line| {
        line.contains("WARN")
            && line.contains("the kernel engine does not run")
            && line.contains("17")
    });
    assert!(warned, "{told}");
    ping(&net.v6, "2001:db8:64:0:0:0:c633:6402");
    daemon.stop();
    assert_same(&snapshot(&net.gateway), &before);
    let mut refused = Daemon::spawn(&run, &net.gateway, &too_many_prefixes(&run, "kernel"));
    assert_eq!(refused.wait().code(), Some(1));
    assert!(refused.log().contains("pool6 has 17 (use engine"), "{}", refused.log());
    assert_same(&snapshot(&net.gateway), &before);
}

#[test]
fn a_start_that_fails_leaves_what_a_killed_daemon_left() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let before = snapshot(&net.gateway);
    Daemon::start(&run, &net.gateway, &format!("{BORDER} --engine kernel")).kill();
    let pings = Ping::start(&net.v4, V6_HOST_AS_V4);
    let mut refused = Daemon::spawn(&run, &net.gateway, &too_many_prefixes(&run, "kernel"));
    assert_eq!(refused.wait().code(), Some(1));
    assert!(has_pins(&pins(&net.gateway, "siit0")), "{}", refused.log());
    ping(&net.v4, V6_HOST_AS_V4);
    let daemon = Daemon::start(&run, &net.gateway, &format!("{BORDER} --engine kernel"));
    ping(&net.v4, V6_HOST_AS_V4);
    pings.end();
    daemon.stop();
    assert_same(&snapshot(&net.gateway), &before);
}

#[test]
fn an_attach_point_that_somebody_has_is_left_to_them() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let before = snapshot(&net.gateway);
    let devices = "--attach xdp --device g4 --device g6";
    let first = Daemon::start(&run, &net.gateway, &format!("{BORDER} {devices}"));
    let socket = run.path().join("second.sock").display().to_string();
    let second = "siit --pool6 2001:db8:65::/96 --eam 192.0.2.9=2001:db8:6::2 --interface siit1";
    let second = format!("{second} {devices} --socket {socket}");
    let second_daemon = Daemon::start(&run, &net.gateway, &second);
    assert!(
        second_daemon.log().contains("kernel engine at the interface"),
        "{}",
        second_daemon.log()
    );
    let status = run.output(&net.gateway, &format!("status --json --socket {socket}"));
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    let reason = status["translators"][0]["attach_reason"].as_str().unwrap();
    assert!(reason.starts_with("not at XDP: another XDP program"), "{reason}");
    for to in [V6_HOST_AS_V4, "192.0.2.9"] {
        ping(&net.v4, to);
    }
    second_daemon.stop();
    // Whoever insists is refused, and the first is not disturbed.
    let mut refused = Daemon::spawn(&run, &net.gateway, &format!("{second} --engine kernel"));
    assert_eq!(refused.wait().code(), Some(1));
    assert!(refused.log().contains("another XDP program"), "{}", refused.log());
    ping(&net.v4, V6_HOST_AS_V4);
    assert_eq!(translator(&first)["attach"], "xdp");
    first.stop();
    assert_same(&snapshot(&net.gateway), &before);
}

#[test]
fn what_a_namespace_that_is_gone_has_left_is_nobody_elses() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let before = snapshot(&net.gateway);
    let arguments = "nat64 --pool6 2001:db8:64::/96 --pool4 192.0.2.1:1024-65535 --engine kernel";
    let first = Daemon::start(&run, &net.gateway, arguments);
    let service = traffic::listen(&net.v4);
    let port = service.local_addr().unwrap().port();
    traffic::assert_connects(&net.v6, V4_HOST_AS_V6.parse().unwrap(), port);
    let has_session = || {
        let output = run.output(&net.gateway, "sessions");
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stdout).contains(&format!(":{port} "))
    };
    assert!(has_session());
    first.kill();
    // The kernel gives inode numbers again: those pins might be of one that had this number before.
    let own = pins(&net.gateway, "nat64").parent().unwrap().to_owned();
    let (inode, cookie) = own.file_name().unwrap().to_str().unwrap().split_once('-').unwrap();
    let gone = own.with_file_name(format!("{inode}-{}", cookie.parse::<u64>().unwrap() + 1));
    std::fs::rename(&own, &gone).unwrap();
    let second = Daemon::start(&run, &net.gateway, arguments);
    assert!(!gone.exists(), "nobody will ask for {}", gone.display());
    assert!(!has_session(), "of another network");
    second.stop();
    assert_same(&snapshot(&net.gateway), &before);
}
