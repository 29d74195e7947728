//! What the client says.

use alloc::format;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::{Advice, CLIENT, Context, Control, Event, LINE_MAX, Pending, line};
use crate::nat64::Side;

/// Commands that are read; others pass.
const READ: [&[u8]; 6] = [b"ALGS", b"AUTH", b"EPRT", b"EPSV", b"PASV", b"PORT"];

const NOOP: &[u8] = b"NOOP\r\n";
const PASV: &[u8] = b"PASV\r\n";
const EPSV: &[u8] = b"EPSV\r\n";

/// RFC 6384 section 6.
const NO_SUCH_PROTOCOL: &[u8] = b"522 Network protocol not supported, use (2)\r\n";
const NO_EPSV_ALL: &[u8] = b"504 Command not implemented for that parameter\r\n";
/// RFC 6384 section 11.
const NO_SUCH_ARGUMENT: &[u8] = b"504 Command not implemented for that parameter\r\n";
const TRANSLATES: &[u8] = b"216 EPSVEPRT EPSV and EPRT are translated\r\n";
const TRANSLATES_NOT: &[u8] = b"216 NONE Nothing is translated\r\n";

/// Whether a verb, or what is there of it, is of a command that is read.
fn is_read(verb: &[u8], is_whole: bool) -> bool {
    READ.iter().any(|known| {
        if is_whole { known.eq_ignore_ascii_case(verb) } else { starts_with(known, verb) }
    })
}

fn starts_with(known: &[u8], verb: &[u8]) -> bool {
    known.get(..verb.len()).is_some_and(|start| start.eq_ignore_ascii_case(verb))
}

impl Control {
    pub(super) fn command(
        &mut self,
        octets: &[u8],
        end: Option<usize>,
        out: &mut Vec<u8>,
        context: &mut Context<'_>,
    ) -> Advice {
        let said = &octets[..end.unwrap_or(octets.len())];
        let text = line::text(said);
        let (verb, argument) = line::command(text);
        let is_whole = end.is_some() || verb.len() < text.len();
        if !is_read(verb, is_whole) || self.in_auth {
            // An empty line is no command.
            let awaited = text.is_empty() || self.await_answer(Pending::Plain);
            return self.go_on(awaited, octets, end);
        }
        let Some(end) = end else {
            if octets.len() <= LINE_MAX {
                return Advice::Hold;
            }
            context.count(Event::TooLong);
            let awaited = self.await_answer(Pending::Plain);
            return self.go_on(awaited, octets, None);
        };
        let mut upper = [0; 4];
        upper.copy_from_slice(&verb[..4]);
        upper.make_ascii_uppercase();
        let pending = match (&upper, self.client) {
            (b"AUTH", _) => {
                self.in_auth = true;
                Pending::Auth
            }
            (b"ALGS", Side::V6) => self.algs(argument, out),
            (_, Side::V6) if !self.enabled => Pending::Plain,
            (b"EPSV", Side::V6) => epsv(argument, out),
            (b"EPRT", Side::V6) => eprt_from_v6(argument, out, context),
            (b"PASV", Side::V4) => {
                out.extend_from_slice(EPSV);
                Pending::Pasv
            }
            (b"EPSV", Side::V4) => epsv_from_v4(argument, out),
            (b"PORT" | b"EPRT", Side::V4) => active_from_v4(&upper, argument, out, context),
            _ => Pending::Plain,
        };
        if let Pending::Noop(_) = pending {
            context.count(Event::Answered);
        } else if !out.is_empty() {
            context.count(Event::Translated);
        }
        if !self.await_answer(pending) {
            out.clear();
            return Advice::Bypass;
        }
        if out.is_empty() { Advice::Pass(end) } else { Advice::Replace(end) }
    }

    fn go_on(&mut self, awaited: bool, octets: &[u8], end: Option<usize>) -> Advice {
        if awaited { self.pass_line(CLIENT, octets, end) } else { Advice::Bypass }
    }

    /// RFC 6384 section 11.
    fn algs(&mut self, argument: &[u8], out: &mut Vec<u8>) -> Pending {
        out.extend_from_slice(NOOP);
        if argument.eq_ignore_ascii_case(b"ENABLE64") {
            self.enabled = true;
        } else if argument.eq_ignore_ascii_case(b"DISABLE64") {
            self.enabled = false;
        } else if !argument.eq_ignore_ascii_case(b"STATUS64") {
            return Pending::Noop(NO_SUCH_ARGUMENT);
        }
        Pending::Noop(if self.enabled { TRANSLATES } else { TRANSLATES_NOT })
    }
}

/// RFC 6384 section 6.
fn epsv(argument: &[u8], out: &mut Vec<u8>) -> Pending {
    if argument.is_empty() || argument == b"2" {
        out.extend_from_slice(PASV);
        Pending::Epsv
    } else if argument.iter().all(u8::is_ascii_digit) {
        out.extend_from_slice(NOOP);
        Pending::Noop(NO_SUCH_PROTOCOL)
    } else if argument.eq_ignore_ascii_case(b"ALL") {
        out.extend_from_slice(NOOP);
        Pending::Noop(NO_EPSV_ALL)
    } else {
        Pending::Plain
    }
}

/// RFC 6384 section 7.2: only where the data are to go to the client itself. Without a mapping the server says what
/// it thinks of EPRT.
fn eprt_from_v6(argument: &[u8], out: &mut Vec<u8>, context: &mut Context<'_>) -> Pending {
    let wanted = line::eprt(argument);
    let Some((IpAddr::V6(addr), port)) = wanted else { return Pending::Plain };
    if addr != context.ends.host.0 {
        return Pending::Plain;
    }
    if let Some((v4, port)) = context.expect((addr, port)) {
        let [a, b, c, d] = v4.octets();
        let [high, low] = port.to_be_bytes();
        out.extend(format!("PORT {a},{b},{c},{d},{high},{low}\r\n").into_bytes());
    }
    Pending::Plain
}

/// The server is asked for a port, of whichever family.
fn epsv_from_v4(argument: &[u8], out: &mut Vec<u8>) -> Pending {
    if argument.eq_ignore_ascii_case(b"ALL") {
        return Pending::Plain;
    }
    if argument == b"1" {
        out.extend_from_slice(EPSV);
    }
    Pending::EpsvFromV4
}

/// A client in IPv4 says where it listens: the server hears it by its address in pool6. Only the client itself.
fn active_from_v4(
    verb: &[u8; 4],
    argument: &[u8],
    out: &mut Vec<u8>,
    context: &mut Context<'_>,
) -> Pending {
    let wanted = match verb {
        b"PORT" => line::port(argument).map(|(addr, port)| (IpAddr::V4(addr), port)),
        _ => line::eprt(argument),
    };
    if let Some((IpAddr::V4(addr), port)) = wanted
        && addr == context.ends.remote.0
        && let Some(v6) = context.v6_of(addr)
    {
        out.extend(format!("EPRT |2|{v6}|{port}|\r\n").into_bytes());
    }
    Pending::Plain
}
