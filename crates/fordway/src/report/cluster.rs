//! Gateways that share the load.

use std::fmt::Write;

use fordway_control::{
    ClusterPhase, ClusterState, ClusterStatus, GatewayRow, RecordStats, ShardCounts, ShardRow,
};
use fordway_daemon::output::{FAINT, GOOD, STRONG, WARNING, group};

use super::Render;
use super::services::line;

impl Render for ClusterState {
    fn render(&self) -> String {
        let owned = group(self.shards_by_role.owned());
        let style = if self.translates() { GOOD } else { WARNING };
        format!(
            "{style}cluster{style:#} {STRONG}gateway {}{STRONG:#} {}, {owned} shards of its own\n",
            self.name,
            phase(self)
        )
    }
}

impl Render for ClusterStatus {
    fn render(&self) -> String {
        let (state, records) = (&self.stats.state, &self.stats.records);
        let style = if state.translates() { GOOD } else { WARNING };
        let mut text =
            format!("{style}{}{style:#} {STRONG}gateway{STRONG:#} {}\n", state.name, phase(state));
        let lease = match state.lease_ms {
            0 => format!("{WARNING}none: nothing is translated{WARNING:#}"),
            ms => format!("ends in {ms} ms unless it is renewed"),
        };
        line(&mut text, "lease", &lease);
        line(&mut text, "store", &store(state));
        line(&mut text, "peers", &peers(state.peers));
        line(&mut text, "shards", &counts(&state.shards_by_role));
        line(&mut text, "records", &of_records(records));
        text.push('\n');
        text.push_str(&gateways_table(&self.gateways));
        text
    }
}

fn phase(state: &ClusterState) -> String {
    match state.phase {
        ClusterPhase::Joining => "is joining: it has no lease yet".to_owned(),
        ClusterPhase::Member => "is a member".to_owned(),
        ClusterPhase::WrongConfig => {
            "is refused: the other gateways have another configuration".to_owned()
        }
        ClusterPhase::NameInUse => {
            "waits: a gateway of its name holds the lease on another host".to_owned()
        }
        ClusterPhase::Replaced => "was replaced by another process of this host".to_owned(),
        ClusterPhase::Left => "has left".to_owned(),
        ClusterPhase::Failed => {
            format!("has failed: {}", state.error.as_deref().unwrap_or("the log says why"))
        }
    }
}

fn store(state: &ClusterState) -> String {
    match (state.store_connected, state.silent, &state.store_error) {
        (true, false, _) => "connected".to_owned(),
        (true, true, _) => format!("{WARNING}connected, but acknowledges nothing{WARNING:#}"),
        (false, _, Some(why)) => format!("{WARNING}not connected: {why}{WARNING:#}"),
        (false, _, None) => format!("{WARNING}not connected{WARNING:#}"),
    }
}

fn peers(count: u64) -> String {
    match count {
        0 => "none: nobody could take the shards over before the outage is over".to_owned(),
        1 => "1 that can vote or promise".to_owned(),
        count => format!("{count} that can vote or promise"),
    }
}

fn counts(counts: &ShardCounts) -> String {
    let mut text = format!(
        "{} own, {} as a standby that is ready, {} others",
        group(counts.owned()),
        group(counts.ready),
        group(counts.other)
    );
    if counts.moving > 0 {
        let _ = write!(text, "; {} of the own are moving away", group(counts.moving));
    }
    if counts.uncovered > 0 {
        let uncovered = group(counts.uncovered);
        let _ =
            write!(text, "; {WARNING}{uncovered} of the own without a ready standby{WARNING:#}");
    }
    text
}

fn of_records(records: &RecordStats) -> String {
    let mut text =
        format!("{} own, {} of other gateways", group(records.own), group(records.others));
    if records.lag > 0 {
        let lag = group(records.lag);
        let _ = write!(text, "; {lag} not acknowledged, the oldest for {} ms", records.lag_ms);
    }
    text
}

/// The width of a column: of its title, and of all that stands below.
fn width<'a>(title: &str, all: impl Iterator<Item = &'a str>) -> usize {
    all.map(str::len).chain([title.len()]).max().unwrap_or_default()
}

fn gateways_table(gateways: &[GatewayRow]) -> String {
    let name = width("gateway", gateways.iter().map(|it| it.name.as_str()));
    let mut text = format!(
        "{FAINT}{:<name$}  {:<8}  {:>6}  {:>6}  last renewal{FAINT:#}\n",
        "gateway", "state", "weight", "shards"
    );
    for GatewayRow { name: of, this, state, weight, unseen_ms, shards } in gateways {
        let weight = weight.map_or("-".to_owned(), |weight| weight.to_string());
        let unseen = unseen_ms.map_or("never".to_owned(), |ms| format!("{} ms ago", group(ms)));
        let this = if *this { " (this gateway)" } else { "" };
        let _ = writeln!(
            text,
            "{STRONG}{of:<name$}{STRONG:#}  {:<8}  {weight:>6}  {shards:>6}  {unseen}{this}",
            state.word()
        );
    }
    text
}

