//! The programs' octets, run by the kernel on one frame at a time (needs root), and whole phases between
//! two namespaces.

use std::net::IpAddr;

use super::programs::{CLIENT, Path, Programs, SENDER, SERVER};
use super::template::{PAYLOAD, Packet, SERVER_SEQUENCE, Template, UDP, flag, front};
use super::walk::Walk;
use crate::frames::{folded, sum};

/// `XDP_DROP`.
const DROP: u32 = 1;
/// `XDP_PASS`.
const PASS: u32 = 2;
/// `XDP_REDIRECT`.
const REDIRECTED: u32 = 4;
const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const NEXT: [u8; 6] = [2, 0, 0, 0, 0, 2];
const ENDS: [(&str, &str); 2] =
    [("198.18.0.0", "198.51.100.2"), ("2001:db8:f00::1", "64:ff9b::198.51.100.2")];

/// A path without a translator: what one end sends is what the other receives.
struct Direct {
    programs: Programs,
    walk: Walk,
    v4: bool,
}

impl Direct {
    fn new((source, target): (&str, &str), packet: Packet, echo: bool) -> Self {
        let [source, target]: [IpAddr; 2] = [source, target].map(|a| a.parse().unwrap());
        let walk = Walk::new(source, target, 4, 1000).unwrap();
        let v4 = source.is_ipv4();
        let path = Path { devices: [1, 1], far_v4: v4, protocol: packet.protocol(), echo };
        let programs = Programs::new(&walk, 1000, path).unwrap();
        Self { programs, walk, v4 }
    }

    fn template(&self, packet: Packet) -> Template {
        Template::new(OWN, NEXT, &self.walk, packet)
    }

    /// The frame of each flow from `first` on.
    fn send(&self, packet: Packet, first: u32, count: u32) -> Vec<Vec<u8>> {
        let template = self.template(packet);
        self.programs.begin(&template, [first, first + count], 1, 1_000_000);
        let run = || self.programs.run(SENDER, &template.octets);
        let frames: Vec<Vec<u8>> = (0..count)
            .map(|_| {
                let (verdict, frame) = run();
                assert_eq!(verdict, REDIRECTED);
                frame
            })
            .collect();
        assert_eq!(run().0, DROP, "no flow is left");
        frames
    }

    fn answer(&self, frame: &[u8]) -> (u32, Vec<u8>) {
        self.programs.run(SERVER, frame)
    }

    fn answer_back(&self, frame: &[u8]) -> (u32, Vec<u8>) {
        self.programs.run(CLIENT, frame)
    }

    fn transport<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        &frame[front(self.v4)..]
    }

    /// The sum of the pseudo-header and the transport part.
    fn sum(&self, frame: &[u8], protocol: u8) -> u16 {
        let transport = self.transport(frame);
        let pseudo = [0, protocol, (transport.len() >> 8) as u8, transport.len() as u8];
        let addresses = if self.v4 { &frame[26..34] } else { &frame[22..54] };
        folded(sum(addresses) + sum(&pseudo) + sum(transport))
    }

    /// The whole's checksums are right.
    fn check(&self, frame: &[u8], protocol: u8) {
        assert_eq!(self.sum(frame, protocol), 0xffff);
        if self.v4 {
            assert_eq!(folded(sum(&frame[14..34])), 0xffff);
        }
    }
}

fn number(octets: &[u8]) -> u32 {
    u32::from_be_bytes(octets[..4].try_into().unwrap())
}

