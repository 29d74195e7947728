//! Several pods on one node: garbage, addresses that clash, states of the node.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use fordway_testhost::poll;
use serde_json::{Value, json};

use crate::world::{CNI, Pod, World, can_run};

fn newest(conf: &Value, more: &Value) -> Value {
    let mut conf = conf.clone();
    conf["cniVersion"] = json!("1.1.0");
    let map = conf.as_object_mut().expect("an object");
    map.remove("prevResult");
    map.extend(more.as_object().expect("an object").clone());
    conf
}

#[test]
fn twenty_pods_share_their_programs_and_leave_nothing() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let pods: Vec<(Pod, Value)> = (0..20).map(|_| world.pod("bridge", &json!({}))).collect();
    for (pod, conf) in &pods {
        world.cni("ADD", pod, conf).expect("a CLAT");
    }
    let folder = world.pins();
    let names: Vec<String> =
        folder.into_iter().filter(|name| name.starts_with("programs-")).collect();
    assert_eq!(names.len(), 1, "one set of programs: {names:?}");
    for (pod, _) in &pods {
        pod.namespace.output("ping", "-c 1 -W 60 -n 198.51.100.10");
        let listed = world.listed(pod).expect("an entry");
        assert_eq!([&listed["v4_to_v6"], &listed["v6_to_v4"]], [&json!(1), &json!(1)], "{listed}");
    }
    // Each pod has an address of its own.
    let text = world.node.output(CNI, "list --json");
    let all: Value = serde_json::from_str(&text).expect("JSON");
    let all = all["pods"].as_array().expect("a list");
    let clats: std::collections::BTreeSet<_> =
        all.iter().map(|pod| pod["clat"].to_string()).collect();
    assert_eq!(clats.len(), 20);
    assert_eq!(world.node.output(CNI, "list").lines().count(), 21, "a heading and the pods");
    for (pod, conf) in &pods {
        // Also without an entry, while others have theirs.
        world.cni("DEL", pod, conf).expect("DEL");
        world.cni("DEL", pod, conf).expect("DEL");
        assert_eq!(pod.leftovers(), "");
    }
    assert_eq!(world.leftovers(), "");
}

#[test]
fn garbage_is_collected_by_network() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let own = json!({ "clatPrefix": "2001:db8:c1a7::/64" });
    let [(kept, kept_conf), (lost, lost_conf), (others, mut others_conf)] =
        [(); 3].map(|()| world.pod("bridge", &own));
    others_conf["name"] = json!("others");
    for (pod, conf) in [(&kept, &kept_conf), (&lost, &lost_conf), (&others, &others_conf)] {
        world.cni("ADD", pod, conf).expect("a CLAT");
    }
    // The pod is gone, and nobody has called DEL.
    let gone = lost.id.clone();
    drop(lost);
    let valid = json!([{ "containerID": kept.id, "ifname": "eth0" }]);
    let collect = |valid: &Value| {
        let conf = newest(&kept_conf, &json!({ "cni.dev/valid-attachments": valid }));
        assert_eq!(world.call(Path::new(CNI), "GC", None, &conf), Ok(Value::Null));
    };
    let listed = |name: &str| world.node.output(CNI, "list --json").contains(name);
    assert!(listed(&gone));
    collect(&valid);
    assert!(!listed(&gone));
    assert_eq!(world.cni("CHECK", &kept, &kept_conf), Ok(Value::Null));
    assert_eq!(world.cni("CHECK", &others, &others_conf), Ok(Value::Null));
    assert_eq!(world.node.ip("-6 route show proto 246").lines().count(), 2);
    // Without a list nothing is garbage.
    let conf = newest(&kept_conf, &json!({}));
    assert_eq!(world.call(Path::new(CNI), "GC", None, &conf).expect_err("a refusal")["code"], 7);
    collect(&json!([]));
    assert!(!listed(&kept.id) && listed(&others.id));
    world.cni("DEL", &others, &others_conf).expect("DEL");
    assert_eq!(world.leftovers(), "");
}

