//! Which ways mechanisms open, as a small run finds out. Needs what the other tests of whole runs need.

mod common;

use common::{ALONE, can_run, has, lab, programs, text};
use serde_json::Value;

#[test]
fn a_nat_hides_the_client_and_native_forwarding_does_not() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !can_run() || !has("nftables", "nat44") || !programs(&["vsftpd", "curl"]) {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("run").display().to_string();
    let only = "native-v6,native-v4,nat44-nftables";
    let done = lab(&[
        "run",
        "interop-mechanisms",
        "--only",
        only,
        "--blocks",
        "1",
        "--duration",
        "1",
        "--seed",
        "5",
        "--out",
        &out,
    ]);
    let (said, errors) = (text(&done.stdout), text(&done.stderr));
    assert!(done.status.success(), "{errors}");
    assert!(said.contains("Which ways each mechanism opens"), "{said}");
    assert!(said.contains("nat44-nftables: no from server: TCP: "), "{said}");

    let file = std::fs::read(dir.path().join("run/results.json")).expect("results");
    let results: Value = serde_json::from_slice(&file).expect("JSON");
    let ways = |mechanism: &str| -> Vec<(String, bool)> {
        let cells = results["matrix"][mechanism].as_array().expect("cells").iter();
        cells.map(|c| (c["name"].as_str().unwrap().to_owned(), c["ok"] == true)).collect()
    };
    let no = |mechanism: &str| -> Vec<String> {
        ways(mechanism).into_iter().filter(|(_, ok)| !ok).map(|(name, _)| name).collect()
    };
    assert_eq!(ways("native-v4").len(), 13);
    assert_eq!(no("native-v4"), Vec::<String>::new());
    assert_eq!(no("native-v6"), ["IPv4 literal"]);
    let hidden = no("nat44-nftables");
    for way in ["from server: TCP", "from server: UDP", "from server: ICMP", "FTP active"] {
        assert!(hidden.iter().any(|name| name == way), "{hidden:?}");
    }
    for way in ["to server: TCP", "IPv4 literal", "FTP passive", "fragments", "path MTU"] {
        assert!(!hidden.iter().any(|name| name == way), "{hidden:?}");
    }
    let page = std::fs::read_to_string(dir.path().join("run/report.html")).expect("a report");
    assert!(page.contains("Which ways each mechanism opens"));
}
