//! A resolver that knows `ipv4only.arpa` as it is told.

use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use hickory_proto::op::{Message, OpCode};
use hickory_proto::rr::rdata::{A, AAAA};
use hickory_proto::rr::{RData, Record, RecordType};

use fordway_testhost::namespace::Namespace;

/// Answers until it is dropped.
pub(crate) struct Resolver {
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    says: Mutex<(Vec<Ipv6Addr>, u32)>,
    asked: AtomicUsize,
    over: AtomicBool,
}

/// Starts one in a namespace that has the address.
pub(crate) fn start(namespace: &Namespace, address: &str) -> Resolver {
    let address: SocketAddr = address.parse().unwrap();
    let state = Arc::new(State::default());
    let of_thread = Arc::clone(&state);
    namespace.run(move || {
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        thread::spawn(move || serve(&socket, &of_thread));
    });
    Resolver { state }
}

impl Resolver {
    /// These AAAA records from now on; without any, it answers NODATA.
    pub(crate) fn says(&self, addresses: &[&str], ttl: u32) {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        *self.state.says.lock().unwrap() = (addresses, ttl);
    }

    /// How often it was asked for them.
    pub(crate) fn asked(&self) -> usize {
        self.state.asked.load(Ordering::SeqCst)
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::SeqCst);
    }
}

fn serve(socket: &UdpSocket, state: &State) {
    let mut buffer = [0; 512];
    while !state.over.load(Ordering::SeqCst) {
        let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
        let Ok(query) = Message::from_vec(&buffer[..len]) else { continue };
        let asked = query.queries[0].clone();
        let mut answer = Message::response(query.metadata.id, OpCode::Query);
        answer.add_query(asked.clone());
        let (addresses, ttl) = state.says.lock().unwrap().clone();
        let data: Vec<RData> = match asked.query_type() {
            RecordType::AAAA => {
                state.asked.fetch_add(1, Ordering::SeqCst);
                addresses.into_iter().map(|address| RData::AAAA(AAAA(address))).collect()
            }
            RecordType::A => [170, 171].map(|last| RData::A(A([192, 0, 0, last].into()))).to_vec(),
            _ => Vec::new(),
        };
        for data in data {
            answer.add_answer(Record::from_rdata(asked.name().clone(), ttl, data));
        }
        let _ = socket.send_to(&answer.to_vec().unwrap(), from);
    }
}
