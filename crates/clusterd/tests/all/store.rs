//! What the store is asked to be, and what gateways show it.

use std::fmt::Write;

use fordway_testhost::has_programs;
use fordway_testhost::namespace::can_test;
use serde_json::json;

use crate::world::{MIDDLE, World};

#[test]
fn servers_see_certificates_and_passwords_of_gateways() {
    if !can_test() || !has_programs(&["nats-server"]) {
        return;
    }
    let mut world = World::with([1, 2, 4], |folder, authority| {
        let [certificate, key] = authority.write(folder, "nats", &[&MIDDLE.to_string()]);
        let mut more = String::new();
        let ca = authority.certificate.display();
        writeln!(
            more,
            "tls {{ cert_file: \"{}\", key_file: \"{}\", ca_file: \"{ca}\", verify: true }}\n\
             authorization {{ users: [ {{ user: gateway, password: secret }} ] }}",
            certificate.display(),
            key.display(),
        )
        .unwrap();
        let password = folder.join("password");
        std::fs::write(&password, "secret\n").unwrap();
        (more, json!({ "password": password.display().to_string(), "tls": true }))
    });
    world.settled(&[0, 1]);
    // Who has another password is nobody there, and owns nothing.
    world.kill(1);
    std::fs::write(world.folder().join("password"), "guess").unwrap();
    world.start(1);
    world.until("it says why", |all| all[1].1["store_error"].to_string().contains("uthoriz"));
    let all = world.settled(&[0]);
    assert_eq!((&all[1].1["is_store_open"], &all[1].1["written"]), (&json!(false), &json!(0)));
    world.check();
}

#[test]
fn a_bucket_that_forgets_is_not_used() {
    if !can_test() || !has_programs(&["nats-server"]) {
        return;
    }
    let mut world = World::new(1, 1, 4);
    world.settled(&[0]);
    world.kill(0);
    world.nats.request("$JS.API.STREAM.DELETE.KV_fordway", "");
    let memory = r#"{"name":"KV_fordway","subjects":["$KV.fordway.>"],"storage":"memory","max_msgs_per_subject":64}"#;
    let made = world.nats.request("$JS.API.STREAM.CREATE.KV_fordway", memory);
    assert!(made.contains("did_create"), "{made}");
    world.start(0);
    let said =
        world.until("it says why", |all| all[0].1["store_error"].to_string().contains("in memory"));
    assert_eq!((&said[0].1["owned"], &said[0].1["is_store_open"]), (&json!([]), &json!(false)));
}
