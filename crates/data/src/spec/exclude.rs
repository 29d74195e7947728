//! Exclusions: which trials don't count, declared before the run.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A rule by which trials don't count, or count as failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exclusion {
    /// Which trials: a quantity, `>`, and a number, as in "steal > 0.1"; in place of the built-in rule about the same quantity.
    #[schemars(with = "String")]
    pub when: Rule,
    /// Why.
    #[schemars(length(min = 1))]
    pub reason: String,
}

/// What a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantity {
    /// Share of the time that the hypervisor took.
    Steal,
    /// Cores that other programs kept busy.
    Other,
    /// Share of the echo requests without a reply.
    Loss,
    /// Share of the datagrams at a steady rate without an answer.
    LostDatagrams,
    /// TCP segments that were sent again.
    Retransmits,
}

impl Quantity {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Steal, Self::Other, Self::Loss, Self::LostDatagrams, Self::Retransmits];

    /// Its name in a rule.
    pub fn name(self) -> &'static str {
        match self {
            Self::Steal => "steal",
            Self::Other => "other",
            Self::Loss => "loss",
            Self::LostDatagrams => "lost_datagrams",
            Self::Retransmits => "retransmits",
        }
    }

    /// Whether the mechanism decides how much of it there is. A trial with too much is then a failure of the mechanism,
    /// which counts: without such trials, only those in which it did well would be judged.
    pub fn of_the_mechanism(self) -> bool {
        matches!(self, Self::Loss | Self::LostDatagrams | Self::Retransmits)
    }

    /// What it is, for people.
    pub fn about(self) -> &'static str {
        match self {
            Self::Steal => "share of the time that the hypervisor took",
            Self::Other => "cores that other programs kept busy",
            Self::Loss => "share of the echo requests without a reply",
            Self::LostDatagrams => "share of the datagrams at a steady rate without an answer",
            Self::Retransmits => "TCP segments that were sent again",
        }
    }
}

/// A quantity that is too large.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rule {
    /// What.
    pub quantity: Quantity,
    /// Above this, a trial does not count, or counts as a failure of the mechanism.
    pub above: f64,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {}", self.quantity.name(), self.above)
    }
}

impl From<Rule> for String {
    fn from(rule: Rule) -> Self {
        rule.to_string()
    }
}

impl TryFrom<String> for Rule {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let form = || format!("\"{text}\" is no rule");
        let (name, number) = text.split_once('>').ok_or_else(form)?;
        let is = |quantity: &Quantity| quantity.name() == name.trim();
        let quantity = Quantity::ALL.into_iter().find(is);
        let quantity = quantity.ok_or_else(|| format!("there is no quantity `{}`", name.trim()))?;
        let above: f64 = number.trim().parse().map_err(|_| form())?;
        if !(above.is_finite() && above >= 0.0) {
            return Err(format!("{above} is no limit"));
        }
        Ok(Self { quantity, above })
    }
}

/// The rules that hold where the experiment says nothing about the same quantity.
fn built_in() -> [Exclusion; 2] {
    [
        Exclusion {
            when: Rule { quantity: Quantity::Steal, above: 0.1 },
            reason: "what the hypervisor takes is no mechanism's cost".into(),
        },
        Exclusion {
            when: Rule { quantity: Quantity::Loss, above: 0.05 },
            reason: "times of the rest would flatter".into(),
        },
    ]
}

/// All rules of a run, those of the experiment first.
pub fn rules(declared: &[Exclusion]) -> Vec<Exclusion> {
    let silent =
        |rule: &Exclusion| !declared.iter().any(|own| own.when.quantity == rule.when.quantity);
    declared.iter().cloned().chain(built_in().into_iter().filter(silent)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_read_and_written_in_one_form() {
        let read = |text: &str| Rule::try_from(text.to_owned());
        assert_eq!(read("steal>0.1").unwrap().to_string(), "steal > 0.1");
        for quantity in Quantity::ALL {
            let rule = Rule { quantity, above: 0.25 };
            assert_eq!(read(&rule.to_string()), Ok(rule));
        }
        assert_eq!(read("steel > 0.1").unwrap_err(), "there is no quantity `steel`");
        for bad in ["steal", "steal > much", "steal > -1", "steal > nan", "steal < 0.1", ""] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_declared_rule_stands_in_the_place_of_the_built_in_one() {
        let when = Rule { quantity: Quantity::Steal, above: 0.5 };
        let own = Exclusion { when, reason: "a small machine".into() };
        let all: Vec<String> = rules(&[own]).iter().map(|rule| rule.when.to_string()).collect();
        assert_eq!(all, ["steal > 0.5", "loss > 0.05"]);
        assert_eq!(rules(&[]).len(), 2);
    }
}
