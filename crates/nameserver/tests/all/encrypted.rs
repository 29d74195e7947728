//! DNS over TLS (RFC 7858) and over HTTPS (RFC 8484) as clients see them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use fordway_nameserver::{Files, Limits, Server, Settings};
use fordway_testhost::{PATIENCE, certificates, poll};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType;
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use http::{Method, Request, StatusCode};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

use super::world::*;

const NAME: &str = "dns.example";

/// Writes a certificate and its key, in the place of those that were there.
fn certify(folder: &Path, name: &str) -> Files {
    let [certificate, key] = certificates::write(folder, "dns", &[name]);
    Files { certificate, key }
}

/// A server by TLS and HTTPS on ports of loopback.
struct World {
    folder: TempDir,
    upstream: Upstream,
    server: Server,
}

impl World {
    fn new(limits: Limits) -> World {
        let folder = TempDir::new().expect("a folder");
        let tls = certify(folder.path(), NAME);
        let upstream = Upstream::start();
        let any = vec!["127.0.0.1:0".parse().expect("an address")];
        let server = serve(&Settings {
            listen_tls: any.clone(),
            listen_https: any,
            tls: Some(tls),
            limits,
            ..settings(&upstream)
        });
        World { folder, upstream, server }
    }

    fn tls(&self) -> SocketAddr {
        self.server.local_addrs()[1]
    }

    fn https(&self) -> SocketAddr {
        self.server.local_addrs()[2]
    }

    fn config(&self, alpn: &[&str]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let file = self.folder.path().join("dns.pem");
        roots.add(CertificateDer::from_pem_file(file).expect("a certificate")).expect("added");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|it| it.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    /// A connection by TLS, with its handshake done.
    fn connect(
        &self,
        name: &'static str,
        alpn: &[&str],
    ) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let name = ServerName::try_from(name).expect("a name");
        let connection = ClientConnection::new(self.config(alpn), name).expect("a connection");
        let mut stream = StreamOwned::new(connection, connect(self.tls()));
        stream.conn.complete_io(&mut stream.sock)?;
        Ok(stream)
    }
}

fn send_framed(stream: &mut impl Write, message: &Message) {
    let octets = message.to_vec().expect("encodes");
    let framed = [&(octets.len() as u16).to_be_bytes()[..], &octets].concat();
    stream.write_all(&framed).expect("sent");
}

fn receive_octets(stream: &mut impl Read) -> Vec<u8> {
    let mut len = [0; 2];
    stream.read_exact(&mut len).expect("a length");
    let mut octets = vec![0; u16::from_be_bytes(len).into()];
    stream.read_exact(&mut octets).expect("a message");
    octets
}

#[test]
fn many_queries_by_one_tls_connection() {
    let world = World::new(Limits::default());
    let mut stream = world.connect(NAME, &["dot"]).expect("a handshake");
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"dot"[..]));
    let mut slow = query("slow.example.net.", RecordType::AAAA);
    slow.metadata.id = 1;
    send_framed(&mut stream, &slow);
    for number in 2..20 {
        let mut query = query(&format!("n{}.example.net.", number % 3), RecordType::AAAA);
        query.metadata.id = number;
        send_framed(&mut stream, &query);
    }
    send_framed(&mut stream, &query("many.example.net.", RecordType::AAAA));
    let mut ids = Vec::new();
    for _ in 0..19 {
        let answer = Message::from_vec(&receive_octets(&mut stream)).expect("a message");
        assert!(!answer.metadata.truncation);
        ids.push(answer.metadata.id);
    }
    assert!(!ids.contains(&1), "the slow one holds nothing up");
    world.upstream.release();
    let last = Message::from_vec(&receive_octets(&mut stream)).expect("a message");
    assert_eq!((last.metadata.id, addresses(&last)), (1, synthetic(POOL6)));
    let stats = world.server.stats();
    assert_eq!((stats.tls_queries, stats.tcp_queries, stats.connections), (20, 0, 1));
}

