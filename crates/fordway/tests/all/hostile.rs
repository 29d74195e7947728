//! Strangers who do their worst to the servers of a gateway, which runs as it always does; meanwhile somebody else is
//! served as if nobody else were there.
//!
//! The numbers are those that reach a limit which is set low. `FORDWAY_HOSTILE=full` has the limits and numbers of a
//! public site.

mod dns64;
mod dstm;
mod nat64;
mod proxy;

use std::net::{Ipv6Addr, SocketAddrV6, TcpStream};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use crate::common::netns::Netns;

/// One of two numbers: for every day, or for a public site.
fn size(usual: usize, full: usize) -> usize {
    if std::env::var_os("FORDWAY_HOSTILE").is_some_and(|it| it == "full") { full } else { usual }
}

/// A connection from an address of a host. A server that refuses it may end it at any time.
fn connection(netns: &Netns, from: &str, to: &str) -> TcpStream {
    let from = SocketAddrV6::new(from.parse::<Ipv6Addr>().unwrap(), 0, 0, 0);
    let to: SocketAddrV6 = to.parse().unwrap();
    netns.inside(|| {
        let socket = socket(AddressFamily::INET6, SocketType::STREAM, None).unwrap();
        bind(&socket, &from).unwrap();
        connect(&socket, &to).unwrap();
        TcpStream::from(socket)
    })
}

/// Descriptors that a process has open.
fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}
