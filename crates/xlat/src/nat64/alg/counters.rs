//! Events of ALGs, counted.

/// Events by name, and counters of them, which any number of threads raise: `EVENTS, COUNTERS: NAME, LABEL, TEXT; ...`
/// Each label is the name in metrics and JSON.
#[macro_export]
macro_rules! events {
    ($(#[$doc:meta])* $event:ident, $(#[$all:meta])* $counters:ident: $($name:ident, $label:literal, $text:literal;)+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $event {
            $(#[doc = $text] $name,)+
        }

        impl $event {
            /// All of them.
            pub const ALL: &'static [$event] = &[$($event::$name),+];

            /// The name in metrics and JSON.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $($event::$name => $label),+ }
            }
        }

        $(#[$all])*
        #[derive(Debug, Default)]
        pub struct $counters([core::sync::atomic::AtomicU64; $event::ALL.len()]);

        impl $counters {
            /// Counts one.
            pub fn count(&self, event: $event) {
                self.0[event as usize].fetch_add(1, core::sync::atomic::Ordering::Relaxed);
            }

            /// How many there were.
            #[must_use]
            pub fn get(&self, event: $event) -> u64 {
                self.0[event as usize].load(core::sync::atomic::Ordering::Relaxed)
            }
        }
    };
}

events! {
    /// An event of an ALG, or of the TCP code below it.
    Event,
    /// Counters of one ALG.
    AlgCounters:
    Session, "session", "A connection is watched.";
    Refused, "refused", "A connection is not watched: there are as many as there may be.";
    Released, "released", "A connection bypasses the ALG from here on.";
    Unknown, "unknown", "A segment of a connection whose beginning was not seen; it passes unchanged.";
    Resumed, "resumed", "A connection that a killed daemon had watched goes on; nothing is translated any more.";
    Changed, "changed", "Octets were replaced.";
    Waiting, "waiting", "A segment was not the next one in order.";
    Mapped, "mapped", "A mapping was made for a data connection.";
    NotMapped, "not_mapped", "A mapping for a data connection could not be made.";
    Translated, "translated", "A command or response was translated.";
    Answered, "answered", "The ALG answered a command itself.";
    TooLong, "too_long", "A line was longer than the ALG reads; it passed.";
}