#[test]
fn answers_are_padded_for_those_who_pad() {
    let world = World::new(Limits::default());
    let mut stream = world.connect(NAME, &[]).expect("a handshake");
    let ask = |stream: &mut StreamOwned<_, _>, name: &str, padded: bool| {
        let mut query = with_edns(query(name, RecordType::AAAA), 1232);
        if padded {
            let padding = EdnsOption::Unknown(12, vec![0; 20]);
            query.edns.as_mut().expect("set").options_mut().insert(padding);
        }
        send_framed(stream, &query);
        receive_octets(stream)
    };
    for name in ["www.example.net.", "www.example.net.", "native.example.net.", "many.example.net."]
    {
        let octets = ask(&mut stream, name, true);
        assert!(octets.len().is_multiple_of(468), "{name}: {}", octets.len());
        let answer = Message::from_vec(&octets).expect("a message");
        let edns = answer.edns.expect("an OPT record");
        assert!(edns.options().get(EdnsCode::Padding).is_some());
        assert!(!ask(&mut stream, name, false).len().is_multiple_of(468));
    }
    // Not where everybody can read it.
    let mut padded = with_edns(query("www.example.net.", RecordType::AAAA), 1232);
    let padding = EdnsOption::Unknown(12, vec![0; 20]);
    padded.edns.as_mut().expect("set").options_mut().insert(padding);
    let answer = ask_tcp(world.server.local_addrs()[0], &padded);
    assert_eq!(answer.edns.expect("an OPT record").options().get(EdnsCode::Padding), None);
}

#[test]
fn a_handshake_has_to_come_and_to_fit() {
    let limits = Limits { idle: Duration::from_millis(100), ..Limits::default() };
    let world = World::new(limits);
    // Another protocol than DNS (RFC 7301 section 3.2).
    let refused = world.connect(NAME, &["h2"]).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("NoApplicationProtocol"), "{refused}");
    world.connect("other.example", &["dot"]).map(|_| ()).unwrap_err();
    // Silence, and plain DNS.
    for octets in [&[][..], b"\0\x11no handshake at all"] {
        let mut stream = connect(world.tls());
        stream.write_all(octets).expect("sent");
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    poll("all have failed", || (world.server.stats().handshakes_failed == 4).then_some(()));
    poll("none is left", || (world.server.stats().connections == 0).then_some(()));
}

#[test]
fn a_changed_certificate_is_used_without_a_word() {
    let world = World::new(Limits::default());
    world.connect(NAME, &["dot"]).expect("a handshake");
    // What is of no use changes nothing.
    let before = std::fs::read(world.folder.path().join("dns.pem")).expect("a file");
    std::fs::write(world.folder.path().join("dns.pem"), "no certificate").expect("written");
    poll("it was of no use", || (world.server.stats().certificates_failed == 1).then_some(()));
    std::fs::write(world.folder.path().join("dns.pem"), before).expect("written");
    poll("the old one is back", || (world.server.stats().certificates_reloaded == 1).then_some(()));
    let mut old = world.connect(NAME, &["dot"]).expect("a handshake");
    certify(world.folder.path(), "other.example");
    poll("the new one is in use", || world.connect("other.example", &["dot"]).ok().map(|_| ()));
    // Connections go on with what they began with.
    send_framed(&mut old, &query("www.example.net.", RecordType::AAAA));
    receive_octets(&mut old);
}

/// A request by HTTPS, and its answer: status, fields, content.
async fn fetch(
    sender: &mut h2::client::SendRequest<bytes::Bytes>,
    request: Request<()>,
    content: Option<Vec<u8>>,
) -> (http::response::Parts, Vec<u8>) {
    let (response, mut stream) =
        sender.send_request(request, content.is_none()).expect("it can be sent");
    if let Some(content) = content {
        let _ = stream.send_data(content.into(), true);
    }
    let (parts, mut body) = response.await.expect("a response").into_parts();
    let mut octets = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.expect("content");
        let _ = body.flow_control().release_capacity(piece.len());
        octets.extend(piece);
    }
    (parts, octets)
}

