//! DSTM's clients: they ask for an IPv4 address when a packet waits for one, and set the softwire up for it.
//!
//! Such a softwire runs from the start, without a binding: what is routed into it waits (`fordway_dstmd`). A
//! lease gives it another configuration, as a reload would: address, routes and translation go through the ledger, so
//! the host is as it was when the lease ends, and after a crash when the next daemon starts.
//!
//! The client itself, which reads what servers send, runs on a thread without capabilities (`{name}-borrow`); `host.rs`
//! is what lies between.

mod host;

use std::cell::{Cell, RefCell};
use std::net::Ipv6Addr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fordway_config::{Config, DstmClient, DstmTepPlace, Mode, SoftwireEnd, Translator};
use fordway_dstmd::protocol::{ClientId, ClientSettings, Grant};
use fordway_dstmd::{ClientHandle, ClientOptions, Injector, Runner, Waiting};
use fordway_net::privilege::Capability;
use ipnet::Ipv4Net;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::{error, warn};

use super::handle::Handle;
use super::services::dstm;
use crate::apply::privilege;
use crate::apply::running::Running;
use crate::failure::Failure;
use fordway_control::DstmClientStats;
use host::{HostRequest, RemoteHost};

/// Delay before a client is restarted whose thread has ended by itself.
const AGAIN: Duration = Duration::from_secs(1);

/// Makes the translators that DSTM needs of what the file says.
pub(crate) fn expand(config: &mut Config) {
    let own = config.dstm_clients.iter().map(DstmClient::translator);
    let own: Vec<Translator> = own.collect();
    config.translators.extend(own);
    let Some(server) = &config.dstm_server else { return };
    let DstmTepPlace::Here(name) = &server.tep else { return };
    let reserved = server.clients.iter().filter_map(|client| client.v4).map(Ipv4Net::from);
    let lent: Vec<Ipv4Net> = server.pool.iter().copied().chain(reserved).collect();
    for tep in config.translators.iter_mut().filter(|it| it.name == *name) {
        // Addresses without a lease are routed there as well, so that senders get an ICMP error.
        let missing = lent.iter().filter(|net| !tep.routes4.iter().any(|it| it.contains(*net)));
        let missing: Vec<Ipv4Net> = missing.copied().collect();
        tep.routes4.extend(missing);
    }
}

/// Capabilities that clients need while they run: to send packets that have waited for an address.
pub(crate) fn capabilities(dstm_clients: &[Opened]) -> Vec<Capability> {
    let needed = [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW];
    if dstm_clients.is_empty() { Vec::new() } else { needed.to_vec() }
}

/// A client that is ready to start.
pub(crate) struct Opened {
    options: ClientOptions,
    /// Its softwire without an address.
    softwire: Translator,
}

/// Reads their keys.
pub(crate) fn open<'a>(
    clients: impl IntoIterator<Item = &'a DstmClient>,
) -> Result<Vec<Opened>, Failure> {
    let open = |client: &DstmClient| -> Result<Opened, Failure> {
        let id = client.id.as_deref().map(ClientId::new).transpose();
        let id = id.map_err(|error| Failure::failed(error.to_string()))?;
        let lifetime = client.lifetime.map_or(0, |time| time.as_secs());
        Ok(Opened {
            options: ClientOptions {
                name: client.name.to_string(),
                client: ClientSettings {
                    servers: client.servers.clone(),
                    id,
                    key: dstm::key(&client.key_file)?,
                    sharing: client.sharing,
                    lifetime: u32::try_from(lifetime).unwrap_or(u32::MAX),
                },
                own: client.v6,
                idle: client.idle,
            },
            softwire: client.translator(),
        })
    };
    let named = |client: &DstmClient| {
        open(client).map_err(|it| it.prefix(&format!("[[dstm_client]] {}: ", client.name)))
    };
    clients.into_iter().map(named).collect()
}

/// A client that runs.
pub(crate) struct ClientTask {
    name: String,
    client: Rc<Current>,
    task: JoinHandle<()>,
}

