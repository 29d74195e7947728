//! State of a thread, and how it gets connections to servers.

#[cfg(test)]
pub(super) mod tests;

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::authority::Authority;
use super::conn::{Conn, Stream, put_all};
use super::ends::Ends;
use super::eyeballs::{self, Connected, Plan};
use super::pool::{Place, Pool, Server};
use super::reason::Reason;
use super::request::{Method, Request};
use super::settings::{Backend, Forward, Mode};
use super::shared::{Active, Held, Shared};
use super::stats::Counters;
use fordway_serve::pipe::Pipes;
use fordway_serve::{Network, Tally, Ticket};

/// State of a thread. A request over connections that are there writes to nothing that threads share.
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    index: usize,
    /// The settings that [`Worker::active`] has given last.
    active: RefCell<Rc<Held>>,
    pool: RefCell<Pool>,
    /// For tunnels.
    pub(super) pipes: RefCell<Pipes>,
    /// Connections to servers, those that wait among them.
    servers: Rc<Cell<usize>>,
    /// Those that are in use, by client network.
    uses: Arc<Tally>,
    /// Whose turn it is among the servers of a site.
    turn: Cell<usize>,
    /// Connections of clients.
    open: Cell<usize>,
    ended: Notify,
    draining: Cell<bool>,
    drain: Notify,
    /// The second, and its text in Date.
    date: RefCell<(u64, Rc<str>)>,
}

/// A connection of a client, counted as long as this is there.
pub(super) struct ClientGuard(Rc<Worker>);

impl Drop for ClientGuard {
    fn drop(&mut self) {
        let open = self.0.open.get() - 1;
        self.0.open.set(open);
        if open == 0 {
            self.0.ended.notify_one();
        }
    }
}

