//! Packets of FTP through a whole translator.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use core::net::IpAddr;

use fordway_wire::get_u32;

use super::gateway::{Gateway, HOST, POOL, SERVER, SERVER6, Said, config, settings, written};
use super::*;
use crate::nat64::replica::{Replica, Replicated};
use crate::nat64::{Heap, Memory, Nat64, Partition, Range, Settings, Shards, Sweeper};
use crate::packet::{ChecksumState, Gso, GsoKind, Offload, Packet};
use crate::trace::Step;
use crate::{HEADROOM, State, Translator, Verdict};
use fordway_wire::tcp::flag;

#[test]
fn text_lengths_numbers_and_checksums_change_together() {
    let mut gateway = Gateway::new();
    let heard = gateway.begin();
    let said = gateway.client(1001, 5012, flag::ACK, b"EPSV 2\r\n");
    assert_eq!((said.fields.seq, &said.payload[..]), (1001, &b"PASV\r\n"[..]));
    let told = Step::Alg { alg: "ftp", octets: (8, 6), seq: (1001, 1001) };
    assert!(gateway.steps.contains(&told), "{:?}", gateway.steps);
    let answer = b"227 Entering Passive Mode (192,0,2,31,237,19)\r\n";
    let said = gateway.server(&heard, 5012, 1007, flag::ACK, answer);
    assert_eq!(said.payload, b"229 Entering Extended Passive Mode (|||60691|)\r\n");
    assert_eq!((said.fields.seq, said.fields.ack), (5012, 1009));
    let end = 5012 + said.payload.len() as u32;
    let said = gateway.client(1009, end, flag::ACK, b"QUIT\r\n");
    assert_eq!((said.fields.seq, said.fields.ack), (1007, 5012 + answer.len() as u32));
    assert_eq!(gateway.nat.watched(), 1);
    let IpAddr::V4(local) = heard.src.0 else { panic!("IPv4 only") };
    let key = ((local, heard.src.1), (SERVER, 21));
    let network = gateway.nat.alg_store().with(&key, |entry, _| entry.network);
    assert_eq!(network, Some(0x2001_0db8_0002_0000));
}

#[test]
fn what_has_no_room_is_sent_again() {
    let grown = b"229 Entering Extended Passive Mode (|||60691|)\r\n";
    let answer = b"227 192,0,2,31,237,19\r\n";
    let all = grown.len() - answer.len();
    for (room, len, flags) in [(all, grown.len(), flag::ACK | flag::FIN), (2, 25, flag::ACK)] {
        let mut gateway = Gateway::new();
        let heard = gateway.begin();
        gateway.client(1001, 5012, flag::ACK, b"EPSV\r\n");
        let said = flag::ACK | flag::FIN;
        let fields = TcpFields { seq: 5012, ack: 1007, flags: said, ..TcpFields::default() };
        let payload = answer.to_vec();
        let said = Said { src: heard.dst, dst: heard.src, fields, payload };
        let (heard, offload) = gateway.pass_in(&said, Offload::default(), room);
        assert_eq!((&heard.payload[..], heard.fields.flags), (&grown[..len], flags), "{room}");
        assert!(!matches!(offload.checksum, ChecksumState::Partial { .. }));
    }
}

#[test]
fn an_announced_connection_comes_through() {
    let mut gateway = Gateway::new();
    gateway.begin();
    let said = gateway.client(1001, 5012, flag::ACK, b"EPRT |2|2001:db8:2::31|5282|\r\n");
    let text = core::str::from_utf8(&said.payload).unwrap();
    let numbers: Vec<u16> = text
        .trim_start_matches("PORT ")
        .trim_end()
        .split(',')
        .map(|number| number.parse().unwrap())
        .collect();
    assert_eq!(numbers[..4], [192, 0, 2, 31]);
    let port = numbers[4] << 8 | numbers[5];
    let fields = TcpFields { seq: 1, flags: flag::SYN, mss: Some(1460), ..TcpFields::default() };
    let (src, dst) = ((SERVER.into(), 20), (POOL.into(), port));
    let said = gateway.pass(&Said { src, dst, fields, payload: Vec::new() });
    assert_eq!((said.src, said.dst), ((SERVER6.into(), 20), (HOST.into(), 5282)));
}

