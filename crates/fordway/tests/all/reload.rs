//! Another configuration while packets flow, and what is refused.

use std::path::Path;
use std::process::Output;

use fordway_testhost::{can_use_tun, poll};
use rustix::process::Signal;

use crate::common::daemon::{Daemon, RunDir};
use crate::common::host::{assert_same, snapshot};
use crate::common::netns::Netns;
use crate::common::ping::{Ping, Request};
use crate::common::topology::{Border, V6_HOST_AS_V4};

/// A file with one translator; `more` are further lines of it, and further tables.
fn write(path: &Path, engine: &str, more: &str) {
    let text = format!(
        "[[translator]]\nname = 'siit0'\nmode = 'siit'\nengine = '{engine}'\nqueues = 1\n\
         pool6 = ['2001:db8:64::/96']\n{more}"
    );
    std::fs::write(path, text).unwrap();
}

const ONE: &str = "eam = [['192.0.2.2', '2001:db8:6::2']]\n";
const TWO: &str =
    "eam = [['192.0.2.2', '2001:db8:6::2'], ['192.0.2.130', '2001:db8:6::3']]\nhairpin = false\n";
const SECOND: &str = "[[translator]]\nname = 'siit1'\nmode = 'siit'\nqueues = 1\n\
                      pool6 = ['2001:db8:65::/96']\neam = [['192.0.2.9', '2001:db8:6::2']]\n";

/// With a second address of the IPv6 host.
fn border() -> Border {
    let net = Border::new();
    net.v6.ip("addr add 2001:db8:6::3/64 dev h6");
    net
}

fn reload(run: &RunDir, netns: &Netns) -> (Output, String) {
    let output = run.output(netns, "reload");
    let said = [output.stdout.clone(), output.stderr.clone()].concat();
    (output, String::from_utf8_lossy(&said).into_owned())
}

/// A ping is answered.
#[track_caller]
fn assert_answers(netns: &Netns, to: &str) {
    let said = netns.run(&format!("ping -n -c 1 -W 30 {to}"));
    assert!(said.contains("1 received"), "{said}");
}

/// The gateway knows no way to an address.
#[track_caller]
fn assert_no_route(net: &Border, to: &str) {
    let before = net.gateway.statistic("InNoRoutes");
    let request = Request::send(&net.v4, to);
    poll("there is no route", || (net.gateway.statistic("InNoRoutes") > before).then_some(()));
    assert!(!request.is_answered(), "{to}");
}

#[test]
fn a_new_configuration_costs_no_packet() {
    if !can_use_tun() {
        return;
    }
    for engine in ["user", "auto"] {
        let (net, run) = (border(), RunDir::new());
        let before = snapshot(&net.gateway);
        let file = run.path().join("gateway.toml");
        write(&file, engine, ONE);
        let daemon = Daemon::start(&run, &net.gateway, &format!("run -c {}", file.display()));
        let started = snapshot(&net.gateway);
        let pings = Ping::start(&net.v4, V6_HOST_AS_V4);
        daemon.counts_at_least("siit0", "v4_to_v6/packets", 6);
        assert_no_route(&net, "192.0.2.130");
        let descriptors =
            || std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
        let mut at_first = 0;
        for round in 0..8 {
            let more = [format!("{TWO}{SECOND}"), ONE.to_owned()][round % 2].clone();
            write(&file, engine, &more);
            let (output, said) = reload(&run, &net.gateway);
            assert!(output.status.success(), "{said}");
            if round % 2 == 0 {
                assert!(said.contains("new: siit1; changed: siit0"), "{said}");
                assert_answers(&net.v4, "192.0.2.130");
                assert_answers(&net.v4, "192.0.2.9");
                assert_eq!(daemon.status()["translators"].as_array().unwrap().len(), 2);
            } else {
                assert!(said.contains("changed: siit0; gone: siit1"), "{said}");
                assert_no_route(&net, "192.0.2.130");
                assert_no_route(&net, "192.0.2.9");
                assert_same(&snapshot(&net.gateway), &started);
                // What the first reload leaves open is not left open by each.
                at_first = if round == 1 { descriptors() } else { at_first };
                poll("descriptors are closed", || (descriptors() <= at_first).then_some(()));
            }
        }
        // The signal does the same.
        write(&file, engine, TWO);
        daemon.signal(Signal::HUP);
        poll("it is reloaded", || daemon.log().contains("SIGHUP: configuration").then_some(()));
        assert_answers(&net.v4, "192.0.2.130");
        pings.end();
        daemon.stop();
        assert_same(&snapshot(&net.gateway), &before);
    }
}

