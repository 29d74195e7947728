//! `fordway pcap` and `fordway explain --pcap` on captures that the tests write themselves.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use fordway_wire::checksum::{Sum, pseudo_v6};
use fordway_wire::ipv4::Ipv4Header;
use fordway_wire::ipv6::Ipv6Header;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapTsResolution, PcapWriter};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;
use pcap_file::pcapng::{Block, PcapNgReader, PcapNgWriter};
use pcap_file::{DataLink, Endianness};
use serde_json::Value;
use tempfile::TempDir;

const SIIT: &str = "--pool6 2001:db8:64::/96 --eam 192.0.2.2=2001:db8:6::2";

fn fordway(arguments: &str, dir: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fordway"));
    command.args(arguments.split_whitespace()).current_dir(dir).env("NO_COLOR", "1");
    command.output().unwrap()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// UDP from 198.51.100.2 to a host, without a checksum unless `checksum` is given.
fn udp_v4(dst: [u8; 4], len: usize, dont_fragment: bool) -> Vec<u8> {
    let total_len = u16::try_from(28 + len).unwrap();
    let header = Ipv4Header {
        header_len: 20,
        tos: 0,
        total_len,
        identification: 7,
        dont_fragment,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 64,
        protocol: 17,
        src: [198, 51, 100, 2].into(),
        dst: dst.into(),
    };
    let mut packet = header.to_bytes().to_vec();
    packet.extend([0x10, 0x00, 0x20, 0x00]);
    packet.extend((total_len - 20).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(std::iter::repeat_n(0x5a, len));
    packet
}

/// What translation makes of it.
fn udp_v6(len: usize) -> Vec<u8> {
    let (src, dst) = ("2001:db8:64::c633:6402".parse().unwrap(), "2001:db8:6::2".parse().unwrap());
    let payload_len = u16::try_from(8 + len).unwrap();
    let header = Ipv6Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len,
        next_header: 17,
        hop_limit: 64,
        src,
        dst,
    };
    let mut udp = vec![0x10, 0x00, 0x20, 0x00];
    udp.extend(payload_len.to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(std::iter::repeat_n(0x5a, len));
    let sum: Sum = pseudo_v6(src, dst, 17, payload_len.into()).add_bytes(&udp);
    udp[6..8].copy_from_slice(&sum.finish().to_be_bytes());
    [&header.to_bytes()[..], &udp].concat()
}

fn write_pcap(path: &Path, link: DataLink, frames: &[(Duration, Vec<u8>)]) {
    let header = PcapHeader {
        version_major: 2,
        version_minor: 4,
        ts_correction: 0,
        ts_accuracy: 0,
        snaplen: 65_535,
        datalink: link,
        ts_resolution: PcapTsResolution::MicroSecond,
        endianness: Endianness::Big,
    };
    let mut writer = PcapWriter::with_header(File::create(path).unwrap(), header).unwrap();
    for (time, bytes) in frames {
        let packet = PcapPacket::new(*time, bytes.len() as u32, bytes.as_slice()).unwrap();
        writer.write_packet(&packet).unwrap();
    }
}

fn read_pcap(path: &Path) -> (DataLink, Vec<(Duration, Vec<u8>)>) {
    let mut reader = PcapReader::new(File::open(path).unwrap()).unwrap();
    let link = reader.header().datalink;
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.unwrap();
        frames.push((packet.timestamp(), packet.data().to_vec()));
    }
    (link, frames)
}

fn ethernet(ether_type: u16, packet: &[u8]) -> Vec<u8> {
    [&[0xaa; 6][..], &[0xbb; 6], &ether_type.to_be_bytes(), packet].concat()
}

#[test]
fn raw_packets_are_translated_at_their_time() {
    let dir = TempDir::new().unwrap();
    let times = [Duration::new(1_700_000_000, 5000), Duration::new(1_700_000_001, 0)];
    let frames: Vec<_> = times.map(|time| (time, udp_v4([192, 0, 2, 2], 10, true))).into();
    write_pcap(&dir.path().join("in.pcap"), DataLink::RAW, &frames);
    let result = json(&fordway(&format!("pcap {SIIT} in.pcap out.pcap --json"), dir.path()));
    assert_eq!(result["frames"], 2);
    assert_eq!(result["written"], 2);
    assert_eq!(result["v4_to_v6"]["packets"], 2);
    assert_eq!(result["v4_to_v6"]["octets"], 76);
    let (link, frames) = read_pcap(&dir.path().join("out.pcap"));
    assert_eq!(link, DataLink::RAW);
    assert_eq!(frames, times.map(|time| (time, udp_v6(10))).to_vec());
}

#[test]
fn link_type_ipv4_becomes_one_for_both_versions() {
    let dir = TempDir::new().unwrap();
    let frames = [(Duration::ZERO, udp_v4([192, 0, 2, 2], 0, true))];
    write_pcap(&dir.path().join("in.pcap"), DataLink::IPV4, &frames);
    json(&fordway(&format!("pcap {SIIT} in.pcap out.pcap --json"), dir.path()));
    let (link, frames) = read_pcap(&dir.path().join("out.pcap"));
    assert_eq!(link, DataLink::RAW);
    assert_eq!(frames[0].1, udp_v6(0));
}

#[test]
fn ethernet_frames_keep_their_addresses_and_answers_turn_them_round() {
    let dir = TempDir::new().unwrap();
    let arp = ethernet(0x0806, &[0; 28]);
    let good = ethernet(0x0800, &udp_v4([192, 0, 2, 2], 10, true));
    let too_big = ethernet(0x0800, &udp_v4([192, 0, 2, 2], 1460, true));
    let unmapped = ethernet(0x0800, &udp_v4([127, 0, 0, 1], 10, true));
    let frames = [arp, good, too_big, unmapped].map(|frame| (Duration::ZERO, frame));
    write_pcap(&dir.path().join("in.pcap"), DataLink::ETHERNET, &frames);
    let result = json(&fordway(&format!("pcap {SIIT} in.pcap out.pcap --json"), dir.path()));
    assert_eq!(result["frames"], 4);
    assert_eq!(result["not_ip"], 1);
    assert_eq!(result["written"], 2);
    assert_eq!(result["drops"]["too_big"], 1);
    assert_eq!(result["drops"]["loopback"], 1);
    assert_eq!(result["icmp_errors"]["v4"], 1);
    let (link, frames) = read_pcap(&dir.path().join("out.pcap"));
    assert_eq!(link, DataLink::ETHERNET);
    assert_eq!(frames[0].1, ethernet(0x86dd, &udp_v6(10)));
    let error = &frames[1].1;
    assert_eq!(error[..14], [[0xbb; 6].as_slice(), &[0xaa; 6], &[0x08, 0x00]].concat());
    let header = Ipv4Header::parse(&error[14..]).unwrap();
    assert_eq!(header.dst, std::net::Ipv4Addr::new(198, 51, 100, 2));
    // Fragmentation needed, and the MTU that leaves room for the longer header.
    assert_eq!(error[34..36], [3, 4]);
    assert_eq!(error[40..42], 1480u16.to_be_bytes());
}

#[test]
fn what_does_not_fit_is_cut_into_fragments() {
    let dir = TempDir::new().unwrap();
    let frames = [(Duration::ZERO, udp_v4([192, 0, 2, 2], 1460, false))];
    write_pcap(&dir.path().join("in.pcap"), DataLink::RAW, &frames);
    let result = json(&fordway(&format!("pcap {SIIT} in.pcap out.pcap --json"), dir.path()));
    assert_eq!(result["v4_to_v6"]["fragments"], 2);
    let (_, frames) = read_pcap(&dir.path().join("out.pcap"));
    assert_eq!(frames.len(), 2);
    assert!(frames.iter().all(|(_, frame)| frame.len() <= 1280 && frame[6] == 44));
}

#[test]
fn pcapng_holds_several_link_types() {
    let dir = TempDir::new().unwrap();
    let file = File::create(dir.path().join("in.pcapng")).unwrap();
    let mut writer = PcapNgWriter::new(file).unwrap();
    let packet = udp_v4([192, 0, 2, 2], 10, true);
    for (interface, (link, frame)) in
        [(DataLink::RAW, packet.clone()), (DataLink::ETHERNET, ethernet(0x0800, &packet))]
            .into_iter()
            .enumerate()
    {
        writer.write_pcapng_block(InterfaceDescriptionBlock::new(link, 65_535)).unwrap();
        let block = EnhancedPacketBlock {
            interface_id: interface as u32,
            timestamp: Duration::from_micros(1_700_000_000_000_001),
            original_len: frame.len() as u32,
            data: frame.into(),
            options: Vec::new(),
        };
        writer.write_pcapng_block(block).unwrap();
    }
    drop(writer);
    json(&fordway(&format!("pcap {SIIT} in.pcapng out.pcapng --json"), dir.path()));
    let mut reader = PcapNgReader::new(File::open(dir.path().join("out.pcapng")).unwrap()).unwrap();
    let mut frames = Vec::new();
    while let Some(block) = reader.next_block() {
        let (block, state) = block.unwrap();
        if let Block::EnhancedPacket(packet) = block {
            let link = state.interfaces()[packet.interface_id as usize].linktype;
            assert_eq!(packet.timestamp, Duration::from_micros(1_700_000_000_000_001));
            frames.push((link, packet.data.into_owned()));
        }
    }
    let expected =
        [(DataLink::RAW, udp_v6(10)), (DataLink::ETHERNET, ethernet(0x86dd, &udp_v6(10)))];
    assert_eq!(frames, expected);
    // A pcap file can't hold both, and says so.
    let refused = fordway(&format!("pcap {SIIT} in.pcapng out.pcap"), dir.path());
    assert_eq!(refused.status.code(), Some(1));
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(error.contains("a name that ends in .pcapng"), "{error}");
}

#[test]
fn an_empty_capture_gives_an_empty_capture() {
    let dir = TempDir::new().unwrap();
    write_pcap(&dir.path().join("in.pcap"), DataLink::RAW, &[]);
    let result = json(&fordway(&format!("pcap {SIIT} in.pcap out.pcap --json"), dir.path()));
    assert_eq!(result["frames"], 0);
    assert!(read_pcap(&dir.path().join("out.pcap")).1.is_empty());
}

#[test]
fn what_is_no_capture_is_refused() {
    let dir = TempDir::new().unwrap();
    for (name, bytes) in
        [("empty", &b""[..]), ("short", b"\xa1\xb2\xc3"), ("text", b"this is no capture at all...")]
    {
        std::fs::write(dir.path().join(name), bytes).unwrap();
        let refused = fordway(&format!("pcap {SIIT} {name} out.pcap"), dir.path());
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{name}: {error}");
        assert!(error.contains("a capture in pcap or pcapng format is wanted"), "{name}: {error}");
    }
    // Cut in the middle of a packet.
    write_pcap(
        &dir.path().join("in.pcap"),
        DataLink::RAW,
        &[(Duration::ZERO, udp_v4([192, 0, 2, 2], 10, true))],
    );
    let bytes = std::fs::read(dir.path().join("in.pcap")).unwrap();
    std::fs::write(dir.path().join("cut.pcap"), &bytes[..bytes.len() - 5]).unwrap();
    let refused = fordway(&format!("pcap {SIIT} cut.pcap out.pcap"), dir.path());
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("cannot read cut.pcap"));
}

