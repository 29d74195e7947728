//! A configuration as TOML, every key written out.

use std::fmt;

use toml::Table;

use crate::keys::{self, Written};
use crate::types::Config;

/// Displays as a configuration file that parses to the same configuration.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&toml::to_string(&self.written()).map_err(|_| fmt::Error)?)
    }
}

impl Config {
    /// What it displays as, as a table; [`value_of`](crate::value_of) finds values in it.
    #[must_use]
    pub fn to_toml(&self) -> Table {
        // What has been written is a table of values that TOML has.
        Table::try_from(self.written()).unwrap_or_default()
    }

    fn written(&self) -> Written {
        let with_mode = |mode: &str, written: Written| written.with("mode", mode.into(), 1);
        let mut file = Written::default();
        let translators = self.translators.iter().map(keys::write);
        let nat44 = self.nat44.iter().map(|it| with_mode("nat44", keys::write(it)));
        let dual_stack = self.dual_stack.iter().map(|it| with_mode("dual-stack", keys::write(it)));
        file.tables("translator", translators.chain(nat44).chain(dual_stack));
        file.table_of("dns64", self.dns64.as_ref());
        file.tables("advertise", self.advertise.iter().map(keys::write));
        file.tables("trt", self.trt.iter().map(keys::write));
        file.tables("proxy", self.proxies.iter().map(keys::write));
        file.table_of("dstm_server", self.dstm_server.as_ref());
        file.table_of("dstm_tep", self.dstm_tep.as_ref());
        file.tables("dstm_client", self.dstm_clients.iter().map(keys::write));
        file.table_of("cluster", self.cluster.as_ref());
        file.table("control", keys::write(&self.control));
        file.table("metrics", keys::write(&self.metrics));
        file.table("log", keys::write(&self.log));
        file
    }
}