#[test]
fn every_datagram_is_a_flow_of_its_own_with_right_checksums() {
    if !fordway_testhost::is_root() {
        return;
    }
    for ends in ENDS {
        let path = Direct::new(ends, Packet::Datagram, false);
        for (flow, frame) in (3..).zip(path.send(Packet::Datagram, 3, 40)) {
            path.check(&frame, UDP);
            assert_eq!(frame[..12], [NEXT, OWN].concat());
            let tuple = path.walk.tuple(flow);
            let transport = path.transport(&frame);
            let ports = [tuple.port.to_be_bytes(), tuple.target_port.to_be_bytes()].concat();
            assert_eq!(transport[..4], ports);
            assert_eq!(frame[28..30], tuple.host.to_be_bytes());
            assert_eq!(number(&transport[8..]), flow);
            assert_eq!(transport.len(), 8 + PAYLOAD);
            let (verdict, _) = path.answer(&frame);
            assert_eq!(verdict, DROP);
        }
        assert_eq!(path.programs.get("done"), 40);
        assert_eq!(path.programs.seen().len(), 40);
        assert!(path.programs.get("last") > 0);
    }
}

#[test]
fn a_full_window_lets_nothing_go_until_a_flow_has_got_to_its_end() {
    if !fordway_testhost::is_root() {
        return;
    }
    let path = Direct::new(ENDS[0], Packet::Datagram, false);
    let template = path.template(Packet::Datagram);
    let run = || path.programs.run(SENDER, &template.octets);
    path.programs.begin(&template, [0, 100], 1, 2);
    let first = run();
    assert_eq!([first.0, run().0, run().0], [REDIRECTED, REDIRECTED, DROP]);
    assert_eq!(["sent", "waited"].map(|w| path.programs.get(w)), [2, 1]);
    path.answer(&first.1);
    assert_eq!([run().0, run().0], [REDIRECTED, DROP]);
    // What is given up makes room as well; what has arrived is not sent again.
    path.programs.add("forgiven", 2);
    path.programs.set("next", 0);
    assert_eq!([run().0, run().0], [DROP, REDIRECTED]);
    assert_eq!(path.programs.get("sent"), 4);
}

#[test]
fn a_connection_opens_carries_data_and_closes() {
    if !fordway_testhost::is_root() {
        return;
    }
    for ends in ENDS {
        let path = Direct::new(ends, Packet::Syn, true);
        let check = |frame: &[u8], flags: u8, sequence: u32, acknowledged: u32| {
            path.check(frame, super::template::TCP);
            let tcp = path.transport(frame);
            assert_eq!((tcp[13], number(&tcp[4..]), number(&tcp[8..])), {
                (flags, sequence, acknowledged)
            });
        };
        let flow = 77;
        let isn = flow << 6;
        let syn = path.send(Packet::Syn, flow, 1).remove(0);
        check(&syn, flag::SYN, isn, 0);
        let (verdict, syn_ack) = path.answer(&syn);
        assert_eq!(verdict, REDIRECTED);
        check(&syn_ack, flag::SYN | flag::ACK, SERVER_SEQUENCE, isn + 1);
        assert_eq!(syn_ack[..12], [OWN, NEXT].concat(), "it goes back where it came from");
        assert_eq!(path.transport(&syn_ack)[..2], path.transport(&syn)[2..4]);
        assert_eq!(path.programs.get("done"), 0);
        let (verdict, ack) = path.answer_back(&syn_ack);
        assert_eq!(verdict, REDIRECTED);
        check(&ack, flag::ACK, isn + 1, SERVER_SEQUENCE + 1);
        assert_eq!(path.transport(&ack)[20..], [1; 4], "only a SYN has a segment size");
        assert_eq!(path.answer(&ack).0, DROP);
        assert_eq!(path.programs.get("done"), 1);

        // The same as a reset: it is counted, and ends nothing.
        let mut reset = syn_ack.clone();
        let t = front(path.v4);
        reset[t + 13] = flag::RST;
        reset[t + 17] ^= 0xff;
        reset[t + 16] ^= 0xff;
        let sum = u16::from_be_bytes([reset[t + 16], reset[t + 17]]);
        let sum = !folded(
            u32::from(sum) + u32::from(!u16::from(flag::SYN | flag::ACK)) + u32::from(flag::RST),
        );
        reset[t + 16..t + 18].copy_from_slice(&sum.to_be_bytes());
        path.check(&reset, super::template::TCP);
        assert_eq!(path.answer_back(&reset).0, DROP);
        assert_eq!(["reset", "done"].map(|counter| path.programs.get(counter)), [1, 1]);

        let data = path.send(Packet::Data, flow, 1).remove(0);
        check(&data, flag::PSH | flag::ACK, isn + 1, SERVER_SEQUENCE + 1);
        let (verdict, echo) = path.answer(&data);
        assert_eq!(verdict, REDIRECTED);
        let after = isn + 1 + PAYLOAD as u32;
        check(&echo, flag::PSH | flag::ACK, SERVER_SEQUENCE + 1, after);
        assert_eq!(path.answer_back(&echo).0, DROP);
        assert_eq!(path.programs.get("done"), 1);

        let fin = path.send(Packet::Fin, flow, 1).remove(0);
        let (_, fin_ack) = path.answer(&fin);
        check(&fin_ack, flag::FIN | flag::ACK, SERVER_SEQUENCE + 1, isn + 2);
        let (verdict, last) = path.answer_back(&fin_ack);
        assert_eq!(verdict, REDIRECTED);
        check(&last, flag::ACK, isn + 2, SERVER_SEQUENCE + 2);
        path.answer(&last);
        assert_eq!(path.programs.get("done"), 1);
        assert_eq!(path.programs.get("moved"), 0);
    }
}