/// Its client at this moment.
struct Current {
    handle: RefCell<ClientHandle>,
    /// It is to end.
    ends: Cell<bool>,
}

impl ClientTask {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Where it is, and what it has done.
    pub(crate) fn told(&self) -> DstmClientStats {
        DstmClientStats { name: self.name.clone(), stats: self.client.handle.borrow().stats() }
    }

    /// Makes it release its address and end.
    pub(crate) fn end(&self) {
        self.client.ends.set(true);
        self.client.handle.borrow().end();
    }
}

/// Starts a client on a thread of its own. Gives its handle, and what it asks of the host.
fn start(
    options: &ClientOptions,
    waiting: &Arc<Waiting>,
) -> Result<(ClientHandle, mpsc::Receiver<HostRequest>), Failure> {
    let (host, requests) = RemoteHost::new();
    let runner = Runner::new(options.clone(), host, Arc::clone(waiting));
    let runner = runner.map_err(|error| Failure::failed(error.to_string()))?;
    let handle = runner.handle();
    let work = move || async move { drop(runner.run().await) };
    privilege::apart(&format!("{}-borrow", options.name), work)?;
    Ok((handle, requests))
}

impl Handle {
    /// Starts clients.
    pub(crate) fn start_dstm_clients(&self, dstm_clients: Vec<Opened>) {
        for Opened { options, softwire } in dstm_clients {
            let name = options.name.clone();
            let Some(waiting) = self.with(&name, |one| one.waiting.clone()).flatten() else {
                continue;
            };
            let (handle, requests) = match start(&options, &waiting) {
                Ok(started) => started,
                Err(failure) => {
                    error!("{name}: no address can be leased: {}", failure.line());
                    continue;
                }
            };
            let client = Rc::new(Current { handle: RefCell::new(handle), ends: Cell::new(false) });
            let daemon = self.clone();
            let interface = Interface { daemon, name: name.clone(), softwire, is_new: false };
            let work = interface.attend(options, waiting, Rc::clone(&client), requests);
            let task = tokio::task::spawn_local(work);
            self.state().dstm_clients.push(ClientTask { name, client, task });
        }
    }

    /// Ends all. `give_back`: the server is told; else another daemon is to go on.
    pub(crate) async fn end_all_dstm_clients(&self, give_back: bool) {
        let dstm_clients = std::mem::take(&mut self.state().dstm_clients);
        for client_task in &dstm_clients {
            match give_back {
                true => client_task.end(),
                false => client_task.task.abort(),
            }
        }
        for client_task in dstm_clients {
            // Whether it ended by itself or not: it has ended.
            let _ended = client_task.task.await;
        }
    }
}

/// The softwire of one, and the host around it.
struct Interface {
    daemon: Handle,
    name: String,
    softwire: Translator,
    /// Whether the softwire is another since it was settled.
    is_new: bool,
}

impl Interface {
    /// Carries out the client's requests until the client is told to end. A client that ends by itself is restarted.
    async fn attend(
        mut self,
        options: ClientOptions,
        waiting: Arc<Waiting>,
        client: Rc<Current>,
        mut requests: mpsc::Receiver<HostRequest>,
    ) {
        loop {
            while let Some(request) = requests.recv().await {
                self.carry_out(request);
            }
            if client.ends.get() {
                return;
            }
            error!("{}: the client's thread has ended; it is restarted", self.name);
            self.unbound();
            loop {
                tokio::time::sleep(AGAIN).await;
                if client.ends.get() {
                    return;
                }
                match start(&options, &waiting) {
                    Ok((handle, again)) => {
                        client.handle.replace(handle);
                        requests = again;
                        break;
                    }
                    Err(failure) => {
                        error!("{}: no address can be leased: {}", self.name, failure.line());
                    }
                }
            }
        }
    }

