//! Cookies of upstream servers (RFC 7873): a forger who has not seen the queries does not know them.
//!
//! A client cookie is made of a secret and both addresses (RFC 9018 section 3), so that no server can tell clients apart by
//! it once they have other addresses, nor servers one client. It is sent by UDP; by a connection only to find out whether
//! the server still knows cookies, because who answers by a connection has received the query.

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use hickory_proto::op::Message;
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};

/// Lengths of the client's part and of the server's.
const CLIENT: usize = 8;
const SERVER: std::ops::RangeInclusive<usize> = 8..=32;

/// A secret of this process: a keyed hash function.
static SECRET: LazyLock<std::hash::RandomState> = LazyLock::new(std::hash::RandomState::new);

/// What one server has given.
#[derive(Debug, Default)]
pub(super) struct Jar(Mutex<Option<Held>>);

#[derive(Debug)]
struct Held {
    client: [u8; CLIENT],
    server: Vec<u8>,
}

/// What a response is as to its cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Returned {
    /// It has the client's cookie, or the server has never shown that it knows cookies.
    Good,
    /// It has somebody else's.
    Foreign,
    /// It has none, though the server has given one before.
    Missing,
}

/// The client's cookie for a server, at one of this host's addresses.
pub(super) fn of_client(local: IpAddr, server: IpAddr) -> [u8; CLIENT] {
    SECRET.hash_one((local, server)).to_be_bytes()
}

impl Jar {
    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        // It is whole even if a thread has panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a query carries: the client's cookie, and the server's if it has given one for it.
    pub(super) fn cookie(&self, client: [u8; CLIENT]) -> Vec<u8> {
        let held = self.held();
        let server = held.as_ref().filter(|held| held.client == client);
        [&client[..], server.map_or(&[], |held| &held.server)].concat()
    }

    /// The client's cookie that the server has given one for, and both together.
    pub(super) fn held_cookie(&self) -> Option<([u8; CLIENT], Vec<u8>)> {
        let held = self.held();
        let held = held.as_ref()?;
        Some((held.client, [&held.client[..], &held.server].concat()))
    }

    /// Takes the cookie of a response to a query that carried the client's.
    pub(super) fn take(&self, client: [u8; CLIENT], message: &Message) -> Returned {
        let options = message.edns.as_ref().map(hickory_proto::op::Edns::options);
        let mut held = self.held();
        let Some(EdnsOption::Unknown(_, cookie)) = options.and_then(|it| it.get(EdnsCode::Cookie))
        else {
            let known = held.as_ref().is_some_and(|held| held.client == client);
            return if known { Returned::Missing } else { Returned::Good };
        };
        match cookie.split_first_chunk() {
            Some((own, server)) if *own == client => {
                // Without a server's part it is the echo of a server that knows no cookies.
                if SERVER.contains(&server.len()) {
                    *held = Some(Held { client, server: server.to_vec() });
                }
                Returned::Good
            }
            _ => Returned::Foreign,
        }
    }

    /// The server has shown, where it can't be forged, that it knows no cookies any more.
    pub(super) fn forget(&self) {
        *self.held() = None;
    }
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::Edns;

    use super::*;

    #[test]
    fn cookies_differ_by_address_and_server() {
        let [one, other, server, second]: [IpAddr; 4] =
            ["192.0.2.1", "192.0.2.2", "192.0.2.53", "192.0.2.54"].map(|it| it.parse().unwrap());
        let own = of_client(one, server);
        assert_eq!(own, of_client(one, server));
        assert_ne!(own, of_client(other, server));
        assert_ne!(own, of_client(one, second));
        let jar = Jar::default();
        let mut message = Message::query();
        let mut edns = Edns::new();
        edns.options_mut().insert(EdnsOption::Unknown(10, [&own[..], &[9; 16]].concat()));
        message.set_edns(edns);
        assert_eq!(jar.take(own, &message), Returned::Good);
        assert_eq!(jar.cookie(own).len(), 24);
        // At another address this host is another client.
        assert_eq!(jar.cookie(of_client(other, server)).len(), 8);
        assert_eq!(jar.take(own, &Message::query()), Returned::Missing);
        assert_eq!(jar.take(of_client(other, server), &Message::query()), Returned::Good);
        assert_eq!(jar.take(of_client(other, server), &message), Returned::Foreign);
    }
}
