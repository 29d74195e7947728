//! Stateless DHCPv6, asked by a small client.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::AsRawFd;

use dhcproto::v6::{
    CLIENT_PORT, DhcpOption, IANA, Message, MessageType, ORO, OptionCode, SERVER_PORT,
    UnknownOption,
};
use dhcproto::{Decodable, Decoder, Encodable};
use fordway_router::{Server, Settings};
use fordway_serve::Service as _;
use fordway_testhost::{PATIENCE, poll};
use nix::sys::socket::{SockaddrIn6, recvfrom};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::world::{UP, World};
use super::{counted, full, serve, settings, stats};
use fordway_testhost::namespace::{Namespace, can_test};

const ALL_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);

struct Client {
    socket: Socket,
    index: u32,
}

impl Client {
    fn new(client: &Namespace) -> Client {
        let index = client.index(UP);
        let socket = client.run(|| {
            let socket =
                Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP)).expect("a socket");
            let any = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, CLIENT_PORT, 0, 0);
            socket.bind(&SockAddr::from(any)).expect("the client's port");
            socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            socket
        });
        Client { socket, index }
    }

    fn send(&self, message: &[u8], to: Ipv6Addr) {
        let to = SockAddr::from(SocketAddrV6::new(to, SERVER_PORT, 0, self.index));
        self.socket.send_to(message, &to).expect("sent");
    }

    /// The next reply, and where it came from.
    fn receive(&self) -> (Message, Ipv6Addr) {
        let mut octets = [0; 1500];
        let received = recvfrom::<SockaddrIn6>(self.socket.as_raw_fd(), &mut octets);
        let (len, from) = received.expect("a reply");
        let from = from.expect("a source");
        assert_eq!(from.port(), SERVER_PORT);
        let reply = Message::decode(&mut Decoder::new(&octets[..len])).expect("a message");
        (reply, from.ip())
    }

    /// Asks, and reads the answer: the next thing that the server says.
    fn ask(&self, request: &Message) -> (Message, Ipv6Addr) {
        self.send(&request.to_vec().expect("a message"), ALL_SERVERS);
        let (reply, from) = self.receive();
        assert_eq!(reply.xid(), request.xid());
        (reply, from)
    }
}

fn request(xid: u8, options: impl IntoIterator<Item = DhcpOption>) -> Message {
    let mut message = Message::new_with_id(MessageType::InformationRequest, [1, 2, xid]);
    for option in options {
        message.opts_mut().insert(option);
    }
    message
}

fn wants(codes: &[OptionCode]) -> DhcpOption {
    DhcpOption::ORO(ORO { opts: codes.to_vec() })
}

fn server_id(reply: &Message) -> Vec<u8> {
    match reply.opts().get(OptionCode::ServerId) {
        Some(DhcpOption::ServerId(duid)) => duid.clone(),
        other => panic!("{other:?}"),
    }
}

fn running(world: &World) -> Server {
    let server = serve(world, full());
    counted("an advertisement", &server, |it| it.sent > 0);
    server
}

#[test]
fn a_client_gets_dns_servers_and_search_list() {
    if !can_test() {
        return;
    }
    let world = World::new();
    let server = running(&world);
    let client = Client::new(&world.client);
    let duid = vec![0, 3, 0, 1, 2, 0, 0, 0, 0, 2];
    let asked = request(
        1,
        [
            DhcpOption::ClientId(duid.clone()),
            DhcpOption::ElapsedTime(0),
            wants(&[
                OptionCode::DomainNameServers,
                OptionCode::DomainSearchList,
                OptionCode::InformationRefreshTime,
            ]),
        ],
    );
    let (reply, from) = client.ask(&asked);
    assert_eq!(from, world.link_local());
    assert_eq!(reply.msg_type(), MessageType::Reply);
    assert_eq!(reply.opts().get(OptionCode::ClientId), Some(&DhcpOption::ClientId(duid)));
    // The maker's address of the only device that has one would be here; a made-up one is this.
    assert_eq!(server_id(&reply), [0, 3, 0, 1, 2, 0, 0, 0, 0, 1]);
    let servers = vec!["2001:db8:1::53".parse().unwrap(), "2001:db8:1::54".parse().unwrap()];
    assert_eq!(
        reply.opts().get(OptionCode::DomainNameServers),
        Some(&DhcpOption::DomainNameServers(servers))
    );
    let names = vec!["example.net.".parse().unwrap(), "lab.example.com.".parse().unwrap()];
    assert_eq!(
        reply.opts().get(OptionCode::DomainSearchList),
        Some(&DhcpOption::DomainSearchList(names))
    );
    // The library writes this one and does not read it.
    let refresh =
        UnknownOption::new(OptionCode::InformationRefreshTime, 3600u32.to_be_bytes().into());
    assert_eq!(
        reply.opts().get(OptionCode::InformationRefreshTime),
        Some(&DhcpOption::Unknown(refresh))
    );

    // RFC 9463 and RFC 8910.
    let dnr = OptionCode::Unknown(144);
    let (reply, _) = client.ask(&request(4, [wants(&[OptionCode::DhcpCaptivePortal, dnr])]));
    let octets = |code: OptionCode| match reply.opts().get(code) {
        Some(DhcpOption::Unknown(it)) => it.data().to_vec(),
        other => panic!("{other:?}"),
    };
    assert_eq!(octets(OptionCode::DhcpCaptivePortal), b"https://portal.example.net/api");
    assert!(
        octets(dnr).starts_with(b"\x00\x01\x00\x11\x03dns\x07example\x03net\x00\x00\x10\x20\x01")
    );

    // Only what was asked for; without a client's identifier, too.
    let (reply, _) = client.ask(&request(2, [wants(&[OptionCode::DomainSearchList])]));
    let codes: Vec<OptionCode> = reply.opts().iter().map(OptionCode::from).collect();
    assert_eq!(codes, [OptionCode::ServerId, OptionCode::DomainSearchList]);
    // This server by its name.
    let (again, _) = client.ask(&request(3, [DhcpOption::ServerId(server_id(&reply))]));
    assert_eq!(server_id(&again), server_id(&reply));
    server.stop();
}

