//! Unpredictable numbers from a secret seed.

use ring::hmac;

/// A sequence that only its seed determines: earlier numbers do not tell later ones.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    key: hmac::Key,
    count: u64,
}

impl Random {
    pub(crate) fn new(seed: [u8; 32]) -> Random {
        Random { key: hmac::Key::new(hmac::HMAC_SHA256, &seed), count: 0 }
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.count += 1;
        let tag = hmac::sign(&self.key, &self.count.to_be_bytes());
        let mut octets = [0; 8];
        octets.copy_from_slice(&tag.as_ref()[..8]);
        u64::from_be_bytes(octets)
    }
}
