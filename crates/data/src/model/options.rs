//! The model's formulas: from quantities to what three networks need.

use std::collections::BTreeMap;

use serde::Serialize;

use super::inputs::{Quantity, User};

/// Values of the quantities that are known.
pub type Values = BTreeMap<Quantity, f64>;

/// The three networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Both families at every subscriber, IPv4 through NAT44.
    DualStack,
    /// IPv6 at every subscriber, IPv4 destinations through NAT64 and DNS64.
    Nat64,
    /// The same, with CLAT at every subscriber.
    Clat,
}

impl Network {
    /// All three.
    pub const ALL: [Self; 3] = [Self::DualStack, Self::Nat64, Self::Clat];

    /// Its name for people.
    pub fn label(self) -> &'static str {
        match self {
            Self::DualStack => "Dual stack and NAT44",
            Self::Nat64 => "IPv6-only, NAT64 and DNS64",
            Self::Clat => "The same with CLAT (464XLAT)",
        }
    }
}

/// What one network needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// Processors at the busiest time, at the utilisation that the user bears.
    Cores,
    /// Of them, those of the traffic that is translated.
    CoresTranslated,
    /// Those of the traffic that is not.
    CoresNative,
    /// Those of new sessions.
    CoresSessions,
    /// Those of DNS64.
    CoresDns,
    /// Machines of so many processors.
    Machines,
    /// Memory of sessions, GiB.
    Memory,
    /// IPv4 addresses.
    Addresses,
    /// Round trip added for IPv4 destinations, ms.
    Delay,
}

impl Need {
    /// All, in the order of the page.
    pub const ALL: [Self; 9] = [
        Self::Cores,
        Self::CoresTranslated,
        Self::CoresNative,
        Self::CoresSessions,
        Self::CoresDns,
        Self::Machines,
        Self::Memory,
        Self::Addresses,
        Self::Delay,
    ];

    /// Its name for people, with the unit.
    pub fn label(self) -> &'static str {
        match self {
            Self::Cores => "Processors",
            Self::CoresTranslated => "of them for translated traffic",
            Self::CoresNative => "for native traffic",
            Self::CoresSessions => "for new sessions",
            Self::CoresDns => "for DNS64",
            Self::Machines => "Machines",
            Self::Memory => "Memory of sessions, GiB",
            Self::Addresses => "IPv4 addresses",
            Self::Delay => "Added round trip, ms",
        }
    }

    /// The formula; `~` stands for 44 or 64.
    pub(crate) fn formula(self, network: Network) -> String {
        let text = match (self, network) {
            (Self::Cores, Network::DualStack) => "(T (1 - s) c~ + T s c6 + R (1 - s) r~) / u",
            (Self::Cores, _) => "(T (1 - s) c~ + T s c6 + R (1 - s) r~ + R q d) / u",
            (Self::CoresTranslated, _) => "T (1 - s) c~ / u",
            (Self::CoresNative, _) => "T s c6 / u",
            (Self::CoresSessions, _) => "R (1 - s) r~ / u",
            (Self::CoresDns, Network::DualStack) => "0",
            (Self::CoresDns, _) => "R q d / u",
            (Self::Machines, _) => "processors / k, rounded up",
            (Self::Memory, _) => "N S (1 - s) m~ / 2^30",
            (Self::Addresses, _) => "N S (1 - s) / p, rounded up",
            (Self::Delay, Network::Clat) => "l464",
            (Self::Delay, _) => "l~",
        };
        text.replace('~', if network == Network::DualStack { "44" } else { "64" })
    }
}

/// What a network needs, or the quantity that is missing to say it.
pub fn need(need: Need, network: Network, user: &User, values: &Values) -> Result<f64, Quantity> {
    let of = |quantity: Quantity| values.get(&quantity).copied().ok_or(quantity);
    let [traffic, sessions, memory] = match network {
        Network::DualStack => {
            [Quantity::Nat44Traffic, Quantity::Nat44Sessions, Quantity::Nat44Memory]
        }
        Network::Nat64 | Network::Clat => {
            [Quantity::Nat64Traffic, Quantity::Nat64Sessions, Quantity::Nat64Memory]
        }
    };
    let (s, u) = (user.native_v6_share, user.utilisation);
    let held = user.sessions() * (1.0 - s);
    Ok(match need {
        Need::Cores => {
            let mut sum = 0.0;
            for part in
                [Need::CoresTranslated, Need::CoresNative, Need::CoresSessions, Need::CoresDns]
            {
                sum += self::need(part, network, user, values)?;
            }
            sum
        }
        Need::CoresTranslated => user.peak_gbit_s * (1.0 - s) * of(traffic)? / u,
        Need::CoresNative => user.peak_gbit_s * s * of(Quantity::NativeTraffic)? / u,
        Need::CoresSessions => user.new_sessions() * (1.0 - s) * of(sessions)? / u,
        Need::CoresDns if network == Network::DualStack => 0.0,
        Need::CoresDns => user.new_sessions() * user.names_per_session * of(Quantity::Dns64)? / u,
        Need::Machines => {
            (self::need(Need::Cores, network, user, values)? / f64::from(user.cores.max(1))).ceil()
        }
        Need::Memory => held * of(memory)? / 2f64.powi(30),
        Need::Addresses => (held / user.ports_per_address).ceil(),
        Need::Delay => of(match network {
            Network::DualStack => Quantity::Nat44Delay,
            Network::Nat64 => Quantity::Nat64Delay,
            Network::Clat => Quantity::ClatDelay,
        })?,
    })
}

