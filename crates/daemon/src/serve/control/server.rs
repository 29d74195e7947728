//! Answering requests, on a thread without capabilities: requests are read here, and carried out on the daemon's own
//! thread.

use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;

use fordway_control::{
    Entries, Event, Leases, MAX_REQUEST, Reply, Request, ReverseReport, Table, from_line, to_line,
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::broadcast::Receiver;
use tokio::sync::{Semaphore, mpsc};
use tracing::{debug, error, info, warn};

use super::desired::{self, Document};
use super::idle::Idle;
use super::peer::{Access, Peer};
use super::socket::Listeners;
use crate::failure::Failure;
use crate::log;
use crate::serve::cluster;
use crate::serve::handle::Handle;
use crate::serve::requests::Requests;
use crate::serve::trace::Subscription;
use crate::tables::cache;
use crate::tables::{Filter as EntryWish, Read, Reader};
use crate::trace::{Filter, SYNTAX};
use fordway_nameserver::Caches;
use fordway_resolver::Selection;

/// Clients at once. For a further one, the client that has asked nothing for longest makes room.
const MAX_CLIENTS: usize = 64;

/// Clients of a socket that may watch at once; others need the socket, too.
const MAX_WATCHING: usize = 16;

/// Parts of a table that wait for a client.
const PARTS: usize = 8;

/// Serves clients of both sockets for ever. `timeout` is the time that a request may take to come in, and its reply
/// to be taken.
pub(crate) async fn serve(listeners: Listeners, requests: Requests, timeout: Duration) {
    let read = async {
        if let Some(listener) = listeners.read {
            accept(listener, Access::Read, &requests, timeout).await;
        }
    };
    tokio::join!(accept(listeners.control, Access::Admin, &requests, timeout), read);
}

/// Serves clients of a socket. Those of the other have places of their own.
async fn accept(
    listener: std::os::unix::net::UnixListener,
    access: Access,
    requests: &Requests,
    timeout: Duration,
) {
    let listener = match UnixListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return error!("control socket: {error}"),
    };
    let clients = Arc::new(Semaphore::new(MAX_CLIENTS));
    let watching = Arc::new(Semaphore::new(MAX_WATCHING));
    let idle = Idle::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if clients.available_permits() == 0 {
                    idle.make_room();
                }
                let Ok(permit) = Arc::clone(&clients).acquire_owned().await else {
                    return;
                };
                let requests = requests.clone();
                let (idle, watching) = (idle.clone(), Arc::clone(&watching));
                tokio::task::spawn_local(async move {
                    let served = async {
                        let peer = Peer::of(&stream, access)?;
                        converse(stream, peer, &requests, &idle, &watching, timeout).await
                    };
                    if let Err(error) = served.await {
                        debug!("control socket: {error}");
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                warn!("control socket: {error}");
                // Out of descriptors, most likely: give those who hold some time to end.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(
    stream: UnixStream,
    peer: Peer,
    requests: &Requests,
    idle: &Idle,
    watching: &Semaphore,
    timeout: Duration,
) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = Vec::new();
        let limit = MAX_REQUEST as u64;
        let mut limited = (&mut reader).take(limit);
        let read = limited.read_until(b'\n', &mut line);
        let (reply, then) = match idle.wait(tokio::time::timeout(timeout, read)).await {
            Some(Ok(read)) => match read? {
                0 => return Ok(()),
                _ if line.ends_with(b"\n") => answer(&line, &peer, requests).await?,
                _ if line.len() == MAX_REQUEST => {
                    let text = format!("a request has at most {MAX_REQUEST} octets");
                    (Some(Reply::Error(text)), Then::Close)
                }
                _ => {
                    let text = "the request does not end with a newline".to_owned();
                    (Some(Reply::Error(text)), Then::Close)
                }
            },
            Some(Err(_)) => (Some(Reply::Error("no request came in time".to_owned())), Then::Close),
            None => {
                let text = "there are too many clients, and this one has asked nothing".to_owned();
                (Some(Reply::Error(text)), Then::Close)
            }
        };
        if let Some(reply) = reply {
            send(&mut writer, &reply, timeout).await?;
        }
        match then {
            Then::GoOn => {}
            Then::Close => return writer.shutdown().await,
            Then::Leave => {
                requests.submit(Handle::leave).await?;
                // The client waits for the end, which closes the connection.
                return std::future::pending().await;
            }
            Then::Reverse(readers, v4) => {
                let report = tokio::task::spawn_blocking(move || reverse(&readers, v4));
                let report = report.await.map_err(io::Error::other)?;
                send(&mut writer, &Reply::Reverse(report), timeout).await?;
            }
            Then::Flush(caches, names) => {
                // A large cache takes a while.
                let flushed = tokio::task::spawn_blocking(move || cache::flush(&caches, &names));
                let text = flushed.await.map_err(io::Error::other)?;
                info!("dns64: {text}");
                send(&mut writer, &Reply::Done(text), timeout).await?;
            }
            Then::List(listing) => list(listing, &mut writer, timeout).await?,
            Then::Apply(document) => {
                let reply = desired::apply(document, &mut reader, requests, timeout).await;
                // Only now is it known what has become of it.
                peer.audit(&document.to_string(), reply.as_ref().map(Some));
                send(&mut writer, &reply?, timeout).await?;
            }
            Then::Watch(events, generation) => {
                let Ok(_place) = watching.try_acquire() else {
                    let text = format!("{MAX_WATCHING} clients of this socket watch already");
                    send(&mut writer, &failed(&Failure::failed(text)), timeout).await?;
                    continue;
                };
                return desired::watch(events, generation, &mut reader, &mut writer, timeout).await;
            }
            Then::Trace(subscription) => {
                return trace(*subscription, &mut reader, &mut writer, timeout).await;
            }
        }
    }
}

pub(super) async fn send(
    writer: &mut OwnedWriteHalf,
    reply: &Reply,
    timeout: Duration,
) -> io::Result<()> {
    let text = to_line(reply)?;
    tokio::time::timeout(timeout, writer.write_all(&text)).await?
}

/// Tells of packets until the client goes, or the translator does.
async fn trace(
    mut subscription: Subscription,
    reader: &mut BufReader<OwnedReadHalf>,
    writer: &mut OwnedWriteHalf,
    timeout: Duration,
) -> io::Result<()> {
    let mut rest = [0; 64];
    loop {
        tokio::select! {
            line = subscription.lines.recv() => match line {
                Some(line) => send(writer, &Reply::Trace(Box::new(line)), timeout).await?,
                None => return writer.shutdown().await,
            },
            // Nothing more is asked on this connection: the client has gone, or is to go.
            _ = reader.read(&mut rest) => return Ok(()),
        }
    }
}

/// Shows entries. They are read on a thread of its own, which waits for the client and not the daemon for
/// it.
async fn list(listing: Listing, writer: &mut OwnedWriteHalf, timeout: Duration) -> io::Result<()> {
    let (sender, mut parts) = mpsc::channel::<Entries>(PARTS);
    let reading = tokio::task::spawn_blocking(move || {
        let mut read = Read::default();
        // Without a receiver the client has gone.
        let mut take = |entries| sender.blocking_send(entries).is_ok();
        match listing.readers {
            Readers::Translators(readers) => {
                let _all = readers.iter().all(|it| it.read(&listing.filter, &mut read, &mut take));
            }
            Readers::Cache(caches, names) => {
                cache::read(&caches, &names, &listing.filter, &mut read, &mut take);
            }
        }
        read
    });
    while let Some(entries) = parts.recv().await {
        send(writer, &Reply::Entries(entries), timeout).await?;
    }
    let Read { matched, more } = reading.await.map_err(io::Error::other)?;
    send(writer, &Reply::Listed { matched, more }, timeout).await
}

/// Looks through whole tables, on a thread of its own.
fn reverse(readers: &[Reader], v4: SocketAddrV4) -> ReverseReport {
    let mut report = ReverseReport::of(v4);
    readers.iter().for_each(|reader| reader.reverse(v4, &mut report));
    report
}

/// What follows a reply.
enum Then {
    /// The next request.
    GoOn,
    /// The end of the connection.
    Close,
    /// The end of the daemon.
    Leave,
    /// Entries.
    List(Listing),
    /// A cache is emptied.
    Flush(Caches, Selection),
    /// Whose a transport address is.
    Reverse(Vec<Reader>, SocketAddrV4),
    /// A document with keys to set.
    Apply(Document),
    /// Changes, and the number of the last one.
    Watch(Receiver<Event>, u64),
    /// Packets.
    Trace(Box<Subscription>),
}

/// What is to be shown.
struct Listing {
    readers: Readers,
    filter: EntryWish,
}

/// From where.
enum Readers {
    /// The tables of stateful translators.
    Translators(Vec<Reader>),
    /// The cache of the DNS64 server.
    Cache(Caches, Selection),
}

/// Reads a request, and has it carried out if the client may ask it.
async fn answer(
    line: &[u8],
    peer: &Peer,
    requests: &Requests,
) -> io::Result<(Option<Reply>, Then)> {
    let request: Request = match from_line(line) {
        Ok(request) => request,
        Err(error) => {
            let text = format!("this request is not understood: {error}");
            return Ok((Some(Reply::Error(text)), Then::GoOn));
        }
    };
    let audited = (!request.is_read()).then(|| serde_json::to_string(&request)).transpose()?;
    let answered = match peer.refuses(&request) {
        Some(refusal) => Ok((Some(refusal), Then::Close)),
        None => answer_allowed(request, requests).await,
    };
    let is_over = !matches!(answered, Ok((_, Then::Apply(_))));
    if let Some(request) = audited.filter(|_| is_over) {
        peer.audit(&request, answered.as_ref().map(|(reply, _)| reply.as_ref()));
    }
    answered
}

/// Has a request carried out.
async fn answer_allowed(
    request: Request,
    requests: &Requests,
) -> io::Result<(Option<Reply>, Then)> {
    match request {
        Request::Trace { name, filter } => match filter.parse::<Filter>() {
            Ok(filter) => requests.submit(move |daemon| start_trace(daemon, &name, filter)).await,
            Err(error) => {
                let failure = Failure::usage(error.to_string(), SYNTAX);
                Ok((Some(failed(&failure)), Then::GoOn))
            }
        },
        Request::Dns64Flush { name, subtree } => {
            with_caches(requests, name.as_deref(), subtree, Then::Flush).await
        }
        Request::List { table: Table::Dns64Cache, filter, limit, count, .. } => {
            let name = filter.dns_name.clone();
            let subtree = filter.subtree;
            let filter = EntryWish { table: Table::Dns64Cache, filter, limit, count };
            let list = |caches, names| {
                Then::List(Listing { readers: Readers::Cache(caches, names), filter })
            };
            with_caches(requests, name.as_deref(), subtree, list).await
        }
        Request::Status {} => {
            let status = cluster::with_status(requests).await?;
            Ok((Some(Reply::Status(Box::new(status))), Then::GoOn))
        }
        Request::Stats {} => {
            let stats = cluster::with_stats(requests).await?;
            Ok((Some(Reply::Stats(Box::new(stats))), Then::GoOn))
        }
        Request::Cluster {} => {
            let reply = match cluster::status(requests).await? {
                Ok(status) => Reply::Cluster(Box::new(status)),
                Err(failure) => failed(&failure),
            };
            Ok((Some(reply), Then::GoOn))
        }
        Request::ClusterChange { change } => {
            let reply = done(cluster::change(requests, change).await?);
            Ok((Some(reply), Then::GoOn))
        }
        request => requests.submit(move |daemon| carry_out(request, daemon)).await,
    }
}

/// Does something with the DNS64 server's caches, and some names.
async fn with_caches(
    requests: &Requests,
    name: Option<&str>,
    subtree: bool,
    then: impl FnOnce(Caches, Selection) -> Then,
) -> io::Result<(Option<Reply>, Then)> {
    let names = match cache::selection(name, subtree) {
        Ok(names) => names,
        Err(failure) => return Ok((Some(failed(&failure)), Then::GoOn)),
    };
    Ok(match requests.submit(Handle::caches).await? {
        Ok(caches) => (None, then(caches, names)),
        Err(failure) => (Some(failed(&failure)), Then::GoOn),
    })
}

/// On the daemon's own thread.
fn carry_out(request: Request, daemon: &Handle) -> (Option<Reply>, Then) {
    let reply = match request {
        Request::Reload { dry_run: true } => match daemon.reload_plan() {
            Ok(plan) => Reply::Plan(plan),
            Err(failure) => failed(&failure),
        },
        Request::Reload { dry_run: false } => {
            let reloaded = daemon.reload();
            match &reloaded {
                Ok(done) => info!("{done}"),
                Err(failure) => error!("nothing is reloaded: {}", failure.line()),
            }
            done(reloaded)
        }
        Request::LogLevel { level } => done(log::set_level(&level)),
        Request::Measure { name, on } => match daemon.measure(&name, on) {
            Some(set) => done(set),
            None => Reply::Unknown(name),
        },
        Request::Down { name } => match daemon.down(&name) {
            Some(ended) => done(ended.map(|()| format!("{name} is taken down"))),
            None => Reply::Unknown(name),
        },
        Request::Leave {} => {
            let text = "the daemon ends; its kernel engines go on".to_owned();
            return (Some(Reply::Done(text)), Then::Leave);
        }
        Request::List { table, name, filter, limit, count } => {
            match daemon.readers(name.as_deref()).map(Readers::Translators) {
                Ok(readers) => {
                    let filter = EntryWish { table, filter, limit, count };
                    return (None, Then::List(Listing { readers, filter }));
                }
                Err(failure) => failed(&failure),
            }
        }
        Request::BibAdd { name, protocol, v4, v6 } => {
            done(daemon.bib_add(name.as_deref(), &protocol, v4, v6))
        }
        Request::BibDel { name, protocol, v4 } => {
            done(daemon.bib_del(name.as_deref(), &protocol, v4))
        }
        Request::Reverse { name, v4 } => match daemon.readers(name.as_deref()) {
            Ok(readers) => return (None, Then::Reverse(readers, v4)),
            Err(failure) => failed(&failure),
        },
        Request::Leases {} => match daemon.leases() {
            Ok(leases) => Reply::Leases(Leases::of(leases)),
            Err(failure) => failed(&failure),
        },
        Request::Revoke { client } => done(daemon.revoke(&client)),
        Request::Drain { name, drains } => done(daemon.drain(&name, drains)),
        Request::Apply { octets, replace, dry_run } => match desired::too_long(octets) {
            Some(reply) => return (Some(reply), Then::Close),
            None => return (None, Then::Apply(Document { octets, replace, dry_run })),
        },
        Request::Get { keys } => match daemon.values(&keys) {
            Ok(values) => Reply::Values(values),
            Err(failure) => failed(&failure),
        },
        Request::Watch {} => {
            let (events, generation) = daemon.watch();
            return (None, Then::Watch(events, generation));
        }
        // Carried out where its filter, or its name, is known, or where answers are waited for.
        Request::Trace { .. }
        | Request::Dns64Flush { .. }
        | Request::Status {}
        | Request::Stats {}
        | Request::Cluster {}
        | Request::ClusterChange { .. } => return (None, Then::Close),
    };
    (Some(reply), Then::GoOn)
}

/// On the daemon's own thread.
fn start_trace(daemon: &Handle, name: &str, filter: Filter) -> (Option<Reply>, Then) {
    match daemon.trace(name, filter) {
        Ok(subscription) => {
            let text = format!("tracing {name}");
            (Some(Reply::Done(text)), Then::Trace(Box::new(subscription)))
        }
        Err(failure) => (Some(failed(&failure)), Then::GoOn),
    }
}

fn done(result: Result<String, Failure>) -> Reply {
    match result {
        Ok(text) => Reply::Done(text),
        Err(failure) => failed(&failure),
    }
}

pub(super) fn failed(failure: &Failure) -> Reply {
    let (text, hint, config) = failure.parts();
    Reply::Failed { text, hint, config }
}
