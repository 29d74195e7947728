//! Hearing of changes as they happen.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::{Error, Result};

/// Hears of IPv4 addresses that come and go, and of interfaces, in the network
/// namespace of the thread that opened it.
///
/// The descriptor is readable when there is something to hear. What has changed is
/// not told: whoever asks afterwards sees it.
pub struct AddressWatch {
    socket: Socket,
}

impl AddressWatch {
    /// Begins to listen.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`].
    pub fn open() -> Result<Self> {
        let open = || -> io::Result<Socket> {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind(&SocketAddr::new(0, 0))?;
            for group in [libc::RTNLGRP_IPV4_IFADDR, libc::RTNLGRP_LINK] {
                socket.add_membership(group)?;
            }
            socket.set_non_blocking(true)?;
            Ok(socket)
        };
        let socket = open().map_err(|source| Error::Netlink {
            operation: "listen for changes of addresses".to_owned(),
            source,
            detail: None,
        })?;
        Ok(Self { socket })
    }

    /// Whether anything has changed since the last call, or may have.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`]; the watch is of no use then.
    pub fn changed(&mut self) -> Result<bool> {
        let mut changed = false;
        // One datagram is enough to know; the others are read so that they don't say it again.
        let mut octets = vec![0; 8192];
        loop {
            match self.socket.recv(&mut octets.as_mut_slice(), 0) {
                Ok(_) => changed = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(changed),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // So much has changed that some of it was lost.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => changed = true,
                Err(source) => {
                    let operation = "hear of changes of addresses".to_owned();
                    return Err(Error::Netlink { operation, source, detail: None });
                }
            }
        }
    }
}

impl AsFd for AddressWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for AddressWatch {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl std::fmt::Debug for AddressWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AddressWatch").finish_non_exhaustive()
    }
}
