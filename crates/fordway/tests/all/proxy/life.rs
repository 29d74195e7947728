//! Changes while requests run, a kill, and the end.

use std::io::Read;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use fordway_testhost::{PATIENCE, can_use_tun, has_programs, poll};
use rustix::process::{Pid, Signal, kill_process};

use super::world::{FORWARD, HALF, Network, PROXY};
use crate::common::host::{assert_same, snapshot};
use crate::common::process::Process;

impl Network {
    /// curl, begun; it writes its size at the end.
    fn begin(&self, url: &str) -> Process {
        let mut curl = self.client.command("curl");
        curl.args([
            "-sS",
            "--max-time",
            "120",
            "--proxy",
            PROXY,
            "-o",
            "/dev/null",
            "-w",
            "%{size_download}",
        ]);
        Process::start(curl.arg(url).stdout(Stdio::piped()).stderr(Stdio::piped()))
    }
}

/// What it wrote; it must end well.
fn end(mut process: Process) -> String {
    let status = process.wait();
    let (mut said, mut errors) = (String::new(), String::new());
    process.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    process.0.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(status.success(), "{said}{errors}");
    said
}

#[test]
fn a_reload_breaks_no_request() {
    if !can_use_tun() || !has_programs(&["curl"]) {
        return;
    }
    let network = Network::new();
    // A thread that another configuration replaces goes on with what it has for as long.
    let forward = format!("{FORWARD}drain = '1h'\n");
    let daemon = network.start(&forward);
    let download = network.begin("http://v4only.example.net/halves");
    network.origin.half_way();
    let (stop, served) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    // Twenty requests on one connection.
                    let said = network.through(
                        "-w %{http_code}\\n -o /dev/null http://dual.example.net/size/[1-20]",
                    );
                    let codes: Vec<&str> = said.lines().collect();
                    assert_eq!(codes, ["200"; 20]);
                    served.fetch_add(20, Ordering::Relaxed);
                }
            });
        }
        let more = |count: u64| {
            let before = served.load(Ordering::Relaxed);
            poll("requests are served", || {
                (served.load(Ordering::Relaxed) >= before + count).then_some(())
            });
        };
        more(20);
        // Other limits; other threads, which takes another server; and back.
        for change in
            ["keep_alive = '30s'\n", "threads = 3\n", "threads = 1\nforwarded = 'append'\n", ""]
        {
            network.reload(&format!("{forward}{change}"));
            more(60);
        }
        stop.store(true, Ordering::Relaxed);
    });
    network.origin.open();
    assert_eq!(end(download), (2 * HALF).to_string());
    // A file that is of no use changes nothing.
    network.run.file("proxy.toml", &format!("{FORWARD}certificate = '/none'\nkey = '/none'\n"));
    assert!(!network.run.output(&network.gateway, "reload").status.success());
    assert_eq!(network.status_of("http://v4only.example.net/"), "200");
    // One goes, another comes.
    network.reload(
        &FORWARD
            .replace("'clients'", "'others'")
            .replace("1::1'", "1::1:8080'")
            .replace("'2001:db8:1::1:8080'", "'[2001:db8:1::1]:8080'"),
    );
    // A thread of the old one may accept once more before it ends.
    poll("the old proxy is gone", || {
        let mut curl = network.client.command("curl");
        let gone = curl.args(["-s", "--proxy", PROXY, "http://v4only.example.net/"]).output();
        (!gone.unwrap().status.success()).then_some(())
    });
    let page = network.curl("--proxy http://[2001:db8:1::1]:8080 http://v4only.example.net/");
    assert!(page.contains("you are"), "{page}");
    daemon.stop();
}

#[test]
fn a_killed_proxy_leaves_nothing_and_starts_again() {
    if !can_use_tun() || !has_programs(&["curl"]) {
        return;
    }
    let network = Network::new();
    let before = snapshot(&network.gateway);
    let daemon = network.start(FORWARD);
    let download = network.begin("http://v4only.example.net/halves");
    network.origin.half_way();
    daemon.kill();
    assert_same(&snapshot(&network.gateway), &before);
    // The client is not told that it has all.
    let mut download = download;
    assert!(!download.wait().success());
    // The port is free at once, though connections of the old one are still known to the kernel.
    let daemon = network.start(FORWARD);
    assert_eq!(network.status_of("http://v4only.example.net/"), "200");
    daemon.stop();
    assert_same(&snapshot(&network.gateway), &before);
}