#[test]
fn an_error_changes_nothing_and_is_told_with_its_place() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (border(), RunDir::new());
    // Somebody else has the route that one of the files wants.
    net.gateway.ip("route add 203.0.113.0/24 via 198.51.100.2 metric 2048");
    let file = run.path().join("gateway.toml");
    write(&file, "auto", ONE);
    let daemon = Daemon::start(&run, &net.gateway, &format!("run -c {}", file.display()));
    let running = snapshot(&net.gateway);
    let clash = "routes4 = ['203.0.113.0/24']\n";
    for (more, code, expected) in [
        ("eam = [['192.0.2.2', 'nobody']]\n", 2, "gateway.toml:7"),
        ("queues = 1\n", 2, "gateway.toml:7"),
        (&format!("{TWO}attach = 'xdp'\ndevices = ['g4']\n"), 1, "attach, devices can't change"),
        (&format!("{TWO}[log]\nlevel = 'debug'\n"), 1, "[log] can't change at run time"),
        (&format!("{TWO}{clash}"), 1, "cannot add route 203.0.113.0/24"),
        (&format!("{TWO}{SECOND}{clash}"), 1, "cannot add route 203.0.113.0/24 dev siit1"),
    ] {
        write(&file, "auto", more);
        let (output, said) = reload(&run, &net.gateway);
        assert_eq!(output.status.code(), Some(code), "{more}\n{said}");
        assert!(said.contains(expected), "{expected}\n{said}");
        assert_same(&snapshot(&net.gateway), &running);
        assert_answers(&net.v4, V6_HOST_AS_V4);
        assert_no_route(&net, "192.0.2.130");
    }
    std::fs::remove_file(&file).unwrap();
    let (output, said) = reload(&run, &net.gateway);
    assert!(!output.status.success() && said.contains("cannot read"), "{said}");
    daemon.stop();
}

/// What is refused after translators and routes have changed.
#[test]
fn what_a_new_translator_has_taken_over_comes_back_after_an_error() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (border(), RunDir::new());
    let file = run.path().join("gateway.toml");
    write(&file, "auto", ONE);
    let daemon = Daemon::start(&run, &net.gateway, &format!("run -c {}", file.display()));
    let running = snapshot(&net.gateway);
    let siit = |name: &str, pool6: &str, v4: &str| {
        format!(
            "[[translator]]\nname = '{name}'\nmode = 'siit'\nqueues = 1\npool6 = ['{pool6}']\n\
             eam = [['{v4}', '2001:db8:6::2']]\n"
        )
    };
    let moved = siit("siit0", "2001:db8:65::/96", "192.0.2.9")
        + &siit("siit2", "2001:db8:64::/96", "192.0.2.2");
    let proxy = "[[proxy]]\nname = 'p'\nlisten = ['::1']\ncertificate = '/nonexistent'\n\
                 key = '/nonexistent'\n";
    std::fs::write(&file, format!("{moved}{proxy}")).unwrap();
    let (output, said) = reload(&run, &net.gateway);
    assert!(!output.status.success() && said.contains("/nonexistent"), "{said}");
    assert!(!daemon.log().contains("the rollback is incomplete"), "{}", daemon.log());
    assert_same(&snapshot(&net.gateway), &running);
    assert_answers(&net.v4, V6_HOST_AS_V4);
    assert_no_route(&net, "192.0.2.9");
    std::fs::write(&file, &moved).unwrap();
    let (output, said) = reload(&run, &net.gateway);
    assert!(output.status.success() && said.contains("new: siit2; changed: siit0"), "{said}");
    assert_answers(&net.v4, V6_HOST_AS_V4);
    assert_answers(&net.v4, "192.0.2.9");
    daemon.stop();
}