#[test]
fn what_became_too_long_leaves_in_segments() {
    let mut gateway = Gateway::new();
    let heard = gateway.begin();
    gateway.client(1001, 5012, flag::ACK, b"EPSV\r\n");
    // A full segment, whose first line grows.
    let mut full = b"227 192,0,2,31,237,19\r\n".to_vec();
    full.resize(1440, b'x');
    let flags = flag::ACK | flag::CWR | flag::URG;
    let fields = TcpFields { seq: 5012, ack: 1007, flags, ..TcpFields::default() };
    let said = Said { src: heard.dst, dst: heard.src, fields, payload: full };
    let (heard, offload) = gateway.pass_with(&said, Offload::default());
    assert!(heard.payload.len() > 1440 && heard.payload.starts_with(b"229 "));
    assert_eq!((offload.gso.kind, offload.gso.size), (GsoKind::TcpV6, 1440));
    // Each segment would be urgent; that the window was reduced is told once.
    assert_eq!((heard.fields.flags, offload.gso.ecn), (flag::ACK | flag::CWR, true));
    assert!(matches!(offload.checksum, ChecksumState::Partial { start: 40, offset: 16 }));
}

#[test]
fn segments_leave_room_for_options() {
    let mut gateway = Gateway::new();
    let (client, server) = ((HOST.into(), 4000), (SERVER6.into(), 21));
    let fields = TcpFields { seq: 1000, flags: flag::SYN, mss: Some(100), ..TcpFields::default() };
    let heard = gateway.pass(&Said { src: client, dst: server, fields, payload: Vec::new() });
    gateway.server(&heard, 5000, 1001, flag::SYN | flag::ACK, b"");
    gateway.client(1001, 5001, flag::ACK, b"EPSV\r\n");
    let mut full = b"227 192,0,2,31,237,19\r\n".to_vec();
    full.resize(96, b'x');
    // An option of four octets.
    let mss = Some(1);
    let fields = TcpFields { seq: 5001, ack: 1007, flags: flag::ACK, mss, ..TcpFields::default() };
    let said = Said { src: heard.dst, dst: heard.src, fields, payload: full };
    let (heard, offload) = gateway.pass_with(&said, Offload::default());
    assert!(heard.payload.len() > 96 && heard.payload.starts_with(b"229 "));
    assert_eq!((offload.gso.kind, offload.gso.size), (GsoKind::TcpV6, 96));
}

/// The sender's own doing.
#[test]
fn what_was_longer_than_the_mss_stays_whole() {
    let mut gateway = Gateway::new();
    let (client, server) = ((HOST.into(), 4000), (SERVER6.into(), 21));
    let heard = gateway.client(1000, 0, flag::SYN, b"");
    let (flags, mss) = (flag::SYN | flag::ACK, Some(100));
    let fields = TcpFields { seq: 5000, ack: 1001, flags, mss, ..TcpFields::default() };
    gateway.pass(&Said { src: heard.dst, dst: heard.src, fields, payload: Vec::new() });
    let payload = [&b"EPSV 2\r\n"[..], &b"NOOP\r\n".repeat(40)].concat();
    let fields = TcpFields { seq: 1001, ack: 5001, flags: flag::ACK, ..TcpFields::default() };
    let said = Said { src: client, dst: server, fields, payload };
    let (heard, offload) = gateway.pass_with(&said, Offload::default());
    assert_eq!((heard.payload.len(), offload.gso.kind), (246, GsoKind::None));
}

#[test]
fn a_super_packet_with_a_partial_checksum_stays_one() {
    let mut gateway = Gateway::new();
    gateway.begin();
    let mut payload = b"EPSV\r\nEPSV 2\r\n".to_vec();
    payload.extend(b"NOOP\r\n".repeat(40));
    let fields = TcpFields { seq: 1001, ack: 5012, flags: flag::ACK, ..TcpFields::default() };
    let (src, dst) = ((HOST.into(), 4000), (SERVER6.into(), 21));
    let gso = Gso { kind: GsoKind::TcpV6, ecn: false, size: 100, header_len: 60 };
    let offload = Offload { checksum: ChecksumState::Partial { start: 40, offset: 16 }, gso };
    let (heard, offload) =
        gateway.pass_with(&Said { src, dst, fields, payload: payload.clone() }, offload);
    assert_eq!(heard.payload.len(), payload.len() - 2);
    assert!(heard.payload.starts_with(b"PASV\r\nPASV\r\nNOOP"));
    assert_eq!((offload.gso.kind, offload.gso.size), (GsoKind::TcpV4, 100));
    assert!(matches!(offload.checksum, ChecksumState::Partial { start: 20, offset: 16 }));
}