#[test]
fn the_end_waits_for_requests_and_not_for_ever() {
    if !can_use_tun() || !has_programs(&["curl"]) {
        return;
    }
    let network = Network::new();
    let mut daemon = network.start(&format!("{FORWARD}drain = '60s'\n"));
    let download = network.begin("http://v4only.example.net/halves");
    network.origin.half_way();
    daemon.signal(Signal::INT);
    // Nobody new is served any more, and who is served gets all.
    poll("the proxy listens no more", || {
        network.gateway.run("ss -Hltn sport = :3128").is_empty().then_some(())
    });
    network.origin.open();
    assert_eq!(end(download), (2 * HALF).to_string());
    assert!(daemon.wait().success());
    drop(daemon);

    // One that never ends is cut off.
    let network = Network::new();
    let mut daemon = network.start(&format!("{FORWARD}drain = '100ms'\n"));
    let mut download = network.begin("http://v4only.example.net/halves");
    network.origin.half_way();
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
    assert!(!download.wait().success());
}

/// A daemon with a service manager, to which it speaks.
struct Managed {
    daemon: Process,
    told: UnixDatagram,
}

impl Managed {
    fn start(network: &Network, text: &str) -> Managed {
        let path = network.run.path().join("notify.sock");
        let told = UnixDatagram::bind(&path).unwrap();
        told.set_read_timeout(Some(PATIENCE)).unwrap();
        let file = network.run.file("proxy.toml", text);
        let arguments = format!("run {}", file.display());
        let mut command = network.run.command(&network.gateway, &arguments);
        let daemon = Process::start(command.env("NOTIFY_SOCKET", &path).stderr(Stdio::null()));
        let managed = Managed { daemon, told };
        managed.hears("READY=1");
        managed
    }

    /// Waits until it has said this.
    fn hears(&self, wanted: &str) -> String {
        let mut buffer = [0; 4096];
        loop {
            let len = self.told.recv(&mut buffer).unwrap();
            let said = String::from_utf8_lossy(&buffer[..len]).into_owned();
            if said.contains(wanted) {
                return said;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.daemon.0), signal).unwrap();
    }
}

/// Longer than any service manager waits.
const LONG: &str = "drain = '1h'\n[[advertise]]\ndevice = 'lan0'\ninterval = '4s'\n";

#[test]
fn while_requests_end_hosts_are_told_and_the_service_manager_is_asked_for_time() {
    if !can_use_tun() || !has_programs(&["curl"]) {
        return;
    }
    let network = Network::new();
    let before = snapshot(&network.gateway);
    let mut managed = Managed::start(&network, &format!("{FORWARD}{LONG}"));
    let has_router = || network.client.ip("-6 route show default").contains("fe80:").then_some(());
    poll("the client has a router", has_router);
    let download = network.begin("http://v4only.example.net/halves");
    network.origin.half_way();
    managed.signal(Signal::TERM);
    managed.hears("STOPPING=1");
    // systemd's default is 90 s. It waits for so long again from each such message on.
    let said = managed.hears("EXTEND_TIMEOUT_USEC=");
    assert!(said.contains("STATUS=Stopping: requests and tunnels of proxies end"), "{said}");
    // The request is still under way.
    poll("the client has no router any more", || has_router().is_none().then_some(()));
    network.origin.open();
    assert_eq!(end(download), (2 * HALF).to_string());
    assert!(managed.daemon.wait().success());
    assert_same(&snapshot(&network.gateway), &before);
}

#[test]
fn who_is_told_twice_to_end_waits_for_nobody() {
    if !can_use_tun() || !has_programs(&["curl"]) {
        return;
    }
    let network = Network::new();
    let before = snapshot(&network.gateway);
    let mut managed = Managed::start(&network, &format!("{FORWARD}{LONG}"));
    let mut download = network.begin("http://v4only.example.net/halves");
    network.origin.half_way();
    managed.signal(Signal::TERM);
    managed.hears("EXTEND_TIMEOUT_USEC=");
    managed.signal(Signal::TERM);
    assert!(managed.daemon.wait().success());
    assert!(!download.wait().success());
    assert_same(&snapshot(&network.gateway), &before);
}
