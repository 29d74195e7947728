//! A controller: keys that it sets, reads and watches.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::process::{Output, Stdio};

use fordway_testhost::can_use_tun;
use serde_json::{Value, json};

use crate::common::daemon::{Daemon, RunDir, dropped};
use crate::common::netns::Netns;
use crate::common::topology::Border;
use crate::common::traffic;

const FILE: &str = "[[translator]]\nname = 'nat64'\nmode = 'nat64'\nengine = 'user'\npool6 = ['2001:db8:64::/96']\n\
                    pool4 = ['192.0.2.1']\n\
                    [[translator]]\nname = 'siit0'\nmode = 'siit'\nengine = 'user'\npool6 = ['2001:db8:65::/96']\n\
                    eam = [['198.51.100.7', '2001:db8:7::7']]\n";

/// Applies a document from standard input.
fn applied(run: &RunDir, netns: &Netns, more: &str, document: &str) -> Output {
    let mut command = run.command(netns, &format!("apply --json {more} -"));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(document.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Of each key that was set: added, removed, unchanged.
fn counts(output: &Output) -> Vec<(String, u64, u64, u64)> {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let applied: Value = serde_json::from_slice(&output.stdout).unwrap();
    let one = |it: &Value| {
        let number = |name: &str| it[name].as_u64().unwrap();
        let key = it["key"].as_str().unwrap().to_owned();
        (key, number("added"), number("removed"), number("unchanged"))
    };
    applied["keys"].as_array().unwrap().iter().map(one).collect()
}

fn get(run: &RunDir, netns: &Netns, keys: &str) -> Value {
    serde_json::from_slice(&run.output(netns, &format!("get {keys}")).stdout).unwrap()
}

#[test]
fn keys_are_set_again_and_given_back() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let file = run.file("keys.toml", FILE);
    let arguments = format!("run -c {}", file.display());
    let daemon = Daemon::start(&run, &net.gateway, &arguments);
    let mut watch = run.command(&net.gateway, "watch --json --count 3");
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut events = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut event = || -> Value { serde_json::from_str(&events.next().unwrap().unwrap()).unwrap() };
    assert_eq!(event(), json!({"generation": 0, "change": "watching"}));

    let service = traffic::listen(&net.v6);
    let port = service.local_addr().unwrap().port();
    let (to, is_dropped): (IpAddr, _) =
        ("192.0.2.1".parse().unwrap(), || dropped(&daemon.stats("nat64")));
    traffic::assert_unanswered(&net.v4, to, 80, is_dropped);
    let bib = format!("[\"tcp\", \"192.0.2.1:80\", \"[2001:db8:6::2]:{port}\"]");
    let document = format!(
        "{{\"translator.nat64.bib\": [{bib}], \"translator.siit0.eam\": [[\"198.51.100.8\", \"2001:db8:7::8\"]]}}"
    );
    let set = |more: &str, document: &str| counts(&applied(&run, &net.gateway, more, document));
    let (nat64, siit) = ("translator.nat64.bib".to_owned(), "translator.siit0.eam".to_owned());
    let would = set("--dry-run", &document);
    assert_eq!(would, [(nat64.clone(), 1, 0, 0), (siit.clone(), 1, 1, 0)]);
    traffic::assert_unanswered(&net.v4, to, 80, is_dropped);
    assert_eq!(set("", &document), would);
    traffic::assert_connects(&net.v4, to, 80);
    // The same again is nothing new.
    assert_eq!(set("", &document), [(nat64.clone(), 0, 0, 1), (siit.clone(), 0, 0, 1)]);
    let seen = event();
    assert_eq!((&seen["change"], &seen["generation"]), (&json!("applied"), &json!(1)));
    assert_eq!(seen["keys"].as_array().unwrap().len(), 2);
    // What is wrong changes nothing, and says where.
    let wrong = applied(
        &run,
        &net.gateway,
        "",
        "{\"translator.siit0.eam\": [[\"198.51.100.8\", \"::1\"]]}",
    );
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(wrong.status.code() == Some(2) && said.contains("::1"), "{said}");
    let wrong = applied(&run, &net.gateway, "", "{\"translator.other.eam\": []}");
    assert!(!wrong.status.success());
    assert_eq!(
        get(&run, &net.gateway, "translator.siit0.eam"),
        json!({"translator.siit0.eam": [["198.51.100.8/32", "2001:db8:7::8/128"]]})
    );
    // A reload of the file, and a restart, know of it.
    assert!(run.output(&net.gateway, "reload").status.success());
    assert_eq!(event()["change"], "reloaded");
    traffic::assert_connects(&net.v4, to, 80);
    daemon.stop();
    let daemon = Daemon::start(&run, &net.gateway, &arguments);
    traffic::assert_connects(&net.v4, to, 80);
    assert_eq!(get(&run, &net.gateway, "").as_object().unwrap().len(), 2);
    // Given back: the file's holds again.
    let back = set("--replace", "{\"translator.siit0.eam\": null}");
    assert_eq!(back, [(nat64, 0, 1, 0), (siit, 1, 1, 0)]);
    traffic::assert_unanswered(&net.v4, to, 80, || dropped(&daemon.stats("nat64")));
    assert_eq!(get(&run, &net.gateway, ""), json!({}));
    assert!(!run.path().join("control.sock.applied").exists());
    daemon.stop();
    let _gone = watch.kill();
    let _gone = watch.wait();
}

#[test]
fn many_entries_are_set_at_once() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let arguments = "nat64 --pool6 2001:db8:64::/96 --pool4 192.0.2.1 --engine user";
    let daemon = Daemon::start(&run, &net.gateway, arguments);
    let number: u64 = std::env::var("FORDWAY_MANY").map_or(5000, |it| it.parse().unwrap());
    let document = |of: u64| {
        let mut text = String::from("{\"translator.nat64.bib\": [");
        for entry in 0..number {
            let (protocol, port) = (["tcp", "udp"][(entry % 2) as usize], 1 + entry / 2);
            let comma = if entry == 0 { "" } else { "," };
            let _ = write!(
                text,
                "{comma}[\"{protocol}\",\"192.0.2.1:{port}\",\"[2001:db8:6::{of}]:{port}\"]"
            );
        }
        text + "]}"
    };
    let set = |of: u64| {
        let began = std::time::Instant::now();
        let counts = counts(&applied(&run, &net.gateway, "", &document(of))).remove(0);
        println!("{number} entries: {:?}", began.elapsed());
        (counts.1, counts.2, counts.3)
    };
    assert_eq!(set(2), (number, 0, 0));
    assert_eq!(set(2), (0, 0, number));
    assert_eq!(set(3), (number, number, 0));
    let shown = run.output(&net.gateway, "bib --static --count");
    assert_eq!(String::from_utf8_lossy(&shown.stdout).trim(), number.to_string());
    let read = get(&run, &net.gateway, "translator.nat64.bib");
    assert_eq!(read["translator.nat64.bib"].as_array().unwrap().len() as u64, number);
    daemon.stop();
}

