//! On which processors a run's parts did their work.

use serde::Serialize;

use crate::environment::{Affinity, Environment, Pinned};
use crate::spec::Role;

/// What the report's validity section says of it.
#[derive(Debug, Serialize)]
pub(super) struct Section {
    /// In a sentence.
    line: String,
    /// What was bound, found, in force; without a head.
    rows: Vec<Vec<String>>,
    /// What was no longer so at the end.
    moved: Vec<String>,
}

/// The section; `None` in records of versions that did not note it.
pub(super) fn section(environment: &Environment) -> Option<Section> {
    let server = environment.hosts.iter().flat_map(|record| record.hosts.values());
    let server = server.filter_map(|host| host.environment.as_ref()).next();
    let machines: Vec<(&str, &Environment)> = match server {
        Some(server) => vec![("client's host: ", environment), ("server's host: ", server)],
        None => vec![("", environment)],
    };
    let found = environment.affinity.as_ref()?;
    let asked = environment.pinned.as_ref().map(|pinned| &pinned.asked);
    let line = match asked {
        Some(asked) => format!(
            "Parts were bound to processors (--pin {asked}). What the kernel does for a packet, it does where the packet's \
             sender runs, or where an interrupt or RPS takes it."
        ),
        None => format!(
            "No part was bound to processors: the kernel placed each on {}. --pin binds them.",
            found.allowed
        ),
    };
    let mut section = Section { line, rows: Vec::new(), moved: Vec::new() };
    for (whose, machine) in machines {
        let Some(found) = &machine.affinity else { continue };
        let pinned = machine.pinned.as_ref();
        section.rows.extend(rows(whose, found, pinned));
        let moved = pinned.iter().flat_map(|pinned| &pinned.moved);
        section.moved.extend(moved.map(|what| format!("{whose}{what}")));
    }
    Some(section)
}

fn rows(whose: &str, found: &Affinity, pinned: Option<&Pinned>) -> Vec<Vec<String>> {
    let row = |what: &str, found: String, in_force: String| {
        vec![format!("{whose}{what}"), found, in_force]
    };
    let mut rows = Vec::new();
    for (role, on) in pinned.iter().flat_map(|pinned| &pinned.roles) {
        let (what, was) = match role {
            Role::Client => ("programs of the client", found.allowed.to_string()),
            Role::Mechanism => ("programs of the mechanism", found.allowed.to_string()),
            Role::Server => ("programs of the server", found.allowed.to_string()),
            Role::ClientIrq | Role::ServerIrq => continue,
        };
        rows.push(row(what, was, on.to_string()));
    }
    let in_force = pinned.map(|pinned| pinned.in_force.settings()).unwrap_or_default();
    for (what, was) in found.settings() {
        let now = in_force.get(&what).cloned().unwrap_or_else(|| was.clone());
        rows.push(row(&what, was, now));
    }
    if !found.isolated.is_empty() {
        let isolated = found.isolated.to_string();
        rows.push(row("isolated processors", isolated.clone(), isolated));
    }
    if found.irqbalance {
        rows.push(row("irqbalance", "runs".into(), "runs".into()));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::environment;

    #[test]
    fn what_was_bound_stands_beside_what_was_found() {
        assert!(section(&environment()).is_none(), "nobody noted it");
        let found = Affinity {
            allowed: "0-3".parse().unwrap(),
            governors: [("powersave".to_owned(), "0-1".parse().unwrap())].into(),
            ..Affinity::default()
        };
        let free = Environment { affinity: Some(found.clone()), ..environment() };
        let said = section(&free).unwrap();
        assert!(said.line.contains("No part was bound") && said.line.contains("0-3"));
        assert_eq!(said.rows[0], ["governor of processor 0", "powersave", "powersave"]);

        let fast = [("performance".to_owned(), "0-1".parse().unwrap())].into();
        let pinned = Pinned {
            asked: "client=0,mechanism=1".into(),
            roles: [(Role::Client, "0".parse().unwrap()), (Role::Mechanism, "1".parse().unwrap())]
                .into(),
            in_force: Affinity { governors: fast, ..found },
            moved: vec![
                "governor of processor 0: performance at first, powersave at the end".into(),
            ],
        };
        let said = section(&Environment { pinned: Some(pinned), ..free }).unwrap();
        assert!(said.line.contains("--pin client=0,mechanism=1"), "{}", said.line);
        assert_eq!(said.rows[0], ["programs of the client", "0-3", "0"]);
        assert_eq!(said.rows[1], ["programs of the mechanism", "0-3", "1"]);
        assert_eq!(said.rows[2], ["governor of processor 0", "powersave", "performance"]);
        assert_eq!(said.moved.len(), 1);
    }
}
