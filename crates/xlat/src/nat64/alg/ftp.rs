//! FTP (RFC 959, RFC 2428) between the families: RFC 6384 for clients in IPv6, and the converse for clients in IPv4
//! (NAT-PT, RFC 2766 section 4.2).
//!
//! | client | says | the server hears | and what it answers becomes |
//! |---|---|---|---|
//! | IPv6 | `EPSV`, `EPSV 2` | `PASV` | 227 with its port: 229 |
//! | IPv6 | `EPSV 1`, `EPSV ALL` | `NOOP` | 522, 504 |
//! | IPv6 | `EPRT` with its own address | `PORT` with a mapping | |
//! | IPv6 | `ALGS` | `NOOP` | 216, 504 |
//! | IPv4 | `PASV`, `EPSV` | `EPSV` | 229 with a mapping: 227, 229 |
//! | IPv4 | `PORT`, `EPRT` with its own address | `EPRT` with its address in pool6 | |
//! | any | `AUTH` | the same | unless it is 4xx or 5xx, everything passes from there on |
//!
//! Everything else passes as it is, and as soon as it comes.

mod commands;
mod line;
mod replies;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use crate::nat64::Side;

use super::{Advice, Alg, Context, Dialogue, Ends, Event};

/// The port of FTP servers (RFC 959).
pub const PORT: u16 = 21;

/// Commands whose replies are awaited, at most: a client that pipelines more bypasses the ALG.
const PENDING_MAX: usize = 64;

/// Octets of a line that is read; RFC 959 has no limit, and servers allow 512 to 4096.
const LINE_MAX: usize = 1024;

/// Refusals of Telnet options that wait for the next octets in their direction.
const REFUSALS_MAX: usize = 16;

/// The ALG of FTP.
#[derive(Clone, Debug)]
pub struct Ftp {
    ports: Vec<u16>,
}

impl Default for Ftp {
    fn default() -> Ftp {
        Ftp::new(vec![PORT])
    }
}

impl Ftp {
    /// For servers on these ports.
    #[must_use]
    pub fn new(ports: Vec<u16>) -> Ftp {
        Ftp { ports }
    }
}

impl Alg for Ftp {
    fn label(&self) -> &'static str {
        "ftp"
    }

    fn ports(&self) -> &[u16] {
        &self.ports
    }

    fn data_port(&self, server: u16) -> Option<u16> {
        // RFC 959 section 5.2: the port adjacent to L.
        server.checked_sub(1)
    }

    fn open(&self, ends: &Ends) -> Box<dyn Dialogue> {
        Box::new(Control::new(ends.opener))
    }
}

/// What the answer to a command means.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pending {
    /// It passes.
    Plain,
    /// The client said EPSV, and the server has heard PASV.
    Epsv,
    /// The client said PASV, and the server has heard EPSV.
    Pasv,
    /// A client in IPv4 said EPSV.
    EpsvFromV4,
    /// The server has heard NOOP, and the client gets this.
    Noop(&'static [u8]),
    /// If it succeeds, the connection may be encrypted from there on.
    Auth,
}

/// The control connection of a session of FTP.
#[derive(Debug)]
pub(super) struct Control {
    /// Where the client is.
    client: Side,
    /// ALGS has not disabled it.
    enabled: bool,
    /// An AUTH is not answered yet.
    in_auth: bool,
    pending: VecDeque<Pending>,
    /// In a line that passes: of the client, of the server.
    inside: [bool; 2],
    /// In an answer of several lines, of this code.
    several: Option<[u8; 3]>,
    /// For the client, for the server.
    refusals: [Vec<[u8; 3]>; 2],
}

impl Control {
    fn new(client: Side) -> Control {
        Control {
            client,
            enabled: true,
            in_auth: false,
            // The greeting answers nothing.
            pending: VecDeque::from([Pending::Plain]),
            inside: [false; 2],
            several: None,
            refusals: [Vec::new(), Vec::new()],
        }
    }

    /// Remembers what the answer to a command will mean. `false`: there are too many.
    fn await_answer(&mut self, pending: Pending) -> bool {
        self.pending.push_back(pending);
        self.pending.len() <= PENDING_MAX
    }

    /// Telnet (RFC 854) at the start of a line. Options are refused and go no further (RFC 6384 section 5, RFC 1123
    /// section 4.1.2.12); signals pass.
    fn telnet(&mut self, speaker: usize, octets: &[u8]) -> Advice {
        match octets {
            [_, telnet::WILL..=telnet::DONT] | [_] => Advice::Hold,
            [_, verb @ telnet::WILL..=telnet::DONT, option, ..] => {
                let refusal = match *verb {
                    telnet::WILL => Some(telnet::DONT),
                    telnet::DO => Some(telnet::WONT),
                    _ => None,
                };
                let refusals = &mut self.refusals[speaker];
                if let Some(refusal) = refusal
                    && refusals.len() < REFUSALS_MAX
                {
                    refusals.push([telnet::IAC, refusal, *option]);
                }
                Advice::Replace(3)
            }
            _ => Advice::Pass(2),
        }
    }

    fn speak(
        &mut self,
        speaker: usize,
        octets: &[u8],
        out: &mut Vec<u8>,
        context: &mut Context<'_>,
    ) -> Advice {
        let end = line::end(octets);
        if self.inside[speaker] {
            self.inside[speaker] = end.is_none();
            return Advice::Pass(end.unwrap_or(octets.len()));
        }
        if octets[0] == telnet::IAC {
            return self.telnet(speaker, octets);
        }
        if speaker == CLIENT {
            self.command(octets, end, out, context)
        } else {
            self.reply(octets, end, out, context)
        }
    }

    /// The rest of a line passes as it comes, with what is there of it.
    fn pass_line(&mut self, speaker: usize, octets: &[u8], end: Option<usize>) -> Advice {
        self.inside[speaker] = end.is_none();
        Advice::Pass(end.unwrap_or(octets.len()))
    }
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

impl Dialogue for Control {
    fn octets(
        &mut self,
        from: Side,
        octets: &[u8],
        _ended: bool,
        out: &mut Vec<u8>,
        context: &mut Context<'_>,
    ) -> Advice {
        let speaker = if from == self.client { CLIENT } else { SERVER };
        let advice = self.speak(speaker, octets, out, context);
        let refusals = &mut self.refusals[1 - speaker];
        let (Advice::Pass(number) | Advice::Replace(number)) = advice else { return advice };
        if refusals.is_empty() {
            return advice;
        }
        // They are sent with the next octets in their direction.
        let said = if advice == Advice::Pass(number) { &octets[..number] } else { &out[..] };
        let said = [&refusals.concat()[..], said].concat();
        refusals.clear();
        *out = said;
        Advice::Replace(number)
    }
}

/// Octets of Telnet (RFC 854).
mod telnet {
    pub(super) const WILL: u8 = 251;
    pub(super) const WONT: u8 = 252;
    pub(super) const DO: u8 = 253;
    pub(super) const DONT: u8 = 254;
    pub(super) const IAC: u8 = 255;
}
