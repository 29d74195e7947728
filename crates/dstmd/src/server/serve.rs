//! The server's thread.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, SocketAddrV6};
use std::rc::Rc;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fordway_dstm::{
    Change, ClientId, Identity, LONGEST, Lease, Link, Server, ServerSettings, Slot, Step,
    WrongSettings,
};
use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tracing::{debug, error, info, warn};

use super::super::clock::{Clock, Timer};
use super::super::file::LeaseFile;
use super::super::{Bindings, LeaseView, Stats, view};
use super::is_end;

/// Answers that wait for the tunnel end point at most.
const WAITING: usize = 4096;

/// How long an answer waits, in ms.
const PATIENCE: u64 = 2000;

/// A command of the owner.
#[derive(Debug)]
pub(super) enum Command {
    Replace(Box<ServerSettings>, SyncSender<Result<(), WrongSettings>>),
    Leases(SyncSender<Vec<LeaseView>>),
    Revoke(String, SyncSender<bool>),
}

/// State of the thread.
pub(super) struct State {
    core: Server,
    file: LeaseFile,
    clock: Clock,
    tep: Place,
    unsent: u64,
    /// The current failure has been logged.
    told: bool,
    shared: Arc<Mutex<Stats>>,
}

/// The tunnel end point.
pub(super) enum Place {
    Here(Arc<dyn Bindings>),
    There { link: Box<Link>, socket: std::net::UdpSocket, waiting: VecDeque<Waiting> },
}

impl Place {
    /// One on another host.
    pub(super) fn there(link: Link, socket: std::net::UdpSocket) -> Place {
        Place::There { link: Box::new(link), socket, waiting: VecDeque::new() }
    }
}

/// An answer that waits until the tunnel end point has the binding.
pub(super) struct Waiting {
    ticket: u64,
    until: u64,
    at: usize,
    step: Step,
}

/// What is to be sent: by which socket, to whom, what.
type Datagrams = Vec<(usize, SocketAddrV6, Vec<u8>)>;

impl State {
    pub(super) fn new(
        core: Server,
        file: LeaseFile,
        clock: Clock,
        tep: Place,
        shared: Arc<Mutex<Stats>>,
    ) -> State {
        State { core, file, clock, tep, unsent: 0, told: false, shared }
    }

    /// Gives the tunnel end point the leases of the file.
    fn begin(&mut self) {
        if let Place::Here(bindings) = &self.tep {
            for lease in self.core.leases() {
                if let Err(error) = bindings.insert(&lease.binding()) {
                    warn!("dstm-server: {}: {error}", lease.slot);
                }
            }
        }
    }

    /// Handles a message of a client.
    fn receive(&mut self, at: usize, from: SocketAddrV6, octets: &[u8]) -> Datagrams {
        let step = self.core.receive(from, octets, self.clock.now());
        self.carry_out(at, step)
    }

    /// Carries a step out; returns the answer, unless it has to wait.
    fn carry_out(&mut self, at: usize, step: Step) -> Datagrams {
        if let Err(why) = self.try_to(&step) {
            if !std::mem::replace(&mut self.told, true) {
                error!("dstm-server: {why}");
            }
            let back = self.core.failed(&step, self.clock.now());
            // If this fails as well, the next renewal corrects it.
            let _told = self.try_to(&back);
            return reply(at, &back);
        }
        self.told = self.told && step.records.is_empty();
        tell(&step);
        let now = self.clock.now();
        let Place::There { link, waiting, .. } = &mut self.tep else { return reply(at, &step) };
        // A repeated answer; if the first one still waits, it is not sent before it.
        let waits = |to: SocketAddrV6| {
            waiting.iter().any(|it| it.step.reply.as_ref().is_some_and(|it| it.to == to))
        };
        match &step.reply {
            Some(answer) if step.come.is_none() && waits(answer.to) => Vec::new(),
            Some(_) if step.come.is_some() && link.confirmed() < link.given() => {
                waiting.push_back(Waiting {
                    ticket: link.given(),
                    until: now + PATIENCE,
                    at,
                    step,
                });
                Vec::new()
            }
            _ => reply(at, &step),
        }
    }

