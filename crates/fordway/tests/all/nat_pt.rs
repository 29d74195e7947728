//! NAT-PT end to end: name servers on both sides, clients of both families that ask by name.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::process::Stdio;
use std::thread;

use fordway_testhost::{can_use_tun, has_programs, poll};

use crate::common::daemon::{Daemon, RunDir};
use crate::common::host::{assert_same, snapshot};
use crate::common::netns::Netns;
use crate::common::ping::Request;
use crate::common::process::Process;
use crate::common::topology::{Border, V4_HOST_AS_V6};

/// The web server of either side.
const WEB6: &str = "2001:db8:6::80";
const WEB4: &str = "198.51.100.80";
const WEB4_AS_V6: &str = "2001:db8:64::c633:6450";

/// The IPv6 side's name server, as IPv4 hosts know it.
const DNS6_AS_V4: &str = "192.0.2.53";

/// Basic NAT-PT: 14 addresses, and one for the name server.
const BASIC: &str = "nat-pt --pool6 2001:db8:64::/96 --addresses 192.0.2.64/28 \
                     --binding 192.0.2.53=2001:db8:6::2 --dns-client 198.51.100.0/24 \
                     --initiator 198.51.100.0/24";

fn start(netns: &Netns, program: &str, arguments: &str) -> Process {
    let mut command = netns.command(program);
    Process::start(command.args(arguments.split(' ')).stdout(Stdio::null()).stderr(Stdio::null()))
}

/// An IPv4 network with Unbound, an IPv6 network with BIND, and a web server in each.
struct Sites {
    net: Border,
    run: RunDir,
    _servers: Vec<Process>,
}

impl Sites {
    /// `None`: what it needs is not there.
    fn new() -> Option<Sites> {
        let programs = ["named", "unbound", "dig", "curl"];
        if !can_use_tun() || !has_programs(&programs) {
            return None;
        }
        let (net, run) = (Border::new(), RunDir::new());
        net.v6.ip(&format!("addr add {WEB6}/64 dev h6"));
        net.v4.ip(&format!("addr add {WEB4}/24 dev h4"));
        // A server finds no address that is not ready.
        poll("addresses", || {
            let shown = net.v6.ip("-6 addr show dev h6");
            (shown.contains(WEB6) && !shown.contains("tentative")).then_some(())
        });
        let folder = run.path().display().to_string();
        run.file(
            "six.zone",
            "$TTL 300\n@ SOA ns.six.test. admin.six.test. 1 3600 600 86400 60\n@ NS ns.six.test.\n\
             ns AAAA 2001:db8:6::2\nwww AAAA 2001:db8:6::80\nalias CNAME www\n\
             both AAAA 2001:db8:6::80\nboth A 203.0.113.80\n\
             a AAAA 2001:db8:6::a\nb AAAA 2001:db8:6::b\nc AAAA 2001:db8:6::c\n",
        );
        run.file(
            "arpa.zone",
            "$TTL 300\n@ SOA ns.six.test. admin.six.test. 1 3600 600 86400 60\n@ NS ns.six.test.\n\
             0.8.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0 PTR www.six.test.\n",
        );
        let named = format!(
            "options {{ directory \"{folder}\"; listen-on {{ none; }}; listen-on-v6 {{ 2001:db8:6::2; }}; \
             recursion no; dnssec-validation no; pid-file \"{folder}/named.pid\"; \
             session-keyfile \"{folder}/named.key\"; }};\ncontrols {{ }};\n\
             zone \"six.test\" {{ type primary; file \"six.zone\"; }};\n\
             zone \"6.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa\" {{ type primary; file \"arpa.zone\"; }};\n"
        );
        let named = run.file("named.conf", &named);
        let unbound = format!(
            "server:\n interface: 198.51.100.2\n access-control: 0.0.0.0/0 allow\n do-daemonize: no\n \
             do-ip6: no\n chroot: \"\"\n username: \"\"\n directory: \"{folder}\"\n pidfile: \"\"\n \
             use-syslog: no\n logfile: \"{folder}/unbound.log\"\n module-config: \"iterator\"\n \
             local-zone: \"four.test.\" static\n local-zone: \"100.51.198.in-addr.arpa.\" static\n \
             local-data: \"www.four.test. 300 A {WEB4}\"\n \
             local-data: \"80.100.51.198.in-addr.arpa. 300 PTR www.four.test.\"\n\
             remote-control:\n control-enable: no\n"
        );
        let unbound = run.file("unbound.conf", &unbound);
        let servers = vec![
            start(&net.v6, "named", &format!("-g -c {}", named.display())),
            start(&net.v4, "unbound", &format!("-d -c {}", unbound.display())),
        ];
        web(&net.v6, &format!("[{WEB6}]:80"), "six");
        web(&net.v4, &format!("{WEB4}:80"), "four");
        for (netns, server, question) in [
            (&net.v6, "2001:db8:6::2", "www.six.test AAAA"),
            (&net.v4, "198.51.100.2", "www.four.test A"),
        ] {
            poll("the name server", || {
                let said =
                    netns.try_run(&format!("dig +time=1 +tries=1 +short @{server} {question}"));
                (said.status.success() && !said.stdout.is_empty()).then_some(())
            });
        }
        Some(Sites { net, run, _servers: servers })
    }

