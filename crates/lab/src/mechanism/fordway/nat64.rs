//! What is particular to the stateful gateway: its configuration, which gives the tables a size, and what
//! it says about them.

use std::path::Path;

use serde_json::Value;

use crate::process::run_str;
use crate::spec::MechanismSpec;
use crate::topology::{NAT64_POOL6, POOL4};

/// Whether the gateway's program has stateful NAT64.
pub(super) fn known(program: &Path) -> bool {
    let program = program.display().to_string();
    run_str(&[&program, "nat64", "--help"]).is_ok_and(|out| out.status.success())
}

/// The configuration file of an arm whose tables have room for so many sessions.
pub(super) fn config(spec: &MechanismSpec, sessions: u32) -> String {
    let engine = spec.engine.as_deref().unwrap_or("auto");
    let attach = spec.attach.as_deref().unwrap_or("interface");
    // Directories of the tables are as large as the next power of two: tables of that size waste nothing.
    let room = sessions.max(1 << 18).next_power_of_two();
    format!(
        "[[translator]]\n\
         name = \"nat64\"\n\
         mode = \"nat64\"\n\
         engine = \"{engine}\"\n\
         attach = \"{attach}\"\n\
         pool6 = [\"{NAT64_POOL6}\"]\n\
         pool4 = [\"{POOL4}:1024-65535\"]\n\
         max_sessions = {room}\n"
    )
}

/// Sessions that the first translator has made so far.
pub(super) fn created(stats: &Value) -> Option<u64> {
    stats.pointer("/translators/0/nat64/created")?.as_u64()
}

/// Sessions that its tables have room for.
pub(super) fn capacity(stats: &Value) -> Option<u64> {
    stats.pointer("/translators/0/nat64/sessions/capacity")?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Experiment;

    #[test]
    fn the_file_has_the_arms_engine_and_room_for_its_sessions() {
        let experiment = Experiment::find("nat64").unwrap();
        let arm = experiment.mechanism("nat64-fordway-interface").unwrap();
        let text = config(arm, 1_000_000);
        let file: toml::Table = text.parse().unwrap();
        let translator = &file["translator"][0];
        assert_eq!(translator["engine"].as_str(), Some("kernel"));
        assert_eq!(translator["max_sessions"].as_integer(), Some(1 << 20));
        assert_eq!(translator["pool4"][0].as_str(), Some("203.0.113.64/26:1024-65535"));
        assert!(config(arm, 10).contains("max_sessions = 262144\n"));
    }

    #[test]
    fn a_gateway_that_says_nothing_of_sessions_is_believed_nothing() {
        let said = serde_json::json!({"translators": [{"nat64": {
            "created": 7, "sessions": {"used": 5, "capacity": 100}}}]});
        assert_eq!((created(&said), capacity(&said)), (Some(7), Some(100)));
        let silent = serde_json::json!({"translators": [{}]});
        assert_eq!((created(&silent), capacity(&silent)), (None, None));
    }
}
