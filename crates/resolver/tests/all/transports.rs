//! Unbound by UDP, TCP, TLS and HTTPS.

use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;

use fordway_resolver::{Protocol, Resolver, Server, Settings};
use fordway_testhost::has_programs;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use super::world::{Program, ask, data, question};
use fordway_testhost::namespace::in_namespace;

struct Unbound {
    plain: SocketAddr,
    tls: SocketAddr,
    https: SocketAddr,
    ca: PathBuf,
    _program: Program,
}

impl Unbound {
    fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let file = |name: &str| folder.path().join(name);
        let own_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        std::fs::write(file("ca.pem"), params.self_signed(&own_key).unwrap().pem()).unwrap();
        let issuer = Issuer::new(params, own_key);
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["dns.example.net".to_owned()]).unwrap();
        std::fs::write(file("server.pem"), params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
        std::fs::write(file("server.key"), key.serialize_pem()).unwrap();

        let [plain, tls, https] =
            [53, 853, 443].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let mut conf = format!(
            "server:\n username: \"\"\n chroot: \"\"\n pidfile: \"\"\n directory: \"{}\"\n \
             use-syslog: no\n do-daemonize: no\n num-threads: 1\n module-config: \"iterator\"\n \
             tls-port: {}\n https-port: {}\n tls-service-pem: server.pem\n tls-service-key: server.key\n \
             local-zone: \"example.net.\" static\n \
             local-data: \"example.net. SOA ns.example.net. who.example.net. 1 2 3 4 60\"\n",
            folder.path().display(),
            tls.port(),
            https.port(),
        );
        for address in [plain, tls, https] {
            writeln!(conf, " interface: {}@{}", address.ip(), address.port()).unwrap();
        }
        for number in 0..40 {
            let last = number + 1;
            writeln!(conf, " local-data: \"n{number}.example.net. A 192.0.2.{last}\"").unwrap();
            // Too much for a datagram.
            writeln!(conf, " local-data: 'large.example.net. TXT \"{number:0>200}\"'").unwrap();
        }
        conf += "remote-control:\n control-enable: no\n";
        std::fs::write(file("unbound.conf"), conf).unwrap();
        let mut unbound = Command::new("unbound");
        unbound.arg("-d").arg("-c").arg(file("unbound.conf"));
        let ca = file("ca.pem");
        let program = Program::start(unbound, folder, "start of service");
        Self { plain, tls, https, ca, _program: program }
    }
}

#[test]
fn unbound_answers_by_every_transport() {
    if has_programs(&["unbound"]) {
        in_namespace(ask_by_every_transport);
    }
}

fn ask_by_every_transport() {
    let unbound = Unbound::start();
    let name = Some("dns.example.net".to_owned());
    let path = "/dns-query".to_owned();
    for (address, protocol) in [
        (unbound.plain, Protocol::Udp),
        (unbound.plain, Protocol::Tcp),
        (unbound.tls, Protocol::Tls { name: name.clone() }),
        (unbound.https, Protocol::Https { name, path }),
    ] {
        let is_udp = protocol == Protocol::Udp;
        let server = Server { address, protocol };
        let said = server.to_string();
        let ca = Some(unbound.ca.clone());
        let resolver = Resolver::new(Settings { ca, ..Settings::new(vec![server]) }).unwrap();
        let mut questions: Vec<_> = (0..40)
            .map(|number| question(&format!("n{number}.example.net."), RecordType::A))
            .collect();
        questions.push(question("large.example.net.", RecordType::TXT));
        questions.push(question("none.example.net.", RecordType::A));
        questions.push(question("n1.example.net.", RecordType::AAAA));
        let answers: Vec<_> =
            ask(&resolver, &questions).into_iter().map(|answer| answer.expect(&said)).collect();
        for (number, answer) in answers[..40].iter().enumerate() {
            assert_eq!(data(answer), [format!("192.0.2.{}", number + 1)], "{said}");
        }
        assert_eq!(data(&answers[40]).len(), 40, "{said}");
        assert_eq!(answers[41].message.response_code, ResponseCode::NXDomain, "{said}");
        assert_eq!(answers[42].message.response_code, ResponseCode::NoError, "{said}");
        for negative in &answers[41..] {
            assert_eq!(negative.remaining(negative.fetched).as_secs(), 60, "{said}");
        }
        let stats = &resolver.stats().servers[0];
        assert_eq!(stats.truncated > 0, is_udp, "{stats:?}");
        assert_eq!(stats.connections, 1, "{stats:?}");
        assert_eq!(
            (stats.mismatches, stats.case_mismatches, stats.malformed),
            (0, 0, 0),
            "{stats:?}"
        );
    }
}
