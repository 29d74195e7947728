//! The daemon's life: what it leaves behind, and whom it refuses.

use std::io::{BufRead, Read};
use std::os::unix::net::UnixDatagram;
use std::process::Command;

use fordway_testhost::{PATIENCE, can_use_tun, poll};
use rustix::process::Signal;

use crate::common::daemon::{Daemon, RunDir};
use crate::common::host::{assert_same, snapshot};
use crate::common::process::Process;
use crate::common::topology::{Access, BORDER, Border, PREF64, SERVER_V4};

pub(crate) fn clat() -> String {
    format!("clat --pref64 {PREF64}")
}

#[test]
fn taking_down_leaves_the_host_as_found() {
    if !can_use_tun() {
        return;
    }
    let (access, border, run) = (Access::new(), Border::new(), RunDir::new());
    let one: (_, &str) = (&access.client, &clat());
    for (netns, arguments) in [one, (&border.gateway, BORDER)] {
        let before = snapshot(netns);
        let daemon = Daemon::start(&run, netns, arguments);
        assert_ne!(snapshot(netns), before);
        let log = daemon.stop();
        assert!(log.contains("changes taken back"), "{log}");
        assert_same(&snapshot(netns), &before);
        assert!(!run.path().join("control.sock").exists());
    }
}

#[test]
fn a_restart_reclaims_what_a_kill_left() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    // Behind a kernel engine, which goes on, nothing is taken back: see kernel.rs.
    let clat = || format!("{} --engine user", clat());
    let before = snapshot(&net.client);
    Daemon::start(&run, &net.client, &clat()).kill();
    let killed = snapshot(&net.client);
    assert_ne!(killed, before, "the kill left nothing to reclaim");
    // The same translator takes over and works.
    let daemon = Daemon::start(&run, &net.client, &clat());
    assert!(
        daemon.log().contains("an earlier run left its set-up; it is taken over"),
        "{}",
        daemon.log()
    );
    let ping = net.client.run(&format!("ping -n -c 1 {SERVER_V4}"));
    assert!(ping.contains("1 received"), "{ping}");
    daemon.stop();
    assert_same(&snapshot(&net.client), &before);
    // Another one takes back what is left of the first.
    Daemon::start(&run, &net.client, &clat()).kill();
    let other = Daemon::start(&run, &net.client, "siit --pool6 2001:db8:77::/96");
    assert!(other.log().contains("left by a daemon that was killed"), "{}", other.log());
    assert!(!net.client.run("ip -6 neigh show proxy").contains("2001:db8:1"));
    other.stop();
    assert_same(&snapshot(&net.client), &before);
    // Also where it wants the same for itself.
    Daemon::start(&run, &net.client, &clat()).kill();
    let renamed = Daemon::start(&run, &net.client, &format!("{} --interface clat9", clat()));
    let ping = net.client.run(&format!("ping -n -c 1 {SERVER_V4}"));
    assert!(ping.contains("1 received"), "{ping}");
    renamed.stop();
    assert_same(&snapshot(&net.client), &before);
}

#[test]
fn an_existing_interface_is_adopted_and_given_back() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    net.client.ip("tuntap add dev clat0 mode tun multi_queue vnet_hdr");
    net.client.ip("link set clat0 mtu 1400");
    let before = snapshot(&net.client);
    let daemon = Daemon::start(&run, &net.client, &clat());
    assert_eq!(daemon.status()["translators"][0]["adopted"], true);
    let link = net.client.ip("link show clat0");
    assert!(link.contains("mtu 1500") && link.contains("qlen 4096"), "{link}");
    let ping = net.client.run(&format!("ping -n -c 1 {SERVER_V4}"));
    assert!(ping.contains("1 received"), "{ping}");
    daemon.stop();
    assert_same(&snapshot(&net.client), &before);
    // A kill leaves addresses and routes on an interface that stays; a restart knows them.
    Daemon::start(&run, &net.client, &clat()).kill();
    assert!(net.client.ip("-4 addr show clat0").contains("192.0.0.1"));
    Daemon::start(&run, &net.client, &clat()).stop();
    assert_same(&snapshot(&net.client), &before);
}

