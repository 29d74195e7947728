//! What the gateway has done.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident, $label:literal;)*) => {
        /// What is counted, each in messages.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum DnsCounter {
            $($(#[$doc])* $name,)*
        }

        impl DnsCounter {
            /// All of them.
            pub const ALL: &'static [DnsCounter] = &[$(DnsCounter::$name,)*];

            /// Its name in metrics and JSON.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(DnsCounter::$name => $label,)* }
            }
        }
    };
}

counters! {
    /// Questions for addresses of the client's family, and for names of addresses.
    Queries, "queries";
    /// Answers with AAAA records that have become A records.
    ToA, "aaaa_to_a";
    /// Answers with A records that have become AAAA records.
    ToAaaa, "a_to_aaaa";
    /// Answers with names of addresses.
    Pointers, "ptr";
    /// Answers that were SERVFAIL for want of an address.
    Exhausted, "exhausted";
    /// Bindings that were refused because their client has caused too many.
    ClientLimit, "client_limit";
    /// Questions of clients that validate by themselves, which pass unchanged.
    Dnssec, "dnssec";
    /// Questions of IPv4 clients that are not on the list, which pass unchanged.
    NotAllowed, "not_allowed";
    /// Messages that could not be read, which pass unchanged.
    Malformed, "malformed";
    /// Questions that could not be kept in mind, which pass unchanged.
    TooMany, "too_many";
}

/// How often each has happened.
#[derive(Debug, Default)]
pub struct DnsCounters([AtomicU64; DnsCounter::ALL.len()]);

impl DnsCounters {
    pub(super) fn of(&self, counter: DnsCounter) -> &AtomicU64 {
        &self.0[counter as usize]
    }

    /// The number.
    #[must_use]
    pub fn get(&self, counter: DnsCounter) -> u64 {
        self.of(counter).load(Relaxed)
    }
}
