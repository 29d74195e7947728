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

/// Defines the statistics of a service and the counters behind them from one list.
///
/// A field without a type is a number: a `u64` of the first struct and a counter of the second, whose `add_counted_to`
/// adds it. A field with a type is one of the first struct alone. The second struct may have further fields, in braces.
///
/// ```text
/// counters! {
///     /// Numbers since the start.
///     #[derive(Default)]
///     pub struct Stats;
///     /// The counters of one thread.
///     pub(crate) struct Counters of Counter { closed: Counter }
///     /// Tunnels that were made.
///     tunnels,
///     /// Tunnels open now.
///     open: u64,
/// }
/// ```
#[macro_export]
macro_rules! counters {
    (
        $(#[$of_stats:meta])* pub struct $Stats:ident;
        $(#[$of_counters:meta])* pub(crate) struct $Counters:ident of $Counter:ident { $($further:tt)* }
        $($fields:tt)+
    ) => {
        $crate::counters! {
            @sort [$(#[$of_stats])* $Stats] [$(#[$of_counters])* $Counters $Counter { $($further)* }]
            [] [] $($fields)+
        }
    };
    (@sort $s:tt $c:tt [$($all:tt)*] [$($counted:ident)*] $(#[$doc:meta])* $name:ident, $($rest:tt)*) => {
        $crate::counters! {
            @sort $s $c [$($all)* $(#[$doc])* pub $name: u64,] [$($counted)* $name] $($rest)*
        }
    };
    (@sort $s:tt $c:tt [$($all:tt)*] $counted:tt $(#[$doc:meta])* $name:ident: $type:ty, $($rest:tt)*) => {
        $crate::counters! { @sort $s $c [$($all)* $(#[$doc])* pub $name: $type,] $counted $($rest)* }
    };
    (
        @sort [$(#[$of_stats:meta])* $Stats:ident]
        [$(#[$of_counters:meta])* $Counters:ident $Counter:ident { $($further:tt)* }]
        [$($all:tt)*] [$($counted:ident)*]
    ) => {
        $(#[$of_stats])*
        pub struct $Stats { $($all)* }

        $(#[$of_counters])*
        pub(crate) struct $Counters {
            $(pub(crate) $counted: $crate::$Counter,)*
            $($further)*
        }

        impl $Counters {
            /// Adds the numbers that are counted.
            pub(crate) fn add_counted_to(&self, stats: &mut $Stats) {
                $(stats.$counted += self.$counted.get();)*
            }
        }
    };
}
