//! Counters, and the statistics made of them.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that one thread increments and others read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `more`. Only one thread may call this.
    #[inline]
    pub fn add(&self, more: u64) {
        // Only one thread writes: no locked instruction is needed.
        self.0.store(self.get().wrapping_add(more), Ordering::Relaxed);
    }

    /// The value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A counter that all threads increment.
#[derive(Debug, Default)]
pub struct SharedCounter(AtomicU64);

impl SharedCounter {
    /// Adds one.
    pub fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Defines the statistics of a service, and the numbers behind them, from one list.
///
/// A field without a type is a number: a `u64` of the first struct and a counter of the second, whose `add_to` adds it. A
/// field with a type is one of the first struct alone.
macro_rules! counters {
    (
        $(#[$of_stats:meta])* pub struct $Stats:ident;
        $(#[$of_counted:meta])* pub struct $Counted:ident of $Counter:ident;
        $($fields:tt)+
    ) => {
        $crate::counter::counters! {
            @sort [$(#[$of_stats])* $Stats] [$(#[$of_counted])* $Counted $Counter] [] [] $($fields)+
        }
    };
    (@sort $s:tt $c:tt [$($all:tt)*] [$($counted:tt)*] $(#[$doc:meta])* $name:ident, $($rest:tt)*) => {
        $crate::counter::counters! {
            @sort $s $c [$($all)* $(#[$doc])* pub $name: u64,] [$($counted)* [$(#[$doc])* $name]] $($rest)*
        }
    };
    (@sort $s:tt $c:tt [$($all:tt)*] $counted:tt $(#[$doc:meta])* $name:ident: $type:ty, $($rest:tt)*) => {
        $crate::counter::counters! { @sort $s $c [$($all)* $(#[$doc])* pub $name: $type,] $counted $($rest)* }
    };
    (
        @sort [$(#[$of_stats:meta])* $Stats:ident]
        [$(#[$of_counted:meta])* $Counted:ident $Counter:ident]
        [$($all:tt)*] [$([$(#[$doc:meta])* $counted:ident])*]
    ) => {
        $(#[$of_stats])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        pub struct $Stats { $($all)* }

        $(#[$of_counted])*
        #[derive(Debug, Default)]
        pub struct $Counted {
            $($(#[$doc])* pub $counted: $crate::$Counter,)*
        }

        impl $Counted {
            /// Adds the numbers to statistics.
            pub fn add_to(&self, stats: &mut $Stats) {
                $(stats.$counted += self.$counted.get();)*
            }
        }
    };
}
pub(crate) use counters;
