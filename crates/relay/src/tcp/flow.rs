//! One direction of a connection.

use std::os::fd::OwnedFd;

use fordway_net::at_urgent_mark;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use super::super::settings::Urgent;
use fordway_serve::pipe::{Pipes, Splice, TURN};

/// From one socket to the other.
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// There may be something to read.
    pub(super) readable: bool,
    /// There may be room to write.
    pub(super) writable: bool,
    /// There is urgent data that was not read yet.
    pub(super) urgent: bool,
    /// The sender has failed: an end of file is not the end of the stream.
    pub(super) cut: bool,
    /// Octets that were forwarded.
    pub(super) octets: u64,
    /// Urgent octets that were met.
    pub(super) met: u64,
    /// What was read and not written yet is in here.
    splice: Splice,
    /// An urgent octet that comes after it.
    octet: Option<u8>,
    /// The sender has ended the direction.
    ended: bool,
    /// The end was forwarded to the receiver.
    done: bool,
    /// There was no pipe.
    starved: bool,
}

/// What stopped a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pumped {
    /// An event will tell when there is more to do.
    Waits,
    /// There is more to do, after other connections.
    More,
}

/// The side that has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    Sender,
    Receiver,
}

impl Flow {
    /// Forwards what there is.
    pub(super) fn pump(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        pipes: &mut Pipes,
        urgent: Urgent,
    ) -> Result<Pumped, Broken> {
        let before = self.octets;
        let result = loop {
            if !self.is_empty() {
                if !self.writable {
                    break Ok(Pumped::Waits);
                }
                if let Err(broken) = self.write(to, urgent) {
                    break Err(broken);
                }
            } else if self.ended {
                break self.finish(to);
            } else if !self.readable {
                break Ok(Pumped::Waits);
            } else if self.octets - before >= TURN {
                break Ok(Pumped::More);
            } else {
                match self.read(from, pipes) {
                    Ok(true) => {}
                    Ok(false) => break Ok(Pumped::Waits),
                    Err(broken) => break Err(broken),
                }
            }
        };
        self.splice.return_pipe(pipes);
        result
    }

    /// Whether everything that was read is written.
    pub(super) fn is_empty(&self) -> bool {
        self.splice.held() == 0 && self.octet.is_none()
    }

    /// Whether the end was forwarded to the receiver.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// The sender has ended the direction.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    pub(super) fn is_starved(&self) -> bool {
        self.starved
    }

    /// Reads what is there; `false`: it has to wait.
    fn read(&mut self, from: &OwnedFd, pipes: &mut Pipes) -> Result<bool, Broken> {
        if self.urgent && self.take_urgent(from)? {
            return Ok(true);
        }
        self.starved = !self.splice.borrow_pipe(pipes);
        if self.starved {
            return Ok(false);
        }
        match self.splice.read(from) {
            // The kernel stops in front of urgent data, even at the end.
            Ok(0) if self.take_urgent(from)? => {}
            Ok(0) if self.cut => return Err(Broken::Sender),
            Ok(0) => self.ended = true,
            Ok(_) => {}
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => self.readable = false,
            Err(_) => return Err(Broken::Sender),
        }
        Ok(true)
    }

    /// Reads an urgent octet, if that is the next one.
    fn take_urgent(&mut self, from: &OwnedFd) -> Result<bool, Broken> {
        if !at_urgent_mark(from).unwrap_or(false) {
            return Ok(false);
        }
        let mut octet = [0];
        match recv(from, &mut octet[..], RecvFlags::DONTWAIT) {
            Ok((_, 1)) => {
                self.octet = Some(octet[0]);
                self.urgent = false;
                self.met += 1;
                Ok(true)
            }
            // The mark is there, the octet is not.
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(_) => Err(Broken::Sender),
        }
    }

    /// Writes what was read.
    fn write(&mut self, to: &OwnedFd, urgent: Urgent) -> Result<(), Broken> {
        let written = if self.splice.held() > 0 {
            self.splice.write(to)
        } else if let Some(octet) = self.octet {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let sent = match urgent {
                Urgent::Carry => send(to, &[octet], flags | SendFlags::OOB),
                Urgent::Inline => send(to, &[octet], flags),
                Urgent::Discard => Ok(1),
            };
            sent.inspect(|_| self.octet = None)
        } else {
            return Ok(());
        };
        match written {
            Ok(count) => {
                self.octets += count as u64;
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(Errno::AGAIN) => {
                self.writable = false;
                Ok(())
            }
            Err(_) => Err(Broken::Receiver),
        }
    }

    /// Ends the direction towards the receiver.
    fn finish(&mut self, to: &OwnedFd) -> Result<Pumped, Broken> {
        if !self.done {
            self.done = true;
            shutdown(to, Shutdown::Write).map_err(|_| Broken::Receiver)?;
        }
        Ok(Pumped::Waits)
    }
}
