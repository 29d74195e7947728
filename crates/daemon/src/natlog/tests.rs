//! What leaves, to the octet; and read by somebody else.

mod streams;

use std::io::Read;
use std::net::{Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fordway_testhost::{PATIENCE, has_programs, poll};
use fordway_xlat::nat64::{Binding, PortBlock, Protocol};
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use super::sink::Message;
use super::*;

/// 2026-01-02 03:04:05.678 UTC.
fn time() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(1_767_323_045_678)
}

fn binding() -> Binding {
    Binding {
        protocol: Some(Protocol::Tcp),
        v6: ("2001:db8:1::5".parse().unwrap(), 40_000),
        v4: ("192.0.2.1".parse().unwrap(), 1025),
    }
}

fn records() -> Vec<Record> {
    let remote = ("198.51.100.9".parse().unwrap(), 443);
    let block = PortBlock { v4: "192.0.2.1".parse().unwrap(), low: 1024, high: 1535 };
    let subscriber = "2001:db8:1::/64".parse().unwrap();
    let all = [
        What::BlockAssigned(subscriber, block),
        What::BibCreated(binding()),
        What::SessionCreated(binding(), remote),
        What::SessionRemoved(binding(), remote, [(3, 300), (4, 4000)]),
        What::BibRemoved(binding()),
        What::BlockReleased(subscriber, block),
    ];
    all.into_iter().map(|what| Record { time: time(), what }).collect()
}

const ALL: [LogEvent; 3] = [LogEvent::Blocks, LogEvent::Bindings, LogEvent::Sessions];

fn encoded(encode: &mut dyn Encode) -> Vec<Vec<u8>> {
    encode.begin(time());
    for record in records() {
        encode.add(&record);
    }
    octets(encode, 6)
}

/// What waits, which is so many records.
fn octets(encode: &mut dyn Encode, records: u64) -> Vec<Vec<u8>> {
    let messages = encode.take();
    assert_eq!(messages.iter().map(|message| message.records).sum::<u64>(), records);
    messages.into_iter().map(|message| message.octets).collect()
}

