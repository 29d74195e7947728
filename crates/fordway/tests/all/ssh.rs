//! ssh and scp from a host with IPv6 alone to a server with IPv4 alone: through a transport relay, and through NAT64.

use std::fs;
use std::process::{Command, Stdio};

use fordway_testhost::{can_use_tun, has_programs, poll};

use crate::common::daemon::{Daemon, RunDir};
use crate::common::netns::Netns;
use crate::common::process::Process;
use crate::common::traffic;

/// The server as its clients see it.
const SERVER: &str = "2001:db8:64::cb00:7135";

const SSHD: &str = "/usr/sbin/sshd";

/// ```text
/// host eth0 2001:db8:1::5 ─── 2001:db8:1::1 lan0 gateway wan0 203.0.113.1 ─── 203.0.113.53 eth0 server
/// ```
struct Site {
    host: Netns,
    gateway: Netns,
    run: RunDir,
    _sshd: Process,
    _server: Netns,
}

impl Site {
    /// `None`: the programs are not there.
    fn new() -> Option<Site> {
        let programs = ["ssh", "scp", "ssh-keygen", "sshd"];
        if !can_use_tun() || !has_programs(&programs) {
            return None;
        }
        let [host, gateway, server] = ["host", "gw", "server"].map(Netns::new);
        gateway.link("lan0", &host, "eth0");
        gateway.link("wan0", &server, "eth0");
        gateway
            .configure(&["addr add 2001:db8:1::1/64 dev lan0", "addr add 203.0.113.1/24 dev wan0"]);
        host.configure(&[
            "addr add 2001:db8:1::5/64 dev eth0",
            "route add default via 2001:db8:1::1",
        ]);
        server.ip("addr add 203.0.113.53/24 dev eth0");
        let run = RunDir::new();
        let _sshd = start_sshd(&server, &run);
        Some(Site { host, gateway, run, _sshd, _server: server })
    }

    /// A client with keys of its own, which knows the server.
    fn client(&self, program: &str) -> Command {
        let mut command = self.host.command(program);
        command.args(["-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"]);
        command.args(["-o", "IdentitiesOnly=yes", "-o", "ConnectTimeout=30", "-i"]);
        command.arg(self.run.path().join("user"));
        let known = self.run.path().join("known_hosts").display().to_string();
        command.args(["-o", &format!("UserKnownHostsFile={known}")]);
        command
    }

    /// A session, and files there and back. Gives whom the server sees.
    fn use_it(&self) -> String {
        let login = format!("root@{SERVER}");
        let seen = output(self.client("ssh").args([&login, "echo $SSH_CONNECTION"]));
        let octets = traffic::pattern(5_000_000, 0);
        let [here, there, back] = ["here", "there", "back"].map(|name| self.run.path().join(name));
        fs::write(&here, &octets).unwrap();
        let remote = format!("root@[{SERVER}]:{}", there.display());
        output(self.client("scp").arg("-q").arg(&here).arg(&remote));
        assert!(fs::read(&there).unwrap() == octets, "what arrived is damaged");
        output(self.client("scp").arg("-q").arg(&remote).arg(&back));
        assert!(fs::read(&back).unwrap() == octets, "what came back is damaged");
        // Both directions at once, and the end of one before that of the other.
        let mut both = self.client("ssh");
        both.args([&login, "cat"]).stdin(fs::File::open(&here).unwrap());
        assert!(both.output().unwrap().stdout == octets, "what was given back is damaged");
        // The end of the remote command is its own.
        let status = self.client("ssh").args([&login, "exit 7"]).status().unwrap();
        assert_eq!(status.code(), Some(7));
        seen
    }
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A server whose keys are as old as the test.
fn start_sshd(server: &Netns, run: &RunDir) -> Process {
    let path = |name: &str| run.path().join(name).display().to_string();
    for name in ["host", "user"] {
        output(
            Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(path(name)),
        );
    }
    let public = fs::read_to_string(path("host.pub")).unwrap();
    run.file("known_hosts", &format!("{SERVER} {public}"));
    let config = format!(
        "ListenAddress 203.0.113.53:22\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
         PermitRootLogin prohibit-password\nPidFile none\nSubsystem sftp internal-sftp\n",
        path("host"),
        path("user.pub")
    );
    let config = run.file("sshd_config", &config);
    // Where it has its children live; the system's start-up makes it elsewhere.
    fs::create_dir_all("/run/sshd").unwrap();
    let log = fs::File::create(path("sshd.log")).unwrap();
    let mut command = server.command(SSHD);
    command.args(["-D", "-e", "-f"]).arg(config).stdout(Stdio::null()).stderr(log);
    let sshd = Process::start(&mut command);
    poll("sshd listens", || {
        let log = fs::read_to_string(path("sshd.log")).unwrap();
        log.contains("Server listening").then_some(())
    });
    sshd
}

#[test]
fn ssh_through_a_transport_relay() {
    let Some(site) = Site::new() else { return };
    let daemon = Daemon::start(&site.run, &site.gateway, "trt --pool6 2001:db8:64::/96");
    assert!(site.use_it().starts_with("203.0.113.1 "), "the relay is the client");
    poll("all connections have ended", || {
        (daemon.status()["trt"][0]["connections"].as_u64() == Some(0)).then_some(())
    });
    daemon.stop();
}

#[test]
fn ssh_through_nat64() {
    let Some(site) = Site::new() else { return };
    let options = "nat64 --pool6 2001:db8:64::/96 --pool4 203.0.113.1:20000-30000";
    let daemon = Daemon::start(&site.run, &site.gateway, options);
    let seen = site.use_it();
    let port: u16 = seen.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(seen.starts_with("203.0.113.1 ") && (20_000..=30_000).contains(&port), "{seen}");
    daemon.stop();
}
