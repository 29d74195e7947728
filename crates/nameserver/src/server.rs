//! The server: sockets, threads, and its handle.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, UdpSocket};

use super::datagram::Datagrams;
use super::error::Error;
use super::renew;
use super::settings::Settings;
use super::shared::{Active, Shared};
use super::sockets::{self, Pair, Transport};
use super::stream;
use super::worker::Worker;
use fordway_counters::dns64::Stats;
use fordway_resolver::{Resolver, Selection};
use fordway_serve::thread::Threads;
use fordway_serve::{Service, differing, spawn_here};

/// A server with its sockets but without threads.
#[derive(Debug)]
pub struct Bound {
    active: Active,
    addresses: Vec<SocketAddr>,
    threads: Vec<Part>,
}

/// The sockets of a thread.
#[derive(Debug, Default)]
struct Part {
    pairs: Vec<Pair>,
    /// By TLS and HTTPS.
    streams: Vec<(Transport, std::net::TcpListener)>,
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<SocketAddr>,
    threads: Threads<Shared>,
}

impl Server {
    /// Where it listens: with the ports that the system has chosen, where the settings say port 0.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Its counters, of all threads together.
    pub fn stats(&self) -> Stats {
        self.threads.shared.stats()
    }

    /// Its caches.
    pub fn caches(&self) -> Caches {
        Caches(Arc::clone(&self.threads.shared))
    }
}

/// The caches of a server, that of answers of upstream servers and that of ready answers, to be read and flushed by another
/// thread than the server's owner.
#[derive(Clone, Debug)]
pub struct Caches(Arc<Shared>);

impl Caches {
    /// The resolver, which has that of answers of upstream servers.
    pub fn resolver(&self) -> Arc<Resolver> {
        Arc::clone(&self.0.active.load().resolver)
    }

    /// Removes all that is known of some names. How many answers of upstream servers that were, and how many ready ones.
    ///
    /// No query that comes after this has returned is answered with what upstream servers have said before.
    pub fn flush(&self, of: &Selection) -> (u64, u64) {
        let active = self.0.active.load_full();
        // Ready answers are made of upstream's, so these first.
        let upstream = active.resolver.flush(of);
        (upstream, active.ready.flush(of))
    }
}

impl Service for Server {
    const NAME: &'static str = "dns64";
    type Settings = Settings;
    type Bound = Bound;
    type Error = Error;

    /// # Errors
    ///
    /// An address that can't be had, or a resolver that can't be made.
    fn bind(settings: &Settings) -> Result<Bound, Error> {
        let active = Active::new(settings.clone(), None)?;
        let mut addresses = Vec::new();
        let mut threads: Vec<Part> = (0..settings.threads.get()).map(|_| Part::default()).collect();
        for listen in &settings.listen {
            let (address, pairs) = sockets::open(*listen, settings.threads)?;
            addresses.push(address);
            for (thread, pair) in threads.iter_mut().zip(pairs) {
                thread.pairs.push(pair);
            }
        }
        let of_tls = settings.listen_tls.iter().map(|listen| (Transport::Tls, listen));
        let of_https = settings.listen_https.iter().map(|listen| (Transport::Https, listen));
        for (transport, listen) in of_tls.chain(of_https) {
            let (address, listeners) = sockets::open_streams(*listen, settings.threads)?;
            addresses.push(address);
            for (thread, listener) in threads.iter_mut().zip(listeners) {
                thread.streams.push((transport, listener));
            }
        }
        Ok(Bound { active, addresses, threads })
    }

    fn start(Bound { active, addresses, threads }: Bound) -> Result<Server, Error> {
        let shared = Shared::new(active, threads.len());
        let threads = Threads::start_local("DNS64 server", "dns64", shared, threads, enter, run);
        Ok(Server { addresses, threads: threads.map_err(Error::Thread)? })
    }

    fn fixed(from: &Settings, to: &Settings) -> Option<&'static str> {
        let same = [
            ("listen", from.listen == to.listen),
            ("listen_tls", from.listen_tls == to.listen_tls),
            ("listen_https", from.listen_https == to.listen_https),
            ("threads", from.threads == to.threads),
        ];
        differing(same)
    }

    /// Applies other settings. When this returns, no answer is made under the old ones any more, and those made
    /// have left (by TCP, they may still be being written); queries under way are answered by the new ones. Cached
    /// upstream data stay unless the upstream servers change.
    ///
    /// # Errors
    ///
    /// What a running server can't change, or a resolver that can't be made; then everything stays as it was.
    fn replace(&self, settings: Settings) -> Result<(), Error> {
        if let Some(key) = Server::fixed(&self.threads.shared.active.load().settings, &settings) {
            return Err(Error::Fixed(key));
        }
        self.threads.shared.replace(settings)
    }

    fn is_whole(&self) -> bool {
        self.threads.are_running()
    }
}