#[test]
fn with_manage_false_nothing_is_touched() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let client = &net.client;
    client.ip("tuntap add dev clat0 mode tun multi_queue vnet_hdr");
    client.configure(&[
        "link set clat0 up",
        "addr add 192.0.0.2/32 dev clat0",
        "route add 2001:db8:1::464/128 dev clat0",
        "route add default dev clat0 src 192.0.0.2 mtu 1480",
    ]);
    client.sysctl("net.ipv6.conf.all.forwarding", "1");
    client.sysctl("net.ipv6.conf.c0.proxy_ndp", "1");
    client.ip("neigh add proxy 2001:db8:1::464 dev c0");
    let before = snapshot(client);
    let arguments = format!("{} --v4 192.0.0.2 --v6 2001:db8:1::464 --no-manage", clat());
    let daemon = Daemon::start(&run, client, &arguments);
    assert_same(&snapshot(client), &before);
    assert!(client.ip("route show default").contains("src 192.0.0.2 mtu 1480"));
    let ping = client.run(&format!("ping -n -c 1 {SERVER_V4}"));
    assert!(ping.contains("1 received"), "{ping}");
    assert_eq!(daemon.status()["translators"][0]["managed"], false);
    daemon.stop();
    assert_same(&snapshot(client), &before);
}

#[test]
fn a_second_daemon_is_refused() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let daemon = Daemon::start(&run, &net.client, &clat());
    let running = snapshot(&net.client);
    let pid = daemon.pid().to_string();
    // The same socket.
    let refused = run.output(&net.client, "siit --pool6 2001:db8:77::/96");
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{error}");
    assert!(error.contains(&format!("belongs to a running daemon, process {pid}")), "{error}");
    // The same interface.
    let socket = run.path().join("other.sock");
    let refused = run.output(&net.client, &format!("{} --socket {}", clat(), socket.display()));
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{error}");
    assert!(error.contains(&format!("clat0 is held by process {pid}")), "{error}");
    assert!(!socket.exists());
    // Neither has disturbed the first.
    assert_same(&snapshot(&net.client), &running);
    let ping = net.client.run(&format!("ping -n -c 1 {SERVER_V4}"));
    assert!(ping.contains("1 received"), "{ping}");
    daemon.stop();
}

#[test]
fn two_daemons_share_a_host() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let before = snapshot(&net.gateway);
    let first = Daemon::start(&run, &net.gateway, BORDER);
    let socket = run.path().join("second.sock");
    let second = format!(
        "siit --pool6 2001:db8:65::/96 --eam 192.0.2.9=2001:db8:6::2 --interface siit1 --socket {}",
        socket.display()
    );
    let second = Daemon::start(&run, &net.gateway, &second);
    first.stop();
    // Forwarding is still needed, so it stays.
    let ping = net.v4.run("ping -n -c 1 192.0.2.9");
    assert!(ping.contains("1 received"), "{ping}");
    second.stop();
    assert_same(&snapshot(&net.gateway), &before);
}

#[test]
fn many_translators_run_in_one_daemon() {
    if !can_use_tun() {
        return;
    }
    const MANY: usize = 20;
    let (net, run) = (Border::new(), RunDir::new());
    let before = snapshot(&net.gateway);
    let entry = |number: usize| {
        format!(
            "[[translator]]\nname = 'siit{number}'\nmode = 'siit'\nqueues = 1\n\
             pool6 = ['2001:db8:64:{number:x}::/96']\neam = [['192.0.2.{number}', '2001:db8:6::2']]\n"
        )
    };
    let text: String = (0..MANY).map(entry).collect();
    let file = run.file("many.toml", &text);
    let daemon = Daemon::start(&run, &net.gateway, &format!("run -c {}", file.display()));
    assert_eq!(daemon.status()["translators"].as_array().unwrap().len(), MANY);
    for number in [0, 7, MANY - 1] {
        let ping = net.v4.run(&format!("ping -n -c 1 192.0.2.{number}"));
        assert!(ping.contains("1 received"), "{ping}");
        daemon.counts(&format!("siit{number}"), "v4_to_v6/packets", 1);
    }
    daemon.stop();
    assert_same(&snapshot(&net.gateway), &before);
}

