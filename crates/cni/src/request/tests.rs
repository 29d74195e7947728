//! What is accepted, and which code refuses the rest.

use serde_json::json;

use super::*;

fn variables(name: &str) -> Option<String> {
    let value = match name {
        "CNI_CONTAINERID" => "c1",
        "CNI_IFNAME" => "eth0",
        "CNI_NETNS" => "/run/netns/c1",
        _ => return None,
    };
    Some(value.to_owned())
}

fn configuration(more: &Value) -> Vec<u8> {
    let mut all = json!({ "cniVersion": "1.1.0", "name": "pods", "type": "fordway-cni" });
    let map = all.as_object_mut().unwrap();
    map.extend(more.as_object().unwrap().clone());
    map.retain(|_, value| !value.is_null());
    serde_json::to_vec(&all).unwrap()
}

fn read(command: Command, more: &Value) -> Result<Request> {
    Request::read(command, variables, &configuration(more))
}

fn refused(more: &Value) -> Code {
    read(Command::Add, more).unwrap_err().code
}

#[test]
fn all_keys_are_read() {
    let request = read(
        Command::Add,
        &json!({
            "pref64": "64:ff9b::/96", "clatPrefix": "2001:db8:c1a7::/64",
            "nameservers": ["2001:db8::53"], "allowPrivate": true,
            "prevResult": { "ips": [] }, "cni.dev/x": 1, "runtimeConfig": {},
        }),
    );
    let Request { network, attachment, netns, .. } = request.unwrap();
    assert_eq!(network.own.pref64, Pref64::Fixed(Pool6::WELL_KNOWN));
    assert_eq!(network.own.clat_prefix.unwrap().to_string(), "2001:db8:c1a7::/64");
    assert_eq!(network.own.nameservers, ["2001:db8::53".parse::<IpAddr>().unwrap()]);
    assert!(network.own.allow_private && network.previous.is_some());
    assert_eq!(attachment.unwrap().interface, "eth0");
    assert_eq!(netns.unwrap(), PathBuf::from("/run/netns/c1"));
    let network = read(Command::Add, &json!({})).unwrap().network;
    assert_eq!(network.own.pref64, Pref64::Auto);
}

#[test]
fn wrong_configurations_have_their_codes() {
    assert_eq!(refused(&json!({ "cniVersion": "0.2.0" })), Code::Version);
    assert_eq!(refused(&json!({ "cniVersion": "2.0.0" })), Code::Version);
    assert_eq!(refused(&json!({ "name": null })), Code::Decoding);
    assert_eq!(refused(&json!({ "nameservers": ["nonsense"] })), Code::Decoding);
    for pref64 in ["", "64:ff9b::/95", "192.0.2.0/24"] {
        assert_eq!(refused(&json!({ "pref64": pref64 })), Code::Configuration);
    }
    for prefix in ["2001:db8::/113", "192.0.2.0/24"] {
        assert_eq!(refused(&json!({ "clatPrefix": prefix })), Code::Configuration);
    }
    let failure = read(Command::Add, &json!({ "pref46": "x" })).unwrap_err();
    assert_eq!(failure.code, Code::Field);
    assert!(failure.message.contains("\"pref46\" with value \"x\""), "{failure}");
    let failure = Request::read(Command::Add, variables, b"{").unwrap_err();
    assert_eq!(failure.code, Code::Decoding);
}

#[test]
fn what_is_removed_needs_no_key_of_the_plugin() {
    let faulty = json!({
        "pref64": "64:ff9b::/95", "clatPrefix": "2001:db8:c1a7::/64", "nameservers": ["nonsense"], "pref46": "x",
        VALID[0]: [],
    });
    assert_eq!(refused(&faulty), Code::Field);
    for command in [Command::Del, Command::Gc] {
        let own = read(command, &faulty).unwrap().network.own;
        assert_eq!((own.pref64, own.nameservers), (Pref64::Auto, vec![]));
        // One that can be read is.
        assert_eq!(own.clat_prefix.unwrap().to_string(), "2001:db8:c1a7::/64");
        assert_eq!(read(command, &json!({ "name": null })).unwrap_err().code, Code::Decoding);
    }
}

#[test]
fn variables_are_checked() {
    let with = |command, name: &'static str, value: &'static str| {
        let variable = |asked: &str| {
            if asked == name { Some(value.to_owned()) } else { variables(asked) }
        };
        Request::read(command, variable, &configuration(&json!({})))
    };
    let code = |command, name, value| with(command, name, value).unwrap_err().code;
    for container in ["", "-x", "a b", "a/b"] {
        assert_eq!(code(Command::Add, "CNI_CONTAINERID", container), Code::Environment);
    }
    for interface in ["", ".", "..", "a/b", "a:b", "a b", "sixteen_letters_"] {
        assert_eq!(code(Command::Del, "CNI_IFNAME", interface), Code::Environment);
    }
    assert_eq!(code(Command::Check, "CNI_NETNS", ""), Code::Environment);
    assert_eq!(with(Command::Del, "CNI_NETNS", "").unwrap().netns, None);
    let none = |_: &str| None;
    let status = Request::read(Command::Status, none, &configuration(&json!({})));
    assert_eq!(status.unwrap().attachment, None);
}

#[test]
fn garbage_is_what_a_list_does_not_name() {
    let valid = |key: &str| {
        let list = json!([{ "containerID": "c1", "ifname": "eth0" }]);
        read(Command::Gc, &json!({ key: list })).unwrap().network.valid.unwrap()
    };
    let attachment = Attachment { container: "c1".to_owned(), interface: "eth0".to_owned() };
    for key in VALID {
        assert_eq!(valid(key), BTreeSet::from([attachment.key("pods")]));
    }
    assert_ne!(attachment.key("pods"), attachment.key("others"));
    let empty = read(Command::Gc, &json!({ VALID[0]: [] })).unwrap();
    assert_eq!(empty.network.valid, Some(BTreeSet::new()));
    assert_eq!(read(Command::Gc, &json!({})).unwrap_err().code, Code::Configuration);
    let wrong = read(Command::Gc, &json!({ VALID[0]: [{ "ifname": "eth0" }] }));
    assert_eq!(wrong.unwrap_err().code, Code::Decoding);
}

#[test]
fn errors_are_printed_as_the_specification_says() {
    let failure = Failure::new(Code::Later, "no room");
    assert_eq!(failure.json("1.1.0"), r#"{"cniVersion":"1.1.0","code":11,"msg":"no room"}"#);
    let failure = failure.details("call GC");
    assert!(failure.json("1.0.0").ends_with(r#""msg":"no room","details":"call GC"}"#));
}
