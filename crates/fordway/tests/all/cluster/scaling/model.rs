//! A model, not a measurement: what many gateways cost, if each thing costs what it costs in the rows that were measured.

use std::fmt::Write;

use super::Row;

/// Sessions of all gateways together.
const SESSIONS: f64 = 100e6;
/// A session in use is told of so often, in s: what is left of its lifetime is told in half hours.
const REFRESH: f64 = 1800.0;
/// The most that there may be.
const SHARDS: f64 = 1024.0;
/// Octets of tables for a session with its BIB entry.
const ENTRY: f64 = 152.7;

/// Costs, in seconds of a processor.
pub(super) struct Model {
    /// Each second of a gateway: for itself, for each gateway of the cluster, and for each shard of which it is owner or standby.
    own: f64,
    each: f64,
    shard: f64,
    /// A session of which another gateway is told, at both of them together.
    session: f64,
    /// Octets between gateways for it, and of their memory.
    octets: f64,
    memory: f64,
    /// Octets to and from the store each second, for itself, for each gateway, and for each pair of gateways, of which one writes and the
    /// other is told.
    stored: [f64; 3],
    /// What the store spends each second for itself and each gateway, if many are as few; and for an octet with many: more of them
    /// are cheaper, since it takes several at once.
    store: [f64; 2],
    octet: f64,
    /// A packet that is handed over, more than one that is not.
    handed: f64,
}

impl Model {
    /// Of one, two and three gateways, of two with more shards, and of many that carry nothing.
    pub(super) fn new([one, two, three, shards, many]: &[Row; 5]) -> Model {
        let idle = |row: &Row| row.idle.gateways as f64 / 1e9 / row.gateways as f64;
        let parts = |row: &Row| 2.0 * row.shards as f64 / row.gateways as f64;
        let shard = (idle(shards) - idle(two)) / (parts(shards) - parts(two));
        let rest = |row: &Row| idle(row) - shard * parts(row);
        let gateways = |row: &Row| row.gateways as f64;
        let each = (rest(many) - rest(two)) / (gateways(many) - gateways(two));
        let handed = |row: &Row| {
            let others = (gateways(row) - 1.0) / gateways(row);
            (row.packet - one.packet) / others / 1e9
        };
        let mean = |of: fn(&Row) -> u64| f64::midpoint(of(two) as f64, of(three) as f64);
        let store = |row: &Row| row.idle.store as f64 / 1e9;
        let by_gateway = (store(many) - store(one)) / (gateways(many) - gateways(one));
        Model {
            own: rest(two) - 2.0 * each,
            each,
            shard,
            session: mean(|row| row.flow.gateways) / 1e9,
            octets: mean(|row| row.flow.between),
            memory: mean(|row| row.flow.memory),
            stored: parabola([one, three, many].map(|row| (gateways(row), row.idle.stored as f64))),
            store: [store(one) - by_gateway, by_gateway],
            octet: store(many) / many.idle.stored as f64,
            handed: f64::midpoint(handed(two), handed(three)),
        }
    }

    /// Part of one processor that a gateway takes for the cluster although nothing changes: leases, streams, and sessions in use.
    fn standing(&self, gateways: f64) -> f64 {
        let parts = 2.0 * SHARDS / gateways;
        let used = SESSIONS / gateways / REFRESH * self.session;
        self.own + self.each * gateways + self.shard * parts + used
    }

    /// New sessions per second of all, where each gateway spends one processor on telling.
    fn rate(&self, gateways: f64) -> f64 {
        (1.0 - self.standing(gateways)).max(0.0) / self.session * gateways
    }

    /// A newcomer that is told of all sessions of one gateway, in s.
    fn newcomer(&self, gateways: f64) -> f64 {
        SESSIONS / gateways * self.session
    }

    /// Octets to and from the store in a second.
    fn stored(&self, gateways: f64) -> f64 {
        self.stored[0] + self.stored[1] * gateways + self.stored[2] * gateways * gateways
    }

    /// Parts of one processor that the store takes: the least, if what was measured goes on, and the most, if octets get no cheaper.
    fn store(&self, gateways: f64) -> [f64; 2] {
        let least = self.store[0] + self.store[1] * gateways;
        [least, least.max(self.stored(gateways) * self.octet)]
    }

