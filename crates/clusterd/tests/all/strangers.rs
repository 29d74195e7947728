//! Who is no gateway is not heard.

use std::io::Write;
use std::net::TcpStream;
use std::process::{Command, Stdio};

use fordway_testhost::certificates::Authority;
use fordway_testhost::has_programs;
use fordway_testhost::namespace::{Namespace, can_test};

use crate::gateway::{self, GATEWAY, PORT};
use crate::world::{World, address};

/// Connects from a host as a TLS client with these options, and sends a long message.
fn connect(place: &Namespace, options: &[&str]) {
    let address = format!("[{}]:{PORT}", address(0));
    let options: Vec<String> = options.iter().map(ToString::to_string).collect();
    place.run(move || {
        let mut child = Command::new("openssl")
            .args(["s_client", "-quiet", "-tls1_3", "-connect", &address])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl is installed");
        // A length of 4 GiB, and more.
        let _ = child.stdin.take().unwrap().write_all(&[0xff; 9000]);
        fordway_testhost::wait(&mut child, "openssl");
    });
}

#[test]
fn strangers_are_refused_and_counted() {
    // Gateways of all tests are this test once more.
    if let Ok(given) = std::env::var(GATEWAY) {
        return gateway::be(&given);
    }
    if !can_test() || !has_programs(&["nats-server", "openssl"]) {
        return;
    }
    let mut world = World::new(1, 2, 4);
    world.settled(&[0, 1]);
    let refused = |world: &mut World| world.tell(0, "status")["refused"].as_u64().unwrap();
    let before = refused(&mut world);
    let folder = world.folder().to_path_buf();
    let middle = std::sync::Arc::clone(&world.middle);
    // No certificate; one of another authority for a gateway's name; one of ours for a name that is
    // none, and one for two.
    connect(&middle, &[]);
    let other = Authority::new(&folder, "other-ca");
    let [alien, alien_key] = other.write(&folder, "alien", &["gw1.example"]);
    connect(&middle, &["-cert", alien.to_str().unwrap(), "-key", alien_key.to_str().unwrap()]);
    for (file, names) in
        [("nobody", &["gw7.example"][..]), ("both", &["gw0.example", "gw1.example"])]
    {
        let [certificate, key] = world.authority.write(&folder, file, names);
        connect(&middle, &["-cert", certificate.to_str().unwrap(), "-key", key.to_str().unwrap()]);
    }
    let [mut no_tls, _idle] =
        [0, 1].map(|_| middle.run(|| TcpStream::connect((address(0), PORT)).expect("it listens")));
    no_tls.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    fordway_testhost::poll("all were refused", || {
        (refused(&mut world) >= before + 6).then_some(())
    });
    // A gateway that talks nonsense loses its connection, and nothing else happens.
    let (certificate, key) = (folder.join("gw1.pem"), folder.join("gw1.key"));
    connect(&middle, &["-cert", certificate.to_str().unwrap(), "-key", key.to_str().unwrap()]);
    let received = world.tell(0, "status")["received"].as_u64();
    world.until("gateways go on talking", |all| all[0].1["received"].as_u64() > received);
    world.settled(&[0, 1]);
    world.check();
}