#[test]
fn a_set_up_that_fails_midway_leaves_no_trace() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    // Somebody else has the route that the second translator wants.
    net.gateway.ip("route add 203.0.113.0/24 via 198.51.100.2 metric 2048");
    let before = snapshot(&net.gateway);
    let file = run.file(
        "clash.toml",
        "[[translator]]\nname = 'siit0'\nmode = 'siit'\npool6 = ['2001:db8:64::/96']\n\
         [[translator]]\nname = 'siit1'\nmode = 'siit'\npool6 = ['2001:db8:65::/96']\n\
         routes4 = ['203.0.113.0/24']\n",
    );
    let output = run.output(&net.gateway, &format!("run -c {}", file.display()));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("cannot add route 203.0.113.0/24 dev siit1"), "{error}");
    assert!(error.contains("manage = false"), "{error}");
    assert_same(&snapshot(&net.gateway), &before);
}

#[test]
fn an_interface_deleted_under_it_ends_the_daemon() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let before = snapshot(&net.client);
    let mut daemon = Daemon::start(&run, &net.client, &clat());
    net.client.ip("link del clat0");
    assert_eq!(daemon.wait().code(), Some(1));
    assert!(daemon.log().contains("interface clat0 was deleted"), "{}", daemon.log());
    assert_same(&snapshot(&net.client), &before);
}

#[test]
fn privileges_are_given_up() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    // CAP_NET_ADMIN is number 12, CAP_SYS_NICE 23, CAP_PERFMON 38, CAP_BPF 39. Whoever reads packets has nothing.
    for (engine, kept) in [("user", "0000000000801000"), ("kernel", "000000c000801000")] {
        let daemon = Daemon::start(&run, &net.client, &format!("{} --engine {engine}", clat()));
        let queues = daemon.status()["translators"][0]["queues"].as_u64().unwrap() as usize;
        let tasks = || std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
        // A thread takes its name when it first runs.
        poll("all threads run", || {
            let name = |task: std::io::Result<std::fs::DirEntry>| {
                std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default()
            };
            (tasks().map(name).filter(|name| name.starts_with("clat0-")).count() == queues)
                .then_some(())
        });
        let (tasks, mut threads) = (tasks(), 0);
        for task in tasks {
            let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            let field = |name: &str| {
                let line = status.lines().find(|line| line.starts_with(name)).unwrap();
                line.split_whitespace().nth(1).unwrap().to_owned()
            };
            let reads_packets = field("Name:").starts_with("clat0-");
            // The first thread alone changes the host.
            let is_main = field("Pid:") == field("Tgid:");
            let expected = if is_main { kept } else { "0000000000000000" };
            assert_eq!(field("CapEff:"), expected, "{status}");
            assert_eq!(field("CapPrm:"), expected, "{status}");
            assert_eq!(field("CapBnd:"), kept, "{status}");
            assert_eq!(field("NoNewPrivs:"), "1", "{status}");
            threads += usize::from(reads_packets);
        }
        assert_eq!(threads, queues);
        daemon.stop();
    }
}