#[test]
fn what_is_damaged_teaches_nothing() {
    let mut gateway = Gateway::new();
    gateway.begin();
    let fields = TcpFields { seq: 1001, ack: 5012, flags: flag::ACK, ..TcpFields::default() };
    let (src, dst) = ((HOST.into(), 4000), (SERVER6.into(), 21));
    let said = Said { src, dst, fields, payload: b"EPSV\r\n".to_vec() };
    let mut packet = written(&said);
    *packet.last_mut().unwrap() ^= 1;
    let mut buffer = vec![0; HEADROOM + packet.len() + 100];
    let range = HEADROOM..HEADROOM + packet.len();
    buffer[range.clone()].copy_from_slice(&packet);
    let mut packet = Packet::new(&mut buffer, range, Offload::default());
    let now = Duration::from_secs(1000);
    let verdict = gateway.translator.translate(&mut packet, now, &mut gateway.state, &mut ());
    assert_eq!(verdict, Verdict::Forward);
    assert!(packet.bytes().ends_with(b"EPSV\r\x0b"), "as it came, with its wrong checksum");
    let said = gateway.client(1001, 5012, flag::ACK, b"EPSV\r\n");
    assert_eq!(said.payload, b"PASV\r\n");
}

#[test]
fn a_connection_goes_on_after_a_kill() {
    let mut killed = Gateway::new();
    let heard = killed.begin();
    killed.client(1001, 5012, flag::ACK, b"EPSV 2\r\n");
    let mut gateway = Gateway::on(Arc::clone(&killed.memory));
    drop(killed);
    let said = gateway.server(&heard, 5012, 1007, flag::ACK, b"227 (1,2,3,4,5,6)\r\n");
    assert_eq!((said.fields.ack, &said.payload[..]), (1009, &b"227 (1,2,3,4,5,6)\r\n"[..]));
    let said = gateway.client(1009, 5031, flag::ACK, b"EPSV\r\n");
    assert_eq!((said.fields.seq, &said.payload[..]), (1007, &b"EPSV\r\n"[..]));
    let (_, counters) = gateway.nat.algs().next().unwrap();
    assert_eq!((counters.get(Event::Resumed), counters.get(Event::Session)), (1, 0));
}

/// Everything is one shard's.
#[derive(Debug)]
struct Whole;

impl Partition for Whole {
    fn shards(&self) -> u16 {
        1
    }

    fn of_host(&self, _host: Ipv6Addr) -> u16 {
        0
    }

    fn of_v4(&self, v4: Ipv4Addr, _port: u16) -> Option<u16> {
        (v4 == POOL).then_some(0)
    }

    fn ranges(&self, _pool: usize, _shard: u16) -> Vec<Range> {
        settings(false).pools[0].ranges.clone()
    }
}

/// A standby with other hashes has the connection, and what an ALG has added to its sequence numbers.
#[test]
fn a_connection_goes_on_at_another_gateway() {
    let now = Duration::from_secs(1000);
    let gateway = |secret| {
        let shards = Shards::new(Whole);
        shards.enable(0, None);
        shards.lease(Duration::MAX);
        let settings = Settings { shards: Some(Arc::new(shards)), ..settings(true) };
        let memory: Arc<dyn Memory> = Arc::new(Heap::new(&settings.sizes, secret));
        let nat = Arc::new(Nat64::new(settings, Arc::clone(&memory)).unwrap());
        let replica = Replica::new(&nat, Replicated::default()).unwrap();
        let translator = Translator::nat64(config(), Arc::clone(&nat)).unwrap();
        let (mut state, steps) = (State::new(1), Vec::new());
        state.boottime = now;
        (Gateway { memory, nat, translator, state, seconds: 1000, steps }, replica)
    };
    let ((mut first, mut owner), (mut second, mut standby)) = (gateway([3, 4]), gateway([5, 6]));
    let mut sweeper = Sweeper::new();
    owner.take_over(&first.nat, &mut sweeper, now, 0, &mut |_| {});
    let heard = first.begin();
    first.client(1001, 5012, flag::ACK, b"EPSV 2\r\n");
    owner.scan(&first.nat, &mut Sweeper::new(), now, u32::MAX, &mut |change| {
        standby.apply(&second.nat, &mut sweeper, now, change).unwrap();
    });
    standby.take_over(&second.nat, &mut sweeper, now, 0, &mut |_| {});
    for gateway in [&mut first, &mut second] {
        let said = gateway.server(&heard, 5012, 1007, flag::ACK, b"150 wait\r\n");
        assert_eq!((said.src, said.dst), ((SERVER6.into(), 21), (HOST.into(), 4000)));
        assert_eq!((said.fields.seq, said.fields.ack), (5012, 1009));
    }
    let more = |gateway: &mut Gateway| {
        let client = gateway.client(1009, 5022, flag::ACK, b"NOOP\r\n");
        let server = gateway.server(&heard, 5022, 1013, flag::ACK, b"200 done\r\n");
        [written(&client), written(&server)]
    };
    assert_eq!(more(&mut first), more(&mut second), "octet by octet");
}