#[test]
fn explain_takes_packets_of_a_capture() {
    let dir = TempDir::new().unwrap();
    let frames = [
        ethernet(0x0806, &[0; 28]),
        ethernet(0x0800, &udp_v4([192, 0, 2, 2], 10, true)),
        ethernet(0x0800, &udp_v4([127, 0, 0, 1], 10, true)),
    ];
    let frames = frames.map(|frame| (Duration::ZERO, frame));
    write_pcap(&dir.path().join("in.pcap"), DataLink::ETHERNET, &frames);
    let all = json(&fordway(&format!("explain {SIIT} --pcap in.pcap --json"), dir.path()));
    let all = all.as_array().unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!((&all[0]["packet"], &all[1]["packet"]), (&2.into(), &3.into()));
    assert_eq!(all[0]["verdict"], "forward");
    let hex: String = udp_v6(10).iter().map(|octet| format!("{octet:02x}")).collect();
    assert_eq!(all[0]["after"][0]["hex"], hex);
    let sections: Vec<_> =
        all[0]["steps"].as_array().unwrap().iter().map(|s| &s["section"]).collect();
    assert!(sections.contains(&&Value::from("RFC 7757 section 3.3")), "{sections:?}");
    assert_eq!(all[1]["verdict"], "drop");
    assert_eq!(all[1]["reason"], "loopback");
    assert!(all[1]["after"].as_array().unwrap().is_empty());
    let one =
        json(&fordway(&format!("explain {SIIT} --pcap in.pcap --packet 3 --json"), dir.path()));
    assert_eq!(one.as_array().unwrap()[..], all[1..]);
    let text = fordway(&format!("explain {SIIT} --pcap in.pcap"), dir.path());
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("carry no IP packet: 1"), "{text}");
    let beyond = fordway(&format!("explain {SIIT} --pcap in.pcap --packet 4"), dir.path());
    assert_eq!(beyond.status.code(), Some(2));
}