#[test]
fn a_dry_run_tells_what_a_reload_would_do_and_does_nothing() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (border(), RunDir::new());
    let file = run.path().join("gateway.toml");
    write(&file, "auto", ONE);
    let daemon = Daemon::start(&run, &net.gateway, &format!("run -c {}", file.display()));
    let running = snapshot(&net.gateway);
    let dry_run = || {
        let output = run.output(&net.gateway, "reload --dry-run");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    assert_eq!(dry_run(), (Some(0), "unchanged: 1\n".to_owned()));
    let services = "[[advertise]]\ndevice = 'g6'\nprefix = ['2001:db8:6::/64']\n";
    write(&file, "auto", &format!("{TWO}{SECOND}{services}"));
    let plan = "added    siit1\n\
                changed  siit0                 eam, hairpin\n\
                added    advertisements on g6\n\
                unchanged: 0\n";
    let (code, said) = dry_run();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said, plan);
    std::fs::write(&file, SECOND).unwrap();
    let plan = "added    siit1\nremoved  siit0\nunchanged: 0\n";
    assert_eq!(dry_run(), (Some(0), plan.to_owned()));
    for (more, code, expected) in [
        ("queues = 1\n", 2, "gateway.toml:7"),
        (&format!("{TWO}attach = 'xdp'\ndevices = ['g4']\n"), 1, "attach, devices can't change"),
    ] {
        write(&file, "auto", more);
        let (status, said) = dry_run();
        assert!(status == Some(code) && said.contains(expected), "{status:?} {said}");
    }
    assert_same(&snapshot(&net.gateway), &running);
    assert_eq!(daemon.status()["translators"].as_array().unwrap().len(), 1);
    assert!(!daemon.log().contains("another configuration"), "{}", daemon.log());
    daemon.stop();
}

#[test]
fn what_was_set_at_the_start_outlives_a_reload() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (border(), RunDir::new());
    let file = run.path().join("gateway.toml");
    write(&file, "user", ONE);
    let set = "--set translator.siit0.mtu=1400";
    let daemon = Daemon::start(&run, &net.gateway, &format!("run -c {} {set}", file.display()));
    let link = || net.gateway.run("ip -o link show dev siit0");
    assert!(link().contains("mtu 1400"), "{}", link());
    write(&file, "user", TWO);
    let (output, said) = reload(&run, &net.gateway);
    assert!(output.status.success() && said.contains("changed: siit0"), "{said}");
    assert_answers(&net.v4, "192.0.2.130");
    assert!(link().contains("mtu 1400"), "{}", link());
    // A file that has nothing left to be set is refused, and changes nothing.
    std::fs::write(&file, "").unwrap();
    let (output, said) = reload(&run, &net.gateway);
    assert!(!output.status.success(), "{said}");
    assert_answers(&net.v4, "192.0.2.130");
    daemon.stop();
}

#[test]
fn a_short_form_has_no_file_and_a_translator_can_be_taken_down_alone() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (border(), RunDir::new());
    let before = snapshot(&net.gateway);
    let daemon = Daemon::start(&run, &net.gateway, crate::common::topology::BORDER);
    let (output, said) = reload(&run, &net.gateway);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("there is no file that could be read again"), "{said}");
    daemon.stop();
    let file = run.path().join("gateway.toml");
    write(&file, "auto", &format!("{ONE}{SECOND}"));
    let daemon = Daemon::start(&run, &net.gateway, &format!("run -c {}", file.display()));
    let output = run.output(&net.gateway, "down siit0");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_no_route(&net, V6_HOST_AS_V4);
    assert_answers(&net.v4, "192.0.2.9");
    assert_eq!(daemon.status()["translators"].as_array().unwrap().len(), 1);
    // A reload brings it back, here with what could not change while it ran.
    write(&file, "user", &format!("{ONE}{SECOND}"));
    let (output, said) = reload(&run, &net.gateway);
    assert!(output.status.success() && said.contains("new: siit0; unchanged: 1"), "{said}");
    assert_answers(&net.v4, V6_HOST_AS_V4);
    assert_eq!(daemon.status()["translators"][0]["name"], "siit0");
    daemon.stop();
    assert_same(&snapshot(&net.gateway), &before);
}

#[test]
fn a_reload_puts_back_what_others_have_undone() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (border(), RunDir::new());
    let file = run.path().join("gateway.toml");
    write(&file, "auto", ONE);
    let daemon = Daemon::start(&run, &net.gateway, &format!("run -c {}", file.display()));
    // The kernel removes the routes. A daemon that is not stopped would restore them at once.
    daemon.signal(Signal::STOP);
    net.gateway.configure(&["link set siit0 down", "link set siit0 up"]);
    assert_no_route(&net, V6_HOST_AS_V4);
    daemon.signal(Signal::CONT);
    let (output, said) = reload(&run, &net.gateway);
    assert!(output.status.success() && said.contains("unchanged: 1"), "{said}");
    assert_answers(&net.v4, V6_HOST_AS_V4);
    daemon.stop();
}
