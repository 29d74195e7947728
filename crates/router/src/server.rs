//! The server: sockets, a thread, and its handles.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use dhcproto::v6::SERVER_PORT;
use fordway_dns64::ndp::{ROUTER_ADVERTISEMENT, ROUTER_SOLICITATION};
use fordway_net::{ChangeWatch, Netlink, Topic};

use super::host::Host;
use super::serve::{self, Command, Sockets};
use super::settings::{Settings, WrongSetting};
use fordway_counters::router::Stats;
use fordway_serve::Service;
use fordway_serve::message::MessageSocket;
use fordway_serve::thread::Commanded;

/// Why a server can't be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings can't be.
    #[error("can't advertise on {device}: {wrong}")]
    Settings {
        /// Name of the device.
        device: String,
        /// What is wrong.
        wrong: WrongSetting,
    },
    /// A socket could not be opened. The kind of the source tells: `PermissionDenied`, `AddrInUse`.
    #[error("can't open {what}")]
    Socket {
        /// What it is for.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Netlink does not work.
    #[error("can't learn of devices and addresses")]
    Net(#[from] fordway_net::Error),
    /// No random numbers.
    #[error("the system gives no random numbers")]
    Random(#[source] io::Error),
    /// The thread, or what it waits with, could not be made.
    #[error("can't start the thread of router advertisements")]
    Thread(#[source] io::Error),
    /// The thread has ended by itself; the log says why.
    #[error("the thread of router advertisements has ended")]
    Ended,
}

/// A server with its sockets but without its thread.
#[derive(Debug)]
pub struct Bound {
    settings: Settings,
    sockets: Sockets,
}

/// A running server. Dropping it ends it without a withdrawal, as [`Server::leave`] does.
#[derive(Debug)]
pub struct Server {
    stats: Arc<Mutex<Stats>>,
    thread: Commanded<Command>,
}

impl Server {
    /// What it has counted, and how its devices are.
    pub fn stats(&self) -> Stats {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Service for Server {
    const NAME: &'static str = "advertise";
    type Settings = Settings;
    type Bound = Bound;
    type Error = Error;

    /// Opens the sockets; sends nothing yet.
    ///
    /// Needs CAP_NET_RAW for ICMPv6, and CAP_NET_BIND_SERVICE for port 547 if a device is to answer
    /// DHCPv6. Devices need not exist yet.
    ///
    /// # Errors
    ///
    /// [`Error::Settings`], [`Error::Socket`], [`Error::Net`].
    fn bind(settings: &Settings) -> Result<Bound, Error> {
        check(settings)?;
        let icmp = MessageSocket::icmp6(&[ROUTER_SOLICITATION, ROUTER_ADVERTISEMENT])
            .and_then(|socket| socket.any_source().map(|()| socket))
            .map_err(|source| Error::Socket { what: "a raw ICMPv6 socket", source })?;
        let dhcp = wants_dhcpv6(settings).then(open_dhcpv6).transpose()?;
        // The watch before the first look: nothing is missed in between.
        let watch = ChangeWatch::open(&[Topic::Links, Topic::Addresses6])?;
        let mut netlink = Netlink::open()?;
        let hardware_address = Host::read(&mut netlink)?.hardware_address();
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| Error::Random(error.into()))?;
        let duid = super::dhcp::duid(hardware_address, random);
        let sockets = Sockets { icmp, dhcp, watch, netlink, duid };
        Ok(Bound { settings: settings.clone(), sockets })
    }

    /// Devices that are up advertise at once, others when they are.
    fn start(Bound { settings, sockets }: Bound) -> Result<Server, Error> {
        let stats = Arc::new(Mutex::new(Stats::default()));
        let shared = Arc::clone(&stats);
        let run = async move |commands, ready| {
            serve::run(sockets, settings, commands, &shared, ready).await
        };
        let thread = Commanded::start("router advertisements", "fordway-router", run);
        Ok(Server { stats, thread: thread.map_err(Error::Thread)? })
    }

    fn fixed(_: &Settings, _: &Settings) -> Option<&'static str> {
        None
    }

    /// Applies other settings, and advertises them at once: what is no longer configured is withdrawn, and so is
    /// everything on devices that are no longer named. The settings are in use when this returns.
    ///
    /// # Errors
    ///
    /// [`Error::Settings`]; [`Error::Socket`] if DHCPv6 is to be answered from now on and port 547
    /// can't be had; [`Error::Ended`]. The old settings stay.
    fn replace(&self, settings: Settings) -> Result<(), Error> {
        check(&settings)?;
        if wants_dhcpv6(&settings) && !self.thread.ask(Command::HasDhcpv6).ok_or(Error::Ended)? {
            self.thread.send(Command::Dhcpv6(open_dhcpv6()?)).ok_or(Error::Ended)?;
        }
        self.thread.ask(|done| Command::Replace(settings, done)).ok_or(Error::Ended)
    }

    fn is_whole(&self) -> bool {
        self.thread.is_running()
    }

    /// Withdraws everything that was advertised, and ends.
    fn stop(self) {
        // A thread that has ended has nothing to withdraw.
        let _ended = self.thread.send(Command::Stop);
    }

    /// Ends without a withdrawal: for a server that is replaced at once by another with the same settings.
    fn leave(self) {
        drop(self);
    }
}

fn check(settings: &Settings) -> Result<(), Error> {
    settings.check().map_err(|(device, wrong)| Error::Settings { device, wrong })
}

fn wants_dhcpv6(settings: &Settings) -> bool {
    settings.devices.iter().any(|device| device.dhcpv6)
}

fn open_dhcpv6() -> Result<MessageSocket, Error> {
    MessageSocket::udp(SERVER_PORT)
        .map_err(|source| Error::Socket { what: "UDP port 547, the DHCPv6 server's", source })
}
