//! Who holds capabilities reads nothing that somebody else sends.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use fordway_testhost::{can_use_tun, poll};

use crate::common::advertiser::{Advertiser, Content};
use crate::common::daemon::{Daemon, RunDir};
use crate::common::dns::Odd;
use crate::common::laptop::{
    Laptop, NET, OTHER_PREF64, PREF64, RESOLVER, dns64, until, until_state,
};
use crate::common::process::Process;
use crate::common::threads::{assert_privileged_hear_nobody, heard, heard_by, threads};
use crate::dstm::{Net, ping_once};

fn set(kinds: &[&str]) -> std::collections::BTreeSet<String> {
    kinds.iter().map(|kind| (*kind).to_owned()).collect()
}

#[test]
fn of_an_automatic_clat() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    let router = net.advertise();
    let other = "[metrics]\nlisten = ['[::1]:9464']\n[[translator]]\nname = 'siit0'\nmode = 'siit'\nqueues = 1\n\
                 eam = [['192.0.2.2', '2001:db8:6::2']]\npool6 = ['2001:db8:66::/96']\n";
    let clat = "[[translator]]\nname = 'clat0'\nmode = 'clat'\npref64 = 'auto'\nqueues = 1\n";
    let file = net.run.file("clat.toml", &format!("{other}{clat}"));
    let daemon = Daemon::start(&net.run, &net.host, &format!("run {}", file.display()));
    until_state(&daemon, "active");
    assert_privileged_hear_nobody(daemon.pid());
    assert_eq!(heard_by(daemon.pid(), "clat0-hear"), set(&["packet", "raw6"]));
    assert_eq!(heard_by(daemon.pid(), "fordway-control"), set(&["unix"]));
    assert_eq!(heard_by(daemon.pid(), "fordway-metrics"), set(&["tcp6"]));
    // The same threads after the network has changed.
    router.say(Content::new(NET, &[OTHER_PREF64]).withdraws(PREF64));
    until(&daemon, "the other prefix", |it| it["pref64"] == OTHER_PREF64);
    net.host.ip("link set c0 down");
    until_state(&daemon, "waiting");
    net.host.ip("link set c0 up");
    until_state(&daemon, "active");
    assert_privileged_hear_nobody(daemon.pid());
    assert_eq!(heard_by(daemon.pid(), "clat0-hear"), set(&["packet", "raw6"]));
    // One that comes and goes with the configuration brings its thread and takes it along.
    std::fs::write(&file, other).unwrap();
    assert!(net.run.output(&net.host, "reload").status.success(), "{}", daemon.log());
    poll("nobody hears any more", || {
        threads(daemon.pid()).iter().all(|it| it.name != "clat0-hear").then_some(())
    });
    daemon.stop();
}

#[test]
fn while_a_resolver_is_asked() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    // A question that is never answered is always under way.
    let _resolver = net.resolver(dns64(PREF64).odd("ipv4only.arpa", None, Odd::Silence));
    let daemon = net.start("");
    let content = Content { rdnss: vec![RESOLVER.parse().unwrap()], ..Content::new(NET, &[]) };
    let _router = Advertiser::start(&net.router, "s0", content);
    poll("the resolver is asked", || {
        assert_privileged_hear_nobody(daemon.pid());
        heard_by(daemon.pid(), "clat0-hear").contains("udp6").then_some(())
    });
    daemon.stop();
}

#[test]
fn of_a_client_that_borrows() {
    if !can_use_tun() {
        return;
    }
    let net = Net::new();
    let (tep_dir, client_dir) = (RunDir::new(), RunDir::new());
    let tep = Daemon::start(&tep_dir, &net.tep, &net.lender("192.0.2.0/28", ""));
    let borrower = Daemon::start(&client_dir, &net.client, &net.borrower("one", ""));
    let ping = ping_once(&net.client, "198.51.100.2");
    assert!(ping.contains("1 received"), "{ping}\n{}", borrower.log());
    for daemon in [&tep, &borrower] {
        assert_privileged_hear_nobody(daemon.pid());
    }
    assert_eq!(heard_by(borrower.pid(), "dstm0-borrow"), set(&["udp6"]));
    borrower.stop();
    tep.stop();
}

#[test]
fn of_discover_while_it_watches() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    let mut command = net.run.command(&net.host, "discover --watch");
    let mut watch = Process::start(command.stdout(Stdio::piped()));
    let pid = watch.0.id();
    poll("it hears routers", || {
        let main = threads(pid).into_iter().find(|it| it.is_main() && it.name == "fordway")?;
        (!main.is_privileged() && heard(&main).contains("raw6")).then_some(())
    });
    // It still does what it is for.
    let _router = net.advertise();
    let lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let told = lines.map_while(Result::ok).find(|line| line.contains(PREF64));
    assert!(told.is_some());
}