    fn start(&self, options: &str) -> Daemon<'_> {
        Daemon::start(&self.run, &self.net.gateway, options)
    }

    /// What an IPv4 client hears.
    fn ask4(&self, question: &str) -> String {
        dig(&self.net.v4, DNS6_AS_V4, question)
    }

    /// What an IPv6 client hears.
    fn ask6(&self, question: &str) -> String {
        dig(&self.net.v6, V4_HOST_AS_V6, question)
    }

    /// The address that an IPv4 client hears for a name, with the TTL.
    fn address(&self, name: &str) -> (Ipv4Addr, u32) {
        let said = self.ask4(&format!("{name} A"));
        let found = said.lines().find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, ttl, "IN", "A", address] = words.as_slice() else { return None };
            Some((address.parse().ok()?, ttl.parse().ok()?))
        });
        found.unwrap_or_else(|| panic!("{said}"))
    }

    /// Has curl fetch a page by name, with that name server.
    fn curl(&self, netns: &Netns, server: &str, url: &str) -> String {
        let file = self.run.file("resolv.conf", &format!("nameserver {server}\n"));
        let line = format!(
            "mount --bind {} /etc/resolv.conf && exec curl -sS --max-time 60 {url}",
            file.display()
        );
        let output = netns.command("unshare").args(["-m", "sh", "-c", &line]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{url}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }
}

fn dig(netns: &Netns, server: &str, question: &str) -> String {
    let said = netns.run(&format!("dig +time=15 +tries=4 @{server} {question}"));
    // Columns are as wide as they like.
    let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    said.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// A web server that says `page` to everybody, for as long as the test's process lives.
fn web(netns: &Netns, at: &str, page: &'static str) {
    let listener = netns.inside(|| TcpListener::bind(at).unwrap());
    thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            let mut request = [0; 4096];
            let _ = connection.read(&mut request);
            let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{page}", page.len());
            let _ = connection.write_all(head.as_bytes());
        }
    });
}

#[test]
fn either_side_asks_by_name_and_reaches_the_other() {
    let Some(sites) = Sites::new() else { return };
    let before = snapshot(&sites.net.gateway);
    for engine in ["user", "kernel"] {
        let daemon = sites.start(&format!("{BASIC} --engine {engine}"));
        // RFC 2766 section 4.1: AAAA becomes A, for nobody to remember.
        let (address, ttl) = sites.address("www.six.test");
        assert!(u32::from(address) >> 4 == u32::from(Ipv4Addr::new(192, 0, 2, 64)) >> 4);
        assert_eq!(ttl, 0);
        assert_eq!(sites.address("alias.six.test").0, address);
        assert_eq!(sites.curl(&sites.net.v4, DNS6_AS_V4, "http://www.six.test/"), "six");
        // Section 4.2: A becomes AAAA, with the TTL that it had.
        let said = sites.ask6("www.four.test AAAA");
        assert!(said.contains(&format!("300 IN AAAA {WEB4_AS_V6}")), "{said}");
        assert_eq!(sites.curl(&sites.net.v6, V4_HOST_AS_V6, "http://www.four.test/"), "four");
        // What is there of the client's own family is not touched.
        let said = sites.ask4("both.six.test A");
        assert!(said.contains("300 IN A 203.0.113.80"), "{engine}: {said}");
        // Names of addresses, both ways.
        let said = sites.ask4(&format!("-x {address}"));
        assert!(said.contains("0 IN PTR www.six.test."), "{engine}: {said}");
        let said = sites.ask6(&format!("-x {WEB4_AS_V6}"));
        assert!(said.contains("300 IN PTR www.four.test."), "{engine}: {said}");
        // Neither exists.
        let said = sites.ask4("nobody.six.test A");
        assert!(said.contains("NXDOMAIN"), "{engine}: {said}");
        daemon.counts("natpt0", "nat64/nat_pt/addresses/size", 15);
        daemon.counts_at_least("natpt0", "nat64/nat_pt/dns/aaaa_to_a", 3);
        daemon.counts_at_least("natpt0", "nat64/nat_pt/dns/a_to_aaaa", 2);
        daemon.counts("natpt0", "nat64/nat_pt/dns/ptr", 2);
        let bib = sites.run.output(&sites.net.gateway, "bib --json");
        let bib = String::from_utf8(bib.stdout).unwrap();
        assert!(bib.contains(&address.to_string()) && bib.contains(WEB6), "{engine}: {bib}");
        let log = daemon.log();
        assert!(log.contains("NAT-PT is historic (RFC 4966)"), "{log}");
        daemon.stop();
        assert_same(&snapshot(&sites.net.gateway), &before);
    }
}

