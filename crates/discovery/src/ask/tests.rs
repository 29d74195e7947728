use std::time::Duration;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::AAAA;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::net::TcpListener;

use super::*;
use fordway_testhost::still::Still;

fn question(server: SocketAddr, timeout: Duration) -> Ask {
    Ask {
        id: 1,
        device: None,
        server,
        name: Name::from_ascii("ipv4only.arpa.").unwrap(),
        record_type: RecordType::AAAA,
        authenticated: false,
        timeout,
    }
}

const LONG: Duration = Duration::from_secs(60);

fn reply(octets: &[u8], change: impl FnOnce(&mut Message)) -> Vec<u8> {
    let query = Message::from_vec(octets).unwrap();
    let mut answer = Message::response(query.metadata.id, OpCode::Query);
    answer.add_queries(query.queries.clone());
    change(&mut answer);
    answer.to_vec().unwrap()
}

fn with_address(message: &mut Message) {
    let data = RData::AAAA(AAAA("64:ff9b::c000:aa".parse().unwrap()));
    let name = message.queries[0].name().clone();
    message.add_answer(Record::from_rdata(name, 60, data));
}

async fn server() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("[::1]:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

async fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = vec![0; 512];
    let (len, from) = socket.recv_from(&mut buffer).await.unwrap();
    buffer.truncate(len);
    (buffer, from)
}

/// RFC 7050 section 3: CD is zero.
#[tokio::test]
async fn the_question_is_as_the_rfc_wants_it() {
    let (socket, address) = server().await;
    let serve = async {
        let (octets, from) = receive(&socket).await;
        let query = Message::from_vec(&octets).unwrap();
        assert!(!query.metadata.checking_disabled && query.metadata.recursion_desired);
        assert!(query.metadata.authentic_data);
        assert_eq!(query.queries[0].name().to_ascii(), "ipv4only.arpa.");
        assert_eq!(query.queries[0].query_type(), RecordType::AAAA);
        socket.send_to(&reply(&octets, with_address), from).await.unwrap();
    };
    let mut question = question(address, LONG);
    question.authenticated = true;
    let (answer, ()) = tokio::join!(ask(&question), serve);
    assert_eq!(answer.unwrap().answers.len(), 1);
}

#[tokio::test]
async fn what_is_not_the_answer_is_passed_over() {
    let (socket, address) = server().await;
    let serve = async {
        let (octets, from) = receive(&socket).await;
        let wrong: [Vec<u8>; 6] = [
            vec![],
            vec![0xff; 3],
            octets.clone(),
            reply(&octets, |message| message.metadata.id = !message.metadata.id),
            reply(&octets, |message| {
                message.queries[0].set_name(Name::from_ascii("example.net.").unwrap());
            }),
            reply(&octets, |message| message.queries.clear()),
        ];
        for wrong in wrong {
            socket.send_to(&wrong, from).await.unwrap();
        }
        // Of somebody else.
        let (other, _) = server().await;
        let stranger = reply(&octets, |message| {
            message.metadata.response_code = ResponseCode::Refused;
        });
        let _ = other.send_to(&stranger, from).await;
        socket.send_to(&reply(&octets, with_address), from).await.unwrap();
    };
    let question = question(address, LONG);
    let (answer, ()) = tokio::join!(ask(&question), serve);
    assert_eq!(answer.unwrap().metadata.response_code, ResponseCode::NoError);
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_fetched_over_tcp() {
    let (listener, socket) = loop {
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        if let Ok(socket) = UdpSocket::bind(listener.local_addr().unwrap()).await {
            break (listener, socket);
        }
    };
    let address = socket.local_addr().unwrap();
    let serve = async {
        let (octets, from) = receive(&socket).await;
        let truncated = reply(&octets, |message| message.metadata.truncation = true);
        socket.send_to(&truncated, from).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let len = stream.read_u16().await.unwrap();
        let mut query = vec![0; len.into()];
        stream.read_exact(&mut query).await.unwrap();
        let answer = reply(&query, |message| (0..40).for_each(|_| with_address(message)));
        stream.write_u16(answer.len() as u16).await.unwrap();
        stream.write_all(&answer).await.unwrap();
    };
    let question = question(address, LONG);
    let (answer, ()) = tokio::join!(ask(&question), serve);
    assert_eq!(answer.unwrap().answers.len(), 40);
}

#[tokio::test(start_paused = true)]
async fn no_answer_has_its_reason() {
    let still = Still::begin();
    let (socket, address) = server().await;
    let silent = question(address, LONG);
    let (answer, ()) = tokio::join!(ask(&silent), still.pass(LONG));
    assert_eq!(answer, Err(Failure::Timeout));
    // A connected socket hears its peer alone: to all others the port is closed.
    socket.connect(address).await.unwrap();
    let refused = Failure::Unreachable("connection refused".to_owned());
    assert_eq!(ask(&question(address, LONG)).await, Err(refused));
}