#[test]
fn lines_of_json() {
    let text = String::from_utf8(encoded(&mut Json::new("nat64", true)).concat()).unwrap();
    let head = "{\"time\":\"2026-01-02T03:04:05.678Z\",\"translator\":\"nat64\",\"event\":";
    let binding = "\"protocol\":\"tcp\",\"v6\":\"2001:db8:1::5\",\"v6_port\":40000,\
                   \"v4\":\"192.0.2.1\",\"v4_port\":1025";
    let remote = "\"remote\":\"198.51.100.9\",\"remote_port\":443";
    let block =
        "\"subscriber\":\"2001:db8:1::/64\",\"v4\":\"192.0.2.1\",\"low\":1024,\"high\":1535";
    let counts = "\"packets_from_v4\":3,\"octets_from_v4\":300,\"packets_from_v6\":4,\
                  \"octets_from_v6\":4000";
    let expected = [
        format!("{head}\"block_assigned\",{block}}}"),
        format!("{head}\"bib_created\",{binding}}}"),
        format!("{head}\"session_created\",{binding},{remote}}}"),
        format!("{head}\"session_removed\",{binding},{remote},{counts}}}"),
        format!("{head}\"bib_removed\",{binding}}}"),
        format!("{head}\"block_released\",{block}}}"),
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn destinations_are_left_out_unless_asked_for() {
    let text = encoded(&mut Json::new("nat64", false)).concat();
    assert!(!String::from_utf8(text).unwrap().contains("198.51.100.9"));
    let text = encoded(&mut Syslog::new("nat64", false)).concat();
    assert!(!String::from_utf8(text).unwrap().contains("198.51.100.9"));
    let octets = encoded(&mut Ipfix::new(7, &ALL, false)).concat();
    assert!(!octets.windows(4).any(|four| four == [198, 51, 100, 9]));
    let octets = encoded(&mut Ipfix::new(7, &ALL, true)).concat();
    assert!(octets.windows(4).any(|four| four == [198, 51, 100, 9]));
}

#[test]
fn messages_of_syslog() {
    let messages = encoded(&mut Syslog::new("nat64", true));
    let messages: Vec<String> =
        messages.into_iter().map(|message| String::from_utf8(message).unwrap()).collect();
    let head = |name: &str| {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let (host, process) = (host.trim(), std::process::id());
        format!("<134>1 2026-01-02T03:04:05.678Z {host} fordway {process} {name} [nat64@32473 ")
    };
    assert_eq!(
        messages[0],
        head("block_assigned")
            + "translator=\"nat64\" natEvent=\"16\" sourceIPv6Prefix=\"2001:db8:1::/64\" \
               postNATSourceIPv4Address=\"192.0.2.1\" portRangeStart=\"1024\" portRangeEnd=\"1535\"]"
    );
    assert_eq!(
        messages[3],
        head("session_removed")
            + "translator=\"nat64\" natEvent=\"7\" protocolIdentifier=\"6\" \
               sourceIPv6Address=\"2001:db8:1::5\" sourceTransportPort=\"40000\" \
               postNATSourceIPv4Address=\"192.0.2.1\" postNAPTSourceTransportPort=\"1025\" \
               postNATDestinationIPv4Address=\"198.51.100.9\" \
               postNAPTDestinationTransportPort=\"443\" initiatorPackets=\"4\" \
               initiatorOctets=\"4000\" responderPackets=\"3\" responderOctets=\"300\"]"
    );
    assert_eq!(messages.len(), 6);
}

#[test]
fn a_message_of_ipfix_to_the_octet() {
    let mut ipfix = Ipfix::new(7, &[LogEvent::Blocks], false);
    ipfix.begin(time());
    assert!(!ipfix.add(&records()[0]));
    let messages = octets(&mut ipfix, 1);
    #[rustfmt::skip]
    let expected: Vec<u8> = vec![
        // Version 10, 90 octets, 2026-01-02 03:04:05, nothing before, domain 7.
        0, 10, 0, 90, 0x69, 0x57, 0x35, 0xa5, 0, 0, 0, 0, 0, 0, 0, 7,
        // Template set, 36 octets: template 256 with 7 fields.
        0, 2, 0, 36, 1, 0, 0, 7,
        1, 67, 0, 8, 0, 230, 0, 1, 0, 27, 0, 16, 0, 29, 0, 1, 0, 225, 0, 4, 1, 105, 0, 2, 1, 106, 0, 2,
        // Data set of template 256, 38 octets.
        1, 0, 0, 38, 0, 0, 0x01, 0x9b, 0x7c, 0xa9, 0x8f, 0x2e, 16,
        0x20, 0x01, 0x0d, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64,
        192, 0, 2, 1, 4, 0, 5, 255,
    ];
    assert_eq!(messages, [expected]);
    // The templates are known now, and one record has been sent.
    ipfix.begin(time() + Duration::from_secs(59));
    ipfix.add(&records()[5]);
    let again = octets(&mut ipfix, 1).concat();
    assert_eq!((again.len(), again[11], again[16..18].to_vec()), (54, 1, vec![1, 0]));
    // Over UDP they may have been lost: they are sent again.
    ipfix.begin(time() + Duration::from_secs(60));
    ipfix.add(&records()[0]);
    let again = octets(&mut ipfix, 1).concat();
    assert_eq!((again.len(), again[11], again[16..18].to_vec()), (90, 2, vec![0, 2]));
}

#[test]
fn many_records_of_ipfix_are_split_into_messages_that_fit() {
    let mut ipfix = Ipfix::new(7, &ALL, true);
    ipfix.begin(time());
    let mut messages = Vec::new();
    for record in records().iter().cycle().take(600) {
        if ipfix.add(record) {
            messages.extend(ipfix.take());
        }
    }
    messages.extend(ipfix.take());
    assert_eq!(messages.iter().map(|message| message.records).sum::<u64>(), 600);
    assert!(messages.len() > 20);
    let mut sequence = 0u32;
    for Message { octets: message, .. } in &messages {
        assert!(message.len() <= 1232);
        assert_eq!(message.len(), usize::from(u16::from_be_bytes([message[2], message[3]])));
        assert_eq!(message[8..12], sequence.to_be_bytes());
        let mut sets = &message[16..];
        while !sets.is_empty() {
            let id = u16::from_be_bytes([sets[0], sets[1]]);
            let length = usize::from(u16::from_be_bytes([sets[2], sets[3]]));
            let record = match id {
                256 => 34,
                257 => 34,
                258 => 40,
                259 => 72,
                _ => 0,
            };
            if record > 0 {
                assert_eq!((length - 4) % record, 0, "set {id}");
                sequence += ((length - 4) / record) as u32;
            }
            sets = &sets[length..];
        }
    }
    assert_eq!(sequence, 600);
}

/// Wireshark reads the messages as they are meant.
#[test]
fn a_dissector_of_others_understands_ipfix() {
    if !has_programs(&["tshark"]) {
        return;
    }
    let messages = encoded(&mut Ipfix::new(7, &ALL, true));
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ipfix.pcap");
    std::fs::write(&path, capture(&messages)).unwrap();
    let fields = [
        "cflow.od_id",
        "cflow.nat_event",
        "cflow.srcaddrv6",
        "cflow.post_natsource_ipv4_address",
        "cflow.post_naptsource_transport_port",
        "cflow.post_natdestination_ipv4_address",
        "cflow.port_range_start",
        "cflow.port_range_end",
        "cflow.initiator_octets",
        "_ws.malformed",
    ];
    let mut tshark = Command::new("tshark");
    tshark.args(["-r", path.to_str().unwrap(), "-d", "udp.port==4739,cflow", "-T", "fields"]);
    for field in fields {
        tshark.args(["-e", field]);
    }
    let output = tshark.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let hosts =
        ["2001:db8:1::", "2001:db8:1::5", "2001:db8:1::5", "2001:db8:1::5", "2001:db8:1::5"];
    let hosts = [&hosts[..], &["2001:db8:1::"]].concat().join(",");
    let expected = [
        "7",
        "16,10,6,7,11,17",
        &hosts,
        "192.0.2.1,192.0.2.1,192.0.2.1,192.0.2.1,192.0.2.1,192.0.2.1",
        "1025,1025,1025,1025",
        "198.51.100.9,198.51.100.9",
        "1024,1024",
        "1535,1535",
        "4000",
        "",
    ];
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.trim_end_matches('\n').split('\t').collect::<Vec<_>>(), expected, "{error}");
}

/// Messages in UDP datagrams of a capture file, link type raw IP.
fn capture(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
    file.extend([0; 8]);
    file.extend([0xff, 0xff, 0, 0, 101, 0, 0, 0]);
    for message in messages {
        let length = (28 + message.len()) as u16;
        file.extend([0; 8]);
        file.extend(u32::from(length).to_le_bytes());
        file.extend(u32::from(length).to_le_bytes());
        file.extend([0x45, 0]);
        file.extend(length.to_be_bytes());
        file.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 8, 192, 0, 2, 9]);
        file.extend([0x30, 0x39]);
        file.extend(4739u16.to_be_bytes());
        file.extend((8 + message.len() as u16).to_be_bytes());
        file.extend([0, 0]);
        file.extend(message);
    }
    file
}

