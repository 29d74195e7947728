//! The authoritative half: answers for the zone of numbered names, in batches, and counts what it was asked.

use std::io::{BufRead, IoSlice, Write};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::net::{
    AddressFamily, MMsgHdr, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrAny, SocketType,
    recvfrom, sendmmsg, sockopt,
};
use serde::{Deserialize, Serialize};

use super::message::{A, AAAA, LONGEST, Server, answer};

/// Questions that are answered with one system call.
const BATCH: usize = 32;

/// What was asked so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// For AAAA records.
    pub aaaa: u64,
    /// For A records.
    pub a: u64,
    /// For anything else.
    pub other: u64,
}

impl Asked {
    /// Questions in all.
    pub fn all(self) -> u64 {
        self.aaaa + self.a + self.other
    }

    /// What was asked since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            aaaa: self.aaaa - before.aaaa,
            a: self.a - before.a,
            other: self.other - before.other,
        }
    }
}

#[derive(Debug, Default)]
struct Counters {
    aaaa: AtomicU64,
    a: AtomicU64,
    other: AtomicU64,
}

impl Counters {
    fn count(&self, record_type: u16) {
        let of = match record_type {
            AAAA => &self.aaaa,
            A => &self.a,
            _ => &self.other,
        };
        of.fetch_add(1, Relaxed);
    }

    fn read(&self) -> Asked {
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        Asked { aaaa: of(&self.aaaa), a: of(&self.a), other: of(&self.other) }
    }
}

/// Serves from these addresses, with so many threads each, until standard input ends. Says `listening`,
/// and then answers each line with what was asked so far.
pub fn serve(own: &[SocketAddr], server: Server, threads: usize) -> std::io::Result<()> {
    let counters = Arc::new(Counters::default());
    for address in own {
        for _ in 0..threads.max(1) {
            let socket = open(*address)?;
            let counters = Arc::clone(&counters);
            std::thread::spawn(move || work(&socket, server, &counters));
        }
    }
    let mut out = std::io::stdout();
    writeln!(out, "listening")?;
    for line in std::io::stdin().lock().lines() {
        line?;
        writeln!(out, "{}", serde_json::to_string(&counters.read())?)?;
        out.flush()?;
    }
    Ok(())
}

/// Several sockets share an address; the kernel deals the questions out among them.
fn open(own: SocketAddr) -> std::io::Result<UdpSocket> {
    let family = if own.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket(family, SocketType::DGRAM, None)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    rustix::net::bind(&socket, &own)?;
    let socket = UdpSocket::from(socket);
    crate::widen(&socket);
    Ok(socket)
}

fn work(socket: &UdpSocket, server: Server, counters: &Counters) {
    let mut replies = [[0; LONGEST]; BATCH];
    let mut sent: Vec<(usize, SocketAddrAny)> = Vec::with_capacity(BATCH);
    let mut question = [0; 4096];
    loop {
        sent.clear();
        while sent.len() < BATCH {
            // The first question is waited for, the others only taken along.
            let flags = if sent.is_empty() { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
            let Ok((length, _, Some(from))) = recvfrom(socket, &mut question[..], flags) else {
                break;
            };
            let to = &mut replies[sent.len()];
            if let Some((long, record_type)) = answer(&question[..length], server, to) {
                counters.count(record_type);
                sent.push((long, from));
            }
        }
        send(socket, &replies, &sent);
    }
}

fn send(socket: &UdpSocket, replies: &[[u8; LONGEST]; BATCH], sent: &[(usize, SocketAddrAny)]) {
    let slices: Vec<[IoSlice<'_>; 1]> =
        replies.iter().zip(sent).map(|(r, (length, _))| [IoSlice::new(&r[..*length])]).collect();
    let mut controls: Vec<SendAncillaryBuffer<'_, '_, '_>> =
        std::iter::repeat_with(SendAncillaryBuffer::default).take(sent.len()).collect();
    let mut messages: Vec<MMsgHdr<'_>> = slices
        .iter()
        .zip(sent)
        .zip(&mut controls)
        .map(|((slice, (_, to)), control)| MMsgHdr::new_with_addr(to, slice, control))
        .collect();
    let mut done = 0;
    while done < messages.len() {
        match sendmmsg(socket, &mut messages[done..], SendFlags::empty()) {
            Ok(taken) => done += taken,
            // Who has gone meanwhile gets no answer; the next one may be there.
            Err(_) => done += 1,
        }
    }
}
