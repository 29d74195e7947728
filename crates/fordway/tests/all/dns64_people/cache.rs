//! The cache, shown and flushed.

use fordway_testhost::{can_use_tun, has_programs};
use serde_json::Value;

use super::world::{UNBOUND, dig, unbound};
use crate::common::dns::Zone;
use crate::common::resolver::{PREFIX, Site};

fn fordway(site: &Site, line: &str) -> String {
    let output = site.run.output(&site.gateway, line);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {complaint}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_is_flushed_is_asked_for_again() {
    if !can_use_tun() || !has_programs(&["dig", "unbound"]) {
        return;
    }
    let site = Site::new();
    let _upstream = site.upstream(Zone::new("example.net").a("v4.example.net", "192.0.2.1"));
    let before =
        ["www.corp.example. 3600 A 198.51.100.10", "ftp.corp.example. 3600 A 198.51.100.11"];
    let server = unbound(&site, "before.conf", "corp.example.", &before);
    let rest =
        format!("[[dns64.forward]]\ndomain = \"corp.example\"\nupstream = [\"{UNBOUND}\"]\n");
    let daemon = site.start(PREFIX, &rest);
    let ask =
        || ["www", "ftp"].map(|host| dig(&site, &format!("{host}.corp.example AAAA")).concat());
    let old = ["c633:640a", "c633:640b"].map(|end| format!("{PREFIX}{end}"));
    assert_eq!(ask(), old);
    dig(&site, "v4.example.net AAAA");

    let shown = fordway(&site, "dns64-cache --name corp.example --subtree --json");
    let rows: Vec<Value> = serde_json::from_str(&shown).unwrap();
    let a = rows.iter().find(|row| row["name"] == "www.corp.example." && row["type"] == "A");
    let a = a.unwrap_or_else(|| panic!("{shown}"));
    assert_eq!((&a["code"], &a["security"]), (&"NOERROR".into(), &"unchecked".into()));
    assert!(a["seconds"].as_u64().unwrap() <= 3600);
    assert!(a["records"][0].as_str().unwrap().ends_with("198.51.100.10"), "{a}");
    assert!(rows.iter().all(|row| row["name"].as_str().unwrap().ends_with("corp.example.")));
    assert_eq!(fordway(&site, "dns64-cache --name corp.example --subtree --count").trim(), "4");
    let text = fordway(&site, "dns64-cache --name v4.example.net");
    assert!(text.contains("NOERROR") && text.contains("192.0.2.1"), "{text}");

    drop(server);
    let after = ["www.corp.example. 3600 A 203.0.113.10", "ftp.corp.example. 3600 A 203.0.113.11"];
    let _server = unbound(&site, "after.conf", "corp.example.", &after);
    let new = ["cb00:710a", "cb00:710b"].map(|end| format!("{PREFIX}{end}"));
    assert_eq!(ask(), old, "both are cached");
    let said = fordway(&site, "dns64-cache flush WWW.corp.example");
    assert_eq!(said, "flushed 2 answers of upstream servers and 1 made of them\n");
    assert_eq!(ask(), [new[0].clone(), old[1].clone()]);
    fordway(&site, "dns64-cache flush example --subtree");
    assert_eq!(ask(), new);
    fordway(&site, "dns64-cache flush");
    assert_eq!(fordway(&site, "dns64-cache"), "none\n");
    daemon.stop();
}

#[test]
fn without_a_server_there_is_no_cache() {
    if !can_use_tun() {
        return;
    }
    let site = Site::new();
    let text = "[[translator]]\nname = \"nat64\"\nmode = \"nat64\"\nengine = \"user\"\n\
                pool6 = [\"2001:db8:64::/96\"]\npool4 = [\"192.0.2.128\"]\n";
    let file = site.run.file("gateway.toml", text);
    let line = format!("run {}", file.display());
    let _daemon = crate::common::daemon::Daemon::start(&site.run, &site.gateway, &line);
    for line in ["dns64-cache", "dns64-cache flush"] {
        let output = site.run.output(&site.gateway, line);
        assert_eq!(output.status.code(), Some(1));
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(complaint.contains("there is no DNS64 server"), "{complaint}");
    }
}
