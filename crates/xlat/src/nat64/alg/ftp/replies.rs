//! What the server says.

use alloc::format;
use alloc::vec::Vec;

use super::{Advice, Context, Control, Event, LINE_MAX, Pending, SERVER, line};

/// RFC 6384 section 6: what is wrong is to look temporary.
const NO_DATA: &[u8] = b"425 Can't open data connection\r\n";

/// The server closes the connection; the client must see this reply.
const CLOSING: &[u8; 3] = b"421";

impl Control {
    pub(super) fn reply(
        &mut self,
        octets: &[u8],
        end: Option<usize>,
        out: &mut Vec<u8>,
        context: &mut Context<'_>,
    ) -> Advice {
        let said = &octets[..end.unwrap_or(octets.len())];
        if end.is_none() && said.len() < 4 {
            return Advice::Hold;
        }
        let own = line::code(said);
        let found = match (own, self.several) {
            // RFC 959 section 4.2: only its own code, and a space, ends an answer of several lines.
            (Some((code, true)), Some(open)) if code == open => Some((code, true)),
            (_, Some(open)) => Some((open, false)),
            (found, None) => found,
        };
        let Some((code, is_last)) = found else {
            // No reply of FTP.
            return self.pass_line(SERVER, octets, end);
        };
        // A server that has answered less than it should is understood again where its meaning is plain.
        let is_awaited = |pending: &Pending| match pending {
            Pending::Epsv => &code == b"227",
            Pending::Pasv | Pending::EpsvFromV4 => &code == b"229",
            _ => false,
        };
        if let Some(place) = self.pending.iter().position(is_awaited) {
            self.pending.drain(..place);
        }
        let pending = self.pending.front().cloned().unwrap_or(Pending::Plain);
        let Some(end) = end else {
            // Only what may change has to be whole.
            if pending != Pending::Plain && octets.len() <= LINE_MAX {
                return Advice::Hold;
            }
            if pending != Pending::Plain {
                context.count(Event::TooLong);
            }
            self.follow(code, is_last);
            return self.pass_line(SERVER, octets, None);
        };
        self.follow(code, is_last);
        // Between the first line and the last there may be anything.
        let has_code = own.is_some_and(|(own, _)| own == code);
        let advice = match pending {
            Pending::Auth => return self.authenticates(code, is_last, octets, end),
            Pending::Noop(_) if code == *CLOSING => Advice::Pass(end),
            Pending::Noop(answer) => {
                if is_last {
                    out.extend_from_slice(answer);
                }
                return Advice::Replace(end);
            }
            _ if !has_code => Advice::Pass(end),
            Pending::Epsv if code == *b"227" => {
                self.extended(is_last, line::text(said), out);
                Advice::Replace(end)
            }
            Pending::Pasv | Pending::EpsvFromV4 if code == *b"229" => {
                mapped(pending == Pending::Pasv, is_last, line::text(said), out, context);
                Advice::Replace(end)
            }
            _ => Advice::Pass(end),
        };
        if advice == Advice::Replace(end) {
            context.count(Event::Translated);
        }
        advice
    }

    /// One line more of an answer; with the last one, a command is answered. 1xx is not the end (RFC 959 section
    /// 4.2.1).
    fn follow(&mut self, code: [u8; 3], is_last: bool) {
        self.several = (!is_last).then_some(code);
        if is_last && code[0] != b'1' {
            self.pending.pop_front();
        }
    }

    /// RFC 6384 section 5: after a successful AUTH the connection bypasses the ALG; a refusal changes nothing.
    fn authenticates(&mut self, code: [u8; 3], is_last: bool, octets: &[u8], end: usize) -> Advice {
        if matches!(code[0], b'4' | b'5') {
            self.in_auth = !is_last;
            return self.pass_line(SERVER, octets, Some(end));
        }
        Advice::Bypass
    }

    /// 227 becomes 229; the address in it does not count (RFC 6384 section 6).
    fn extended(&self, is_last: bool, text: &[u8], out: &mut Vec<u8>) {
        if !is_last {
            out.extend_from_slice(b"229-");
            out.extend_from_slice(text.get(4..).unwrap_or_default());
            out.extend_from_slice(b"\r\n");
            return;
        }
        match line::passive(text.get(4..).unwrap_or_default()) {
            Some((_, port)) => {
                let line = format!("229 Entering Extended Passive Mode (|||{port}|)\r\n");
                out.extend(line.into_bytes());
            }
            None => out.extend_from_slice(NO_DATA),
        }
    }
}

/// 229 becomes 227, or 229 with another port: where a client in IPv4 gets at the server's port.
fn mapped(is_pasv: bool, is_last: bool, text: &[u8], out: &mut Vec<u8>, context: &mut Context<'_>) {
    if !is_last {
        out.extend_from_slice(if is_pasv { b"227-" } else { b"229-" });
        out.extend_from_slice(text.get(4..).unwrap_or_default());
        out.extend_from_slice(b"\r\n");
        return;
    }
    let port = line::extended_passive(text);
    let host = context.ends.host.0;
    match port.and_then(|port| context.expect((host, port))) {
        Some((v4, port)) if is_pasv => {
            let [a, b, c, d] = v4.octets();
            let [high, low] = port.to_be_bytes();
            let line = format!("227 Entering Passive Mode ({a},{b},{c},{d},{high},{low})\r\n");
            out.extend(line.into_bytes());
        }
        Some((_, port)) => {
            let line = format!("229 Entering Extended Passive Mode (|||{port}|)\r\n");
            out.extend(line.into_bytes());
        }
        None => out.extend_from_slice(NO_DATA),
    }
}