fn log(to: LogTarget, what: &[LogEvent]) -> NatLog {
    NatLog {
        what: what.to_vec(),
        to,
        destinations: true,
        domain: 7,
        ca: None,
        certificate: None,
        key: None,
    }
}

#[test]
fn each_log_gets_what_it_wants() {
    let dir = TempDir::new().unwrap();
    let file = |name: &str| dir.path().join(name);
    let unix = UnixDatagram::bind(file("log")).unwrap();
    let udp = UdpSocket::bind("[::1]:0").unwrap();
    for result in [unix.set_read_timeout(Some(PATIENCE)), udp.set_read_timeout(Some(PATIENCE))] {
        result.unwrap();
    }
    let logs = Logs::start(
        "nat64",
        &[
            log(LogTarget::Json(file("blocks.json")), &[LogEvent::Blocks]),
            log(LogTarget::SyslogUnix(file("log")), &[LogEvent::Bindings]),
            log(LogTarget::SyslogUdp(udp.local_addr().unwrap()), &[LogEvent::Sessions]),
        ],
    )
    .unwrap();
    assert!(ALL.iter().all(|event| logs.wants(*event)));
    for record in records() {
        logs.put(&record);
    }
    let mut buffer = [0; 2048];
    for socket in [&unix as &dyn Receive, &udp] {
        for _ in 0..2 {
            let length = socket.receive(&mut buffer);
            assert!(buffer[..length].starts_with(b"<134>1 2026-01-02T03:04:05.678Z "));
        }
    }
    let path = file("blocks.json");
    poll("both lines", || (logs.stats()[0].written == 2).then_some(()));
    drop(logs);
    let text = std::fs::read_to_string(path).unwrap();
    assert_eq!(text.lines().count(), 2);
}