    /// Carries out a request. The client may have ended before the answer.
    fn carry_out(&mut self, request: HostRequest) {
        let _ended = match request {
            HostRequest::TunnelEnd(source, reply) => reply.send(self.tunnel_end(source)).is_err(),
            HostRequest::Bound(grant, own, reply) => reply.send(self.bound(&grant, own)).is_err(),
            HostRequest::Carried(reply) => reply.send(self.carried()).is_err(),
            HostRequest::Settle(reply) => {
                self.settle_leased();
                reply.send(()).is_err()
            }
            HostRequest::Unbound(reply) => {
                self.unbound();
                reply.send(()).is_err()
            }
        };
    }

    /// Applies another softwire. What only the old one needs stays until [`Host::settle`].
    fn reconfigure_unsettled(&mut self, softwire: &Translator) -> Result<(), String> {
        let took = self.daemon.with(&self.name, |one| one.reconfigure_unsettled(softwire));
        let took = took.ok_or("its interface has been taken down")?;
        self.is_new |= took.map_err(|failure| failure.line())?;
        Ok(())
    }

    fn reconfigure(&mut self, softwire: &Translator) -> Result<(), String> {
        self.reconfigure_unsettled(softwire)?;
        self.settle();
        Ok(())
    }

    /// The softwire with this host's end at `own`, and with a lease or without.
    fn with(&self, own: Ipv6Addr, grant: Option<&Grant>) -> Translator {
        let mut softwire = self.softwire.clone();
        if let Mode::Softwire(mode) = &mut softwire.mode
            && let SoftwireEnd::Client(client) = &mut mode.end
        {
            client.local = Some(own);
            if let Some(grant) = grant {
                (client.v4, client.ports, client.remote) = (Some(grant.v4), grant.ports, grant.tep);
            }
        }
        softwire
    }

    fn client_local(&self) -> Option<Ipv6Addr> {
        self.softwire.softwire()?.client()?.local
    }

    fn own(&self) -> Option<Ipv6Addr> {
        self.daemon.with(&self.name, |one| one.facts.resolved.clat_v6).flatten()
    }

    fn tunnel_end(&mut self, source: Ipv6Addr) -> Ipv6Addr {
        let configured = self.client_local();
        let own = configured.or(self.own().filter(|own| same_network(*own, source)));
        if let Some(own) = own {
            return own;
        }
        // This host has moved since.
        if let Err(why) = self.reconfigure(&self.softwire.clone()) {
            warn!("{}: {why}", self.name);
        }
        self.own().unwrap_or(source)
    }

    /// Gives the socket by which what has waited is sent.
    fn bound(&mut self, grant: &Grant, own: Ipv6Addr) -> Result<Option<Injector>, String> {
        host::check(grant)?;
        self.reconfigure_unsettled(&self.with(own, Some(grant)))?;
        let injector = Injector::open(&self.name);
        let injector =
            injector.inspect_err(|error| warn!("{}: queued packets are lost: {error}", self.name));
        Ok(injector.ok())
    }

    fn settle(&mut self) {
        if std::mem::take(&mut self.is_new) {
            self.daemon.with(&self.name, Running::settle);
        }
    }

    /// What waited for a lease was sent: looks at the host, which was supposed to be as it was.
    fn settle_leased(&mut self) {
        if self.is_new {
            self.settle();
            if let Some(Err(failure)) = self.daemon.with(&self.name, Running::refresh) {
                warn!("{}: {}", self.name, failure.line());
            }
        }
    }

    fn unbound(&mut self) {
        let Some(own) = self.own() else { return };
        if let Err(why) = self.reconfigure(&self.with(own, None)) {
            error!("{}: the address is still there: {why}", self.name);
        }
    }

    /// Packets that have been carried, both ways.
    fn carried(&mut self) -> u64 {
        let totals = self.daemon.with(&self.name, |one| one.stats().totals);
        totals.map_or(0, |it| it.v4_to_v6.packets + it.v6_to_v4.packets)
    }
}

/// Whether both are of one /64, as servers demand.
fn same_network(one: Ipv6Addr, other: Ipv6Addr) -> bool {
    one.octets()[..8] == other.octets()[..8]
}
