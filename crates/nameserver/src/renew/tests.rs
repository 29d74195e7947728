//! Time stands still, or passes as the test says.

use std::net::{Ipv4Addr, UdpSocket};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use fordway_dns64::{Policies, Policy};
use fordway_resolver as upstream;
use fordway_serve::Acl;
use fordway_testhost::still::{Still, until};
use hickory_proto::op::{Message, MessageType, OpCode, Query as HickoryQuery};
use hickory_proto::rr::rdata::{A, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::task::LocalSet;

use super::super::settings::{Cookies, Limits, Settings};
use super::super::shared::{Active, Shared};
use super::super::sockets::Transport;
use super::super::worker::Client;
use super::*;

/// A server that has an address for every name, for 100 seconds; and how often it was asked for one.
fn upstream_server() -> (upstream::Server, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let server = upstream::Server::udp(socket.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    thread::spawn(move || {
        let mut octets = [0; 4096];
        while let Ok((len, client)) = socket.recv_from(&mut octets) {
            let query = Message::from_vec(&octets[..len]).unwrap();
            let mut answer = query.clone().into_response();
            let name = query.queries[0].name.clone();
            if query.queries[0].query_type == RecordType::A {
                count.fetch_add(1, Ordering::SeqCst);
                let data = RData::A(A(Ipv4Addr::new(192, 0, 2, 1)));
                answer.add_answer(Record::from_rdata(name, 100, data));
            } else {
                let soa = SOA::new(name.clone(), name.clone(), 1, 2, 3, 4, 3600);
                answer.add_authority(Record::from_rdata(name, 3600, RData::SOA(soa)));
            }
            let _ = socket.send_to(&answer.to_vec().unwrap(), client);
        }
    });
    (server, asked)
}

fn worker(server: upstream::Server, prefetch: bool) -> Rc<Worker> {
    let pool6 = vec!["2001:db8:64::/96".parse().unwrap()];
    let settings = Settings {
        listen: Vec::new(),
        threads: NonZeroUsize::MIN,
        upstream: upstream::Settings::new(vec![server]),
        policies: Policies::new(Policy { pool6, ..Policy::default() }, Vec::new()).unwrap(),
        allow: Acl::new(["::1/128".parse().unwrap()]),
        rate: None,
        cache_octets: 1 << 20,
        listen_tls: Vec::new(),
        listen_https: Vec::new(),
        tls: None,
        cookies: Cookies::Off,
        prefetch,
        udp_size: 1232,
        limits: Limits::default(),
    };
    let shared = Arc::new(Shared::new(Active::new(settings, None).unwrap(), 1));
    Rc::new(Worker::new(shared, 0))
}

/// Asks for a name. Whether the answer was there at once, and its TTL.
async fn ask(worker: &Worker) -> (bool, u32) {
    let mut query = Message::new(1, MessageType::Query, OpCode::Query);
    query.metadata.recursion_desired = true;
    let name = Name::from_ascii("www.example.net.").unwrap();
    query.add_query(HickoryQuery::query(name, RecordType::AAAA));
    let client =
        Client { address: std::net::Ipv6Addr::LOCALHOST.into(), transport: Transport::Udp };
    let active = worker.shared.active.load_full();
    let mut out = Vec::new();
    let waiting = worker.handle(&active, client, &query.to_vec().unwrap(), worker.now(), &mut out);
    let is_there = waiting.is_none();
    if let Some(waiting) = waiting {
        worker.finish(waiting, |write| write(&mut out)).await;
    }
    let answer = Message::from_vec(&out).unwrap();
    (is_there, answer.answers[0].ttl)
}

#[tokio::test(start_paused = true)]
async fn a_popular_name_never_expires() {
    let still = Still::begin();
    let (server, asked) = upstream_server();
    let worker = worker(server, true);
    let pass = async |seconds| still.pass(Duration::from_secs(seconds)).await;
    let test = async {
        spawn_here(run(Rc::clone(&worker)));
        assert_eq!(ask(&worker).await, (false, 100));
        pass(50).await;
        assert_eq!(ask(&worker).await, (true, 50));
        pass(41).await;
        // In the last tenth, and not for the first time.
        assert_eq!(ask(&worker).await, (true, 9));
        until("it is asked for again", || worker.counters().renewed.get() == 1).await;
        assert_eq!(ask(&worker).await, (true, 100));
        pass(20).await;
        assert_eq!(ask(&worker).await, (true, 80));
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        // Nobody asks: it expires.
        pass(81).await;
        assert_eq!(ask(&worker).await, (false, 100));
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_another_policy_takes_no_place() {
    let still = Still::begin();
    let (server, asked) = upstream_server();
    let worker = worker(server, true);
    let test = async {
        ask(&worker).await;
        still.pass(Duration::from_secs(91)).await;
        ask(&worker).await;
        ask(&worker).await;
        let due = worker.renewals.next().await;
        give_a_policy_of_its_own(&worker);
        let of = Rc::clone(&worker);
        spawn_here(async move { renew(&of, due).await }).await.unwrap();
        assert_eq!((worker.counters().renewed.get(), asked.load(Ordering::SeqCst)), (0, 1));
    };
    LocalSet::new().run_until(test).await;
}

/// As a reload does, to the client.
fn give_a_policy_of_its_own(worker: &Worker) {
    let before = worker.shared.active.load_full();
    let pool6 = vec!["2001:db8:65::/96".parse().unwrap()];
    let own = Policy { pool6, ..Policy::default() };
    let clients = vec!["::1/128".parse().unwrap()];
    let policies = Policies::new(Policy::default(), vec![(clients, own)]).unwrap();
    let settings = Settings { policies, ..before.settings.clone() };
    worker.shared.active.store(Arc::new(Active::new(settings, Some(&before)).unwrap()));
}

#[tokio::test(start_paused = true)]
async fn not_if_it_is_switched_off() {
    let still = Still::begin();
    let (server, asked) = upstream_server();
    let worker = worker(server, false);
    let test = async {
        spawn_here(run(Rc::clone(&worker)));
        ask(&worker).await;
        still.pass(Duration::from_secs(95)).await;
        ask(&worker).await;
        assert_eq!(ask(&worker).await, (true, 5));
        still.pass(Duration::from_secs(5)).await;
        assert_eq!(ask(&worker).await, (false, 100));
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    };
    LocalSet::new().run_until(test).await;
}
