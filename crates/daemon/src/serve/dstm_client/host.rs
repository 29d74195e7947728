//! A DSTM client apart from the thread that owns the host: it reads what servers send without any capability, and asks
//! for what is to be done on the host with values that it has checked.

use std::io;
use std::net::Ipv6Addr;
use std::sync::mpsc::{SyncSender, sync_channel};

use fordway_dstmd::protocol::Grant;
use fordway_dstmd::{Host, Injector};
use fordway_xlat::addr::classify::{illegal_v4, illegal_v6};
use tokio::sync::mpsc;

/// What a client asks of the host, and where the answer goes.
#[derive(Debug)]
pub(super) enum HostRequest {
    /// See [`Host::tunnel_end`].
    TunnelEnd(Ipv6Addr, SyncSender<Ipv6Addr>),
    /// See [`Host::bound`]. Answered with the socket for packets that have waited.
    Bound(Grant, Ipv6Addr, SyncSender<Result<Option<Injector>, String>>),
    /// See [`Host::settle`].
    Settle(SyncSender<()>),
    /// See [`Host::unbound`].
    Unbound(SyncSender<()>),
    /// See [`Host::carried`].
    Carried(SyncSender<u64>),
}

/// The host as a client sees it that runs on a thread of its own.
#[derive(Debug)]
pub(super) struct RemoteHost {
    requests: mpsc::Sender<HostRequest>,
    injector: Option<Injector>,
}

impl RemoteHost {
    /// The client's end, and the host's.
    pub(super) fn new() -> (RemoteHost, mpsc::Receiver<HostRequest>) {
        // The client waits for each answer: there is never a second request.
        let (sender, receiver) = mpsc::channel(1);
        (RemoteHost { requests: sender, injector: None }, receiver)
    }

    /// Waits for an answer. If the daemon leaves, none comes: another daemon goes on with the lease, so the client must do
    /// nothing from then on.
    fn ask<T>(&self, request: impl FnOnce(SyncSender<T>) -> HostRequest) -> T {
        let (reply, answer) = sync_channel(1);
        if self.requests.try_send(request(reply)).is_ok()
            && let Ok(answer) = answer.recv()
        {
            return answer;
        }
        loop {
            std::thread::park();
        }
    }
}

impl Host for RemoteHost {
    fn tunnel_end(&mut self, source: Ipv6Addr) -> Ipv6Addr {
        self.ask(|reply| HostRequest::TunnelEnd(source, reply))
    }

    fn bound(&mut self, grant: &Grant, own: Ipv6Addr) -> Result<(), String> {
        self.injector = self.ask(|reply| HostRequest::Bound(*grant, own, reply))?;
        Ok(())
    }

    fn settle(&mut self) {
        self.ask(HostRequest::Settle);
    }

    fn unbound(&mut self) {
        self.injector = None;
        self.ask(HostRequest::Unbound);
    }

    fn send(&mut self, packet: &[u8]) -> io::Result<()> {
        match &self.injector {
            Some(injector) => injector.send(packet),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn carried(&mut self) -> u64 {
        self.ask(HostRequest::Carried)
    }
}

/// Whether what a server has granted can be a host's address, and a tunnel end point's.
pub(super) fn check(grant: &Grant) -> Result<(), String> {
    if illegal_v4(grant.v4).is_some() {
        return Err(format!("{}, which the server grants, is no address of a host", grant.v4));
    }
    if illegal_v6(grant.tep).is_some() {
        return Err(format!("{}, which the server names, is no tunnel end point", grant.tep));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_no_address_is_refused() {
        let grant = |v4: &str, tep: &str| Grant {
            v4: v4.parse().unwrap(),
            ports: None,
            tep: tep.parse().unwrap(),
            server: "[2001:db8::1]:13653".parse().unwrap(),
            until: 2,
            since: 1,
        };
        assert_eq!(check(&grant("192.0.2.1", "2001:db8::1")), Ok(()));
        assert_eq!(check(&grant("10.0.0.1", "fd00::1")), Ok(()));
        for v4 in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255"] {
            assert!(check(&grant(v4, "2001:db8::1")).is_err(), "{v4}");
        }
        for tep in ["::", "::1", "ff02::1"] {
            assert!(check(&grant("192.0.2.1", tep)).is_err(), "{tep}");
        }
    }
}