trait Receive {
    fn receive(&self, buffer: &mut [u8]) -> usize;
}

impl Receive for UnixDatagram {
    fn receive(&self, buffer: &mut [u8]) -> usize {
        self.recv(buffer).unwrap()
    }
}

impl Receive for UdpSocket {
    fn receive(&self, buffer: &mut [u8]) -> usize {
        self.recv(buffer).unwrap()
    }
}

#[test]
fn a_file_that_was_moved_away_is_made_anew() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("nat64.json");
    let logs = Logs::start("nat64", &[log(LogTarget::Json(path.clone()), &ALL)]).unwrap();
    logs.put(&records()[0]);
    poll("the first line", || (logs.stats()[0].written == 1).then_some(()));
    std::fs::rename(&path, dir.path().join("nat64.json.1")).unwrap();
    poll("a line in the new file", || {
        logs.put(&records()[1]);
        std::fs::metadata(&path).is_ok_and(|file| file.len() > 0).then_some(())
    });
    assert_eq!(logs.stats()[0].lost, 0);
}

#[test]
fn what_nobody_takes_is_counted_and_holds_nothing_up() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("log");
    let unix = UnixDatagram::bind(&path).unwrap();
    let logs = Logs::start("nat64", &[log(LogTarget::SyslogUnix(path.clone()), &ALL)]).unwrap();
    drop(unix);
    logs.put(&records()[0]);
    poll("a lost record", || (logs.stats()[0].lost == 1).then_some(()));
    // A collector that is there again gets what comes from then on.
    std::fs::remove_file(&path).unwrap();
    let unix = UnixDatagram::bind(&path).unwrap();
    unix.set_read_timeout(Some(PATIENCE)).unwrap();
    logs.put(&records()[1]);
    assert!(unix.recv(&mut [0; 2048]).unwrap() > 0);
    assert_eq!(logs.stats()[0].lost, 1);
}

#[test]
fn a_place_that_is_not_there_is_said_at_once() {
    let missing = PathBuf::from("/nonexistent/log");
    for to in [LogTarget::Json(missing.clone()), LogTarget::SyslogUnix(missing)] {
        let failure = Logs::start("nat64", &[log(to, &ALL)]).unwrap_err();
        assert!(failure.line().contains("nat64: cannot log to "), "{}", failure.line());
    }
}

#[test]
fn a_receiver_that_does_not_read_loses_records_and_holds_up_nobody() {
    let dir = TempDir::new().unwrap();
    let (path, whole) = (dir.path().join("log"), dir.path().join("whole.json"));
    let _asleep = UnixDatagram::bind(&path).unwrap();
    let logs = [log(LogTarget::SyslogUnix(path), &ALL), log(LogTarget::Json(whole.clone()), &ALL)];
    let logs = Logs::start("nat64", &logs).unwrap();
    // More than a queue and a socket hold.
    let number = (QUEUE as u64) * 2;
    for record in records().iter().cycle().take(number as usize) {
        logs.put(record);
    }
    poll("lost records of the first log", || (logs.stats()[0].lost > 0).then_some(()));
    poll("all records of the second log", || {
        let second = &logs.stats()[1];
        (second.written + second.lost == number).then_some(())
    });
    assert!(logs.stats()[1].written >= QUEUE as u64);
    let written = logs.stats()[1].written;
    // The first would need hours for what waits.
    drop(logs);
    let text = std::fs::read_to_string(&whole).unwrap();
    assert_eq!(text.lines().count() as u64, written);
}

#[test]
fn a_log_file_is_a_file() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let failure = Logs::start("nat64", &[log(LogTarget::Json(path), &ALL)]).unwrap_err();
    assert!(failure.line().contains("it is no regular file"), "{}", failure.line());
}
