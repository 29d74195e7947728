//! FTP through stateful NAT64: real clients in IPv6, a real server in IPv4, the gateway of RFC 6384 between them.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use fordway_testhost::{can_use_tun, has_programs, poll};

use crate::common::daemon::{Daemon, RunDir, count, dropped};
use crate::common::host::{assert_same, snapshot};
use crate::common::netns::Netns;
use crate::common::process::Process;
use crate::common::topology::{Border, V4_HOST_AS_V6};
use crate::common::{can_test_kernel, traffic};

/// Options of the gateway for [`Border`].
const NAT64: &str = "nat64 --pool6 2001:db8:64::/96 --pool4 192.0.2.1 --alg ftp";

/// Octets of the file.
const LARGE: usize = 6 << 20;

fn can_test_ftp() -> bool {
    can_use_tun() && has_programs(&["vsftpd", "curl", "lftp", "openssl"])
}

/// A file that no part of which is like another.
fn octets() -> Vec<u8> {
    traffic::pattern(LARGE, 0)
}

/// vsftpd in a namespace, with a folder of its own.
struct Server {
    _vsftpd: Process,
    folder: PathBuf,
}

impl Server {
    fn start(netns: &Netns) -> Server {
        Server::listening(netns, "listen=YES")
    }

    fn listening(netns: &Netns, listen: &str) -> Server {
        let number: u32 = getrandom::u32().unwrap();
        let folder = std::env::temp_dir().join(format!("fordway-ftp-{number:08x}"));
        let root = folder.join("root");
        fs::create_dir_all(root.join("up")).unwrap();
        fs::create_dir(folder.join("empty")).unwrap();
        // The server's unprivileged user gets there.
        for (path, mode) in [(&folder, 0o755), (&root, 0o755), (&root.join("up"), 0o777)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::write(root.join("large"), octets()).unwrap();
        let certificate = folder.join("certificate.pem");
        let made = Command::new("openssl")
            .args("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ftp.example".split(' '))
            .arg("-keyout")
            .arg(&certificate)
            .arg("-out")
            .arg(folder.join("public.pem"))
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let shown = |path: &Path| path.display().to_string();
        // Ports whose replies differ in length between the families, since their second octet has three digits:
        // nothing is kept of a connection whose numbers are the same on both sides.
        let text = format!(
            "{listen}\nbackground=NO\nanonymous_enable=YES\nno_anon_password=YES\n\
             anon_root={}\nwrite_enable=YES\nanon_upload_enable=YES\nconnect_from_port_20=YES\n\
             seccomp_sandbox=NO\nisolate_network=NO\nisolate=NO\nsecure_chroot_dir={}\n\
             pasv_min_port=40036\npasv_max_port=40191\nssl_enable=YES\nallow_anon_ssl=YES\nforce_local_logins_ssl=NO\n\
             force_local_data_ssl=NO\nrequire_ssl_reuse=NO\nrsa_cert_file={}\n\
             rsa_private_key_file={}\n",
            shown(&root),
            shown(&folder.join("empty")),
            shown(&folder.join("public.pem")),
            shown(&certificate),
        );
        let config = folder.join("vsftpd.conf");
        fs::write(&config, text).unwrap();
        let vsftpd = Process::start(netns.command("vsftpd").arg(&config));
        poll("the FTP server listens", || {
            netns.run("ss -Hltn sport = :21").contains(":21").then_some(())
        });
        Server { _vsftpd: vsftpd, folder }
    }

    /// What was stored under a name.
    fn stored(&self, name: &str) -> Vec<u8> {
        fs::read(self.folder.join("root/up").join(name)).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn url(path: &str) -> String {
    format!("ftp://[{V4_HOST_AS_V6}]/{path}")
}

/// What a client says, and whether it was content.
fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    format!("{}\n{}", output.status, String::from_utf8_lossy(&text))
}

/// Runs curl in a namespace, on a path of the server.
fn curl(netns: &Netns, arguments: &[&str], path: &str) -> Output {
    let mut command = netns.command("curl");
    command.args(["-sS", "-v", "-g", "--max-time", "60"]).args(arguments).arg(url(path));
    command.output().unwrap()
}

/// Fetches the file, which must be whole.
fn fetch(net: &Border, run: &RunDir, arguments: &[&str]) -> String {
    let file = run.path().join("fetched");
    let _ = fs::remove_file(&file);
    let target = file.display().to_string();
    let output = curl(&net.v6, &[arguments, &["-o", &target]].concat(), "large");
    assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    assert!(fs::read(&file).unwrap() == octets(), "{arguments:?}: the file is another");
    said(&output)
}

fn lftp(net: &Border, script: &str) {
    let mut command = net.v6.command("lftp");
    let settings = "set net:max-retries 2; set net:timeout 10; set ftp:ssl-allow no";
    let script = format!("{settings}; {script}");
    let output = command.env("HOME", "/nonexistent").args(["--norc", "-c", &script]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{script}: {}", said(&output));
}

fn event(daemon: &Daemon<'_>, name: &str) -> u64 {
    count(&daemon.stats("nat64"), &format!("nat64/algs/ftp/{name}"))
}

#[test]
fn files_pass_actively_and_passively_with_either_engine() {
    if !can_test_ftp() {
        return;
    }
    for engine in [
        "user",
        "kernel",
        "kernel --attach ingress --device g4 --device g6",
        "kernel --attach xdp --device g4 --device g6",
    ] {
        let (net, run) = (Border::new(), RunDir::new());
        let before = snapshot(&net.gateway);
        let server = Server::start(&net.v4);
        let daemon = Daemon::start(&run, &net.gateway, &format!("{NAT64} --engine {engine}"));

        let heard = fetch(&net, &run, &[]);
        assert!(heard.contains("> EPSV") && heard.contains("229 "), "{engine}: {heard}");
        assert!(event(&daemon, "translated") >= 2, "{engine}");
        assert_eq!(event(&daemon, "mapped"), 0, "{engine}");
        let heard = fetch(&net, &run, &["--ftp-port", "-"]);
        assert!(heard.contains("> EPRT"), "{engine}: {heard}");
        assert_eq!(event(&daemon, "mapped"), 1, "{engine}");

        let file = run.path().join("fetched").display().to_string();
        for (name, arguments) in [("passive", &[][..]), ("active", &["--ftp-port", "-"][..])] {
            let arguments = [arguments, &["-T", &file]].concat();
            let output = curl(&net.v6, &arguments, &format!("up/{name}"));
            assert!(output.status.success(), "{engine} {name}: {}", said(&output));
            assert!(server.stored(name) == octets(), "{engine} {name}: the file is another");
        }

        // Several files over one connection, by another client.
        let folder = run.path().display();
        for mode in ["on", "off"] {
            let to = [1, 2, 3].map(|number| format!("{folder}/{mode}{number}"));
            let gets = to.each_ref().map(|to| format!("get large -o {to}")).join("; ");
            let open = format!("open ftp://[{V4_HOST_AS_V6}]");
            lftp(&net, &format!("set ftp:passive-mode {mode}; {open}; {gets}"));
            for file in to {
                assert!(fs::read(&file).unwrap() == octets(), "{engine}: {file}");
            }
        }

        let output = curl(&net.v6, &["-Q", "ALGS STATUS64"], "");
        assert!(said(&output).contains("216 EPSVEPRT"), "{engine}: {}", said(&output));
        let output = curl(&net.v6, &["-Q", "EPSV ALL"], "");
        assert!(said(&output).contains("504 "), "{engine}: {}", said(&output));
        let heard = fetch(&net, &run, &["-Q", "ALGS DISABLE64"]);
        assert!(heard.contains("216 NONE"), "{engine}: {heard}");

        // From here on it can't be read, and must not be changed.
        let heard = fetch(&net, &run, &["-k", "--ssl-reqd"]);
        assert!(heard.contains("234 "), "{engine}: {heard}");
        assert!(event(&daemon, "released") >= 1, "{engine}");

        let stats = daemon.stats("nat64");
        assert_eq!(dropped(&stats), 0, "{engine}: {stats}");
        assert_eq!(event(&daemon, "unknown"), 0, "{engine}: {stats}");
        if engine.starts_with("kernel") {
            // What is said is left to the user engine, and the files are not.
            assert!(count(&stats, "kernel/passed_on/alg") > 0, "{engine}: {stats}");
            for direction in ["v4_to_v6", "v6_to_v4"] {
                let carried = count(&stats, &format!("kernel/{direction}/octets"));
                assert!(carried > LARGE as u64, "{engine} {direction}: {stats}");
            }
        }
        daemon.stop();
        assert_same(&snapshot(&net.gateway), &before);
    }
}

/// An IPv4 client, and a server in IPv6 that it knows by a port that is forwarded, or by a binding of NAT-PT.
#[test]
fn an_ipv4_client_reaches_a_server_in_ipv6() {
    if !can_test_ftp() {
        return;
    }
    let forwarded = format!("{NAT64} --bib tcp:192.0.2.1:21=[2001:db8:6::2]:21");
    let nat_pt = "nat-pt --pool6 2001:db8:64::/96 --addresses 192.0.2.64/28 --alg ftp \
                  --binding 192.0.2.53=2001:db8:6::2";
    for (arguments, name, server) in
        [(&forwarded[..], "nat64", "192.0.2.1"), (nat_pt, "natpt0", "192.0.2.53")]
    {
        for engine in ["user", "kernel"] {
            let (net, run) = (Border::new(), RunDir::new());
            let before = snapshot(&net.gateway);
            let ftp = Server::listening(&net.v6, "listen=NO\nlisten_ipv6=YES");
            let daemon =
                Daemon::start(&run, &net.gateway, &format!("{arguments} --engine {engine}"));
            let event =
                |event: &str| count(&daemon.stats(name), &format!("nat64/algs/ftp/{event}"));
            let file = run.path().join("fetched");
            let target = file.display().to_string();
            let call = |arguments: &[&str], path: &str| {
                let mut command = net.v4.command("curl");
                command.args(["-sS", "-v", "--max-time", "60"]).args(arguments);
                command.arg(format!("ftp://{server}/{path}")).output().unwrap()
            };
            // EPSV, PASV, EPRT, PORT: as the server hears them, all are of its own family.
            for arguments in [
                &[][..],
                &["--disable-epsv"],
                &["--ftp-port", "-"],
                &["--ftp-port", "-", "--disable-eprt"],
            ] {
                let _ = fs::remove_file(&file);
                let output = call(&[arguments, &["-o", &target]].concat(), "large");
                let heard = said(&output);
                assert!(output.status.success(), "{name} {engine} {arguments:?}: {heard}");
                assert!(fs::read(&file).unwrap() == octets(), "{name} {engine} {arguments:?}");
                let output = call(&[arguments, &["-T", &target]].concat(), "up/sent");
                assert!(output.status.success(), "{name} {engine}: {}", said(&output));
                assert!(ftp.stored("sent") == octets(), "{name} {engine} {arguments:?}");
                fs::remove_file(ftp.folder.join("root/up/sent")).unwrap();
            }
            assert!(event("translated") >= 8, "{name} {engine}: {}", daemon.stats(name));
            // From here on it can't be read: what needs no gateway goes on.
            let output = call(&["-k", "--ssl-reqd", "--head"], "large");
            let heard = said(&output);
            assert!(output.status.success() && heard.contains("234 "), "{name} {engine}: {heard}");
            assert!(
                heard.contains(&format!("Content-Length: {LARGE}")),
                "{name} {engine}: {heard}"
            );
            assert_eq!(event("released"), 1, "{name} {engine}");
            assert_eq!(event("unknown"), 0, "{name} {engine}");
            daemon.stop();
            assert_same(&snapshot(&net.gateway), &before);
        }
    }
}

#[test]
fn without_the_gateway_active_transfers_fail() {
    if !can_test_ftp() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let _server = Server::start(&net.v4);
    let without = NAT64.replace(" --alg ftp", "");
    let daemon = Daemon::start(&run, &net.gateway, &without);
    // The server hears of an address of the other family; what curl would do then is to wait for ever.
    let output = curl(&net.v6, &["-Q", "EPRT |2|2001:db8:6::2|40000|"], "large");
    let heard = said(&output);
    assert!(!output.status.success() && heard.contains("500 Bad EPRT protocol"), "{heard}");
    daemon.stop();
}

#[test]
fn a_transfer_outlives_a_killed_daemon() {
    if !can_test_ftp() || !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let server = Server::start(&net.v4);
    let arguments = format!("{NAT64} --engine kernel");
    let daemon = Daemon::start(&run, &net.gateway, &arguments);
    // It sends what it is given, and so takes as long as it is let.
    let mut command = net.v6.command("curl");
    command.args(["-sS", "-v", "-g", "--max-time", "120", "-T", "-"]).arg(url("up/sent"));
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut client = pipes.spawn().unwrap();
    let mut content = client.stdin.take().unwrap();
    let octets = octets();
    let (first, rest) = octets.split_at(LARGE / 2);
    content.write_all(first).unwrap();
    let stored = server.folder.join("root/up/sent");
    poll("the transfer runs", || {
        fs::metadata(&stored).is_ok_and(|known| known.len() > 0).then_some(())
    });
    assert!(event(&daemon, "translated") >= 2);
    daemon.kill();
    let daemon = Daemon::start(&run, &net.gateway, &arguments);
    content.write_all(rest).unwrap();
    drop(content);
    let output = client.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(server.stored("sent") == octets);
    // The client may end before the gateway has seen its last word.
    let resumed = || (event(&daemon, "resumed") == 1).then_some(());
    poll("the control connection goes on with the numbers that were kept", resumed);
    daemon.stop();
}
