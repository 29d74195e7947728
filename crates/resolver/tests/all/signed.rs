//! Zones that BIND has signed, served by BIND: a root, `example.net` with NSEC3, `example.org` that is not signed.

use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use fordway_resolver::{Question, Resolver, Security, Server, Settings, TrustAnchors};
use fordway_testhost::has_programs;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use tempfile::TempDir;

use super::world::{Program, ask, data, question, run};
use fordway_testhost::namespace::in_namespace;

const APEX: &str = "300 IN SOA ns.example.net. who.example.net. 1 7200 3600 86400 60\n\
                    @ 300 IN NS ns.example.net.\n";

/// Writes a zone, and signs it with an algorithm; the DS of its key.
fn sign(folder: &Path, zone: &str, records: &str, algorithm: &str, nsec3: bool) -> String {
    let file = format!("zone{zone}");
    std::fs::write(folder.join(&file), format!("$ORIGIN {zone}\n@ {APEX}{records}")).unwrap();
    let keys = format!("keys{zone}");
    std::fs::create_dir(folder.join(&keys)).unwrap();
    for flags in [&["-f", "KSK"][..], &[]] {
        let mut keygen = Command::new("dnssec-keygen");
        run(keygen
            .current_dir(folder)
            .args(["-q", "-a", algorithm, "-K", &keys])
            .args(flags)
            .arg(zone));
    }
    let mut signzone = Command::new("dnssec-signzone");
    signzone.current_dir(folder).args(["-q", "-S", "-K", &keys, "-o", zone]);
    if nsec3 {
        signzone.args(["-3", "-", "-H", "0"]);
    }
    run(signzone.args(["-f", &format!("{file}.signed"), &file]));
    let set = folder.join(format!("dsset-{zone}"));
    std::fs::read_to_string(set).unwrap()
}

#[test]
fn what_bind_signs_validates() {
    if has_programs(&["named", "dnssec-keygen", "dnssec-signzone"]) {
        in_namespace(validate_what_bind_signs);
    }
}

fn validate_what_bind_signs() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let example = "ns A 192.0.2.53\nwww A 192.0.2.1\n*.wild A 192.0.2.7\n\
                   near CNAME www\nfar CNAME www.example.org.\n_ CNAME nothing\n\
                   old DNAME new\nwww.new A 192.0.2.2\nfine A 192.0.2.3\n";
    let ds = sign(path, "example.net.", example, "ECDSAP256SHA256", true);
    let root = format!("{ds}example.net. NS ns.example.net.\nexample.org. NS ns.example.net.\n");
    let anchor = sign(path, ".", &root, "RSASHA256", false);
    let plain = format!("$ORIGIN example.org.\n@ {APEX}www A 192.0.2.9\n");
    std::fs::write(path.join("zoneexample.org."), plain).unwrap();
    // Somebody has changed an address after it was signed.
    let signed = path.join("zoneexample.net..signed");
    let text = std::fs::read_to_string(&signed).unwrap();
    std::fs::write(&signed, text.replace("192.0.2.3", "192.0.2.66")).unwrap();
    std::fs::write(path.join("anchor"), anchor).unwrap();

    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 53));
    let mut conf = format!(
        "options {{ directory \"{}\"; listen-on port {} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }};\n\
         pid-file none; recursion no; dnssec-validation no; session-keyfile none; minimal-responses no; }};\n\
         controls {{ }};\n",
        path.display(),
        address.port(),
    );
    for (zone, file) in [
        (".", "zone..signed"),
        ("example.net.", "zoneexample.net..signed"),
        ("example.org.", "zoneexample.org."),
    ] {
        writeln!(conf, "zone \"{zone}\" {{ type primary; file \"{file}\"; }};").unwrap();
    }
    std::fs::write(path.join("named.conf"), conf).unwrap();
    let mut named = Command::new("named");
    named.arg("-g").arg("-c").arg(path.join("named.conf"));
    let validate = Some(TrustAnchors::File(path.join("anchor")));
    let settings = Settings { validate, ..Settings::new(vec![Server::udp(address)]) };
    let resolver = Resolver::new(settings).unwrap();
    let _program = Program::start(named, folder, "all zones loaded");

    use RecordType::{A, AAAA};
    use Security::{Bogus, Insecure, Secure};
    for (name, kind, security, expected) in [
        ("www.example.net.", A, Secure, &["192.0.2.1"][..]),
        ("www.example.net.", AAAA, Secure, &[]),
        ("none.example.net.", AAAA, Secure, &[]),
        ("any.wild.example.net.", A, Secure, &["192.0.2.7"]),
        ("any.wild.example.net.", AAAA, Secure, &[]),
        ("near.example.net.", A, Secure, &["www.example.net.", "192.0.2.1"]),
        ("near.example.net.", AAAA, Secure, &["www.example.net."]),
        ("_.example.net.", AAAA, Secure, &["nothing.example.net."]),
        ("far.example.net.", A, Insecure, &["www.example.org.", "192.0.2.9"]),
        ("far.example.net.", AAAA, Insecure, &["www.example.org."]),
        ("www.example.org.", A, Insecure, &["192.0.2.9"]),
        ("none.example.org.", A, Insecure, &[]),
        ("fine.example.net.", A, Bogus, &["192.0.2.66"]),
        ("fine.example.net.", AAAA, Secure, &[]),
    ] {
        let answer = ask(&resolver, &[question(name, kind)]).remove(0).expect(name);
        assert_eq!(answer.security, security, "{name} {kind}: {:?}", answer.message);
        assert_eq!(data(&answer), expected, "{name} {kind}");
        let no_such_name = name.starts_with("none") || name.starts_with('_');
        let code = if no_such_name { ResponseCode::NXDomain } else { ResponseCode::NoError };
        assert_eq!(answer.message.response_code, code, "{name} {kind}");
    }
    let answer = ask(&resolver, &[question("www.old.example.net.", A)]).remove(0).unwrap();
    assert_eq!(answer.security, Secure);
    assert_eq!(data(&answer).last().unwrap(), "192.0.2.2");

    let unchecked = question("fine.example.net.", A);
    let unchecked = Question { checking_disabled: true, ..unchecked };
    let answer = ask(&resolver, &[unchecked]).remove(0).unwrap();
    assert_eq!(
        (answer.security, data(&answer)),
        (Security::Unchecked, vec!["192.0.2.66".to_owned()])
    );
}
