//! A pod's way into IPv4, and what the plugin answers.

use std::fs;
use std::path::Path;

use fordway_cni::{Code, Command};
use serde_json::{Value, json};

use crate::world::{CNI, Pod, World, can_run};

/// Everything that an application expects of IPv4.
fn reaches_ipv4(world: &World, pod: &Pod) {
    assert!(world.fetch(pod, "http://198.51.100.10/").starts_with("you are 203.0.113."));
    assert!(world.fetch(pod, "http://v4only.example.net/").starts_with("you are 203.0.113."));
    assert_eq!(world.fetch(pod, "http://198.51.100.10/large").len(), 300_000);
    pod.namespace.output("ping", "-c 1 -W 60 -n 198.51.100.10");
    // Fragments in both directions.
    assert_eq!(world.echo(pod, 4000), 4000);
}

#[test]
fn a_pod_uses_ipv4_behind_ptp_and_bridge() {
    if !can_run() {
        return;
    }
    let world = World::new();
    for kind in ["ptp", "bridge"] {
        let (pod, conf) = world.pod(kind, &json!({}));
        assert_eq!(
            world.cni("ADD", &pod, &conf),
            Ok(conf["prevResult"].clone()),
            "passed on unchanged"
        );
        reaches_ipv4(&world, &pod);
        assert_eq!(world.cni("CHECK", &pod, &conf), Ok(Value::Null), "{kind}");
        let listed = world.listed(&pod).expect("an entry");
        assert!(
            listed["v4_to_v6"].as_u64() > Some(10) && listed["v6_to_v4"].as_u64() > Some(10),
            "{listed}"
        );
        let lost = [&listed["drops"], &listed["untranslatable"]];
        assert_eq!(lost, [&json!({}), &json!({})], "{listed}");
        // IPv6 goes past the CLAT, and its address is no source.
        let pinged = pod.namespace.output("ping", "-6 -c 1 -W 60 -n 2001:db8:ff::1");
        assert!(pinged.contains("1 received"), "{pinged}");
        let source = pod.namespace.ip("-6 route get 2001:db8:ff::1");
        assert!(!source.contains(":c1a7:"), "{source}");

        assert_eq!(world.cni("DEL", &pod, &conf), Ok(Value::Null));
        assert_eq!(pod.leftovers(), "");
        assert_eq!(world.leftovers(), "");
        // Once more: what is gone is no error.
        assert_eq!(world.cni("DEL", &pod, &conf), Ok(Value::Null));
        world.call_first(kind, "DEL", &pod);
    }
}

#[test]
fn clats_of_a_prefix_of_their_own_are_routed() {
    if !can_run() {
        return;
    }
    let world = World::new();
    for kind in ["ptp", "bridge"] {
        let (pod, conf) = world.pod(kind, &json!({ "clatPrefix": "2001:db8:c1a7::/64" }));
        world.cni("ADD", &pod, &conf).expect("a CLAT");
        let clat = world.listed(&pod).expect("an entry")["clat"].as_str().expect("text").to_owned();
        assert!(clat.starts_with("2001:db8:c1a7::"), "{clat}");
        let route = world.node.ip("-6 route show proto 246");
        assert!(route.starts_with(&clat), "{route}");
        reaches_ipv4(&world, &pod);
        // Without DEL of this plugin the interface's end takes the route of ptp with it; that of a bridge stays for DEL.
        assert_eq!(world.cni("CHECK", &pod, &conf), Ok(Value::Null), "{kind}");
        world.call_first(kind, "DEL", &pod);
        assert_eq!(world.cni("DEL", &pod, &conf), Ok(Value::Null));
        assert_eq!(world.leftovers(), "");
    }
}

fn read(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).expect("a file")).expect("JSON")
}

