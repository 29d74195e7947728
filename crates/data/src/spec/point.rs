//! Settings of a load inside one deployment.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Metric;

/// What a load may be varied in.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// Requests in all.
    Requests,
    /// Simultaneous connections.
    Connections,
    /// Background packets per second.
    Background,
    /// Flows per host, in either direction.
    Flows,
    /// TCP flows at once, each way that is loaded.
    Streams,
    /// Pairs of hosts that packets run between.
    Pairs,
    /// Octets of a packet or of an object.
    Octets,
    /// An offered rate, in the unit of the load.
    Rate,
    /// An offered rate, in per cent of the highest.
    Share,
    /// Native IPv6 in per cent of the frames; the others are translated.
    Native,
    /// Networks on each side that frames run between.
    Networks,
}

impl Axis {
    /// Its name in artefacts and in placeholders.
    pub fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Connections => "connections",
            Self::Background => "background",
            Self::Flows => "flows",
            Self::Streams => "streams",
            Self::Pairs => "pairs",
            Self::Octets => "octets",
            Self::Rate => "rate",
            Self::Share => "share",
            Self::Native => "native",
            Self::Networks => "networks",
        }
    }

    /// Its name with the unit, for the axis of a figure.
    pub fn label(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Connections => "simultaneous connections",
            Self::Background => "background, packets/s",
            Self::Flows => "flows per host",
            Self::Streams => "TCP flows at once",
            Self::Pairs => "pairs of hosts",
            Self::Octets => "octets",
            Self::Rate => "offered rate",
            Self::Share => "offered rate, % of the highest",
            Self::Native => "native IPv6, % of the frames",
            Self::Networks => "networks on each side",
        }
    }

    /// A value of it in words.
    fn words(self, value: u64) -> String {
        match self {
            Self::Requests => format!("{value} requests"),
            Self::Connections => format!("{value} at once"),
            Self::Background => format!("{value} packets/s beside it"),
            Self::Flows => format!("{value} flows per host"),
            Self::Streams => format!("{value} TCP flows"),
            Self::Pairs if value == 1 => "1 pair".to_owned(),
            Self::Pairs => format!("{value} pairs"),
            Self::Octets => format!("{value} octets"),
            Self::Rate => format!("offered rate {value}"),
            Self::Share => format!("{value} % of the highest rate"),
            Self::Native => format!("{value} % native IPv6"),
            Self::Networks if value == 1 => "1 network".to_owned(),
            Self::Networks => format!("{value} networks"),
        }
    }
}

/// A setting of a load: a level on each of its axes.
#[derive(
    Debug,
    Clone,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct Point(BTreeMap<Axis, u64>);

impl Point {
    /// All combinations of levels, the first axis slowest.
    pub(crate) fn grid(axes: &[(Axis, Vec<u64>)]) -> Vec<Self> {
        let mut all = vec![Self::default()];
        for (axis, levels) in axes {
            let with = |point: Self| {
                levels.iter().map(move |level| {
                    let mut point = point.clone();
                    point.0.insert(*axis, *level);
                    point
                })
            };
            all = all.into_iter().flat_map(with).collect();
        }
        all
    }

    /// Its level on an axis.
    pub fn at(&self, axis: Axis) -> Option<u64> {
        self.0.get(&axis).copied()
    }

    /// The same without one of its axes.
    pub fn without(&self, axis: Axis) -> Self {
        let mut less = self.clone();
        less.0.remove(&axis);
        less
    }

    /// Its axes, in their order.
    pub(crate) fn axes(&self) -> impl DoubleEndedIterator<Item = Axis> + '_ {
        self.0.keys().copied()
    }

    /// A part of a file's name that tells points apart.
    pub fn file_name(&self) -> String {
        let parts: Vec<String> =
            self.0.iter().map(|(axis, level)| format!("{}{level}", axis.name())).collect();
        parts.join("-")
    }

    /// It in words.
    pub fn label(&self) -> String {
        let words: Vec<String> = self.0.iter().map(|(axis, level)| axis.words(*level)).collect();
        words.join(", ")
    }
}

/// A quantity, with the point at which it was measured.
pub fn quantity(metric: Metric, point: Option<&Point>) -> String {
    let label = metric.label();
    point.map_or_else(|| label.to_owned(), |point| format!("{label}, {}", point.label()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_has_every_combination_once() {
        let all = Point::grid(&[
            (Axis::Requests, vec![1000, 2000]),
            (Axis::Connections, vec![10, 100, 200]),
        ]);
        assert_eq!(all.len(), 6);
        assert_eq!(all[0].without(Axis::Requests).label(), "10 at once");
        assert_eq!(all[5].label(), "2000 requests, 200 at once");
        assert_eq!(all[5].file_name(), "requests2000-connections200");
        assert_eq!(all[1].at(Axis::Connections), Some(100));
        assert_eq!(all[1].at(Axis::Flows), None);
        for axis in
            [Axis::Requests, Axis::Octets, Axis::Rate, Axis::Share, Axis::Native, Axis::Networks]
        {
            assert_eq!(serde_json::to_value(axis).unwrap(), axis.name());
        }
        assert_eq!(
            serde_json::to_string(&all[0]).unwrap(),
            r#"{"requests":1000,"connections":10}"#
        );
    }
}
