//! Which processors the parts of a run are bound to.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{DataError, Result};

/// What asks for a choice by the machine's processors.
const AUTO: &str = "auto";

/// A part of a run that can be bound.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Programs of the application and its box: they send, or receive what comes down.
    Client,
    /// Programs of the mechanism, and whatever else runs in the box in the middle.
    Mechanism,
    /// Programs of the server: they receive, or send what goes down.
    Server,
    /// Interrupts of the device on the wire, on the client's host.
    ClientIrq,
    /// Interrupts of the device on the wire, on the server's host.
    ServerIrq,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Client, Self::Mechanism, Self::Server, Self::ClientIrq, Self::ServerIrq];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Mechanism => "mechanism",
            Self::Server => "server",
            Self::ClientIrq => "client-irq",
            Self::ServerIrq => "server-irq",
        }
    }

    /// Whether it is about a network card.
    fn is_irq(self) -> bool {
        matches!(self, Self::ClientIrq | Self::ServerIrq)
    }

    /// Whether it is on the host of the server, where there are two.
    pub fn on_server(self) -> bool {
        matches!(self, Self::Server | Self::ServerIrq)
    }
}

/// Processors by their numbers, written as the kernel writes lists: `0-2,5`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Processors(BTreeSet<usize>);

impl Processors {
    /// None.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// In ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().copied()
    }

    /// Whether this one is among them.
    pub fn contains(&self, cpu: usize) -> bool {
        self.0.contains(&cpu)
    }

    /// Whether all of them are among `others`.
    pub fn within(&self, others: &Self) -> bool {
        self.0.is_subset(&others.0)
    }

    /// The processor of place `index`, counted round and round; `None`: there is none.
    pub fn nth(&self, index: usize) -> Option<usize> {
        let count = self.len();
        (count > 0).then(|| self.iter().nth(index % count)).flatten()
    }

    /// As the kernel writes masks: hexadecimal words of 32 bits, the highest first, with commas between.
    pub fn mask(&self) -> String {
        let words = self.0.last().map_or(1, |last| last / 32 + 1);
        let word = |number: usize| {
            let bit = |cpu: usize| if cpu / 32 == number { 1u32 << (cpu % 32) } else { 0 };
            format!("{:08x}", self.iter().map(bit).fold(0, |all, one| all | one))
        };
        (0..words).rev().map(word).collect::<Vec<String>>().join(",")
    }
}

impl FromIterator<usize> for Processors {
    fn from_iter<T: IntoIterator<Item = usize>>(numbers: T) -> Self {
        Self(numbers.into_iter().collect())
    }
}

impl fmt::Display for Processors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for cpu in self.iter() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        let range = |(first, last): (usize, usize)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        f.write_str(&ranges.into_iter().map(range).collect::<Vec<String>>().join(","))
    }
}

impl FromStr for Processors {
    type Err = DataError;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |part: &str| {
            DataError::Usage(format!(
                "`{part}` is no processor: write numbers and ranges, such as 0 or 2-5"
            ))
        };
        let mut all = BTreeSet::new();
        for part in text.split(',') {
            let number = |text: &str| {
                text.trim().parse::<usize>().ok().filter(|n| *n < MOST).ok_or_else(|| bad(part))
            };
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            if first > last {
                return Err(bad(part));
            }
            all.extend(first..=last);
        }
        Ok(Self(all))
    }
}

/// More processors than a machine has.
const MOST: usize = 8192;

impl TryFrom<String> for Processors {
    type Error = DataError;

    fn try_from(text: String) -> Result<Self> {
        if text.is_empty() { Ok(Self::default()) } else { text.parse() }
    }
}

impl From<Processors> for String {
    fn from(all: Processors) -> Self {
        all.to_string()
    }
}

/// The processors of a machine that a program may be bound to, by core.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cores(pub Vec<Processors>);

impl Cores {
    /// All processors.
    pub fn all(&self) -> Processors {
        self.0.iter().flat_map(Processors::iter).collect()
    }

    /// In `wanted` groups or more: cores, where there are enough, else processors; `None` where neither are.
    fn groups(&self, wanted: usize) -> Option<Vec<Processors>> {
        if self.0.len() >= wanted {
            return Some(self.0.clone());
        }
        let each = self.all().iter().map(|cpu| [cpu].into_iter().collect()).collect::<Vec<_>>();
        (each.len() >= wanted).then_some(each)
    }
}

/// What a run binds its parts to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// What was asked for: `auto`, or the roles themselves.
    pub asked: String,
    /// The processors of each role that is bound; none: the machine's choice is not made yet.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<Role, Processors>,
}

