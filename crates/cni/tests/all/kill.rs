//! A plugin that ends anywhere is repaired by the next call.

use fordway_cni::{Code, Command};
use serde_json::{Value, json};

use crate::world::{Pod, World, can_run};

/// Plugins before, and keys. With a prefix of its own a pod behind a bridge has a route on the node, too.
fn kinds() -> [(&'static str, Value); 2] {
    [("ptp", json!({})), ("bridge", json!({ "clatPrefix": "2001:db8:c1a7::/64" }))]
}

/// Runs a command, which has to succeed.
fn expect(world: &World, command: &str, pod: &Pod, conf: &Value, when: &str) {
    if let Err(error) = world.cni(command, pod, conf) {
        panic!("{command} {when}: {error}");
    }
}

/// Ends a command after each number of steps, and calls `repaired` after each. The number of steps.
fn ended_anywhere(
    world: &World,
    command: Command,
    pod: &Pod,
    conf: &Value,
    repaired: impl Fn(usize),
) -> usize {
    let mut number = 0;
    while let Err(failure) = world.steps(command, pod, conf, number) {
        assert_eq!(failure.code, Code::Interrupted, "{failure}");
        repaired(number);
        number += 1;
    }
    number
}

fn is_gone(world: &World, pod: &Pod, when: &str) {
    assert_eq!((world.leftovers(), pod.leftovers()), (String::new(), String::new()), "{when}");
}

#[test]
fn add_ends_anywhere() {
    if !can_run() {
        return;
    }
    let world = World::new();
    for (kind, more) in kinds() {
        let (pod, conf) = world.pod(kind, &more);
        let expect = |command: &str, when: &str| expect(&world, command, &pod, &conf, when);
        let steps = ended_anywhere(&world, Command::Add, &pod, &conf, |number| {
            let when = format!("ADD ended after {number} steps");
            expect("DEL", &when);
            is_gone(&world, &pod, &when);
            let _interrupted = world.steps(Command::Add, &pod, &conf, number);
            expect("ADD", &when);
            expect("CHECK", &when);
            expect("DEL", &when);
        });
        assert!(steps >= 6, "only {steps} steps");
        expect("ADD", "twice");
        expect("CHECK", "ADD twice");
        world.call_first(kind, "DEL", &pod);
        expect("DEL", "after the plugin before");
        is_gone(&world, &pod, "DEL after the plugin before");
    }
}

#[test]
fn del_ends_anywhere() {
    if !can_run() {
        return;
    }
    let world = World::new();
    for (kind, more) in kinds() {
        let (pod, conf) = world.pod(kind, &more);
        let expect = |command: &str, when: &str| expect(&world, command, &pod, &conf, when);
        expect("ADD", "first");
        let steps = ended_anywhere(&world, Command::Del, &pod, &conf, |number| {
            let when = format!("DEL ended after {number} steps");
            expect("ADD", &when);
            expect("CHECK", &when);
            let _interrupted = world.steps(Command::Del, &pod, &conf, number);
            expect("DEL", &when);
            is_gone(&world, &pod, &when);
            expect("ADD", "for the next number");
        });
        assert!(steps >= 5, "only {steps} steps");
        is_gone(&world, &pod, "DEL");
        world.call_first(kind, "DEL", &pod);
    }
}

#[test]
fn what_somebody_changes_is_found_and_repaired() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let (pod, conf) = world.pod("ptp", &json!({ "clatPrefix": "2001:db8:c1a7::/64" }));
    world.cni("ADD", &pod, &conf).expect("a CLAT");
    let clat = world.listed(&pod).expect("an entry")["clat"].as_str().expect("text").to_owned();
    let in_pod = |line: &str| drop(pod.namespace.ip(line));
    let on_node = |line: &str| drop(world.node.ip(line));
    let cases: [(&str, &dyn Fn()); 5] = [
        ("lacks the route 0.0.0.0/0", &|| in_pod("-4 route del default")),
        ("lacks the address 192.0.0.1/32", &|| in_pod("addr del 192.0.0.1/32 dev eth0")),
        ("lacks the address 2001:db8:c1a7:", &|| in_pod(&format!("addr del {clat}/128 dev eth0"))),
        ("no program is attached to the egress", &|| pod.detach()),
        ("the node has no route", &|| on_node(&format!("-6 route del {clat}"))),
    ];
    for (found, change) in cases {
        change();
        let error = world.cni("CHECK", &pod, &conf).expect_err(found);
        assert_eq!(error["code"], 102);
        assert!(error["details"].as_str().expect("text").contains(found), "{error}");
        world.cni("ADD", &pod, &conf).expect("a repair");
        assert_eq!(world.cni("CHECK", &pod, &conf), Ok(Value::Null), "{found}");
    }
    // Another prefix since: the pod's programs are replaced.
    let mut other = conf.clone();
    other["pref64"] = json!("64:ff9b::/96");
    assert_eq!(world.cni("CHECK", &pod, &other).expect_err("other programs")["code"], 102);
    world.cni("ADD", &pod, &other).expect("a change");
    assert_eq!(world.cni("CHECK", &pod, &other), Ok(Value::Null));
    world.cni("DEL", &pod, &other).expect("DEL");
    is_gone(&world, &pod, "DEL");
}