/// A line each.
impl Render for [ShardRow] {
    fn render(&self) -> String {
        let owners = self.iter().filter_map(|it| it.owner.as_deref());
        let owner = width("owner", owners);
        let standby = width("standby", self.iter().filter_map(|it| it.standby.as_deref()));
        let mut text = format!(
            "\n{FAINT}shard  {:<owner$}  {:>6}  {:<standby$}  {:<5}  {:>7}  {:>9}  wish{FAINT:#}\n",
            "owner", "epoch", "standby", "ready", "lag", "records"
        );
        for row in self {
            let is_known = row.standby.is_some();
            let or_dash = |word: &Option<String>| word.clone().unwrap_or_else(|| "-".to_owned());
            let ready = match (is_known, row.covered) {
                (false, _) => "-",
                (true, true) => "yes",
                (true, false) => "no",
            };
            let lag = if is_known { group(row.lag) } else { "-".to_owned() };
            let _ = writeln!(
                text,
                "{:>5}  {:<owner$}  {:>6}  {:<standby$}  {ready:<5}  {lag:>7}  {:>9}  {}",
                row.shard,
                or_dash(&row.owner),
                row.epoch,
                or_dash(&row.standby),
                group(row.records),
                or_dash(&row.wish)
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use fordway_control::{ClusterStats, GatewayState, ShardRole};

    use super::*;

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    fn status() -> ClusterStatus {
        let state = ClusterState {
            name: "gw-a".to_owned(),
            phase: ClusterPhase::Member,
            lease_ms: 489,
            store_connected: true,
            peers: 1,
            shards_by_role: ShardCounts { owner: 2, moving: 1, ready: 1, other: 60, uncovered: 1 },
            ..ClusterState::default()
        };
        let records = RecordStats { own: 1234, others: 56, lag: 3, lag_ms: 4, dropped: 0 };
        let gateway = |name: &str, state, weight, unseen_ms, shards| GatewayRow {
            name: name.to_owned(),
            this: name == "gw-a",
            state,
            weight,
            unseen_ms,
            shards,
        };
        ClusterStatus {
            stats: ClusterStats { state, records, ..ClusterStats::default() },
            gateways: vec![
                gateway("gw-a", GatewayState::Active, Some(100), Some(12), 3),
                gateway("gateway-b", GatewayState::Draining, Some(50), Some(1042), 61),
                gateway("gw-c", GatewayState::Unknown, None, None, 0),
            ],
            shards: vec![
                ShardRow {
                    shard: 0,
                    owner: Some("gw-a".to_owned()),
                    epoch: 12,
                    role: ShardRole::Owner,
                    standby: Some("gateway-b".to_owned()),
                    covered: true,
                    lag: 3,
                    lag_ms: 4,
                    records: 1234,
                    wish: Some("gw-a".to_owned()),
                },
                ShardRow { shard: 1, ..ShardRow::default() },
            ],
        }
    }

    #[test]
    fn a_member_is_shown_with_its_lease_and_the_gateways() {
        insta::assert_snapshot!(plain(&status().render()), @r"
        gw-a gateway is a member
          lease         ends in 489 ms unless it is renewed
          store         connected
          peers         1 that can vote or promise
          shards        3 own, 1 as a standby that is ready, 60 others; 1 of the own are moving away; 1 of the own without a ready standby
          records       1,234 own, 56 of other gateways; 3 not acknowledged, the oldest for 4 ms

        gateway    state     weight  shards  last renewal
        gw-a       active       100       3  12 ms ago (this gateway)
        gateway-b  draining      50      61  1,042 ms ago
        gw-c       unknown        -       0  never
        ");
    }

    #[test]
    fn a_shard_is_a_line() {
        insta::assert_snapshot!(plain(&status().shards.render()).trim_start_matches('\n'), @r"
        shard  owner   epoch  standby    ready      lag    records  wish
            0  gw-a       12  gateway-b  yes          3      1,234  gw-a
            1  -           0  -          -            -          0  -
        ");
    }

    #[test]
    fn what_keeps_a_gateway_from_translating_is_said() {
        let mut it = status();
        it.stats.state.lease_ms = 0;
        it.stats.state.store_connected = false;
        it.stats.state.store_error = Some("no server is connected".to_owned());
        for (phase, words) in [
            (ClusterPhase::WrongConfig, "another configuration"),
            (ClusterPhase::NameInUse, "on another host"),
            (ClusterPhase::Joining, "joining"),
            (ClusterPhase::Left, "has left"),
        ] {
            it.stats.state.phase = phase;
            let text = plain(&it.render());
            assert!(text.contains(words), "{text}");
            assert!(text.contains("none: nothing is translated"), "{text}");
            assert!(text.contains("not connected: no server is connected"), "{text}");
        }
    }

    #[test]
    fn the_daemons_status_has_one_line_of_the_cluster() {
        let text = plain(&status().stats.state.render());
        assert_eq!(text, "cluster gateway gw-a is a member, 3 shards of its own\n");
    }
}