/// The formula of the break-even share.
pub(crate) const BREAK_EVEN: &str = "s* = 1 - R q d / (T (c44 - c64) + R (r44 - r64))";

/// Above which share of native IPv6 dual stack with NAT44 needs fewer processors than IPv6-only with NAT64 and DNS64, or which
/// one needs fewer at every share.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome", content = "share")]
pub enum BreakEven {
    /// Below this share IPv6-only needs fewer, above it dual stack.
    At(f64),
    /// Dual stack needs fewer at every share.
    DualStackAlways,
    /// IPv6-only needs fewer at every share.
    Ipv6OnlyAlways,
}

/// The share at which both need as many processors.
pub fn break_even(user: &User, values: &Values) -> Result<BreakEven, Quantity> {
    let of = |quantity: Quantity| values.get(&quantity).copied().ok_or(quantity);
    let saved = user.peak_gbit_s * (of(Quantity::Nat44Traffic)? - of(Quantity::Nat64Traffic)?)
        + user.new_sessions() * (of(Quantity::Nat44Sessions)? - of(Quantity::Nat64Sessions)?);
    let names = user.new_sessions() * user.names_per_session * of(Quantity::Dns64)?;
    // IPv6-only is ahead by saved (1 - s) - names, which falls with s while it saves anything.
    Ok(if saved <= names {
        BreakEven::DualStackAlways
    } else if names <= 0.0 {
        BreakEven::Ipv6OnlyAlways
    } else {
        BreakEven::At(1.0 - names / saved)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Values {
        Values::from([
            (Quantity::NativeTraffic, 0.1),
            (Quantity::Nat44Traffic, 0.3),
            (Quantity::Nat64Traffic, 0.2),
            (Quantity::Nat44Sessions, 4e-6),
            (Quantity::Nat64Sessions, 3e-6),
            (Quantity::Nat64Memory, 256.0),
            (Quantity::Dns64, 20e-6),
            (Quantity::Nat64Delay, 0.02),
        ])
    }

    #[test]
    fn a_network_worked_by_hand() {
        // 20 Gbit/s, 60 % native; 500,000 sessions, 8333 new a second; 0.5 names each.
        let user = User { utilisation: 0.5, ..User::default() };
        let of = |what| need(what, Network::Nat64, &user, &values()).unwrap();
        assert!((of(Need::CoresTranslated) - 20.0 * 0.4 * 0.2 / 0.5).abs() < 1e-9);
        assert!((of(Need::CoresNative) - 20.0 * 0.6 * 0.1 / 0.5).abs() < 1e-9);
        assert!((of(Need::CoresSessions) - 8333.333 * 0.4 * 3e-6 / 0.5).abs() < 1e-6);
        assert!((of(Need::CoresDns) - 8333.333 * 0.5 * 20e-6 / 0.5).abs() < 1e-6);
        // 3.2 + 2.4 + 0.02 + 0.1667 processors are one machine of eight.
        assert!((of(Need::Cores) - 5.7867).abs() < 1e-3 && of(Need::Machines) == 1.0);
        // 200,000 sessions of 256 octets; over 64,512 ports 3.1 addresses.
        assert!((of(Need::Memory) - 200_000.0 * 256.0 / 2f64.powi(30)).abs() < 1e-9);
        assert_eq!((of(Need::Addresses), of(Need::Delay)), (4.0, 0.02));
    }

    #[test]
    fn what_is_missing_is_said_and_not_assumed() {
        let user = User::default();
        let of = |what, network| need(what, network, &user, &values());
        assert_eq!(of(Need::Memory, Network::DualStack), Err(Quantity::Nat44Memory));
        assert_eq!(of(Need::Delay, Network::Clat), Err(Quantity::ClatDelay));
        assert_eq!(of(Need::CoresDns, Network::DualStack), Ok(0.0));
        let mut less = values();
        less.remove(&Quantity::NativeTraffic);
        assert_eq!(need(Need::Machines, Network::Clat, &user, &less), Err(Quantity::NativeTraffic));
        less.remove(&Quantity::Dns64);
        assert_eq!(break_even(&user, &less), Err(Quantity::Dns64));
    }

    #[test]
    fn both_networks_need_as_much_at_the_break_even_share() {
        let user = User::default();
        let BreakEven::At(share) = break_even(&user, &values()).unwrap() else { panic!() };
        let at = User { native_v6_share: share, ..user };
        let cores = |network| need(Need::Cores, network, &at, &values()).unwrap();
        assert!((cores(Network::DualStack) - cores(Network::Nat64)).abs() < 1e-9, "{share}");
    }

    #[test]
    fn one_side_may_need_less_at_every_share() {
        let of = |c64: f64, dns: f64| {
            let mut values = values();
            values.insert(Quantity::Nat64Traffic, c64);
            values.insert(Quantity::Dns64, dns);
            break_even(&User::default(), &values).unwrap()
        };
        assert_eq!(of(0.3, 1.0), BreakEven::DualStackAlways);
        assert_eq!(of(0.4, 20e-6), BreakEven::DualStackAlways);
        assert_eq!(of(0.2, 0.0), BreakEven::Ipv6OnlyAlways);
    }
}