impl Pin {
    /// By the machine's processors.
    pub fn auto() -> Self {
        Self { asked: AUTO.into(), roles: BTreeMap::new() }
    }

    /// The processors of a role.
    pub fn of(&self, role: Role) -> Option<&Processors> {
        self.roles.get(&role)
    }

    /// The processors of all roles on one of two hosts.
    pub fn on_host(&self, server: bool) -> Processors {
        let there = self.roles.iter().filter(|(role, _)| role.on_server() == server);
        there.flat_map(|(_, processors)| processors.iter()).collect()
    }

    /// The roles as they are written on the command line.
    pub fn words(&self) -> String {
        let words = self.roles.iter().map(|(role, on)| format!("{}={on}", role.name()));
        words.collect::<Vec<String>>().join(",")
    }

    /// What a replay has to ask for: the roles, once they are known.
    pub fn replay(&self) -> String {
        if self.roles.is_empty() { self.asked.clone() } else { self.words() }
    }

    /// The choice on one machine with these processors, or why there is none.
    pub fn on_one(&self, machine: &Cores) -> Result<Self> {
        if let Some(role) = self.roles.keys().find(|role| role.is_irq()) {
            return Err(DataError::Usage(format!(
                "--pin {}=...: on one machine the links are veth devices, which have no interrupts; {} is about the \
                 network cards of --hosts",
                role.name(),
                role.name()
            )));
        }
        if self.asked != AUTO {
            self.exist(machine, "this machine", |_| true)?;
            return Ok(self.clone());
        }
        let Some(groups) = machine.groups(3) else {
            let all = machine.all();
            let (first, last) = (all.nth(0).unwrap_or(0), all.iter().last().unwrap_or(0));
            return Err(DataError::Usage(format!(
                "--pin auto gives client, mechanism and server processors of their own, which takes 3; this machine has \
                 {} ({all}). Say which roles share one: --pin client={first},mechanism={last},server={first}",
                all.len()
            )));
        };
        let (first, last) = (groups[0].clone(), groups[groups.len() - 1].clone());
        let between = groups[1..groups.len() - 1].iter().flat_map(Processors::iter).collect();
        Ok(self.chosen([(Role::Client, first), (Role::Mechanism, between), (Role::Server, last)]))
    }

    /// The choice on two hosts with these processors, or why there is none.
    pub fn on_two(&self, client: &Cores, server: &Cores) -> Result<Self> {
        if self.asked != AUTO {
            self.exist(client, "the client's host", |role| !role.on_server())?;
            self.exist(server, "the server's host", Role::on_server)?;
            return Ok(self.clone());
        }
        let Some(groups) = client.groups(2) else {
            return Err(DataError::Usage(
                "--pin auto gives client and mechanism processors of their own, which takes 2; the client's host has 1"
                    .into(),
            ));
        };
        let rest: Processors = groups[1..].iter().flat_map(Processors::iter).collect();
        Ok(self.chosen([
            (Role::Client, groups[0].clone()),
            (Role::Mechanism, rest.clone()),
            (Role::ClientIrq, rest),
            (Role::Server, server.all()),
            (Role::ServerIrq, server.all()),
        ]))
    }

    fn chosen(&self, roles: impl IntoIterator<Item = (Role, Processors)>) -> Self {
        Self { asked: self.asked.clone(), roles: roles.into_iter().collect() }
    }

    fn exist(&self, machine: &Cores, whose: &str, here: impl Fn(Role) -> bool) -> Result<()> {
        let all = machine.all();
        for (role, on) in self.roles.iter().filter(|(role, _)| here(**role)) {
            if let Some(missing) = on.iter().find(|cpu| !all.contains(*cpu)) {
                return Err(DataError::Usage(format!(
                    "--pin {}={on}: {whose} has no processor {missing} that the lab may use; it has {all}",
                    role.name()
                )));
            }
        }
        Ok(())
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.asked)
    }
}

impl FromStr for Pin {
    type Err = DataError;