#[test]
fn over_tcp_it_is_the_same() {
    let Some(sites) = Sites::new() else { return };
    let daemon = sites.start(&format!("{BASIC} --engine user"));
    let said = sites.ask4("+tcp www.six.test A");
    assert!(said.contains("IN A 192.0.2."), "{said}");
    let said = sites.ask6("+tcp www.four.test AAAA");
    assert!(said.contains(&format!("300 IN AAAA {WEB4_AS_V6}")), "{said}");
    let said = sites.ask4("+tcp both.six.test A");
    assert!(said.contains("300 IN A 203.0.113.80"), "{said}");
    let said = sites.ask6(&format!("+tcp -x {WEB4_AS_V6}"));
    assert!(said.contains("300 IN PTR www.four.test."), "{said}");
    let said = sites.ask4("+tcp six.test SOA");
    assert!(said.contains("ns.six.test."), "{said}");
    daemon.counts("natpt0", "nat64/nat_pt/dns/a_to_aaaa", 1);
}

#[test]
fn signatures_are_not_forged() {
    let Some(sites) = Sites::new() else { return };
    let daemon = sites.start(&format!("{BASIC} --engine user"));
    // Who validates himself gets what is there: nothing.
    let said = sites.ask6("+dnssec +cdflag www.four.test AAAA");
    assert!(said.contains("ANSWER: 0"), "{said}");
    let said = sites.ask6("+dnssec www.four.test AAAA");
    assert!(said.contains(WEB4_AS_V6) && !said.contains("RRSIG"), "{said}");
    daemon.counts("natpt0", "nat64/nat_pt/dns/dnssec", 1);
}

#[test]
fn when_all_addresses_are_taken_clients_hear_so() {
    let Some(sites) = Sites::new() else { return };
    // Two addresses, and ports for what the IPv6 side begins (NAPT-PT).
    let file = |hold: &str| {
        let text = format!(
            "[[translator]]\nname = \"natpt0\"\nmode = \"nat-pt\"\nengine = \"user\"\n\
             pool6 = [\"2001:db8:64::/96\"]\npool4 = [\"192.0.2.1\"]\naddresses = [\"192.0.2.64/30\"]\n\
             dns_clients = [\"198.51.100.2/32\"]\ninitiators = [\"198.51.100.2/32\"]\n\
             address_bindings = [[\"192.0.2.53\", \"2001:db8:6::2\"]]\nhold = \"{hold}\"\n"
        );
        sites.run.file("natpt.toml", &text)
    };
    let daemon = sites.start(&format!("run {}", file("1h").display()));
    let (first, second) = (sites.address("a.six.test").0, sites.address("b.six.test").0);
    assert_ne!(first, second);
    let full = sites.ask4("c.six.test A");
    assert!(full.contains("SERVFAIL") && full.contains("ANSWER: 0"), "{full}");
    daemon.counts_at_least("natpt0", "nat64/nat_pt/dns/exhausted", 1);
    // What the IPv6 side begins is not concerned: it has ports of another address.
    assert_eq!(sites.curl(&sites.net.v6, V4_HOST_AS_V6, "http://www.four.test/"), "four");
    file("1s");
    let output = sites.run.output(&sites.net.gateway, "reload");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // And nobody needs them any more: after the hold time they are free.
    poll("an address that nobody used", || {
        sites.ask4("c.six.test A").contains("IN A 192.0.2.6").then_some(())
    });
    // Who may not begin, does not.
    let address = sites.address("c.six.test").0;
    let other = Request::send_from(&sites.net.v4, WEB4, &address.to_string());
    daemon.counts_at_least("natpt0", "drops/may_not_begin", 1);
    assert!(!other.is_answered());
}

#[test]
fn a_binding_outlives_a_reload_and_a_killed_daemon() {
    let Some(sites) = Sites::new() else { return };
    let before = snapshot(&sites.net.gateway);
    let file = |extra: &str| {
        let text = format!(
            "[[translator]]\nname = \"natpt0\"\nmode = \"nat-pt\"\nengine = \"kernel\"\n\
             pool6 = [\"2001:db8:64::/96\"]\naddresses = [\"192.0.2.64/28\"]\n\
             dns_clients = [\"198.51.100.0/24\"]\ninitiators = [\"198.51.100.0/24\"]\n\
             address_bindings = [[\"192.0.2.53\", \"2001:db8:6::2\"]{extra}]\n"
        );
        sites.run.file("natpt.toml", &text)
    };
    let path = file("");
    let run = format!("run {}", path.display());
    let daemon = sites.start(&run);
    let address = sites.address("www.six.test").0;
    let url = format!("http://{address}/");
    assert_eq!(sites.curl(&sites.net.v4, DNS6_AS_V4, &url), "six");
    file(", [\"192.0.2.99\", \"2001:db8:6::a\"]");
    let output = sites.run.output(&sites.net.gateway, "reload");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(sites.address("www.six.test"), (address, 0));
    // The operator's own stays as the server says.
    assert_eq!(sites.address("a.six.test"), (Ipv4Addr::new(192, 0, 2, 99), 300));
    daemon.kill();
    let daemon = sites.start(&run);
    assert_eq!(sites.address("www.six.test"), (address, 0));
    assert_eq!(sites.curl(&sites.net.v4, DNS6_AS_V4, &url), "six");
    daemon.stop();
    assert_same(&snapshot(&sites.net.gateway), &before);
}
