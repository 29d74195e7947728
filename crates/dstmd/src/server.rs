//! The server: sockets, a thread, the lease file.

mod serve;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{SocketAddrV6, UdpSocket};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use fordway_dstm::{Link, LinkSettings, Record, ServerSettings};
use socket2::{Domain, Protocol, Socket, Type};
use tracing::{info, warn};

use super::clock::Clock;
use super::file::{self, LeaseFile};
use super::{Bindings, Error, LeaseView, Stats, random};
use fordway_serve::thread::{Commanded, Ready};
use fordway_serve::{Service, differing};
use serve::{Command, Place, State};

pub(super) use serve::listen as serve_datagrams;

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it listens.
    pub listen: Vec<SocketAddrV6>,
    /// What it lends, and to whom.
    pub server: ServerSettings,
    /// Where leases are kept.
    pub state: PathBuf,
    /// The tunnel end point.
    pub tep: TepPlace,
}

/// Where the tunnel end point is.
#[derive(Clone, Debug)]
pub enum TepPlace {
    /// In this process.
    Here(Arc<dyn Bindings>),
    /// On another host.
    There(LinkSettings),
}

/// A server with its sockets but without its thread.
#[derive(Debug)]
pub struct Bound {
    settings: Settings,
    sockets: Vec<UdpSocket>,
    core: fordway_dstm::Server,
    file: LeaseFile,
    clock: Clock,
}

impl Bound {
    /// Where it listens; ports that were chosen by the system are known now.
    pub fn addresses(&self) -> impl Iterator<Item = io::Result<std::net::SocketAddr>> {
        self.sockets.iter().map(UdpSocket::local_addr)
    }

    /// State of the thread.
    fn into_state(self, shared: &Arc<Mutex<Stats>>) -> Result<(State, Vec<UdpSocket>), Error> {
        let tep = match &self.settings.tep {
            TepPlace::Here(bindings) => Place::Here(Arc::clone(bindings)),
            TepPlace::There(link) => open_link(link, &self.clock)?,
        };
        let state = State::new(self.core, self.file, self.clock, tep, Arc::clone(shared));
        Ok((state, self.sockets))
    }
}

/// A link to a tunnel end point on another host, with its socket.
fn open_link(settings: &LinkSettings, clock: &Clock) -> Result<Place, Error> {
    let any = SocketAddrV6::new(std::net::Ipv6Addr::UNSPECIFIED, 0, 0, 0);
    let socket = listen_on(any)?;
    Ok(Place::there(Link::new(settings.clone(), clock.number(), random()?), socket))
}

/// A socket for datagrams of IPv6.
pub(super) fn listen_on(address: SocketAddrV6) -> Result<UdpSocket, Error> {
    let open = || -> io::Result<UdpSocket> {
        let socket = Socket::new(Domain::IPV6, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        socket.set_only_v6(true)?;
        socket.bind(&address.into())?;
        Ok(socket.into())
    };
    open().map_err(|source| Error::Listen { address, source })
}

/// Gives the core the leases of the file, and writes a new file with those that it takes.
fn restore(
    mut core: fordway_dstm::Server,
    settings: &Settings,
    clock: &Clock,
) -> Result<(fordway_dstm::Server, LeaseFile), Error> {
    let path = settings.state.display();
    let failed = |source| Error::File { path: settings.state.clone(), source };
    let read = file::read(&settings.state).map_err(failed)?;
    if read.damaged > 0 {
        warn!(
            "dstm-server: {path} is damaged: {} lines can't be read and are left out; clients whose leases \
             these were get new ones when they renew",
            read.damaged
        );
    }
    let now = clock.now();
    let unfit = read.leases.iter().filter(|lease| !core.restore(lease, now)).count();
    if !read.leases.is_empty() {
        let kept = read.leases.len() - unfit;
        info!("dstm-server: {kept} leases of an earlier run; {unfit} have ended or do not fit");
    }
    let leases: Vec<_> = core.leases().collect();
    let file = LeaseFile::create(&settings.state, &leases).map_err(failed)?;
    Ok((core, file))
}

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Mutex<Stats>>,
    thread: Commanded<Command>,
}

impl Server {
    /// What it has done.
    pub fn stats(&self) -> Stats {
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All leases, by address.
    ///
    /// # Errors
    ///
    /// [`Error::Ended`].
    pub fn leases(&self) -> Result<Vec<LeaseView>, Error> {
        self.thread.ask(Command::Leases).ok_or(Error::Ended)
    }

    /// Ends a client's lease. Whether there was one.
    ///
    /// # Errors
    ///
    /// [`Error::Ended`].
    pub fn revoke(&self, client: &str) -> Result<bool, Error> {
        self.thread.ask(|done| Command::Revoke(client.to_owned(), done)).ok_or(Error::Ended)
    }
}

impl Service for Server {
    const NAME: &'static str = "dstm-server";
    type Settings = Settings;
    type Bound = Bound;
    type Error = Error;

    /// Opens the sockets, and reads the leases of earlier runs.
    ///
    /// # Errors
    ///
    /// [`Error`]. A lease file that is damaged is none: what can be read is kept, and the log says the rest.
    fn bind(settings: &Settings) -> Result<Bound, Error> {
        let settings = settings.clone();
        let core = fordway_dstm::Server::new(settings.server.clone(), random()?)?;
        let sockets = settings.listen.iter().map(|address| listen_on(*address));
        let sockets = sockets.collect::<Result<Vec<UdpSocket>, Error>>()?;
        let clock = Clock::start();
        let (core, file) = restore(core, &settings, &clock)?;
        Ok(Bound { settings, sockets, core, file, clock })
    }

    /// The tunnel end point gets the bindings of all leases.
    fn start(bound: Bound) -> Result<Server, Error> {
        let shared = Arc::new(Mutex::new(Stats::default()));
        let (state, sockets) = bound.into_state(&shared)?;
        let run = async move |commands, ready: Ready| {
            serve::run(state, sockets, commands, || ready.tell()).await
        };
        let thread = Commanded::start("dstm-server", "fordway-dstm", run);
        Ok(Server { shared, thread: thread.map_err(Error::Thread)? })
    }

    fn fixed(from: &Settings, to: &Settings) -> Option<&'static str> {
        let same_tep = match (&from.tep, &to.tep) {
            (TepPlace::Here(one), TepPlace::Here(other)) => Arc::ptr_eq(one, other),
            (TepPlace::There(one), TepPlace::There(other)) => one == other,
            _ => false,
        };
        let same = [("listen", from.listen == to.listen), ("state", from.state == to.state)];
        differing(same).or(differing([("tep", same_tep)]))
    }

    /// Applies other clients, another pool, other times. Leases that do not fit any more end.
    ///
    /// # Errors
    ///
    /// [`Error::Settings`], [`Error::Ended`].
    fn replace(&self, settings: Settings) -> Result<(), Error> {
        // Checked here, before the thread gets it.
        fordway_dstm::Server::new(settings.server.clone(), [0; 32])?;
        let replace = |done| Command::Replace(Box::new(settings.server), done);
        Ok(self.thread.ask(replace).ok_or(Error::Ended)??)
    }

    fn is_whole(&self) -> bool {
        self.thread.is_running()
    }
}

/// Whether a record is about the end of a lease.
fn is_end(record: &Record) -> bool {
    matches!(record, Record::Ended(_))
}