/// The sockets of a thread, in its runtime.
struct Sockets {
    datagrams: Vec<UdpSocket>,
    streams: Vec<(Transport, TcpListener)>,
}

fn enter(part: Part) -> io::Result<Sockets> {
    let (mut datagrams, mut streams) = (Vec::new(), Vec::new());
    for Pair { udp, tcp } in part.pairs {
        datagrams.push(UdpSocket::from_std(udp)?);
        streams.push((Transport::Tcp, TcpListener::from_std(tcp)?));
    }
    for (transport, listener) in part.streams {
        streams.push((transport, TcpListener::from_std(listener)?));
    }
    Ok(Sockets { datagrams, streams })
}

/// Body of a thread.
async fn run(shared: Arc<Shared>, index: usize, sockets: Sockets) {
    /// However the thread ends, [`Shared::replace`] must not wait for it.
    struct Ended<'a>(&'a Shared, usize);
    impl Drop for Ended<'_> {
        fn drop(&mut self) {
            self.0.takes(self.1, u64::MAX);
        }
    }
    let _ended = Ended(&shared, index);
    serve(&shared, index, sockets).await;
}

/// Runs a task, and restarts it if it panics: its socket serves a part of all clients, which would get no answer from
/// then on.
fn keep<F: Future<Output = ()> + 'static>(what: &'static str, task: impl Fn() -> F + 'static) {
    spawn_here(async move {
        while let Err(error) = spawn_here(task()).await {
            if error.is_cancelled() {
                return;
            }
            tracing::error!("a DNS64 {what} has failed, and is restarted: {error}");
        }
    });
}

async fn serve(shared: &Arc<Shared>, index: usize, sockets: Sockets) {
    let worker = Rc::new(Worker::new(Arc::clone(shared), index));
    let mut datagrams = Vec::new();
    for udp in sockets.datagrams {
        let (udp, worker) = (Rc::new(Datagrams::new(udp)), Rc::clone(&worker));
        datagrams.push(Rc::clone(&udp));
        keep("receiver of questions by UDP", move || Rc::clone(&udp).run(Rc::clone(&worker)));
    }
    for (transport, listener) in sockets.streams {
        let (listener, worker) = (Rc::new(listener), Rc::clone(&worker));
        keep("listener", move || {
            stream::accept(Rc::clone(&listener), transport, Rc::clone(&worker))
        });
    }
    if index == 0 {
        let shared = Arc::clone(shared);
        keep("watch over the certificate", move || watch_certificate(Arc::clone(&shared)));
    }
    let renewing = Rc::clone(&worker);
    keep("renewal of answers", move || renew::run(Rc::clone(&renewing)));
    while !shared.signals.is_stopping() {
        // Tasks load the settings when they begin something; none is in the middle of something now.
        for udp in &datagrams {
            udp.flush(&worker);
        }
        shared.takes(index, shared.active.load().generation);
        shared.signals.woken(index).await;
    }
}

/// How often to look at the files of the certificate.
const LOOK: Duration = Duration::from_secs(1);

/// Looks at the certificate's files from time to time; never ends.
async fn watch_certificate(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let tls = shared.active.load().tls.clone();
        if let Some(tls) = tls {
            let _ = tokio::task::spawn_blocking(move || tls.certificates.look()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::task::LocalSet;

    use super::*;

    #[tokio::test]
    async fn what_panics_begins_anew() {
        let local = LocalSet::new();
        let (begun, ended) = (Rc::new(Cell::new(0)), Rc::new(tokio::sync::Notify::new()));
        let (times, end) = (Rc::clone(&begun), Rc::clone(&ended));
        let work = async move {
            keep("test", move || {
                times.set(times.get() + 1);
                let (number, end) = (times.get(), Rc::clone(&end));
                async move {
                    assert!(number == 3, "a panic that is wanted");
                    end.notify_one();
                }
            });
            ended.notified().await;
        };
        local.run_until(work).await;
        assert_eq!(begun.get(), 3);
    }
}