    /// `auto`, or roles with their processors: `client=0-1,4,mechanism=2,server=3`. A part without a role belongs to the
    /// role before it.
    fn from_str(text: &str) -> Result<Self> {
        if text == AUTO {
            return Ok(Self::auto());
        }
        let mut lists: Vec<(Role, String)> = Vec::new();
        for part in text.split(',') {
            match (part.split_once('='), lists.last_mut()) {
                (Some((name, list)), _) => {
                    let role = Role::ALL.into_iter().find(|role| role.name() == name.trim());
                    let role = role.ok_or_else(|| {
                        let names = Role::ALL.map(Role::name).join(", ");
                        DataError::Usage(format!("no role is called `{name}`; there are {names}"))
                    })?;
                    if lists.iter().any(|(known, _)| *known == role) {
                        return Err(DataError::Usage(format!("{name} is named twice")));
                    }
                    lists.push((role, list.to_owned()));
                }
                (None, Some((_, list))) => *list = format!("{list},{part}"),
                (None, None) => {
                    return Err(DataError::Usage(format!(
                        "`{part}` is no role with processors: write auto, or client=0,mechanism=1,server=0"
                    )));
                }
            }
        }
        let parsed = lists.into_iter().map(|(role, list)| Ok((role, list.parse()?)));
        Ok(Self { asked: text.to_owned(), roles: parsed.collect::<Result<_>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(all: &[&str]) -> Cores {
        Cores(all.iter().map(|core| core.parse().unwrap()).collect())
    }

    fn auto(machine: &[&str]) -> Result<String> {
        Ok(Pin::auto().on_one(&cores(machine))?.words())
    }

    #[test]
    fn lists_and_masks_are_the_kernels() {
        let of = |text: &str| text.parse::<Processors>().unwrap();
        assert_eq!(of("5,0,1,2").to_string(), "0-2,5");
        assert_eq!(
            (of("0-2,5").mask(), of("33").mask()),
            ("00000027".into(), "00000002,00000000".into())
        );
        assert_eq!([0, 1, 2].map(|n| of("3,7").nth(n)), [Some(3), Some(7), Some(3)]);
        for wrong in ["", "x", "3-1", "1-", "99999"] {
            assert!(wrong.parse::<Processors>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn roles_have_the_processors_that_follow_them() {
        let pin: Pin = "client=0-1,4,mechanism=2,server=0".parse().unwrap();
        assert_eq!(pin.words(), "client=0-1,4,mechanism=2,server=0");
        assert_eq!(pin.on_one(&cores(&["0-2", "3-4"])).unwrap(), pin);
        let refused = |text: &str| text.parse::<Pin>().unwrap_err().to_string();
        assert!(refused("clients=0").contains("there are client, mechanism, server"));
        assert!(refused("0,client=1").contains("write auto, or client=0"));
        assert!(refused("client=0,server=").contains("numbers and ranges"));
        assert!(refused("client=0,client=1").contains("twice"));
    }

    #[test]
    fn a_processor_that_is_not_there_and_interrupts_without_a_card_are_refused() {
        let two = cores(&["0", "1"]);
        let refused =
            |text: &str| text.parse::<Pin>().unwrap().on_one(&two).unwrap_err().to_string();
        assert!(
            refused("client=0,server=2").contains("has no processor 2"),
            "{}",
            refused("server=2")
        );
        assert!(refused("client-irq=0").contains("--hosts"));
        let hosts: Pin = "client=0,server=3".parse().unwrap();
        assert!(hosts.on_two(&two, &cores(&["0-3"])).is_ok());
        let said = hosts.on_two(&two, &two).unwrap_err().to_string();
        assert!(said.contains("the server's host has no processor 3"), "{said}");
    }

    #[test]
    fn the_machines_choice_keeps_roles_apart_and_cores_whole() {
        assert_eq!(auto(&["0", "1", "2"]).unwrap(), "client=0,mechanism=1,server=2");
        assert_eq!(
            auto(&["0,4", "1,5", "2,6", "3,7"]).unwrap(),
            "client=0,4,mechanism=1-2,5-6,server=3,7"
        );
        // Two cores with two threads each: threads apart are better than a shared one.
        assert_eq!(auto(&["0-1", "2-3"]).unwrap(), "client=0,mechanism=1-2,server=3");
        let said = auto(&["0", "1"]).unwrap_err().to_string();
        assert!(said.contains("takes 3; this machine has 2 (0-1)"), "{said}");
        assert!(said.ends_with("--pin client=0,mechanism=1,server=0"), "{said}");
        let both = Pin::auto().on_two(&cores(&["0", "1", "2"]), &cores(&["0-1"])).unwrap();
        assert_eq!(both.words(), "client=0,mechanism=1-2,server=0-1,client-irq=1-2,server-irq=0-1");
        assert_eq!(
            (both.on_host(false).to_string(), both.on_host(true).to_string()),
            ("0-2".into(), "0-1".into())
        );
        assert!(Pin::auto().on_two(&cores(&["0"]), &cores(&["0"])).is_err());
        // What was chosen can be asked for.
        assert_eq!(both.replay().parse::<Pin>().unwrap().roles, both.roles);
    }
}
