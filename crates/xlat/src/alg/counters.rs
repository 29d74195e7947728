//! Events of ALGs, counted.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

macro_rules! events {
    ($($name:ident, $label:literal, $text:literal;)+) => {
        /// An event of an ALG, or of the TCP code below it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Event {
            $(#[doc = $text] $name,)+
        }

        impl Event {
            /// All of them.
            pub const ALL: &'static [Event] = &[$(Event::$name),+];

            /// The name in metrics and JSON.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(Event::$name => $label),+ }
            }
        }
    };
}

events! {
    Session, "session", "A connection is watched.";
    Refused, "refused", "A connection is not watched: there are as many as there may be.";
    Released, "released", "A connection was let go: everything passes from there on.";
    Unknown, "unknown", "A segment of a connection whose beginning was not seen; it passes as it is.";
    Resumed, "resumed", "A connection that a killed daemon had watched goes on; nothing is translated any more.";
    Changed, "changed", "Octets were put in the place of others.";
    Waiting, "waiting", "A segment came before its turn.";
    Mapped, "mapped", "A mapping was made for a data connection.";
    NotMapped, "not_mapped", "A mapping for a data connection could not be made.";
    Translated, "translated", "A command or response was translated.";
    Answered, "answered", "A command was answered by the gateway itself.";
    TooLong, "too_long", "A line was longer than the gateway reads; it passed.";
}

/// Counters of one ALG.
#[derive(Debug, Default)]
pub struct AlgCounters([AtomicU64; Event::ALL.len()]);

impl AlgCounters {
    /// Counts one.
    pub fn count(&self, event: Event) {
        self.0[event as usize].fetch_add(1, Relaxed);
    }

    /// How many there were.
    #[must_use]
    pub fn get(&self, event: Event) -> u64 {
        self.0[event as usize].load(Relaxed)
    }
}
