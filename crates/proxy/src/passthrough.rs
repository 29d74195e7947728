//! TLS connections that pass unread: the name that a client asks for says where they go.

use std::rc::Rc;

use tokio::time::Instant;

use super::access::{About, Record};
use super::conn::{Conn, Watch, put_all};
use super::ends::Ends;
use super::hello::{self, Hello, Malformed};
use super::pool::Server;
use super::reason::Reason;
use super::settings::Passthrough;
use super::shared::Active;
use super::tunnel;
use super::worker::Worker;

/// Longest ClientHello, in octets, with the headers of its records. Those of browsers have up to 2 KiB.
const LONGEST: usize = 16 << 10;

/// A fatal alert, unrecognized_name (RFC 6066 section 3), as a record of TLS 1.2, which every version reads.
const UNRECOGNIZED: &[u8] = &[21, 3, 3, 0, 2, 2, 112];
/// A fatal alert, decode_error (RFC 8446 section 6.2).
const DECODE_ERROR: &[u8] = &[21, 3, 3, 0, 2, 2, 50];

/// Reads a ClientHello, connects to a server of its name, and carries octets. The connection is returned if the client is
/// refused, after a last word.
pub(super) async fn serve(
    mut conn: Conn,
    ends: &Ends,
    worker: &Rc<Worker>,
    active: &Active,
    passthrough: &Passthrough,
    mut watch: Watch,
) -> Option<Conn> {
    let mut record = Record::new(active.log.as_ref());
    let deadline = Instant::now() + active.settings.limits.header_time;
    let asked = match active.settings.allow.contains(ends.address()) {
        true => {
            let hello = hello(&mut conn);
            watch
                .within(deadline, hello)
                .await
                .unwrap_or(Err(Refusal::plain(Reason::HeaderTimeout)))
        }
        false => Err(Refusal::plain(Reason::ClientDenied)),
    };
    let name = asked.as_ref().ok().map_or("", String::as_str);
    record.about = Some(About::new(ends.address(), "TLS", name, "TLS"));
    let reached = match &asked {
        Ok(name) => reach(name, ends, worker, active, passthrough).await.map_err(Refusal::told),
        Err(refusal) => Err(*refusal),
    };
    match reached {
        Ok(mut server) => {
            record.outcome.status = 200;
            record.outcome.server = Some(server.address);
            let idle = active.settings.limits.idle_time;
            let octets = tunnel::run(&mut conn, &mut server.conn, &mut watch, idle, worker).await;
            record.outcome.octets = octets;
            None
        }
        Err(Refusal { reason, alert }) => {
            worker.counters().closed(reason);
            record.outcome.reason = Some(reason);
            let told = put_all(&mut conn, alert);
            watch.within(deadline, told).await?.ok()?;
            Some(conn)
        }
    }
}

async fn reach(
    name: &str,
    ends: &Ends,
    worker: &Rc<Worker>,
    active: &Active,
    passthrough: &Passthrough,
) -> Result<Server, Reason> {
    let route = active.routes.of(name).ok_or(Reason::UnknownName)?;
    let share = worker.share(active, ends.address())?;
    let server = worker.member(active, route, &passthrough.backend, ends, true).await?;
    Ok(Server { share: Some(share), ..server })
}

/// Why a connection is not carried, and what its client is told.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    reason: Reason,
    alert: &'static [u8],
}

impl Refusal {
    fn plain(reason: Reason) -> Refusal {
        Refusal { reason, alert: &[] }
    }

    fn told(reason: Reason) -> Refusal {
        Refusal { reason, alert: UNRECOGNIZED }
    }
}

/// Reads until the ClientHello is whole; its octets stay in the connection. Returns the name, in lower case.
async fn hello(conn: &mut Conn) -> Result<String, Refusal> {
    loop {
        // A client that ends in the middle has not said what it wants.
        if !matches!(conn.fill().await, Ok(1..)) {
            return Err(Refusal::plain(Reason::Hello));
        }
        // Early data may follow it at once (RFC 8446 section 4.2.10), and does not count.
        let begin = &conn.buf[..conn.buf.len().min(LONGEST)];
        match hello::read(begin) {
            Ok(Hello::Whole(Some(name))) => return Ok(name),
            Ok(Hello::Whole(None)) => return Err(Refusal::told(Reason::UnknownName)),
            Ok(Hello::Partial) if begin.len() < LONGEST => {}
            Ok(Hello::Partial) => return Err(Refusal::plain(Reason::Hello)),
            Err(Malformed) => {
                return Err(Refusal { reason: Reason::Hello, alert: DECODE_ERROR });
            }
        }
    }
}
