//! Which ways mechanisms open, as a small run finds out.

use crate::common::{Bench, can_run, has, programs, small};

#[test]
fn a_nat_hides_the_client_and_native_forwarding_does_not() {
    if !can_run() || !has("nftables", "nat44") || !programs(&["vsftpd", "curl", "tcpdump"]) {
        return;
    }
    let arms = ["native-v6", "native-v4", "nat44-nftables"];
    let bench = Bench::new();
    let experiment = small("interop-mechanisms", &arms, &["initiation"], "begun = 10\n");
    let run = bench.run("run", &experiment, &["--seed", "5"]);
    let said = &run.said;
    assert!(said.contains("Which ways each mechanism opens"), "{said}");
    assert!(said.contains("nat44-nftables: no from server: TCP: "), "{said}");

    let results = run.results();
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
    assert!(run.page().contains("Which ways each mechanism opens"));
}
