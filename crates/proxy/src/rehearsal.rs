//! The proxy's parsing and forwarding without connections: for tests and fuzzing.

use std::net::IpAddr;

use bytes::{Buf, BytesMut};

use super::head;
use super::reason::Reason;
use super::relay::Relay;
use super::request::{Method, Request, RequestContext};
use super::response::{self, Asked};
use super::settings::Settings;

/// The proxy's name in Via, here.
pub const OWN: &str = "rehearsal";

/// What becomes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rehearsed {
    /// These octets would go to the server.
    Forwarded {
        /// The request as it is written for the server.
        octets: Vec<u8>,
        /// The client's octets have all of it.
        whole: bool,
    },
    /// The proxy answers by itself: OPTIONS.
    Answered,
    /// All that follows is a tunnel's, if the destination may be reached.
    Tunnel,
    /// It is refused for this reason, and the connection ends.
    Refused(&'static str),
    /// The client begins HTTP/2.
    Http2,
}

/// Reads what a client sends on a connection of HTTP/1.x, as a session does whose servers answer at once.
#[must_use]
pub fn rehearse(settings: &Settings, client: IpAddr, octets: &[u8]) -> Vec<Rehearsed> {
    let mut buf = BytesMut::from(octets);
    let mut all = Vec::new();
    let context = RequestContext { settings, own: OWN, client, tls: !settings.tls.is_empty() };
    loop {
        while buf.starts_with(b"\r\n") {
            buf.advance(2);
        }
        if all.is_empty() && settings.http2 && buf.starts_with(head::PREFACE) {
            all.push(Rehearsed::Http2);
            return all;
        }
        let len = match head::whole(&buf, &mut 0, &settings.limits) {
            Ok(Some(len)) => len,
            Ok(None) => return all,
            Err(reason) => return refused(all, reason),
        };
        let head = buf.split_to(len);
        let request = match head::request(&head, context, &mut None) {
            Ok(request) => request,
            Err(reason) => return refused(all, reason),
        };
        let goes_on = match one(&request, settings, &mut buf) {
            Ok((rehearsed, goes_on)) => {
                all.push(rehearsed);
                goes_on
            }
            Err(reason) => return refused(all, reason),
        };
        if !goes_on {
            return all;
        }
    }
}

fn refused(mut all: Vec<Rehearsed>, reason: Reason) -> Vec<Rehearsed> {
    all.push(Rehearsed::Refused(reason.label()));
    all
}

/// A request with its content, and whether another may follow.
fn one(
    request: &Request,
    settings: &Settings,
    buf: &mut BytesMut,
) -> Result<(Rehearsed, bool), Reason> {
    if request.method == Method::Connect {
        return Ok((Rehearsed::Tunnel, false));
    }
    if request.for_us {
        return Ok((Rehearsed::Answered, request.keep_alive && request.is_bare()));
    }
    let most = settings.limits.body;
    if request.exceeds(most) {
        return Err(Reason::BodyTooLarge);
    }
    let mut octets = Vec::new();
    let mut up = Relay::request(request.head.clone(), request.delimited, most);
    let whole = up.rehearse(buf, &mut octets).map_err(|_| Reason::Framing)?;
    Ok((Rehearsed::Forwarded { octets, whole }, whole && request.keep_alive))
}

/// What a client of HTTP/1.`minor` would get of a server's response to a GET, or, if `head`, to a HEAD; and whether that
/// is all of it. `None`: the response is refused.
#[must_use]
pub fn rehearse_response(octets: &[u8], head: bool, minor: u8) -> Option<(Vec<u8>, bool)> {
    let mut buf = BytesMut::from(octets);
    let len = response::end(&buf, &mut 0)?;
    let method = if head { Method::Head } else { Method::Get };
    let first = buf.split_to(len);
    let response = response::read(&first, Asked { method, upgrades: false, own: OWN }).ok()?;
    if response.status < 200 {
        return None;
    }
    let mut out = BytesMut::new();
    response.http1(minor, true, "Thu, 01 Jan 1970 00:00:00 GMT", &mut out);
    let mut to = Vec::new();
    let mut down = Relay::response(out, response.content, minor > 0);
    let whole = down.rehearse(&mut buf, &mut to).ok()?;
    Some((to, whole))
}