#[test]
fn only_a_syn_of_a_new_connection_begins_one() {
    let sessions = |gateway: &Gateway| gateway.nat.algs().next().unwrap().1.get(Event::Session);
    let mut gateway = Gateway::new();
    let begun = |gateway: &mut Gateway, seq| {
        gateway.client(seq, 0, flag::SYN, b"");
        sessions(gateway)
    };
    assert_eq!([1000, 1000, 3000, 3000].map(|seq| begun(&mut gateway, seq)), [1, 1, 2, 2]);
    for (seq, flags) in [(3001, flag::ACK), (5000, flag::SYN | flag::ACK)] {
        gateway.client(seq, 0, flags, b"");
        assert_eq!(sessions(&gateway), 2, "what follows it, and an answer to nothing");
    }
    let mut gateway = Gateway::new();
    gateway.begin();
    assert_eq!(begun(&mut gateway, 9000), 1, "a SYN in the middle (RFC 5961 section 4)");
}

#[test]
fn a_reload_keeps_what_is_known_and_numbers_follow_without_a_gateway() {
    let mut gateway = Gateway::new();
    let heard = gateway.begin();
    gateway.client(1001, 5012, flag::ACK, b"EPSV 2\r\n");
    let with = Arc::new(gateway.nat.reconfigured(settings(true)).unwrap());
    gateway.translator = Translator::nat64(config(), Arc::clone(&with)).unwrap();
    let answer = b"227 (192,0,2,31,237,19)\r\n";
    let said = gateway.server(&heard, 5012, 1007, flag::ACK, answer);
    assert!(said.payload.starts_with(b"229 "));
    let without = Arc::new(with.reconfigured(settings(false)).unwrap());
    assert_eq!(without.settings().left_ports(), [21], "programs still leave it");
    gateway.translator = Translator::nat64(config(), without).unwrap();
    let end = 5012 + said.payload.len() as u32;
    let said = gateway.client(1009, end, flag::ACK, b"EPSV\r\n");
    assert_eq!((said.fields.seq, said.fields.ack), (1007, 5012 + answer.len() as u32));
    assert_eq!(said.payload, b"EPSV\r\n");
}

#[test]
fn what_is_known_dies_with_the_session() {
    let mut gateway = Gateway::new();
    let heard = gateway.begin();
    gateway.client(1001, 5012, flag::ACK | flag::FIN, b"");
    gateway.server(&heard, 5012, 1002, flag::ACK | flag::FIN, b"");
    let mut sweeper = Sweeper::new();
    for seconds in [1000, 1300, 1301, 1302] {
        sweeper.sweep(&gateway.nat, Duration::from_secs(seconds), &mut |_| {});
        sweeper.release(&gateway.nat);
    }
    assert_eq!(gateway.nat.watched(), 0);
    // The same ports again, with other numbers.
    gateway.seconds = 1400;
    let heard = gateway.client(9000, 0, flag::SYN, b"");
    gateway.server(&heard, 77, 9001, flag::SYN | flag::ACK, b"");
    let said = gateway.client(9001, 78, flag::ACK, b"EPSV\r\n");
    assert_eq!((said.fields.seq, &said.payload[..]), (9001, &b"PASV\r\n"[..]));
    assert_eq!(get_u32(&written(&said), 24), 9001);
}

#[test]
fn an_alg_sees_the_tables_behind_its_mappings() {
    #[derive(Debug)]
    struct Looking;

    impl Alg for Looking {
        fn label(&self) -> &'static str {
            "looking"
        }

        fn ports(&self) -> &[u16] {
            &[21]
        }

        fn open(&self, _ends: &Ends) -> Box<dyn Dialogue> {
            Box::new(Looking)
        }
    }

    impl Dialogue for Looking {
        fn octets(
            &mut self,
            _from: Side,
            octets: &[u8],
            _ended: bool,
            out: &mut Vec<u8>,
            context: &mut Context<'_>,
        ) -> Advice {
            let (config, nat) = context.tables().unwrap();
            out.extend(format!("{} {}", config.mtu4, nat.settings().sizes.bibs).bytes());
            Advice::Replace(octets.len())
        }
    }

    let settings = Settings { algs: vec![Arc::new(Looking)], ..settings(false) };
    let memory = Arc::new(Heap::new(&settings.sizes, [3, 4]));
    let mut gateway = Gateway::of(settings, memory);
    gateway.begin();
    assert_eq!(gateway.client(1001, 5011, flag::ACK, b"what?").payload, b"1500 64");
}