    /// Writes records, and sends the changes to the tunnel end point.
    fn try_to(&mut self, step: &Step) -> Result<(), String> {
        let ends_only = step.records.iter().all(is_end);
        match self.file.add(&step.records) {
            Ok(()) => {}
            // A lease that is still in the file ends by its time.
            Err(error) if ends_only => debug!("dstm-server: can't write the lease file: {error}"),
            Err(error) => return Err(format!("can't write the lease file: {error}")),
        }
        match &mut self.tep {
            Place::Here(bindings) => {
                for gone in &step.gone {
                    bindings.remove(gone);
                }
                step.come.as_ref().map_or(Ok(()), |lease| bindings.insert(&lease.binding()))
            }
            Place::There { link, waiting, .. } => {
                let full = waiting.len() >= WAITING;
                if step.come.is_some() && step.reply.is_some() && (full || !link.is_up()) {
                    return Err(format!("the tunnel end point {} does not answer", link.peer()));
                }
                let mut changes: Vec<Change> =
                    step.gone.iter().map(|gone| Change::Unbind(gone.v4, gone.ports)).collect();
                let now = self.clock.now();
                changes.extend(step.come.as_ref().map(|lease| bind(lease, now)));
                if !changes.is_empty() {
                    // Sent by `link_messages`.
                    let (_, messages) = link.change(&changes, now);
                    self.outbox(messages);
                }
                Ok(())
            }
        }
    }

    fn outbox(&mut self, messages: Vec<Vec<u8>>) {
        let Place::There { link, socket, .. } = &self.tep else { return };
        for message in messages {
            if let Err(error) = socket.send_to(&message, link.peer()) {
                self.unsent += 1;
                debug!("dstm-server: to the tunnel end point {}: {error}", link.peer());
            }
        }
    }

    /// Handles a message of the tunnel end point.
    fn receive_link(&mut self, from: SocketAddrV6, octets: &[u8]) -> Datagrams {
        let now = self.clock.now();
        let Place::There { link, .. } = &mut self.tep else { return Vec::new() };
        let was_up = link.is_up();
        let core = &self.core;
        let all = || core.leases().map(|lease| bind(lease, now)).collect();
        let messages = link.receive(from, octets, now, all);
        let (is_up, peer) = (link.is_up(), link.peer());
        if is_up && !was_up {
            info!("dstm-server: the tunnel end point {peer} answers, and gets all bindings");
        }
        self.outbox(messages);
        self.confirmed()
    }

    /// Takes the answers whose bindings the tunnel end point has confirmed.
    fn confirmed(&mut self) -> Datagrams {
        let Place::There { link, waiting, .. } = &mut self.tep else { return Vec::new() };
        let mut ready = Vec::new();
        while let Some(first) = waiting.pop_front_if(|it| it.ticket <= link.confirmed()) {
            ready.extend(reply(first.at, &first.step));
        }
        ready
    }

    /// Does what is due.
    fn tick(&mut self) -> Datagrams {
        let now = self.clock.now();
        let step = self.core.expire(now);
        let mut send = self.carry_out(0, step);
        self.file.tidy(self.core.lease_count());
        let Place::There { link, waiting, .. } = &mut self.tep else { return send };
        let was_up = link.is_up();
        let messages = link.tick(now);
        if was_up && !link.is_up() {
            warn!("dstm-server: the tunnel end point {} has stopped answering", link.peer());
        }
        let mut late = Vec::new();
        while let Some(first) = waiting.pop_front_if(|it| it.until <= now) {
            late.push(first);
        }
        self.outbox(messages);
        for Waiting { at, step, .. } in late {
            let back = self.core.failed(&step, now);
            let _told = self.try_to(&back);
            send.extend(reply(at, &back));
        }
        send
    }

    /// When [`State::tick`] is due.
    fn next(&self) -> u64 {
        // At least once a minute, for the lease file.
        let mut next = self.core.next_end().unwrap_or(u64::MAX).min(self.clock.now() + 60_000);
        if let Place::There { link, waiting, .. } = &self.tep {
            next = next.min(link.next());
            next = waiting.front().map_or(next, |first| next.min(first.until));
        }
        next
    }

    /// Carries a command out.
    fn command(&mut self, command: Command) {
        let now = self.clock.now();
        // The caller may be gone.
        match command {
            Command::Replace(settings, done) => {
                let replaced = self.core.replace(*settings, now).map(|step| {
                    let _nobody_waits = self.carry_out(0, step);
                });
                self.tell_stats();
                let _gone = done.send(replaced);
            }
            Command::Leases(done) => {
                let mut leases: Vec<&Lease> = self.core.leases().collect();
                leases.sort_by_key(|lease| lease.slot);
                let views = leases.into_iter().map(|lease| view(lease, now)).collect();
                let _gone = done.send(views);
            }
            Command::Revoke(client, done) => {
                let step = identity(&client).and_then(|it| self.core.revoke(&it, now));
                let revoked = step.is_some();
                let _nobody_waits = self.carry_out(0, step.unwrap_or_default());
                self.tell_stats();
                let _gone = done.send(revoked);
            }
        }
    }

    fn stats(&self) -> Stats {
        let tep_up = match &self.tep {
            Place::Here(_) => true,
            Place::There { link, .. } => link.is_up(),
        };
        Stats { tep_up, unsent: self.unsent, ..self.core.stats() }
    }

