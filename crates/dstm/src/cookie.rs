//! Cookies: a client that returns one has received it at its source address.
//!
//! A cookie is an authenticator over the client's address and a time. The server keeps no state for a client that has
//! not returned one, and a spoofed source address gets no lease.

use std::net::Ipv6Addr;

use ring::hmac;

use crate::message::COOKIE;

/// How long a cookie is valid at least, in ms; at most twice as long.
pub(crate) const LIFETIME: u64 = 300_000;

/// Makes and verifies cookies.
#[derive(Debug)]
pub(crate) struct Jar {
    key: hmac::Key,
}

impl Jar {
    /// `secret`: random, new whenever the server starts.
    pub(crate) fn new(secret: [u8; 32]) -> Jar {
        Jar { key: hmac::Key::new(hmac::HMAC_SHA256, &secret) }
    }

    /// The cookie of `address` at `now`, in ms.
    pub(crate) fn make(&self, address: Ipv6Addr, now: u64) -> [u8; COOKIE] {
        self.of(address, now / LIFETIME)
    }

    /// Whether `cookie` was made for `address` not long ago.
    pub(crate) fn knows(&self, cookie: &[u8; COOKIE], address: Ipv6Addr, now: u64) -> bool {
        let slot = now / LIFETIME;
        let slots = [slot, slot.saturating_sub(1)];
        // In constant time.
        slots.into_iter().fold(false, |known, slot| known | same(cookie, &self.of(address, slot)))
    }

    fn of(&self, address: Ipv6Addr, slot: u64) -> [u8; COOKIE] {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&address.octets());
        context.update(&slot.to_be_bytes());
        let mut cookie = [0; COOKIE];
        cookie.copy_from_slice(&context.sign().as_ref()[..COOKIE]);
        cookie
    }
}

/// Whether both are equal, in constant time.
fn same(one: &[u8; COOKIE], other: &[u8; COOKIE]) -> bool {
    one.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_for_one_address_and_some_minutes() {
        let jar = Jar::new([1; 32]);
        let address: Ipv6Addr = "2001:db8::1".parse().unwrap();
        let other: Ipv6Addr = "2001:db8::2".parse().unwrap();
        let now = 10 * LIFETIME + 5;
        let cookie = jar.make(address, now);
        assert!(jar.knows(&cookie, address, now));
        assert!(jar.knows(&cookie, address, now + LIFETIME));
        assert!(!jar.knows(&cookie, address, now + 2 * LIFETIME), "too old");
        assert!(!jar.knows(&cookie, other, now), "somebody else's");
        assert!(!Jar::new([2; 32]).knows(&cookie, address, now), "of another life");
    }
}