    /// Its costs, and what follows for more gateways.
    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "\nCosts: a member {:.2} ms/s and {:.3} ms/s for each gateway and {:.4} ms/s for each shard; a session told {:.1} µs, {:.0} octets, \
             {:.0} octets of memory; the store {:.1} ms/s and {:.1} ms/s for each gateway, or {:.2} µs for an octet; a packet handed over {:.0} ns.\n\n\
             | gateways | sessions each, million, own and as a standby | memory, GiB each | without new sessions, % of a processor | \
             new sessions, million/s of all | between gateways, Mbit/s each | a newcomer, s | store, % of a processor | store, Mbit/s | \
             packets from IPv6 handed over, % |\n|{}\n",
            self.own * 1e3,
            self.each * 1e3,
            self.shard * 1e3,
            self.session * 1e6,
            self.octets,
            self.memory,
            self.store[0] * 1e3,
            self.store[1] * 1e3,
            self.octet * 1e6,
            self.handed * 1e9,
            "--:|".repeat(10),
        );
        for gateways in [2.0, 3.0, 8.0, 16.0, 32.0, 64.0] {
            let sessions = 2.0 * SESSIONS / gateways;
            // Both owner and standby have the entry; what they remember is of both together.
            let memory = sessions * (ENTRY + self.memory / 2.0);
            let [least, most] = self.store(gateways);
            writeln!(
                text,
                "| {gateways} | {:.1} | {:.1} | {:.1} | {:.2} | {:.0} | {:.0} | {:.0} to {:.0} | {:.1} | {:.0} |",
                sessions / 1e6,
                memory / f64::from(1 << 30),
                self.standing(gateways) * 100.0,
                self.rate(gateways) / 1e6,
                self.rate(gateways) / gateways * self.octets * 8.0 / 1e6,
                self.newcomer(gateways),
                least * 100.0,
                most * 100.0,
                self.stored(gateways) * 8.0 / 1e6,
                (gateways - 1.0) / gateways * 100.0,
            )
            .unwrap();
        }
        text
    }
}

/// The numbers a, b and c of y = a + b x + c x² through three points.
fn parabola([(x1, y1), (x2, y2), (x3, y3)]: [(f64, f64); 3]) -> [f64; 3] {
    let first = (y2 - y1) / (x2 - x1);
    let c = ((y3 - y2) / (x3 - x2) - first) / (x3 - x1);
    let b = first - c * (x1 + x2);
    [y1 - b * x1 - c * x1 * x1, b, c]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::scaling::Spent;

    /// Rows that these costs would give are taken apart into the same costs.
    #[test]
    fn costs_are_found_in_rows_that_have_them() {
        let row = |gateways: u64, shards: u64| {
            let parts = 2 * shards / gateways;
            let idle = gateways * (5_000_000 + 100_000 * gateways + 1000 * parts);
            let others = (gateways - 1) as f64 / gateways as f64;
            Row {
                gateways: gateways as usize,
                shards,
                idle: Spent {
                    gateways: idle,
                    store: 7_000_000 + 100_000 * gateways,
                    stored: 3000 * gateways * gateways,
                    ..Spent::default()
                },
                flow: Spent { gateways: 9000, between: 120, memory: 300, ..Spent::default() },
                flows_per_s: 1e5,
                made: 1,
                packet: 2000.0 + 600.0 * others,
            }
        };
        let all = [(1, 12), (2, 12), (3, 12), (2, 240), (8, 64)];
        let model = Model::new(&all.map(|(gateways, shards)| row(gateways, shards)));
        let found = [model.own, model.each, model.shard, model.session, model.handed];
        let found = [&found[..], &model.store].concat();
        let expected = [5e-3, 1e-4, 1e-6, 9e-6, 6e-7, 7e-3, 1e-4];
        assert!((model.stored(64.0) - 3000.0 * 4096.0).abs() < 1e-3);
        // 7.8 ms/s for 192,000 octets/s.
        let [least, most] = model.store(64.0);
        assert!((least - 13.4e-3).abs() < 1e-9 && (most - 7.8e-3 * 64.0).abs() < 1e-9);
        for (found, expected) in found.iter().zip(expected) {
            assert!((found / expected - 1.0).abs() < 1e-6, "{found} {expected}");
        }
        // 64 gateways: 5 + 6.4 + 0.032 ms of each second, and 100 million sessions in half hours.
        let standing = 11.432e-3 + 100e6 / 64.0 / 1800.0 * 9e-6;
        assert!((model.standing(64.0) - standing).abs() < 1e-9);
        assert!((model.rate(64.0) - (1.0 - standing) / 9e-6 * 64.0).abs() < 1e-3);
    }
}