#[test]
fn documents_that_can_not_be_are_refused() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let file = run.file("keys.toml", FILE);
    let daemon = Daemon::start(&run, &net.gateway, &format!("run -c {}", file.display()));
    let refused = |document: &str| {
        let output = applied(&run, &net.gateway, "", document);
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refused("[1]").contains("no JSON object"));
    assert!(refused("{\"bib\": []}").contains("no key of a section"));
    // What only a restart can change.
    assert!(refused("{\"control.timeout\": \"9s\"}").contains("control"));
    let socket = run.path().join("control.sock");
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    stream.write_all(b"{\"command\":\"apply\",\"octets\":99999999999}\n").unwrap();
    let mut reply = String::new();
    BufReader::new(&stream).read_line(&mut reply).unwrap();
    assert!(reply.contains("a document has at most 67108864 octets"), "{reply}");
    // Half a document is none, which the audit log tells.
    let mut stream =
        std::os::unix::net::UnixStream::connect(run.path().join("control.sock")).unwrap();
    stream.write_all(b"{\"command\":\"apply\",\"octets\":7}\n{").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
    let is_told =
        |line: &str| line.contains("\"octets\":7") && line.contains("unexpected end of file");
    assert!(daemon.log().lines().any(is_told), "{}", daemon.log());
    daemon.stop();
}

/// The only table of a section needs no name, and what was taken down stays down until the file is read again.
#[test]
fn keys_of_what_was_taken_down_wait_for_a_reload() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let (nat64, siit) = FILE.split_at(FILE.rfind("[[translator").unwrap());
    let file = run.file("keys.toml", nat64);
    let arguments = format!("run -c {}", file.display());
    let daemon = Daemon::start(&run, &net.gateway, &arguments);
    let set = |document: &str| counts(&applied(&run, &net.gateway, "", document)).remove(0);
    let reload = || {
        let output = run.output(&net.gateway, "reload");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let names = || -> Vec<String> {
        let status = run.output(&net.gateway, "status --json").stdout;
        let status: Value = serde_json::from_slice(&status).unwrap();
        let name = |it: &Value| it["name"].as_str().unwrap().to_owned();
        status["translators"].as_array().unwrap().iter().map(name).collect()
    };
    let key = "translator.hairpin".to_owned();
    let document = "{\"translator.hairpin\": false}";
    assert_eq!(set(document), (key.clone(), 1, 1, 0));
    assert_eq!(set(document), (key.clone(), 0, 0, 1));
    for known in [key.as_str(), "translator.nat64.hairpin"] {
        assert_eq!(get(&run, &net.gateway, known), json!({known: false}));
    }
    assert!(run.output(&net.gateway, "down nat64").status.success());
    for _ in 0..2 {
        assert_eq!(set(document), (key.clone(), 0, 0, 0));
        assert!(names().is_empty());
    }
    let (done, said) = reload();
    assert!(done, "{said}");
    assert_eq!(names(), ["nat64"]);
    assert_eq!(set(document), (key, 0, 0, 1));

    // With a second table the key is nobody's.
    std::fs::write(&file, format!("{nat64}{siit}")).unwrap();
    let (done, said) = reload();
    let kept = run.path().join("control.sock.applied");
    let tells = |said: &str| {
        said.contains("keys of a controller:1:1")
            && said.contains(&format!("They are kept in {}", kept.display()))
            && !said.contains("--set")
    };
    assert!(!done && tells(&said), "{said}");
    assert_eq!(names(), ["nat64"]);
    daemon.stop();
    let failed = run.output(&net.gateway, &arguments);
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(failed.status.code() == Some(2) && tells(&said), "{said}");
    std::fs::write(&file, nat64).unwrap();
    let daemon = Daemon::start(&run, &net.gateway, &arguments);
    std::fs::write(&file, format!("{nat64}{siit}")).unwrap();
    let given_back = applied(&run, &net.gateway, "--replace", "{}");
    assert!(given_back.status.success(), "{}", String::from_utf8_lossy(&given_back.stderr));
    assert_eq!(names(), ["nat64", "siit0"]);
    assert!(run.output(&net.gateway, "down nat64").status.success());
    assert_eq!(set("{\"translator.siit0.eam\": []}"), ("translator.siit0.eam".to_owned(), 0, 1, 0));
    assert_eq!(names(), ["siit0"]);
    daemon.stop();
}
