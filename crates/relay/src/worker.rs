//! A thread of a relay.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;

use super::core::{
    Core, DATAGRAMS, LISTENER, OWN, Shared, TCP_V4, TCP_V6, UDP_V4, WAKE, own, whose,
};
use super::icmp::Errors;
use super::sockets::{self, Sockets};
use super::tcp::{Side, Tcp};
use super::udp::Udp;

/// Events that are taken with one system call.
const EVENTS: usize = 256;

/// How often connections that had no pipe are retried.
const SWEEP: Duration = Duration::from_millis(250);

/// What a thread begins with.
pub(super) struct Start {
    core: Core,
    sockets: Sockets,
    index: usize,
}

impl Start {
    pub(super) fn new(shared: &Arc<Shared>, index: usize, sockets: Sockets) -> io::Result<Start> {
        let core = Core::new(shared, index)?;
        let flags = EventFlags::IN;
        if let Some(tcp) = &sockets.tcp {
            epoll::add(&core.epoll, tcp, own(LISTENER), flags)?;
        }
        if let Some(udp) = &sockets.udp {
            epoll::add(&core.epoll, &udp.socket, own(DATAGRAMS), flags)?;
        }
        epoll::add(&core.epoll, &core.shared.wakes[index], own(WAKE), flags)?;
        Ok(Start { core, sockets, index })
    }

    /// Runs until the relay is stopped.
    pub(super) fn run(self) {
        let Start { core, sockets, index } = self;
        let tcp = sockets.tcp.map(Tcp::new);
        let udp = sockets.udp.map(|it| Udp::new(it.socket, it.answers, Errors::new(it.errors)));
        let swept = core.now;
        Worker { core, tcp, udp, index, swept }.run();
    }
}

/// A thread.
struct Worker {
    core: Core,
    tcp: Option<Tcp>,
    udp: Option<Udp>,
    index: usize,
    swept: Instant,
}

impl Worker {
    fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        while !self.core.shared.stopping.load(Ordering::Relaxed) {
            let timeout = self.timeout();
            events.clear();
            match epoll::wait(&self.core.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => {
                    tracing::error!(
                        "{}: cannot wait for sockets: {errno}",
                        self.core.settings.name
                    );
                    return;
                }
            }
            self.core.now = Instant::now();
            for event in &events {
                self.event(event.data.u64(), event.flags);
            }
            if let Some(tcp) = &mut self.tcp {
                tcp.tend(&mut self.core);
            }
            if let Some(udp) = &mut self.udp {
                udp.tend(&mut self.core);
            }
            if self.core.now.saturating_duration_since(self.swept) >= SWEEP {
                self.swept = self.core.now;
                if let Some(tcp) = &mut self.tcp {
                    tcp.feed();
                }
            }
        }
    }

    /// How long to wait for an event.
    fn timeout(&self) -> Option<Timespec> {
        let tcp = self.tcp.as_ref().and_then(|tcp| tcp.waits(self.core.now));
        let udp = self.udp.as_ref().and_then(|udp| udp.waits(self.core.now));
        let wait = tcp.into_iter().chain(udp).min()?;
        Timespec::try_from(wait).ok()
    }

    fn event(&mut self, token: u64, flags: EventFlags) {
        let (key, kind) = whose(token);
        let core = &mut self.core;
        match (kind, &mut self.tcp, &mut self.udp) {
            (TCP_V6, Some(tcp), _) => tcp.event(key, Side::V6, flags, core),
            (TCP_V4, Some(tcp), _) => tcp.event(key, Side::V4, flags, core),
            (UDP_V4, _, Some(udp)) => udp.event(key, flags, core),
            (OWN, tcp, udp) => match (token >> 2, tcp, udp) {
                (LISTENER, Some(tcp), _) => tcp.accept(core),
                (DATAGRAMS, _, Some(udp)) => udp.hear_clients(core),
                (WAKE, tcp, udp) => {
                    let mut count = [0; 8];
                    let _ = rustix::io::read(&core.shared.wakes[self.index], &mut count);
                    core.settings = core.shared.settings.load_full();
                    if let Some(udp) = udp {
                        udp.take_settings(core);
                    }
                    if let Some(tcp) = tcp {
                        tcp.take_settings(core);
                        let taken = sockets::follow_settings(tcp.listener(), &core.settings);
                        if let Err(error) = taken {
                            tracing::warn!("{}: {error}", core.settings.name);
                        }
                    }
                }
                _ => {}
            },
            _ => {}
        }
    }
}
