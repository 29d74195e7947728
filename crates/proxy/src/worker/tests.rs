//! Connections to servers that wait.

use std::io::Read;
use std::net::{Ipv6Addr, TcpListener};
use std::num::NonZeroUsize;
use std::time::Duration;

use tokio::net::TcpStream;

use super::super::settings::{Eyeballs, Forwarded, Limits, Settings};
use super::super::{Ports, Rules};
use super::*;
use fordway_resolver as upstream;
use fordway_serve::Acl;
use fordway_testhost::still::{Still, until};

/// A forward proxy's, which nobody runs.
pub(in super::super) fn worker(limits: Limits) -> Worker {
    worker_with(limits, Rules::default())
}

/// One that has these rules.
pub(in super::super) fn worker_with(limits: Limits, rules: Rules) -> Worker {
    let all = || Ports(vec![1..=u16::MAX]);
    let forward = Forward { connect_ports: all(), ports: all(), rules };
    let nobody = upstream::Server::udp((Ipv6Addr::LOCALHOST, 53).into());
    let settings = Settings {
        name: "test".to_owned(),
        listen: Vec::new(),
        threads: NonZeroUsize::MIN,
        mode: Mode::Forward(forward),
        allow: Acl::new(["::1/128".parse().unwrap()]),
        resolver: Some(upstream::Settings::new(vec![nobody])),
        pref64: Vec::new(),
        translated: Vec::new(),
        eyeballs: Eyeballs::default(),
        tls: Vec::new(),
        accept_proxy: Acl::default(),
        http2: true,
        via: Some("px".to_owned()),
        forwarded: Forwarded::Off,
        upgrade: Vec::new(),
        limits,
        log: None,
    };
    Worker::new(Arc::new(Shared::new(Active::new(settings, None).unwrap(), 1)), 0)
}

/// A connection to a server, and the server's end of it.
async fn connect(worker: &Worker) -> (Server, std::net::TcpStream) {
    let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let conn = Conn::new(Stream::Plain(TcpStream::connect(address).await.unwrap()));
    let key = address.to_string();
    let place = Place::take(&worker.servers, 100).unwrap();
    let server = Server {
        conn,
        key,
        address,
        is_own: true,
        reused: false,
        generation: 1,
        bound: false,
        share: None,
        _place: place,
    };
    (server, listener.accept().unwrap().0)
}

fn idle(worker: &Worker) -> u64 {
    worker.shared.stats().idle
}

#[tokio::test(start_paused = true)]
async fn connections_to_servers_are_let_go() {
    let still = Still::begin();
    let pool_time = Duration::from_secs(15);
    let worker = worker(Limits { pool_time, ..Limits::default() });
    let (server, mut there) = connect(&worker).await;
    worker.keep(server);
    assert_eq!(idle(&worker), 1);
    still.pass(pool_time).await;
    worker.sweep();
    assert_eq!(idle(&worker), 1);
    still.pass(Duration::from_millis(1)).await;
    worker.sweep();
    assert_eq!(idle(&worker), 0);
    assert_eq!(there.read(&mut [0]).unwrap(), 0, "the server sees its end");
}

#[tokio::test(start_paused = true)]
async fn only_so_many_are_kept_and_none_that_the_server_has_ended() {
    let _still = Still::begin();
    let worker = worker(Limits { pool: 1, ..Limits::default() });
    let (server, there) = connect(&worker).await;
    worker.keep(server);
    let (another, mut its_end) = connect(&worker).await;
    worker.keep(another);
    assert_eq!(idle(&worker), 1);
    assert_eq!(its_end.read(&mut [0]).unwrap(), 0, "there is one already");
    drop(there);
    until("one that has ended is let go", || {
        worker.sweep();
        idle(&worker) == 0
    })
    .await;
}
