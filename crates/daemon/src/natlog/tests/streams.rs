//! IPFIX over TCP and TLS.

use super::*;

/// A port for a collector that listens when it is told to; connections are refused until then.
fn collector() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv6Addr::LOCALHOST, 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address)
}

/// One message of a stream, by the length in its header.
fn message(from: &mut impl Read) -> Vec<u8> {
    let mut octets = vec![0; 4];
    from.read_exact(&mut octets).unwrap();
    octets.resize(usize::from(u16::from_be_bytes([octets[2], octets[3]])), 0);
    from.read_exact(&mut octets[4..]).unwrap();
    octets
}

/// Whether a message has templates; its sequence number.
fn front(message: &[u8]) -> (bool, u32) {
    let templates = message[16..18] == [0, 2];
    (templates, u32::from_be_bytes(message[8..12].try_into().unwrap()))
}

#[test]
fn records_wait_for_a_collector_of_a_stream_and_each_connection_has_templates() {
    let (socket, address) = collector();
    let logs = Logs::start("nat64", &[log(LogTarget::IpfixTcp(address), &ALL)]).unwrap();
    for record in records() {
        logs.put(&record);
    }
    socket.listen(16).unwrap();
    let listener: TcpListener = socket.into();
    let (mut first, _) = listener.accept().unwrap();
    first.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(front(&message(&mut first)), (true, 0));
    poll("all records", || (logs.stats()[0].written == 6).then_some(()));
    // Templates go once over a connection, and its messages count.
    logs.put(&records()[0]);
    assert_eq!(front(&message(&mut first)), (false, 6));
    poll("one more", || (logs.stats()[0].written == 7).then_some(()));
    drop(first);
    logs.put(&records()[0]);
    let (mut second, _) = listener.accept().unwrap();
    second.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(front(&message(&mut second)), (true, 0));
    poll("the last", || (logs.stats()[0].written == 8).then_some(()));
    assert_eq!(logs.stats()[0].lost, 0);
}

#[test]
fn more_than_waits_is_counted_and_so_is_what_waits_at_the_end() {
    let (_socket, address) = collector();
    let (dir, number) = (TempDir::new().unwrap(), QUEUE as u64 + 1000);
    let path = dir.path().join("whole.json");
    let logs = [log(LogTarget::IpfixTcp(address), &ALL), log(LogTarget::Json(path), &ALL)];
    let logs = Logs::start("nat64", &logs).unwrap();
    for record in records().iter().cycle().take(number as usize) {
        logs.put(record);
    }
    let first = logs.stats()[0].clone();
    assert_eq!((first.written, first.lost), (0, 1000));
    let counts = Arc::clone(&logs.0[0].counts);
    drop(logs);
    assert_eq!(counts.lost.load(Ordering::Relaxed), number);
}

/// A collector of TLS that has a certificate for `name`, of an authority of its own, and demands one of the other side.
fn server(name: &str, dir: &Path) -> (Arc<rustls::ServerConfig>, NatLog, SocketAddr, TcpListener) {
    let write = |file: &str, text: String| {
        let path = dir.join(file);
        std::fs::write(&path, text).unwrap();
        path
    };
    let made = |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let (collector, exporter) = (made(name), made("exporter.example"));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(exporter.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let clients = rustls::server::WebPkiClientVerifier::builder_with_provider(
        roots.into(),
        Arc::clone(&provider),
    );
    let key =
        rustls_pki_types::PrivateKeyDer::try_from(collector.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(vec![collector.cert.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind("[::1]:0").unwrap();
    let address = listener.local_addr().unwrap();
    let log = NatLog {
        ca: Some(write("ca.pem", collector.cert.pem())),
        certificate: Some(write("own.pem", exporter.cert.pem())),
        key: Some(write("own.key", exporter.signing_key.serialize_pem())),
        ..log(LogTarget::IpfixTls(address, Some("collector.example".to_owned())), &ALL)
    };
    (Arc::new(config), log, address, listener)
}

#[test]
fn a_stream_of_tls_shows_who_both_are() {
    let dir = TempDir::new().unwrap();
    let (config, log, _, listener) = server("collector.example", dir.path());
    let logs = Logs::start("nat64", &[log]).unwrap();
    let (tcp, _) = listener.accept().unwrap();
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = rustls::StreamOwned::new(rustls::ServerConnection::new(config).unwrap(), tcp);
    logs.put(&records()[0]);
    assert_eq!(front(&message(&mut stream)), (true, 0));
    assert_eq!(stream.conn.peer_certificates().unwrap().len(), 1);
    logs.put(&records()[1]);
    assert_eq!(front(&message(&mut stream)), (false, 1));
    // The end is told, so that nobody could have cut it.
    drop(logs);
    assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0);
}

#[test]
fn a_collector_of_another_name_gets_nothing() {
    let dir = TempDir::new().unwrap();
    let (config, log, _, listener) = server("other.example", dir.path());
    let logs = Logs::start("nat64", &[log]).unwrap();
    logs.put(&records()[0]);
    for _ in 0..2 {
        let (tcp, _) = listener.accept().unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut stream = rustls::StreamOwned::new(connection, tcp);
        let error = stream.read(&mut [0; 10]).unwrap_err().to_string();
        assert!(error.contains("ertificate"), "{error}");
    }
    assert_eq!((logs.stats()[0].written, logs.stats()[0].lost), (0, 0));
}

#[test]
fn files_of_tls_that_are_not_there_are_said_at_once() {
    let to = LogTarget::IpfixTls("[::1]:4740".parse().unwrap(), None);
    let log = NatLog { ca: Some("/nonexistent/ca.pem".into()), ..log(to, &ALL) };
    let failure = Logs::start("nat64", &[log]).unwrap_err();
    assert!(failure.line().contains("/nonexistent/ca.pem"), "{}", failure.line());
}

/// Wireshark reads a stream, too: messages follow each other without a frame of their own.
#[test]
fn a_dissector_of_others_understands_a_stream() {
    if !has_programs(&["tshark"]) {
        return;
    }
    let mut ipfix = Ipfix::stream(7, &ALL, true);
    let first = encoded(&mut ipfix);
    let second = encoded(&mut ipfix);
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ipfix.pcap");
    std::fs::write(&path, segment(&[first, second].concat().concat())).unwrap();
    let output = Command::new("tshark")
        .args(["-r", path.to_str().unwrap(), "-d", "tcp.port==4739,cflow", "-T", "fields"])
        .args([
            "-e",
            "cflow.version",
            "-e",
            "cflow.sequence",
            "-e",
            "cflow.nat_event",
            "-e",
            "_ws.malformed",
        ])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected = ["10,10", "0,6", "16,10,6,7,11,17,16,10,6,7,11,17", ""];
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.trim_end_matches('\n').split('\t').collect::<Vec<_>>(), expected, "{error}");
}

/// Octets in one TCP segment of a capture file, link type raw IP.
fn segment(octets: &[u8]) -> Vec<u8> {
    let length = (40 + octets.len()) as u16;
    let mut file = capture(&[]);
    file.extend([0; 8]);
    file.extend(u32::from(length).to_le_bytes());
    file.extend(u32::from(length).to_le_bytes());
    file.extend([0x45, 0]);
    file.extend(length.to_be_bytes());
    file.extend([0, 0, 0, 0, 64, 6, 0, 0, 192, 0, 2, 8, 192, 0, 2, 9]);
    file.extend([0x30, 0x39]);
    file.extend(4739u16.to_be_bytes());
    file.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
    file.extend(octets);
    file
}
