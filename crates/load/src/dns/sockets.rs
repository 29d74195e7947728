//! Many sockets to one server, so that it can deal what they send out among its threads.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::net::{MMsgHdr, RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmmsg};

use super::message::QUESTION;

/// Messages that are sent with one system call.
pub(super) const BATCH: usize = 16;

/// The sockets of a client.
pub(super) struct Sockets {
    epoll: OwnedFd,
    sockets: Vec<UdpSocket>,
    events: Vec<epoll::Event>,
}

impl std::fmt::Debug for Sockets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sockets").field("sockets", &self.sockets).finish_non_exhaustive()
    }
}

impl Sockets {
    /// Opens `count` sockets to a server.
    pub(super) fn open(target: SocketAddr, count: usize) -> std::io::Result<Self> {
        let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut sockets = Vec::with_capacity(count);
        for number in 0..count {
            let socket = UdpSocket::bind(any)?;
            socket.connect(target)?;
            socket.set_nonblocking(true)?;
            crate::widen(&socket);
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&epoll, &socket, data, epoll::EventFlags::IN)?;
            sockets.push(socket);
        }
        Ok(Self { epoll, sockets, events: Vec::with_capacity(count) })
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.sockets.len()
    }

    /// Sends up to [`BATCH`] messages from one socket; returns how many the kernel took.
    pub(super) fn send(&self, from: usize, messages: &[[u8; QUESTION]]) -> usize {
        let slices: Vec<[std::io::IoSlice<'_>; 1]> =
            messages.iter().map(|message| [std::io::IoSlice::new(message)]).collect();
        let mut controls: Vec<SendAncillaryBuffer<'_, '_, '_>> =
            std::iter::repeat_with(SendAncillaryBuffer::default).take(messages.len()).collect();
        let mut headers: Vec<MMsgHdr<'_>> = slices
            .iter()
            .zip(&mut controls)
            .map(|(slice, control)| MMsgHdr::new(slice, control))
            .collect();
        let mut done = 0;
        // An ICMP error for an earlier message ends a call without sending anything: once more, then.
        for _ in 0..2 {
            if let Ok(taken) =
                sendmmsg(&self.sockets[from], &mut headers[done..], SendFlags::empty())
            {
                done += taken;
            }
            if done == messages.len() {
                break;
            }
        }
        done
    }

    /// Waits at most so long for replies, and hands over one from each socket that has any.
    pub(super) fn wait(
        &mut self,
        limit: Duration,
        mut each: impl FnMut(usize, &[u8]),
    ) -> std::io::Result<()> {
        let limit =
            Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        self.events.clear();
        let space = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, space, Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut buffer = [0; 2048];
        for event in &self.events {
            let number = event.data.u64() as usize;
            // What is an error here was an ICMP error: that question has no answer.
            if let Ok((length, _)) =
                recv(&self.sockets[number], &mut buffer[..], RecvFlags::DONTWAIT)
            {
                each(number, &buffer[..length]);
            }
        }
        Ok(())
    }
}