#[test]
fn an_address_belongs_to_one_pod() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let (first, conf) = world.pod("ptp", &json!({ "clatPrefix": "2001:db8:c1a7::/64" }));
    world.cni("ADD", &first, &conf).expect("a CLAT");
    let (second, mut clash) = world.pod("ptp", &json!({ "clatPrefix": "2001:db8:c1a7::/64" }));
    // Another network, whose addresses end as the first one's.
    let address = conf["prevResult"]["ips"][0]["address"].as_str().expect("text");
    clash["prevResult"]["ips"][0]["address"] = json!(address.replace("2001:db8:5:", "2001:db8:6:"));
    let error = world.cni("ADD", &second, &clash).expect_err("a clash");
    assert_eq!(error["code"], 7, "{error}");
    assert!(error["details"].as_str().expect("text").contains("clatPrefix"), "{error}");
    // The address of the first one's CLAT.
    let clat = world.listed(&first).expect("an entry")["clat"].as_str().expect("text").to_owned();
    let mut taken = clash.clone();
    taken["clatPrefix"] = json!("2001:db8:c2::/64");
    taken["prevResult"]["ips"][0]["address"] = json!(format!("{clat}/64"));
    let error = world.cni("ADD", &second, &taken).expect_err("a clash");
    assert_eq!(error["code"], 7, "{error}");
    assert_eq!(world.cni("CHECK", &first, &conf), Ok(Value::Null));
    // The same address once more: the first pod is gone, and nobody has called DEL.
    let (third, mut same) = world.pod("ptp", &json!({ "clatPrefix": "2001:db8:c1a7::/64" }));
    same["prevResult"]["ips"][0]["address"] = json!(address);
    drop(first);
    world.cni("ADD", &third, &same).expect("a CLAT");
    assert_eq!(world.node.output(CNI, "list").lines().count(), 2);
    world.cni("DEL", &third, &same).expect("DEL");
    assert_eq!(world.leftovers(), "");
}

#[test]
fn status_says_what_is_missing() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let [(pod, conf), (older, older_conf)] = [(); 2].map(|()| world.pod("ptp", &json!({})));
    let status = |more: &Value| world.call(Path::new(CNI), "STATUS", None, &newest(&conf, more));
    assert_eq!(status(&json!({})), Ok(Value::Null));
    let unknown = json!({ "pref64": "auto", "nameservers": ["127.0.0.1"] });
    assert_eq!(status(&unknown).expect_err("no prefix")["code"], 50);
    let known = json!({ "pref64": "auto", "nameservers": ["2001:db8:ff::1"] });
    assert_eq!(status(&known), Ok(Value::Null));
    assert_eq!(world.leftovers(), "", "without pods nothing is kept");
    world.cni("ADD", &older, &older_conf).expect("a CLAT");
    world.cni("ADD", &pod, &conf).expect("a CLAT");
    let reaches_ipv4 = |pod: &Pod| pod.namespace.output("ping", "-c 1 -W 60 -n 198.51.100.10");
    reaches_ipv4(&pod);
    assert_eq!(status(&json!({})), Ok(Value::Null));
    // Somebody removes the pins.
    for name in world.pins().iter().filter(|name| name.starts_with("programs-")) {
        std::fs::remove_file(world.pin(name)).expect("a pin");
    }
    assert_eq!(status(&json!({})).expect_err("no programs")["code"], 51);
    assert_eq!(world.cni("CHECK", &pod, &conf).expect_err("no programs")["code"], 102);
    world.cni("ADD", &pod, &conf).expect("a repair");
    assert_eq!(world.cni("CHECK", &pod, &conf), Ok(Value::Null));
    reaches_ipv4(&pod);
    // The programs are there again, and the other pod does not have them.
    assert_eq!(status(&json!({})).expect_err("no programs")["code"], 51);
    let error = world.cni("CHECK", &older, &older_conf).expect_err("no programs");
    assert_eq!(error["code"], 102);
    assert!(error["details"].as_str().expect("text").contains("lost ones"), "{error}");
    world.cni("ADD", &older, &older_conf).expect("a repair");
    assert_eq!(world.cni("CHECK", &older, &older_conf), Ok(Value::Null));
    reaches_ipv4(&older);
    assert_eq!(status(&json!({})), Ok(Value::Null));
    for (pod, conf) in [(&pod, &conf), (&older, &older_conf)] {
        world.cni("DEL", pod, conf).expect("DEL");
    }
    assert_eq!(world.leftovers(), "");
}

