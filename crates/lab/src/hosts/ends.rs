//! Where a run takes place, as its back end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fordway_data::spec::{Pin, Role};

use super::Pair;
use crate::backend::{Backend, Cap, Counting, Keeper, Netns, Place};
use crate::error::Result;
use crate::process::{Dialogue, Output, Running};

/// Where a run takes place: on this machine alone, or on two hosts. Programs in its places are bound to the processors of
/// their role, where the run asks for it.
#[derive(Debug, Clone)]
pub(crate) struct Ends {
    at: At,
    pin: Option<Pin>,
    /// Whether everything that is started belongs to the mechanism, wherever it stands.
    of_mechanism: bool,
}

#[derive(Debug, Clone)]
enum At {
    /// This machine.
    One(Netns),
    /// Two hosts joined by a wire.
    Two(Arc<Pair>),
}

impl Ends {
    /// This machine.
    pub(crate) fn one(own: Netns, pin: Option<Pin>) -> Self {
        Self { at: At::One(own), pin, of_mechanism: false }
    }

    /// Two hosts.
    pub(crate) fn two(pair: Arc<Pair>, pin: Option<Pin>) -> Self {
        Self { at: At::Two(pair), pin, of_mechanism: false }
    }

    /// The same for what belongs to a mechanism: a box has programs of the client, and its translator.
    pub(crate) fn of_mechanism(&self) -> Self {
        Self { of_mechanism: true, ..self.clone() }
    }

    /// The two hosts, when it is two.
    pub(crate) fn pair(&self) -> Option<&Arc<Pair>> {
        match &self.at {
            At::One(_) => None,
            At::Two(pair) => Some(pair),
        }
    }

    fn own(&self) -> &dyn Backend {
        match &self.at {
            At::One(netns) => netns,
            At::Two(pair) => pair.as_ref(),
        }
    }

    fn role(&self, place: &Place) -> Role {
        match place.0.rsplit('-').next() {
            _ if self.of_mechanism => Role::Mechanism,
            Some("iperf") => Role::Server,
            Some("host" | "standby") => Role::Mechanism,
            _ => Role::Client,
        }
    }

    /// A command line that keeps to the processors of its place.
    fn bound(&self, place: &Place, argv: &[String]) -> Vec<String> {
        let on = self.pin.as_ref().and_then(|pin| pin.of(self.role(place)));
        let before = on.map(|on| ["taskset".to_owned(), "--cpu-list".into(), on.to_string()]);
        before.into_iter().flatten().chain(argv.iter().cloned()).collect()
    }
}

impl Backend for Ends {
    fn run(&self, place: Option<&Place>, argv: &[String], output: Output<'_>) -> Result<Running> {
        match place {
            Some(at) => self.own().run(place, &self.bound(at, argv), output),
            None => self.own().run(None, argv, output),
        }
    }

    fn talk(&self, place: &Place, argv: &[String], patience: Duration) -> Result<Dialogue> {
        self.own().talk(place, &self.bound(place, argv), patience)
    }

    fn inside(&self, place: &Place, argv: &[String]) -> Vec<String> {
        self.own().inside(place, &self.bound(place, argv))
    }

    fn namespace(&self, place: &Place) -> PathBuf {
        self.own().namespace(place)
    }

    fn deploy(&self, name: &str, content: &[u8]) -> Result<PathBuf> {
        self.own().deploy(name, content)
    }

    fn outside(&self, place: &Place, argv: &[String], output: Output<'_>) -> Result<Running> {
        self.own().outside(place, argv, output)
    }

    fn wire(&self, place: &Place) -> Option<&str> {
        self.own().wire(place)
    }

    fn pin(&self) -> Option<&Pin> {
        self.pin.as_ref()
    }

    fn keeper(&self) -> Keeper {
        self.own().keeper()
    }

    fn count(&self, pids: &[u32], handles: &[u64]) -> Result<Counting> {
        self.own().count(pids, handles)
    }

    fn cap(&self) -> Option<Cap> {
        self.own().cap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_keep_to_the_processors_of_their_role() {
        let pin = "client=0,mechanism=1-2,server=3".parse().ok();
        let ends = Ends::one(Netns { dir: PathBuf::new() }, pin);
        let on = |ends: &Ends, place: &str| {
            let argv = ends.inside(&Place(format!("fwlab-1-1-{place}")), &["x".to_owned()]);
            argv[3..].join(" ")
        };
        assert_eq!(on(&ends, "client"), "taskset --cpu-list 0 x");
        assert_eq!(on(&ends, "app"), "taskset --cpu-list 0 x");
        assert_eq!(on(&ends, "host"), "taskset --cpu-list 1-2 x");
        assert_eq!(on(&ends, "iperf"), "taskset --cpu-list 3 x");
        assert_eq!(on(&ends.of_mechanism(), "client"), "taskset --cpu-list 1-2 x");
        // A role that is not named is not bound.
        let server = Ends { pin: "server=0".parse().ok(), ..ends };
        assert_eq!(
            (on(&server, "client"), on(&server, "iperf")),
            ("x".into(), "taskset --cpu-list 0 x".into())
        );
    }
}