/// A fragment of a UDP datagram of 24 octets from a host behind NAT64.
fn fragment_v6(offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(8 + payload.len()).unwrap();
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(len.to_be_bytes());
    packet.extend([44, 64]);
    packet.extend("2001:db8:1::5".parse::<std::net::Ipv6Addr>().unwrap().octets());
    packet.extend("2001:db8:64::c633:6402".parse::<std::net::Ipv6Addr>().unwrap().octets());
    packet.extend([17, 0]);
    packet.extend((offset | u16::from(more)).to_be_bytes());
    packet.extend([0, 0, 0, 9]);
    packet.extend(payload);
    packet
}

#[test]
fn nat64_waits_for_the_fragments_of_a_packet() {
    let dir = TempDir::new().unwrap();
    // Ports 4096 and 8192; whatever checksum, which is changed by the difference.
    let mut datagram = vec![0x10, 0x00, 0x20, 0x00, 0, 24, 0x12, 0x34];
    datagram.extend([0x5a; 16]);
    let (first, last) =
        (fragment_v6(0, true, &datagram[..16]), fragment_v6(16, false, &datagram[16..]));
    let times = [Duration::from_secs(1), Duration::from_millis(1100)];
    // Any order.
    let frames = [(times[0], last), (times[1], first)];
    write_pcap(&dir.path().join("in.pcap"), DataLink::RAW, &frames);
    let nat64 = "--pool6 2001:db8:64::/96 --pool4 192.0.2.1";
    let done = json(&fordway(&format!("pcap {nat64} in.pcap out.pcap --json"), dir.path()));
    assert_eq!((&done["frames"], &done["written"]), (&2.into(), &1.into()), "{done}");
    let (_, written) = read_pcap(&dir.path().join("out.pcap"));
    let (time, packet) = &written[0];
    assert_eq!((*time, packet.len(), packet[9]), (times[1], 20 + 24, 17));
    assert_eq!((&packet[12..16], &packet[16..20]), (&[192, 0, 2, 1][..], &[198, 51, 100, 2][..]));
    assert_eq!(packet[28..], datagram[8..]);
    let told = json(&fordway(&format!("explain {nat64} --pcap in.pcap --json"), dir.path()));
    assert_eq!((&told[0]["verdict"], &told[1]["verdict"]), (&"stored".into(), &"forward".into()));
}
