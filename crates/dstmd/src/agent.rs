//! A tunnel end point whose server is on another host, which sends it the bindings.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddrV6, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};

use fordway_dstm::{Key, Tep, TepStep};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tracing::{debug, warn};

use super::clock::{Clock, Timer};
use super::server::{listen_on, serve_datagrams};
use super::{AgentStats, Bindings, Error, random};
use fordway_serve::thread::{Commanded, Ready};
use fordway_serve::{Service, differing};

/// Settings of an agent.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// Where it listens.
    pub listen: SocketAddrV6,
    /// The key that it shares with the server.
    pub key: Key,
    /// The tunnel end point.
    pub bindings: Arc<dyn Bindings>,
    /// Most bindings that it takes.
    pub most: usize,
}

/// An agent with its socket but without its thread.
#[derive(Debug)]
pub struct BoundAgent {
    bindings: Arc<dyn Bindings>,
    socket: UdpSocket,
    core: Tep,
}

impl BoundAgent {
    /// Where it listens.
    pub fn address(&self) -> io::Result<std::net::SocketAddr> {
        self.socket.local_addr()
    }
}

struct Shell {
    core: RefCell<Tep>,
    bindings: Arc<dyn Bindings>,
    stats: Arc<Mutex<AgentStats>>,
    clock: Clock,
    news: Notify,
}

impl Shell {
    fn new(core: Tep, bindings: Arc<dyn Bindings>, stats: Arc<Mutex<AgentStats>>) -> Shell {
        let (core, clock) = (RefCell::new(core), Clock::start());
        Shell { core, bindings, stats, clock, news: Notify::new() }
    }

    async fn serve(&self, socket: &tokio::net::UdpSocket) {
        let receive = serve_datagrams(socket, |from, octets| {
            let step = self.core.borrow_mut().receive(octets, self.clock.now());
            self.apply(&step);
            if let Some(reply) = step.reply
                && let Err(error) = socket.try_send_to(&reply, from.into())
            {
                debug!("dstm: to {from}: {error}");
            }
            self.news.notify_one();
        });
        let expire = async {
            let timer = Timer::new();
            loop {
                let due = self.core.borrow().next_end().unwrap_or(self.clock.now() + 60_000);
                tokio::select! {
                    () = timer.until(self.clock.instant(due)) => {
                        let step = self.core.borrow_mut().expire(self.clock.now());
                        self.apply(&step);
                    }
                    () = self.news.notified() => {}
                }
            }
        };
        tokio::select! {
            () = receive => {}
            () = expire => {}
        }
    }

    fn apply(&self, step: &TepStep) {
        for gone in &step.gone {
            self.bindings.remove(gone);
        }
        let mut failed = 0;
        for come in &step.come {
            if let Err(error) = self.bindings.insert(come) {
                failed += 1;
                warn!("dstm: {} of {}: {error}", come.v4, come.remote);
            }
        }
        let core = self.core.borrow();
        let mut stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        *stats = AgentStats { failed: stats.failed + failed, ..core.stats() };
    }
}

impl Drop for Shell {
    /// Removes all bindings, however it ends.
    fn drop(&mut self) {
        for binding in self.core.get_mut().bindings() {
            self.bindings.remove(binding);
        }
    }
}

/// A running agent. Dropping it ends it, and removes its bindings.
#[derive(Debug)]
pub struct Agent {
    stats: Arc<Mutex<AgentStats>>,
    /// It has no commands but the end.
    thread: Commanded<Infallible>,
}

impl Agent {
    /// What it has done.
    pub fn stats(&self) -> AgentStats {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service for Agent {
    const NAME: &'static str = "dstm-tep";
    type Settings = AgentSettings;
    type Bound = BoundAgent;
    type Error = Error;

    fn bind(settings: &AgentSettings) -> Result<BoundAgent, Error> {
        let socket = listen_on(settings.listen)?;
        let nonce = u64::from_ne_bytes(random()?);
        let core = Tep::new(settings.key.clone(), nonce, settings.most);
        Ok(BoundAgent { bindings: Arc::clone(&settings.bindings), socket, core })
    }

    fn start(BoundAgent { bindings, socket, core }: BoundAgent) -> Result<Agent, Error> {
        let stats = Arc::new(Mutex::new(AgentStats::default()));
        let shared = Arc::clone(&stats);
        let run = async move |mut commands: UnboundedReceiver<Infallible>, ready: Ready| {
            let socket = tokio::net::UdpSocket::from_std(socket)?;
            ready.tell();
            let shell = Shell::new(core, bindings, shared);
            tokio::select! {
                () = shell.serve(&socket) => {}
                _ = commands.recv() => {}
            }
            Ok(())
        };
        let thread = Commanded::start("a DSTM tunnel end point", "fordway-dstm-tep", run);
        Ok(Agent { stats, thread: thread.map_err(Error::Thread)? })
    }

    fn fixed(from: &AgentSettings, to: &AgentSettings) -> Option<&'static str> {
        differing([
            ("listen", from.listen == to.listen),
            ("key", from.key == to.key),
            ("most", from.most == to.most),
        ])
    }

    fn replace(&self, _: AgentSettings) -> Result<(), Error> {
        Ok(())
    }

    fn is_whole(&self) -> bool {
        self.thread.is_running()
    }
}
