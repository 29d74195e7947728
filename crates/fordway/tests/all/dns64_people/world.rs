//! Programs that ask and answer.

use std::path::Path;
use std::process::Stdio;

use fordway_testhost::poll_or;

use crate::common::netns::Netns;
use crate::common::process::Process;
use crate::common::resolver::Site;

/// Where Unbound and BIND listen.
pub(super) const UNBOUND: &str = "203.0.113.54";
pub(super) const BIND: &str = "203.0.113.55";

/// What a program of a host says, which must succeed.
pub(super) fn say(host: &Netns, line: &str) -> String {
    let output = host.try_run(line);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {text}{complaint}");
    text
}

/// The lines of `dig +short`, as the client.
pub(super) fn dig(site: &Site, question: &str) -> Vec<String> {
    let line = format!("dig +time=15 +tries=2 +short @2001:db8:1::1 {question}");
    say(&site.client, &line).lines().map(str::to_owned).collect()
}

/// All that dig says, as the client.
pub(super) fn dig_whole(site: &Site, question: &str) -> String {
    say(&site.client, &format!("dig +time=15 +tries=2 @2001:db8:1::1 {question}"))
}

/// Unbound that knows some names and no other servers.
pub(super) fn unbound(site: &Site, name: &str, zone: &str, data: &[&str]) -> Process {
    let mut conf = format!(
        "server:\n username: \"\"\n chroot: \"\"\n pidfile: \"\"\n directory: \"{}\"\n use-syslog: no\n \
         do-daemonize: no\n num-threads: 1\n module-config: \"iterator\"\n interface: {UNBOUND}\n \
         access-control: 0.0.0.0/0 allow\n local-zone: \"{zone}\" static\n \
         local-data: \"{zone} SOA ns.{zone} who.{zone} 1 2 3 4 60\"\n",
        site.run.path().display()
    );
    for record in data {
        conf += &format!(" local-data: \"{record}\"\n");
    }
    conf += "remote-control:\n control-enable: no\n";
    let file = site.run.file(name, &conf);
    site.isp.ip(&format!("addr replace {UNBOUND}/24 dev u0"));
    let mut command = site.isp.command("unbound");
    command.arg("-d").arg("-c").arg(file);
    start(&mut command, &site.run.path().join(format!("{name}.log")), "start of service")
}

/// BIND with zones that it is in charge of.
pub(super) fn bind(site: &Site, zones: &[(&str, &str)], options: &str) -> Process {
    let folder = site.run.path().display();
    let mut conf = format!(
        "options {{ directory \"{folder}\"; listen-on {{ {BIND}; }}; listen-on-v6 {{ none; }};\n\
         recursion no; dnssec-validation no; pid-file none; session-keyfile none; {options} }};\ncontrols {{ }};\n"
    );
    for (zone, records) in zones {
        let soa =
            format!("$ORIGIN {zone}.\n$TTL 300\n@ SOA ns who 1 2 3 4 60\n@ NS ns\nns A {BIND}\n");
        site.run.file(&format!("{zone}.zone"), &format!("{soa}{records}"));
        conf += &format!("zone \"{zone}\" {{ type primary; file \"{zone}.zone\"; }};\n");
    }
    let file = site.run.file("named.conf", &conf);
    site.isp.ip(&format!("addr replace {BIND}/24 dev u0"));
    let mut command = site.isp.command("named");
    command.args(["-g", "-n", "1", "-c"]).arg(file);
    start(&mut command, &site.run.path().join("named.log"), "running")
}

/// Starts a server, and waits until it has said that it is ready.
fn start(command: &mut std::process::Command, log: &Path, ready: &str) -> Process {
    let file = std::fs::File::create(log).unwrap();
    command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
    let process = Process::start(command);
    let said = || std::fs::read_to_string(log).unwrap_or_default();
    poll_or(|| said().contains(ready).then_some(()), || format!("{command:?}: {}", said()));
    process
}
