//! Who may ask the daemon what: root everything, a group for reading, nobody else; and what the log keeps of it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Output;

use fordway_testhost::{can_use_tun, has_programs, poll, require};
use rustix::process::getuid;

use crate::common::can_test_kernel;
use crate::common::daemon::{Daemon, FORDWAY, RunDir};
use crate::common::netns::Netns;
use crate::common::topology::Border;

/// A group of the readers, which needs no name.
const READERS: u32 = 54_321;

const CONFIG: &str = "[control]\nread_group = '54321'\n[log]\nlevel = 'error'\n\
                      [[translator]]\nname = 'siit0'\nmode = 'siit'\npool6 = ['2001:db8:64::/96']\n";

/// Runs the program as somebody else.
fn run_as(run: &RunDir, netns: &Netns, group: u32, arguments: &str) -> (Output, String) {
    let mut command = netns.command("setpriv");
    command.args(["--reuid=65534", &format!("--regid={group}"), "--clear-groups"]);
    command.arg(FORDWAY).arg("--run-dir").arg(run.path()).args(arguments.split_whitespace());
    let output = command.env("NO_COLOR", "1").output().unwrap();
    let said = [output.stdout.clone(), output.stderr.clone()].concat();
    (output, String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_group_reads_and_changes_nothing_and_the_log_keeps_who_asked() {
    let is_open = |dir: &Path| dir.metadata().is_ok_and(|it| it.permissions().mode() & 1 != 0);
    let is_reached = Path::new(FORDWAY).ancestors().all(is_open);
    if !can_use_tun()
        || !has_programs(&["setpriv"])
        || !require(is_reached, "other users can't reach the program under test")
    {
        return;
    }
    // In a folder that others can reach, too.
    let (net, run) = (Border::new(), RunDir::in_memory());
    let readable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(run.path(), readable).unwrap();
    let file = run.file("gateway.toml", CONFIG);
    let daemon = Daemon::spawn(&run, &net.gateway, &format!("run -c {}", file.display()));
    let socket = run.path().join("control.read.sock");
    poll("the socket for reading", || {
        let mode = std::fs::metadata(&socket).ok()?.permissions().mode();
        (mode & 0o777 == 0o660).then_some(())
    });
    let ask = |group, arguments: &str| run_as(&run, &net.gateway, group, arguments);

    for arguments in ["status", "stats", "top --once --interval 100ms"] {
        let (output, said) = ask(READERS, arguments);
        assert!(output.status.success(), "{arguments}: {said}");
    }
    // May be asked, and there is nothing to tell.
    let (output, said) = ask(READERS, "cluster status");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("this daemon is in no cluster"), "{said}");
    for arguments in [
        "reload",
        "down siit0",
        "leave",
        "trace siit0 --count 1",
        "drain siit0",
        "cluster drain --no-wait",
        "cluster declare gw-b --yes",
    ] {
        let (output, said) = ask(READERS, arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments}: {said}");
        assert!(said.contains("your access is for reading only"), "{arguments}: {said}");
        let (output, said) = ask(READERS + 1, arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments}: {said}");
        assert!(said.contains("Permission denied"), "{arguments}: {said}");
    }
    let (output, said) = ask(READERS + 1, "status");
    assert!(!output.status.success() && said.contains("[control] read_group"), "{said}");
    assert_eq!(daemon.status()["translators"][0]["name"], "siit0");

    // Readers that watch take no place from those who may do more.
    let watch = |name: &str| {
        let stream = UnixStream::connect(run.path().join(name)).unwrap();
        (&stream).write_all(b"{\"command\":\"watch\"}\n").unwrap();
        let mut reply = String::new();
        BufReader::new(&stream).read_line(&mut reply).unwrap();
        (stream, reply)
    };
    let readers: Vec<(UnixStream, String)> = (0..17).map(|_| watch("control.read.sock")).collect();
    let watches = |reply: &str| reply.contains("watching");
    assert!(readers[..16].iter().all(|(_, reply)| watches(reply)), "{readers:?}");
    assert!(readers[16].1.contains("16 clients of this socket watch already"), "{readers:?}");
    let (_stream, reply) = watch("control.sock");
    assert!(watches(&reply), "{reply}");

    assert!(run.output(&net.gateway, "reload").status.success());
    assert!(!run.output(&net.gateway, "down nothing").status.success());
    // Written although the level is error, and reading is not.
    let log = daemon.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("audit")).collect();
    let has = |needed: &[&str]| lines.iter().any(|line| needed.iter().all(|it| line.contains(it)));
    let root = format!("uid={}", getuid().as_raw());
    assert!(
        has(&["uid=65534", "gid=54321", "{\"command\":\"leave\"}", "for reading only"]),
        "{log}"
    );
    assert!(has(&["uid=65534", "\"name\":\"siit0\"", "\"down\""]), "{log}");
    assert!(has(&[&root, "{\"command\":\"reload\"", "result=done", "pid="]), "{log}");
    assert!(has(&[&root, "\"nothing\"", "result=unknown name"]), "{log}");
    assert!(!log.contains("{\"command\":\"status\"}"), "{log}");
    daemon.stop();
    assert!(!socket.exists());
}

#[test]
fn the_log_level_changes_while_the_daemon_runs() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let file = run.file("gateway.toml", CONFIG);
    let daemon = Daemon::spawn(&run, &net.gateway, &format!("run -c {}", file.display()));
    poll("the daemon listens", || run.path().join("control.read.sock").exists().then_some(()));
    let done = |arguments: &str| {
        let output = run.output(&net.gateway, arguments);
        assert!(output.status.success(), "{arguments}: {output:?}");
    };
    let reloads = || daemon.log().matches("configuration reloaded").count();
    for (level, written) in [(None, 0), (Some("info"), 1), (Some("warn"), 1), (Some("debug"), 2)] {
        if let Some(level) = level {
            done(&format!("log-level {level}"));
        }
        done("reload");
        assert_eq!(reloads(), written, "{level:?}: {}", daemon.log());
    }
    assert!(daemon.log().contains("{\"command\":\"log_level\",\"level\":\"warn\"}"));
    let output = run.output(&net.gateway, "log-level loud");
    assert_eq!(output.status.code(), Some(2));
    daemon.stop();
}

#[test]
fn measuring_begins_and_ends_while_the_daemon_runs() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let file = run.file("gateway.toml", &CONFIG.replace("'error'", "'info'"));
    let daemon = Daemon::start(&run, &net.gateway, &format!("run -c {}", file.display()));
    let measures = || daemon.status()["translators"][0]["kernel"]["measure"] == true;
    assert!(!measures());
    for (arguments, on) in [("measure siit0 on", true), ("measure siit0 off", false)] {
        let output = run.output(&net.gateway, arguments);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(measures(), on);
    }
    assert!(run.output(&net.gateway, "measure siit0 on").status.success() && measures());
    assert!(run.output(&net.gateway, "reload").status.success());
    assert!(!measures(), "the file does not say so");
    let output = run.output(&net.gateway, "measure siit1 on");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("no translator is called siit1"), "{said}");
    daemon.stop();
}

#[test]
fn a_group_that_is_not_there_is_named_before_anything_is_set_up() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let file = run.file("gateway.toml", &CONFIG.replace("54321", "no-such-group"));
    let output = run.output(&net.gateway, &format!("run -c {}", file.display()));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("there is no group no-such-group"), "{said}");
    assert!(!run.path().join("control.sock").exists());
}
