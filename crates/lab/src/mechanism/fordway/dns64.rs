//! What is particular to the gateway as a DNS64 server: its configuration, and its own count of questions.

use fordway_data::addresses::NAT64_POOL6;
use serde_json::Value;

use crate::mechanism::dns::{CACHE_MIB, Role};

/// The whole configuration file. All questions come from one client: its rate is not limited.
pub(super) fn config(role: &Role) -> String {
    let mut text = format!(
        "[dns64]\n\
         listen = [\"[{}]:{}\"]\n\
         upstream = [\"{}\"]\n\
         threads = {}\n\
         pool6 = [\"{}\"]\n\
         allow = [\"::/0\"]\n\
         cache = \"{CACHE_MIB}MiB\"\n\
         rate = \"unlimited\"\n",
        role.listen,
        role.port(),
        role.upstream,
        role.threads,
        role.prefix.unwrap_or(NAT64_POOL6),
    );
    if role.prefix.is_none() {
        text.push_str("[[dns64.policy]]\nclient = [\"::/0\"]\nenable = false\n");
    }
    text
}

/// Questions so far, by its own account.
pub(super) fn asked(stats: &Value) -> Option<u64> {
    let of = |what: &str| stats.pointer(&format!("/dns64/{what}")).and_then(Value::as_u64);
    Some(of("udp_queries")? + of("tcp_queries").unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_synthesises_only_where_that_is_its_part() {
        let role = |prefix| Role {
            listen: "2001:db8:f::1".parse().unwrap(),
            upstream: "198.51.100.2".parse().unwrap(),
            prefix,
            threads: 2,
            before: vec![],
        };
        let text = config(&role(Some("2001:db8:64::/96")));
        assert!(text.contains("listen = [\"[2001:db8:f::1]:53\"]\n") && !text.contains("policy"));
        assert!(config(&role(None)).contains("enable = false"));
    }

    #[test]
    fn questions_by_both_transports_count() {
        let stats = serde_json::json!({"dns64": {"udp_queries": 5, "tcp_queries": 2}});
        assert_eq!(asked(&stats), Some(7));
        assert_eq!(asked(&serde_json::json!({"translators": []})), None);
    }
}
