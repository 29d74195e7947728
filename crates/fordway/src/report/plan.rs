//! What a reload would do, for people.

use std::fmt::Write;

use fordway_control::{PlannedAction, PlannedChange, ReloadPlan};
use fordway_daemon::output::{GOOD, STRONG, WARNING, group};

use super::Render;

impl Render for ReloadPlan {
    fn render(&self) -> String {
        let mut text = String::new();
        let width = self.changes.iter().map(|it| it.name.chars().count()).max().unwrap_or(0);
        for change in &self.changes {
            let (word, style) = match change.action {
                PlannedAction::Added => ("added", GOOD),
                PlannedAction::Changed => ("changed", STRONG),
                PlannedAction::Renamed => ("renamed", STRONG),
                PlannedAction::Removed => ("removed", WARNING),
            };
            let line = format!("{:<width$}  {}", change.name, about(change));
            let _ = writeln!(text, "{style}{word:<7}{style:#}  {}", line.trim_end());
        }
        let _ = writeln!(text, "unchanged: {}", self.unchanged);
        text
    }
}

/// Keys and sessions of a change.
fn about(change: &PlannedChange) -> String {
    let from = change.from.as_ref().map(|from| format!("from {from}"));
    let keys = (!change.keys.is_empty()).then(|| change.keys.join(", "));
    let sessions = change.sessions.zip(change.ended).map(|(all, ended)| match ended {
        0 => format!("all {} sessions and mappings go on", group(all)),
        ended => format!("{} of {} sessions and mappings end", group(ended), group(all)),
    });
    from.into_iter().chain(keys).chain(sessions).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_a_line_with_what_ends() {
        let change =
            |name: &str, action, keys: &[&str], sessions: Option<(u64, u64)>| PlannedChange {
                name: name.to_owned(),
                action,
                from: (action == PlannedAction::Renamed).then(|| "former".to_owned()),
                keys: keys.iter().map(ToString::to_string).collect(),
                sessions: sessions.map(|it| it.0),
                ended: sessions.map(|it| it.1),
            };
        let changes = vec![
            change("siit1", PlannedAction::Added, &[], None),
            change("nat64", PlannedAction::Changed, &["pool4", "mtu"], Some((1234, 12))),
            change("quiet", PlannedAction::Changed, &["hairpin"], Some((7, 0))),
            change("later", PlannedAction::Renamed, &["mtu"], Some((1, 0))),
            change("old", PlannedAction::Removed, &[], Some((40, 40))),
        ];
        let text = ReloadPlan { changes, unchanged: 3 }.render();
        assert_eq!(
            anstream::adapter::strip_str(&text).to_string(),
            "added    siit1\n\
             changed  nat64  pool4, mtu; 12 of 1,234 sessions and mappings end\n\
             changed  quiet  hairpin; all 7 sessions and mappings go on\n\
             renamed  later  from former; mtu; all 1 sessions and mappings go on\n\
             removed  old    40 of 40 sessions and mappings end\n\
             unchanged: 3\n"
        );
    }
}