/// A tunnel, counted as long as this is there.
pub(super) struct Tunnel(Rc<Worker>);

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.0.counters().tunnels_closed.add(1);
    }
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, index: usize) -> Worker {
        let active = RefCell::new(Rc::new(Held(shared.active.load_full())));
        Worker {
            shared,
            index,
            active,
            pool: RefCell::default(),
            pipes: RefCell::default(),
            servers: Rc::default(),
            uses: Arc::default(),
            // So that threads do not begin with the same server.
            turn: Cell::new(index),
            open: Cell::new(0),
            ended: Notify::new(),
            draining: Cell::new(false),
            drain: Notify::new(),
            date: RefCell::new((0, Rc::from(""))),
        }
    }

    /// The settings of this moment: a reference of this thread, since counting those of all threads would be a write that
    /// they share.
    pub(super) fn active(&self) -> Rc<Held> {
        let now = self.shared.active.load();
        let mut active = self.active.borrow_mut();
        if !Arc::ptr_eq(&now, &active.0) {
            *active = Rc::new(Held(Arc::clone(&now)));
        }
        Rc::clone(&active)
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.shared.counters[self.index]
    }

    pub(super) fn client_guard(self: &Rc<Self>) -> ClientGuard {
        self.open.set(self.open.get() + 1);
        ClientGuard(Rc::clone(self))
    }

    pub(super) fn tunnel(self: &Rc<Self>) -> Tunnel {
        self.counters().tunnels.add(1);
        Tunnel(Rc::clone(self))
    }

    /// Closes idle connections, and keeps none from now on.
    pub(super) fn drain(&self) {
        self.draining.set(true);
        self.drain.notify_waiters();
        self.close_idle(Pool::clear);
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Waits for [`Worker::drain`].
    pub(super) async fn drained(&self) {
        let notified = self.drain.notified();
        if !self.draining.get() {
            notified.await;
        }
    }

    /// Waits until no client connection is left.
    pub(super) async fn ended(&self) {
        while self.open.get() > 0 {
            self.ended.notified().await;
        }
    }

    /// The time in the format of Date.
    pub(super) fn date(&self) -> Rc<str> {
        let now = SystemTime::now();
        let second = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |it| it.as_secs());
        let mut date = self.date.borrow_mut();
        if date.0 != second {
            *date = (second, Rc::from(httpdate::fmt_http_date(now)));
        }
        Rc::clone(&date.1)
    }

    /// Closes connections to servers that have been idle too long.
    pub(super) fn sweep(&self) {
        let active = self.active();
        if let Some(oldest) = Instant::now().checked_sub(active.settings.limits.pool_time) {
            self.close_idle(|pool| pool.sweep(oldest, active.generation));
        }
    }

    fn close_idle(&self, change: impl FnOnce(&mut Pool)) {
        let mut pool = self.pool.borrow_mut();
        let before = pool.count();
        change(&mut pool);
        self.counters().unpooled.add((before - pool.count()) as u64);
    }

    /// Keeps a connection for another request.
    pub(super) fn keep(&self, server: Server) {
        let active = self.active();
        if self.is_draining() || server.generation != active.generation {
            return;
        }
        let most = active.settings.limits.pool.div_ceil(active.settings.threads.get());
        if self.pool.borrow_mut().put(server, most) {
            self.counters().pooled.add(1);
        }
    }

    /// An idle connection to a server.
    fn waiting(
        &self,
        key: &str,
        active: &Active,
        fits: impl Fn(&Server) -> bool,
    ) -> Option<Server> {
        let mut found = None;
        self.close_idle(|pool| found = pool.take(key, active.generation, fits));
        if found.is_some() {
            self.counters().reused.add(1);
        }
        found
    }

    /// A connection to the server of a request, or of the tunnel that it asks for. `fresh`: a new one.
    pub(super) async fn server(
        &self,
        active: &Active,
        ends: &Ends,
        request: &Request,
        fresh: bool,
    ) -> Result<Server, Reason> {
        let client = ends.address();
        let is_tunnel = request.method == Method::Connect;
        let (server, share) = match (&active.settings.mode, &request.to) {
            (Mode::Forward(forward), Some(to)) => {
                let ports = if is_tunnel { &forward.connect_ports } else { &forward.ports };
                if !ports.contains(to.port) {
                    return Err(Reason::PortDenied);
                }
                let share = self.share(active, client)?;
                (self.asked(active, forward, client, to, fresh || is_tunnel).await?, share)
            }
            _ if is_tunnel => return Err(Reason::Method),
            (Mode::Reverse(reverse), _) => {
                let share = self.share(active, client)?;
                (self.member(active, 0, &reverse.backend, ends, fresh).await?, share)
            }
            (Mode::Forward(_) | Mode::Passthrough(_), None) => return Err(Reason::Host),
            (Mode::Passthrough(_), Some(_)) => return Err(Reason::Scheme),
        };
        Ok(Server { share: Some(share), ..server })
    }

    /// A place among this thread's connections to servers that are in use, of which one client network gets only a share.
    pub(super) fn share(&self, active: &Active, client: IpAddr) -> Result<Ticket, Reason> {
        let network = Network::of(client, active.settings.limits.client_len);
        self.uses.enter_shared(network, most_servers(active)).map_err(|_| Reason::Busy)
    }

    /// A connection to the server that a client asks for, if it may.
    async fn asked(
        &self,
        active: &Active,
        forward: &Forward,
        client: IpAddr,
        to: &Authority,
        fresh: bool,
    ) -> Result<Server, Reason> {
        let (rules, translated) = (&forward.rules, active.settings.translated.as_slice());
        if rules.refuses_name(client, to) {
            return Err(Reason::DestinationDenied);
        }
        let allows = |address, is_own| rules.allows(client, to, address, is_own, translated);
        let key = to.to_string();
        if !fresh {
            // It may have been made for a client that was allowed more.
            let fits = |server: &Server| allows(server.address.ip(), server.is_own);
            if let Some(server) = self.waiting(&key, active, fits) {
                return Ok(server);
            }
        }
        let client = Network::of(client, active.settings.limits.client_len);
        self.connect(active, Some(client), to, key, &allows).await
    }

    /// A connection to a server of a site, the one of this number: the first that can be had. One that begins with the
    /// client's address is this client's alone.
    pub(super) async fn member(
        &self,
        active: &Active,
        group: usize,
        backend: &Backend,
        ends: &Ends,
        fresh: bool,
    ) -> Result<Server, Reason> {
        let header = ends.header(backend.send_proxy);
        let mut failure = Reason::Busy;
        let turn = self.turn.replace(self.turn.get().wrapping_add(1));
        for member in active.site.order(group, backend, turn) {
            let waiting = (!fresh).then(|| self.waiting(&member.key, active, |_| true)).flatten();
            let outcome = match waiting {
                Some(server) => Ok(server),
                // The rules do not apply: the configuration names the servers.
                None => {
                    let (to, key) = (&member.authority, member.key.clone());
                    let connected = self.connect(active, None, to, key, &|_, _| true).await;
                    match (connected, &header) {
                        (Ok(server), Some(header)) => introduce(server, header).await,
                        (connected, _) => connected,
                    }
                }
            };
            match outcome {
                Ok(server) => {
                    active.site.works(member, self.index);
                    return Ok(server);
                }
                // A lack of places here is no failure of the server.
                Err(Reason::Busy) => return Err(Reason::Busy),
                Err(reason) => {
                    active.site.failed(member, backend.pause);
                    failure = reason;
                }
            }
        }
        Err(failure)
    }

    async fn connect(
        &self,
        active: &Active,
        client: Option<Network>,
        to: &Authority,
        key: String,
        allows: &dyn Fn(IpAddr, bool) -> bool,
    ) -> Result<Server, Reason> {
        let settings = &active.settings;
        let most = most_servers(active);
        if self.servers.get() >= most {
            self.close_idle(Pool::drop_one);
        }
        let place = Place::take(&self.servers, most).ok_or(Reason::Busy)?;
        let plan = Plan {
            names: &active.names,
            client,
            eyeballs: settings.eyeballs,
            pref64: &settings.pref64,
            translated: &settings.translated,
            allows,
        };
        let connecting = eyeballs::connect(to, &plan);
        let connected = timeout(settings.limits.connect_time, connecting).await;
        let Connected { stream, to: address, is_own, fell_back } =
            connected.unwrap_or(Err(Reason::ConnectTimeout))?;
        self.counters().server(address.ip());
        if fell_back {
            self.counters().fell_back.add(1);
        }
        let conn = Conn::new(Stream::Plain(stream));
        let generation = active.generation;
        Ok(Server {
            conn,
            key,
            address,
            is_own,
            reused: false,
            generation,
            bound: false,
            share: None,
            _place: place,
        })
    }
}

/// Tells a server the client of a new connection, whose socket has room for that.
async fn introduce(mut server: Server, header: &[u8]) -> Result<Server, Reason> {
    let told = put_all(&mut server.conn, header).await;
    server.bound = true;
    told.map(|()| server).map_err(|_| Reason::Unreachable)
}

/// Connections to servers that a thread may have.
fn most_servers(active: &Active) -> usize {
    active.settings.limits.server_connections.div_ceil(active.settings.threads.get())
}