async fn by_https(world: &World) {
    let tcp = tokio::net::TcpStream::connect(world.https()).await.expect("a connection");
    let connector = tokio_rustls::TlsConnector::from(world.config(&["h2"]));
    let name = ServerName::try_from(NAME).expect("a name");
    let tls = connector.connect(name, tcp).await.expect("a handshake");
    assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut sender, connection) = h2::client::handshake(tls).await.expect("HTTP/2");
    let driver = tokio::spawn(connection);

    let uri = |rest: &str| format!("https://{NAME}{rest}");
    let get = |rest: &str| Request::get(uri(rest)).body(()).expect("a request");
    let post = |kind: &str| {
        let request = Request::post(uri("/dns-query")).header("content-type", kind);
        request.body(()).expect("a request")
    };
    let with = |name: &str, kind| {
        let mut query = query(name, kind);
        // So that caches find it (RFC 8484 section 4.1).
        query.metadata.id = 0;
        query.to_vec().expect("encodes")
    };
    let octets = with("www.example.net.", RecordType::AAAA);
    let in_uri = format!("/dns-query?dns={}", BASE64URL_NOPAD.encode(&octets));
    let dns = "application/dns-message";
    for (request, content) in [(get(&in_uri), None), (post(dns), Some(octets.clone()))] {
        let (parts, answer) = fetch(&mut sender, request, content).await;
        assert_eq!(
            (parts.status, &parts.headers["content-type"]),
            (StatusCode::OK, &dns.parse().unwrap())
        );
        let age = parts.headers["cache-control"].to_str().expect("text").to_owned();
        let age: u32 = age.strip_prefix("max-age=").expect("an age").parse().expect("a number");
        assert!((3500..=3600).contains(&age), "{age}");
        let answer = Message::from_vec(&answer).expect("a message");
        assert_eq!((answer.metadata.id, addresses(&answer)), (0, synthetic(POOL6)));
    }
    // Errors of the DNS are answers.
    let (parts, answer) =
        fetch(&mut sender, post(dns), Some(with("none.example.net.", RecordType::A))).await;
    assert_eq!(parts.status, StatusCode::OK);
    let answer = Message::from_vec(&answer).expect("a message");
    assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain);
    let many = with("many.example.net.", RecordType::A);
    let (_, answer) = fetch(&mut sender, post(dns), Some(many)).await;
    assert_eq!(addresses(&Message::from_vec(&answer).expect("a message")).len(), 100);

    let request = |method: Method, rest: &str| {
        Request::builder().method(method).uri(uri(rest)).body(()).expect("a request")
    };
    for (request, content, status) in [
        (get("/"), None, StatusCode::NOT_FOUND),
        (get("/dns-query"), None, StatusCode::BAD_REQUEST),
        (get("/dns-query?dns=!"), None, StatusCode::BAD_REQUEST),
        (get("/dns-query?dns=AAAA"), None, StatusCode::BAD_REQUEST),
        (request(Method::PUT, "/dns-query"), None, StatusCode::METHOD_NOT_ALLOWED),
        (post("text/plain"), Some(octets.clone()), StatusCode::UNSUPPORTED_MEDIA_TYPE),
        (post(dns), Some(vec![0; 65_536]), StatusCode::PAYLOAD_TOO_LARGE),
        (post(dns), Some(Vec::new()), StatusCode::BAD_REQUEST),
    ] {
        let (parts, content) = fetch(&mut sender, request, content).await;
        assert_eq!((parts.status, content.len()), (status, 0));
        assert_eq!(parts.headers["cache-control"], "no-store");
        assert_eq!(parts.headers.contains_key("allow"), status == StatusCode::METHOD_NOT_ALLOWED);
    }
    // A slow answer holds nothing up; a query that is given up leaves nothing behind.
    let slow = Some(with("slow.example.net.", RecordType::AAAA));
    let mut other = sender.clone();
    let request = post(dns);
    let given_up = tokio::spawn(async move { fetch(&mut other, request, slow).await });
    let (parts, _) = fetch(&mut sender, get(&in_uri), None).await;
    assert_eq!(parts.status, StatusCode::OK);
    given_up.abort();
    drop(sender);
    driver.abort();
}

#[test]
fn queries_by_https() {
    let world = World::new(Limits::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let asking = async { tokio::time::timeout(PATIENCE, by_https(&world)).await };
    runtime.block_on(asking).expect("in time");
    // Its tasks end, and with them the connection.
    drop(runtime);
    let stats = world.server.stats();
    assert_eq!(stats.https_refused, 8);
    assert!(stats.https_queries >= 5, "{}", stats.https_queries);
    poll("none is left", || (world.server.stats().connections == 0).then_some(()));
    world.upstream.release();
}
