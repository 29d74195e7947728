//! `fordway top` and `fordway status` over the daemons of a host: as text, as JSON, on a terminal.

use std::io::Write;
use std::process::{Command, Stdio};

use fordway_testhost::{can_use_tun, has_programs, poll, poll_or};
use serde_json::Value;

use crate::common::daemon::{Daemon, FORDWAY, RunDir};
use crate::common::netns::Netns;
use crate::common::ping::Ping;
use crate::common::process::Process;
use crate::common::topology::{BORDER, Border, V6_HOST_AS_V4};

/// A relay, which needs no device and no translator.
const RELAY: &str = "trt --name relay --pool6 2001:db8:66::/96";

fn said(run: &RunDir, netns: &Netns, arguments: &str) -> String {
    let output = run.output(netns, arguments);
    assert!(output.status.success(), "{arguments}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_view_has_the_rates_of_every_daemon_of_the_host() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let one = Daemon::start(&run, &net.gateway, BORDER);
    let other = run.path().join("other.sock");
    let arguments = format!("--socket {} {RELAY}", other.display());
    let two = Daemon::start(&run, &net.gateway, &arguments);

    let pings = Ping::start(&net.v4, V6_HOST_AS_V4);
    // Pings pass all the time, so there is an interval with some.
    let seen = || -> Option<Value> {
        let view = said(&run, &net.gateway, "top --once --json --interval 200ms");
        let view: Value = serde_json::from_str(&view).unwrap();
        let translator = &view["daemons"][0]["translators"][0];
        let rate = translator["v4_to_v6"]["packets_per_second"].as_f64().unwrap();
        (rate > 0.0).then_some(view)
    };
    let view = poll("the view has a rate", seen);
    pings.end();
    let daemons = view["daemons"].as_array().unwrap();
    assert_eq!(daemons.len(), 2, "{view}");
    let pids: Vec<u64> = daemons.iter().map(|it| it["pid"].as_u64().unwrap()).collect();
    assert_eq!(pids, [one.pid(), two.pid()].map(u64::from));
    assert_eq!(daemons[1]["servers"][0]["name"], "relay");

    let text = said(&run, &net.gateway, "top --once --interval 100ms");
    assert!(text.contains("TRANSLATOR") && text.contains("siit0"), "{text}");
    assert!(text.contains("SERVER") && text.contains("relay"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");

    // All of them, or the one that is named.
    let text = said(&run, &net.gateway, "status");
    for needed in ["siit0", "relay", "control.sock", "other.sock"] {
        assert!(text.contains(needed), "{needed}: {text}");
    }
    let json = said(&run, &net.gateway, "status --json");
    let each = serde_json::Deserializer::from_str(&json).into_iter::<Value>();
    let pids: Vec<u64> = each.map(|it| it.unwrap()["pid"].as_u64().unwrap()).collect();
    assert_eq!(pids, [one.pid(), two.pid()].map(u64::from));
    let text = said(&run, &net.gateway, &format!("--socket {} status", other.display()));
    assert!(text.contains("relay") && !text.contains("siit0"), "{text}");
    two.stop();
    one.stop();
    let none = run.output(&net.gateway, "top --once");
    assert_eq!(none.status.code(), Some(1));
    let error = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(error.contains("no daemon listens"), "{error}");
}

#[test]
fn on_a_terminal_it_outlives_the_daemon_and_leaves_the_terminal_as_it_was() {
    if !can_use_tun() || !has_programs(&["script", "stty"]) {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let log = run.path().join("terminal");
    let shell = format!(
        "stty rows 24 cols 80; stty -g > {dir}/before; {FORDWAY} --run-dir {dir} top --interval 100ms; \
         code=$?; stty -g > {dir}/after; exit $code",
        dir = run.path().display()
    );
    let mut script = net.gateway.command("script");
    script.args(["-qefc", &shell]).arg(&log).env("TERM", "xterm").env("NO_COLOR", "1");
    script.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut script = Process::start(&mut script);
    let shown = || String::from_utf8_lossy(&std::fs::read(&log).unwrap_or_default()).into_owned();
    // Only cells that differ are drawn, so words are looked for, not sentences.
    let draws = |word: &str, times: usize| {
        let drawn = || (shown().matches(word).count() >= times).then_some(());
        poll_or(drawn, || format!("{word} {times} times: {:?}", shown()));
    };
    draws("reachable", 1);
    let daemon = Daemon::start(&run, &net.gateway, BORDER);
    draws("TRANSLATOR", 1);
    draws("siit0", 1);
    daemon.stop();
    draws("reachable", 2);
    let again = Daemon::start(&run, &net.gateway, BORDER);
    draws("TRANSLATOR", 2);
    script.0.stdin.as_mut().unwrap().write_all(b"q").unwrap();
    assert!(script.wait().success(), "{:?}", shown());
    let shown = shown();
    let last = shown.split("Script done").next().unwrap().trim_end();
    assert!(shown.contains("\u{1b}[?1049h"), "another screen: {shown:?}");
    let end = last.rfind("\u{1b}[?1049l").expect("back to the first screen");
    assert!(last[end..].contains("\u{1b}[?25h"), "with a cursor: {last:?}");
    // Over SSH, selecting text with the mouse is the terminal's; and NO_COLOR is set.
    for mouse in ["\u{1b}[?1000h", "\u{1b}[?1002h", "\u{1b}[?1003h", "\u{1b}[?1006h"] {
        assert!(!shown.contains(mouse), "{shown:?}");
    }
    let colours = ["\u{1b}[31m", "\u{1b}[33m", "\u{1b}[38;", "\u{1b}[48;"];
    assert!(!colours.iter().any(|it| shown.contains(it)), "{shown:?}");
    let mode = |name: &str| std::fs::read_to_string(run.path().join(name)).unwrap();
    assert_eq!(mode("after"), mode("before"));
    again.stop();
}

#[test]
fn without_a_terminal_each_view_is_text_until_nobody_reads() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let daemon = Daemon::start(&run, &net.gateway, BORDER);
    let top = format!(
        "{FORDWAY} --run-dir {} top --interval 100ms | grep -m 2 TRANSLATOR",
        run.path().display()
    );
    let mut shell: Command = net.gateway.command("sh");
    let output = shell.args(["-c", &top]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text.lines().count(), 2, "{text}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    daemon.stop();
}