#[test]
fn the_prefix_is_discovered_and_kept() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let more = json!({ "pref64": "auto", "nameservers": ["2001:db8:ff::1"] });
    let (pod, conf) = world.pod("ptp", &more);
    world.cni("ADD", &pod, &conf).expect("a CLAT");
    reaches_ipv4(&world, &pod);
    // The name server is not asked again.
    world.gateway.ip("addr del 2001:db8:ff::1/64 dev gw0");
    let (second, mut conf2) = world.pod("ptp", &more);
    world.cni("ADD", &second, &conf2).expect("a CLAT by the kept prefix");
    // It expires, and no name server answers: it is used for some more time.
    let file = world.prefix_file().expect("a kept prefix");
    let until = || read(&file)["until"].as_u64().expect("a time");
    let mut kept = read(&file);
    kept["until"] = json!(0);
    fs::write(&file, kept.to_string()).expect("a file");
    conf2["nameservers"] = json!(["127.0.0.1"]);
    assert_eq!(world.cni("CHECK", &second, &conf2), Ok(Value::Null), "by the expired prefix");
    assert_ne!(until(), 0);
    for (pod, conf) in [(&pod, &conf), (&second, &conf2)] {
        assert_eq!(world.cni("DEL", pod, conf), Ok(Value::Null));
    }
    assert_eq!(world.leftovers(), "", "the kept prefix goes with the last pod");
    // A plugin that is killed leaves the prefix for the next.
    world.gateway.add_address("2001:db8:ff::1/64", "gw0");
    let killed = world.steps(Command::Add, &pod, &conf, 0).expect_err("no step");
    assert_eq!(killed.code, Code::Interrupted);
    assert!(world.prefix_file().is_some());
    assert_eq!(world.cni("DEL", &pod, &conf), Ok(Value::Null));
    assert_eq!(world.leftovers(), "");
}

#[test]
fn pods_with_ipv4_are_left_alone() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let (pod, mut conf) = world.pod("ptp", &json!({}));
    let interface = conf["prevResult"]["ips"][0]["interface"].clone();
    let v4 = json!({ "address": "192.0.2.7/32", "interface": interface });
    conf["prevResult"]["ips"].as_array_mut().expect("a list").push(v4);
    for command in ["ADD", "CHECK", "DEL"] {
        let answer = world.cni(command, &pod, &conf).expect(command);
        assert_eq!(answer, if command == "ADD" { conf["prevResult"].clone() } else { Value::Null });
        assert_eq!(
            (pod.leftovers(), world.leftovers()),
            (String::new(), String::new()),
            "{command}"
        );
    }
}

#[test]
fn what_can_not_work_is_refused_and_leaves_nothing() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let (pod, conf) = world.pod("ptp", &json!({}));
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut conf = conf.clone();
        change(&mut conf);
        let error = world.cni("ADD", &pod, &conf).expect_err("a refusal");
        assert_eq!(world.leftovers(), "", "{error}");
        assert_eq!(pod.leftovers(), "", "{error}");
        (
            error["code"].as_u64().expect("a code"),
            error["cniVersion"].as_str().expect("a version").to_owned(),
        )
    };
    let code = |number: u64| (number, "1.0.0".to_owned());
    let first =
        |conf: &mut Value| conf["prevResult"]["ips"].as_array_mut().expect("a list").remove(0);
    assert_eq!(refused(&|conf| drop(first(conf))), code(100));
    assert_eq!(
        refused(&|conf| drop(conf.as_object_mut().expect("an object").remove("prevResult"))),
        code(7)
    );
    assert_eq!(refused(&|conf| conf["pref64"] = json!("64:ff9b::/95")), (7, "1.1.0".to_owned()));
    assert_eq!(refused(&|conf| conf["prefix64"] = json!("64:ff9b::/96")), (2, "1.1.0".to_owned()));
    assert_eq!(
        refused(&|conf| conf["prevResult"]["ips"][0]["address"] = json!("2001:db8:5::9/120")),
        code(7)
    );
    // Nobody tells a prefix.
    assert_eq!(
        refused(&|conf| {
            conf["pref64"] = json!("auto");
            conf["nameservers"] = json!(["127.0.0.1"]);
        }),
        code(11)
    );
    pod.namespace.ip("-6 route del default");
    assert_eq!(refused(&|_| {}), code(101));
    let node = Pod { namespace: pod.namespace, id: "node".to_owned() };
    let answer = world.call(Path::new(CNI), "NOTHING", Some(&node), &conf).expect_err("a refusal");
    assert_eq!(answer["code"], 4);
}

#[test]
fn versions_are_told() {
    if !can_run() {
        return;
    }
    let world = World::new();
    // As libcni asks.
    for (asked, told) in [(json!({ "cniVersion": "1.0.0" }), "1.0.0"), (json!({}), "1.1.0")] {
        let answer = world.call(Path::new(CNI), "VERSION", None, &asked).expect("versions");
        assert_eq!(answer["cniVersion"], told);
        assert!(answer["supportedVersions"].as_array().expect("a list").contains(&json!("1.1.0")));
    }
}