#[test]
fn what_does_not_arrive_intact_is_no_arrival() {
    if !fordway_testhost::is_root() {
        return;
    }
    for ends in ENDS {
        let path = Direct::new(ends, Packet::Datagram, false);
        let frame = path.send(Packet::Datagram, 0, 1).remove(0);
        let t = front(path.v4);
        let changed = |at: usize, by: u8| {
            let mut frame = frame.clone();
            frame[at] ^= by;
            frame
        };
        let answer = |frame: &[u8]| path.answer(frame).0;
        // A bit of the payload.
        assert_eq!(answer(&changed(t + 20, 1)), DROP);
        assert_eq!(path.programs.get("wrong"), 1);
        // No checksum at all: right in IPv4 alone.
        let mut without = frame.clone();
        without[t + 6..t + 8].fill(0);
        let before = path.programs.get("wrong");
        assert_eq!(answer(&without), DROP);
        assert_eq!(path.programs.get("wrong") - before, u64::from(!path.v4));
        // A flow that nobody sent.
        assert_eq!(answer(&changed(t + 8, 0x80)), DROP);
        assert_eq!(path.programs.get("stray"), 1);
        // Another port, another protocol, another family: not the tester's.
        for other in
            [changed(t + 2, 0x80), changed(if path.v4 { 23 } else { 20 }, 1), changed(12, 1)]
        {
            assert_eq!(answer(&other), PASS);
        }
        assert_eq!(path.programs.get("done"), u64::from(path.v4));
        path.programs.begin(&path.template(Packet::Datagram), [0, 1], 1, 1);
        // The same flow again, and then from another port, as after a change of its mapping.
        assert_eq!([answer(&frame), answer(&frame)], [DROP; 2]);
        assert_eq!(path.programs.get("moved"), 0);
        let mut elsewhere = frame.clone();
        elsewhere[t..t + 2].copy_from_slice(&[7, 7]);
        elsewhere[t + 6..t + 8].fill(0);
        let right = !path.sum(&elsewhere, UDP);
        elsewhere[t + 6..t + 8].copy_from_slice(&right.to_be_bytes());
        assert_eq!(answer(&elsewhere), DROP);
        let counted = ["done", "again", "moved", "reached"];
        assert_eq!(counted.map(|word| path.programs.get(word)), [1, 2, 1, 3]);
        assert_eq!(path.programs.seen().len(), 1);
    }
}