#[test]
fn what_is_not_for_this_server_gets_no_answer() {
    if !can_test() {
        return;
    }
    let world = World::new();
    let router = world.link_local();
    let server = running(&world);
    let client = Client::new(&world.client);
    let good = request(9, []).to_vec().unwrap();
    let other = request(1, [DhcpOption::ServerId(vec![0, 3, 0, 1, 9, 9, 9, 9, 9, 9])]);
    let association = IANA { id: 1, t1: 0, t2: 0, opts: dhcproto::v6::DhcpOptions::new() };
    let addresses = request(2, [DhcpOption::IANA(association)]);
    let mut solicit = request(3, []);
    solicit.set_msg_type(MessageType::Solicit);
    let before = stats(&server).dhcpv6_ignored;
    let ignored: [Vec<u8>; 6] = [
        other.to_vec().unwrap(),
        addresses.to_vec().unwrap(),
        solicit.to_vec().unwrap(),
        // Options that end nowhere; half a header; a relay's message.
        vec![11, 0, 0, 4, 0, 6, 0, 9, 0],
        vec![11, 0],
        vec![12; 80],
    ];
    for message in &ignored {
        client.send(message, ALL_SERVERS);
    }
    // To this host alone (RFC 8415 section 16).
    client.send(&good, router);
    counted("seven ignored", &server, |it| it.dhcpv6_ignored == before + 7);
    assert_eq!(stats(&server).dhcpv6_replies, 0);
    let (reply, _) = client.ask(&request(4, []));
    assert_eq!(reply.xid(), [1, 2, 4]);
    server.stop();
}

#[test]
fn replies_are_limited() {
    if !can_test() {
        return;
    }
    let world = World::new();
    let server = running(&world);
    let client = Client::new(&world.client);
    let good = request(1, []).to_vec().unwrap();
    poll("a limit", || {
        for _ in 0..100 {
            client.send(&good, ALL_SERVERS);
        }
        (stats(&server).dhcpv6_limited > 0).then_some(())
    });
    counted("a burst of replies", &server, |it| it.dhcpv6_replies >= 100);
    server.stop();
}

#[test]
fn it_can_be_switched_on_and_off() {
    if !can_test() {
        return;
    }
    let world = World::new();
    let mut device = full();
    device.dhcpv6 = false;
    let off = settings(device);
    let wanted = off.clone();
    let server = world.router.run(move || Server::start(Server::bind(&wanted).unwrap()).unwrap());
    counted("an advertisement", &server, |it| it.sent > 0);
    // Sockets are of the namespace of who asks for them.
    let replace = |server: Server, settings: Settings| {
        world.router.run(move || {
            server.replace(settings).unwrap();
            server
        })
    };
    let server = replace(server, settings(full()));
    let client = Client::new(&world.client);
    client.ask(&request(1, []));
    let server = replace(server, off);
    let replies = stats(&server).dhcpv6_replies;
    client.send(&request(2, []).to_vec().unwrap(), ALL_SERVERS);
    // And on again: the port was given back. What comes first is the answer to what was asked now, not before.
    let server = replace(server, settings(full()));
    client.ask(&request(3, []));
    counted("the reply", &server, |it| it.dhcpv6_replies == replies + 1);
    server.stop();
}
