//! Several certificates, and what becomes of them when their files change.

use std::fs;

use fordway_proxy::Settings;
use fordway_testhost::{has_programs, poll};

use super::nginx::{certificate, run};
use super::world::{OK, RawServer, World, reverse};

/// The names in the certificate that a client gets who asks for `name`; `None`: for no name.
fn names(world: &World, name: Option<&str>) -> String {
    let connect = world.address.to_string();
    let asking = name.map_or_else(|| vec!["-noservername"], |it| vec!["-servername", it]);
    let first = ["s_client", "-connect", &connect];
    let shown = run("openssl", &[&first[..], &asking].concat());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shown.pem");
    fs::write(&file, shown.stdout).unwrap();
    let path = file.display().to_string();
    let read = ["x509", "-noout", "-ext", "subjectAltName", "-in", &path];
    let text = String::from_utf8(run("openssl", &read).stdout).unwrap();
    text.lines().last().unwrap_or_default().trim().replace("DNS:", "")
}

#[test]
fn names_choose_and_changed_files_are_taken() {
    if !has_programs(&["openssl"]) {
        return;
    }
    let server = RawServer::saying(OK);
    let folder = tempfile::tempdir().unwrap();
    let of = |file: &str, names: &[&str]| certificate(folder.path(), file, names);
    let tls = vec![of("first", &["www.example.net"]), of("second", &["*.example.org"])];
    let world = World::new(&Settings { tls: tls.clone(), ..reverse(&[server.address]) });
    assert_eq!(names(&world, None), "www.example.net");
    assert_eq!(names(&world, Some("unknown.example")), "www.example.net");
    assert_eq!(names(&world, Some("WWW.example.org")), "*.example.org");
    // A renewed one, with one more name.
    of("second", &["*.example.org", "example.org"]);
    let stats = poll("the new one", || {
        let stats = world.server.stats();
        (stats.certificates_reloaded == 1).then_some(stats)
    });
    assert_eq!(stats.certificates_failed, 0);
    assert_eq!(names(&world, Some("example.org")), "*.example.org, example.org");
    // One of no use: clients get what they got before.
    fs::write(&tls[1].certificate, "no certificate").unwrap();
    poll("it is of no use", || (world.server.stats().certificates_failed == 1).then_some(()));
    assert_eq!(names(&world, Some("example.org")), "*.example.org, example.org");
    of("second", &["last.example.org"]);
    poll("it is of use again", || (world.server.stats().certificates_reloaded == 2).then_some(()));
    assert_eq!(names(&world, Some("last.example.org")), "last.example.org");
}