    fn tell_stats(&self) {
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = self.stats();
    }

    fn link_socket(&self) -> io::Result<Option<std::net::UdpSocket>> {
        match &self.tep {
            Place::There { socket, .. } => socket.try_clone().map(Some),
            Place::Here(_) => Ok(None),
        }
    }
}

/// A client as an operator writes it: a name, or an address.
fn identity(client: &str) -> Option<Identity> {
    match client.parse() {
        Ok(address) => Some(Identity::At(address)),
        Err(_) => ClientId::new(client).ok().map(Identity::Named),
    }
}

fn bind(lease: &Lease, now: u64) -> Change {
    let seconds = lease.until.saturating_sub(now).div_ceil(1000);
    Change::Bind(u32::try_from(seconds).unwrap_or(u32::MAX), lease.binding())
}

fn reply(at: usize, step: &Step) -> Datagrams {
    step.reply.iter().map(|reply| (at, reply.to, reply.octets.clone())).collect()
}

/// Logs new leases and ends of leases.
fn tell(step: &Step) {
    if let Some(lease) = &step.come {
        let Lease { identity, slot, remote, .. } = lease;
        debug!("dstm-server: {slot} is lent to {identity} at {remote}");
    }
    for gone in &step.gone {
        let slot = Slot { v4: gone.v4, ports: gone.ports };
        debug!("dstm-server: {slot} at {} is no longer lent", gone.remote);
    }
}

/// Runs in the caller's `LocalSet` until its owner is gone. Calls `ready` once it runs.
pub(super) async fn run(
    mut state: State,
    sockets: Vec<std::net::UdpSocket>,
    commands: UnboundedReceiver<Command>,
    ready: impl FnOnce(),
) -> io::Result<()> {
    let sockets = sockets.into_iter().map(UdpSocket::from_std).collect::<io::Result<_>>()?;
    let link = state.link_socket()?.map(UdpSocket::from_std).transpose()?;
    state.begin();
    state.tell_stats();
    ready();
    let server = Rc::new(Shell { state: RefCell::new(state), sockets, link, news: Notify::new() });
    serve(&server, commands).await;
    Ok(())
}

/// What the tasks share.
struct Shell {
    state: RefCell<State>,
    sockets: Vec<UdpSocket>,
    link: Option<UdpSocket>,
    /// Notified when times have changed.
    news: Notify,
}

impl Shell {
    fn work(&self, work: impl FnOnce(&mut State) -> Datagrams) {
        let send = work(&mut self.state.borrow_mut());
        // Before a client can have the answer.
        self.state.borrow().tell_stats();
        for (at, to, octets) in send {
            // What can't be sent at once counts as lost on the way.
            if let Some(Err(error)) =
                self.sockets.get(at).map(|it| it.try_send_to(&octets, to.into()))
            {
                self.state.borrow_mut().unsent += 1;
                debug!("dstm-server: to {to}: {error}");
            }
        }
        self.news.notify_one();
    }
}

async fn serve(server: &Rc<Shell>, mut commands: UnboundedReceiver<Command>) {
    for at in 0..server.sockets.len() {
        let server = Rc::clone(server);
        tokio::task::spawn_local(async move {
            let server = &*server;
            listen(&server.sockets[at], |from, octets| {
                server.work(|state| state.receive(at, from, octets));
            })
            .await;
        });
    }
    if server.link.is_some() {
        let server = Rc::clone(server);
        tokio::task::spawn_local(async move {
            if let Some(socket) = &server.link {
                listen(socket, |from, octets| {
                    server.work(|state| state.receive_link(from, octets));
                })
                .await;
            }
        });
    }
    let timer = Timer::new();
    loop {
        let due = {
            let state = server.state.borrow();
            state.clock.instant(state.next())
        };
        tokio::select! {
            command = commands.recv() => {
                let Some(command) = command else { return };
                server.state.borrow_mut().command(command);
            }
            () = timer.until(due) => server.work(State::tick),
            () = server.news.notified() => {}
        }
    }
}

/// Calls `take` with every IPv6 datagram.
pub(in super::super) async fn listen(
    socket: &UdpSocket,
    mut take: impl FnMut(SocketAddrV6, &[u8]),
) {
    // Longer ones are truncated, and so have a wrong length.
    let mut buffer = [0; LONGEST + 1];
    loop {
        match socket.recv_from(&mut buffer).await {
            Ok((len, SocketAddr::V6(from))) => take(from, &buffer[..len]),
            Ok(_) => {}
            // An error of an earlier datagram that could not be delivered; or there is no memory.
            Err(error) => {
                debug!("dstm: {error}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}