#[test]
fn systemd_is_told() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let path = run.path().join("notify.sock");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = run.command(&net.client, &clat());
    command.env("NOTIFY_SOCKET", &path).env("JOURNAL_STREAM", "1:2");
    let mut daemon = Process::start(command.stderr(std::process::Stdio::piped()));
    let mut stderr = std::io::BufReader::new(daemon.0.stderr.take().unwrap());
    let receive = || {
        let mut buffer = [0; 4096];
        let len = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..len]).into_owned()
    };
    let ready = receive();
    assert!(ready.contains("READY=1"), "{ready}");
    assert!(ready.contains("STATUS=Running: clat0"), "{ready}");
    let pid = rustix::process::Pid::from_child(&daemon.0);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(receive().contains("STOPPING=1"));
    let mut log = String::new();
    stderr.read_to_string(&mut log).unwrap();
    assert!(daemon.wait().success());
    // The journal writes the time itself.
    assert!(log.lines().all(|line| !line.starts_with("20")), "{log}");
}

#[test]
fn a_watchdog_is_told_again_and_again() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let path = run.path().join("notify.sock");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = run.command(&net.client, &clat());
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "3000000");
    let mut daemon = Process::start(command.stderr(std::process::Stdio::null()));
    let receive = || {
        let mut buffer = [0; 4096];
        let len = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..len]).into_owned()
    };
    while !receive().contains("READY=1") {}
    for _ in 0..2 {
        while receive() != "WATCHDOG=1\n" {}
    }
    // One that is killed leaves its programs to the next.
    rustix::process::kill_process(rustix::process::Pid::from_child(&daemon.0), Signal::TERM)
        .unwrap();
    assert!(daemon.wait().success());
}

#[test]
fn what_a_terminal_has_begun_ends_with_it() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let before = snapshot(&net.client);
    let mut daemon = Daemon::start(&run, &net.client, &clat());
    daemon.signal(Signal::HUP);
    assert!(daemon.wait().success());
    assert!(daemon.log().contains("SIGHUP: ending"), "{}", daemon.log());
    assert_same(&snapshot(&net.client), &before);
    // nohup has it ignored.
    let ignoring = run.command(&net.client, &clat());
    let mut command = Command::new("env");
    command.arg("--ignore-signal=HUP").arg(ignoring.get_program()).args(ignoring.get_args());
    let mut daemon = Process::start(command.stderr(std::process::Stdio::piped()));
    let mut stderr = std::io::BufReader::new(daemon.0.stderr.take().unwrap());
    let mut log = String::new();
    while !log.contains("ready after") {
        assert!(stderr.read_line(&mut log).unwrap() > 0, "{log}");
    }
    let pid = rustix::process::Pid::from_child(&daemon.0);
    rustix::process::kill_process(pid, Signal::HUP).unwrap();
    net.client.run(&format!("ping -n -c 1 -W 30 {SERVER_V4}"));
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(daemon.wait().success());
    stderr.read_to_string(&mut log).unwrap();
    assert!(log.contains("SIGTERM: ending") && !log.contains("SIGHUP"), "{log}");
}

#[test]
fn the_path_mtu_is_the_least_of_all_ways() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    net.gateway.configure(&["route add 2001:db8:7::/64 via 2001:db8:6::2 mtu 1400"]);
    let own = "--eam 192.0.2.1=2001:db8:6::1";
    let narrow = "--eam 192.0.2.3=2001:db8:7::3";
    for (more, says) in [
        (own, "IPv6 path MTU 1500 (the route through g6)"),
        (narrow, "IPv6 path MTU 1400 (the route through g6)"),
    ] {
        let daemon = Daemon::start(&run, &net.gateway, &format!("{BORDER} {more}"));
        assert!(daemon.log().contains(says), "{}", daemon.log());
        daemon.stop();
    }
    // The host's own address is no way.
    let alone = format!("siit --pool6 2001:db8:64::/96 {own}");
    let daemon = Daemon::start(&run, &net.gateway, &alone);
    assert!(daemon.log().contains("1500 (the default, since no route tells)"), "{}", daemon.log());
    daemon.stop();
}