#[test]
fn what_pods_have_left_is_cleaned_without_a_runtime() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let own = json!({ "clatPrefix": "2001:db8:c1a7::/64" });
    let [(kept, kept_conf), (lost, lost_conf)] = [(); 2].map(|()| world.pod("bridge", &own));
    assert!(world.node.output(CNI, "clean").starts_with("no pod"));
    for (pod, conf) in [(&kept, &kept_conf), (&lost, &lost_conf)] {
        world.cni("ADD", pod, conf).expect("a CLAT");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("fordway-cni");
    fs::write(&program, "a program").expect("a file");
    let uninstall = || {
        let place = folder.path().display();
        world.node.output(CNI, &format!("uninstall --bin-dir {place} --conf-dir {place}"))
    };
    assert_eq!(uninstall().trim(), "2 pods have a CLAT until they end");
    assert!(program.exists(), "a runtime may call it for DEL still");
    let routes = || world.node.ip("-6 route show proto 246").lines().count();
    assert_eq!(routes(), 2);
    // Who can not see the pods does not say that none is there.
    let refused = |prefix: &'static [&str]| {
        let output = world.node.run(|| {
            let mut command = Command::new(prefix[0]);
            command.args(&prefix[1..]).args([CNI, "clean"]);
            command.stdin(Stdio::null()).output().expect("a program")
        });
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    const COVERED: &str = "mount -t tmpfs none /sys/fs/bpf && exec \"$@\"";
    let said = refused(&["unshare", "--mount", "sh", "-c", COVERED, "sh"]);
    assert!(said.contains("no BPF file system"), "{said}");
    let said = refused(&["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"]);
    assert!(said.contains("Operation not permitted"), "{said}");
    assert_eq!(routes(), 2);
    // The kernel removes the device, and then its programs, a little later.
    drop(lost);
    let said = poll("the pod is gone", || {
        let said = world.node.output(CNI, "clean");
        said.starts_with("removed").then_some(said)
    });
    assert_eq!(said.trim(), "removed what 1 pod had left\n1 pod has a CLAT until it ends");
    assert_eq!(routes(), 1);
    assert_eq!(world.cni("CHECK", &kept, &kept_conf), Ok(Value::Null));
    kept.namespace.output("ping", "-c 1 -W 60 -n 198.51.100.10");
    assert_eq!(world.listed(&kept).expect("an entry")["attached"], true);
    // Somebody has taken the programs off: there is no CLAT any more.
    kept.detach();
    assert_eq!(world.listed(&kept).expect("an entry")["attached"], false);
    assert!(world.node.output(CNI, "list").contains("not attached"));
    let said = uninstall();
    assert!(said.contains("\nremoved what 1 pod had left\nno pod"), "{said}");
    assert!(!program.exists());
    assert_eq!(world.leftovers(), "");
}

#[test]
fn what_a_clat_can_not_carry_is_counted() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let (pod, conf) = world.pod("ptp", &json!({}));
    world.cni("ADD", &pod, &conf).expect("a CLAT");
    let clat = world.listed(&pod).expect("an entry")["clat"].as_str().expect("text").to_owned();
    // From outside the prefix nothing reaches the pod by the CLAT's address.
    let answered = world.node.run(move || {
        let mut command = std::process::Command::new("ping");
        command.args(["-6", "-c", "2", "-i", "0.2", "-W", "1", "-n", &clat]).output()
    });
    assert!(!answered.expect("ping").status.success());
    let listed = world.listed(&pod).expect("an entry");
    assert_eq!(listed["foreign"], 2, "{listed}");
    let ping = |arguments: &'static str| {
        let run = move || {
            let mut command = std::process::Command::new("ping");
            command
                .args(["-c", "1", "-W", "1", "-n"])
                .args(arguments.split(' '))
                .output()
                .expect("ping")
        };
        assert!(!pod.namespace.run(run).status.success(), "{arguments}");
        world.listed(&pod).expect("an entry")
    };
    // Fragments of an ICMP message have no checksum that could be corrected.
    let listed = ping("-s 4000 198.51.100.10");
    assert!(listed["drops"]["fragmented_icmp"].as_u64() > Some(0), "{listed}");
    // Longer than the device allows, which an ICMP error would tell.
    pod.namespace.ip("-4 route change default via inet6 2001:db8:5::1 dev eth0 mtu 1500");
    let listed = ping("-M do -s 1472 198.51.100.10");
    assert!(listed["untranslatable"]["too_big"].as_u64() > Some(0), "{listed}");
    let text = world.node.output(CNI, "list");
    assert!(text.contains("too_big ") && text.contains("foreign 2"), "{text}");
    world.cni("DEL", &pod, &conf).expect("DEL");
    assert_eq!(world.leftovers(), "");
}
