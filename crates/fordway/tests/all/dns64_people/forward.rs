//! Names that have servers of their own.

use fordway_testhost::{can_use_tun, has_programs};
use hickory_proto::rr::RecordType;

use super::world::{BIND, UNBOUND, bind, dig, dig_whole, unbound};
use crate::common::dns::Zone;
use crate::common::resolver::{PREFIX, Site};

#[test]
fn each_domain_is_asked_at_its_own_servers() {
    if !can_use_tun() || !has_programs(&["dig", "unbound", "named"]) {
        return;
    }
    let site = Site::new();
    let zone = Zone::new("example.net")
        .a("v4.example.net", "192.0.2.1")
        .cname("inside.example.net", "www.corp.example");
    let upstream = site.upstream(zone);
    let data = [
        "www.corp.example. A 198.51.100.10",
        "outside.corp.example. CNAME v4.example.net.",
        "10.100.51.198.in-addr.arpa. PTR www.corp.example.",
    ];
    let _unbound = unbound(&site, "unbound.conf", "corp.example.", &data);
    let _bind = bind(&site, &[("lab.corp.example", "www A 198.51.100.20\n")], "");
    let rest = format!(
        "[[dns64.forward]]\ndomain = [\"corp.example\", \"100.51.198.in-addr.arpa\"]\nupstream = [\"{UNBOUND}\"]\n\
         synthesise = false\n\
         [[dns64.forward]]\ndomain = \"lab.corp.example\"\nupstream = [\"{BIND}\"]\nsynthesise = true\n"
    );
    let daemon = site.start(PREFIX, &rest);
    assert_eq!(dig(&site, "v4.example.net AAAA"), [format!("{PREFIX}c000:201")]);
    assert_eq!(dig(&site, "www.corp.example A"), ["198.51.100.10"]);
    assert_eq!(dig(&site, "www.corp.example AAAA"), [""; 0], "without synthesis");
    assert_eq!(dig(&site, "www.lab.corp.example AAAA"), [format!("{PREFIX}c633:6414")]);
    assert!(dig_whole(&site, "gone.corp.example AAAA").contains("NXDOMAIN"));
    // The name of a synthesised address is that of the IPv4 address.
    let reverse = dig(&site, &format!("-x {PREFIX}c633:640a"));
    assert_eq!(reverse.last().unwrap(), "www.corp.example.", "{reverse:?}");
    // Aliases go on at the servers of their targets, in both directions.
    assert_eq!(dig(&site, "inside.example.net A"), ["www.corp.example.", "198.51.100.10"]);
    assert_eq!(dig(&site, "outside.corp.example A"), ["v4.example.net.", "192.0.2.1"]);
    for name in ["www.corp.example", "www.lab.corp.example", "gone.corp.example"] {
        assert_eq!(upstream.count(name, RecordType::A), 0, "{name} has left the house");
        assert_eq!(upstream.count(name, RecordType::AAAA), 0, "{name} has left the house");
    }
    let status = daemon.status();
    let forward = &status["dns64"]["forward"];
    assert_eq!(forward[0]["domains"][0], "corp.example.");
    assert_eq!(forward[1]["upstream"][0], format!("{BIND}:53"));
    assert_eq!(status["dns64"]["upstream"].as_array().unwrap().len(), 3);
    // A reload takes the domain away: the public servers know nothing of it.
    site.configure(PREFIX, "");
    site.reload();
    assert!(dig_whole(&site, "www.corp.example A").contains("NXDOMAIN"));
    daemon.stop();
}
