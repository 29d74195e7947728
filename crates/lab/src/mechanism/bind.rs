//! BIND: a caching resolver that only forwards, with its clause `dns64`.

use std::path::Path;

use fordway_data::spec::Kind;
use serde_json::{Value, json};

use super::dns::{CACHE_MIB, Role};
use super::{Availability, Context, Deployed, Mechanism};
use crate::error::{LabError, Result};
use crate::process::{Output, run_str};

/// File of its counters, in its folder.
const STATISTICS: &str = "statistics";

/// The `named` program.
pub(super) struct Bind;

/// The key with which its counters are asked for, inside the lab's own namespace.
fn key() -> &'static str {
    "key \"lab\" { algorithm hmac-sha256; secret \"Zm9yZHdheS1sYWItbm8tc2VjcmV0\"; };\n"
}

/// The whole configuration. It does not validate, as the tester's zone is not signed.
fn config(role: &Role, folder: &Path) -> String {
    let folder = folder.display();
    let dns64 = role.prefix.map_or_else(String::new, |prefix| {
        format!("  dns64 {prefix} {{ clients {{ any; }}; }};\n")
    });
    format!(
        "{key}\
         controls {{ inet 127.0.0.1 port 953 allow {{ localhost; }} keys {{ \"lab\"; }}; }};\n\
         options {{\n\
         \x20 directory \"{folder}\";\n  pid-file \"{folder}/pid\";\n\
         \x20 session-keyfile \"{folder}/session.key\";\n  statistics-file \"{folder}/{STATISTICS}\";\n\
         \x20 listen-on {{ none; }};\n  listen-on-v6 port {port} {{ {listen}; }};\n\
         \x20 forwarders {{ {upstream}; }};\n  forward only;\n  recursion yes;\n\
         \x20 dnssec-validation no;\n  empty-zones-enable no;\n  minimal-responses yes;\n\
         \x20 allow-query {{ any; }};\n  allow-query-cache {{ any; }};\n  allow-recursion {{ any; }};\n\
         \x20 recursive-clients 100000;\n  clients-per-query 0;\n  max-cache-size {CACHE_MIB}M;\n\
         {dns64}}};\n\
         logging {{ category default {{ default_stderr; }}; category lame-servers {{ null; }}; }};\n",
        key = key(),
        port = role.port(),
        listen = role.listen,
        upstream = role.upstream,
    )
}

impl Mechanism for Bind {
    fn availability(&self, _kind: Kind) -> Availability {
        Availability::of_package("BIND", "bind9", &["named", "rndc"])
    }

    fn deploy(&self, context: Context<'_>) -> Result<Deployed> {
        let role = Role::of(context)?;
        let folder = super::run_dir(context);
        std::fs::create_dir_all(&folder).map_err(LabError::file(&folder))?;
        let config = config(&role, &folder);
        let name = |what: &str| format!("{}-{what}", context.name);
        let deploy = |what: &str, text: &str| context.backend.deploy(&name(what), text.as_bytes());
        let file = deploy("named.conf", &config)?.display().to_string();
        let rndc = format!(
            "{}options {{ default-key \"lab\"; default-server 127.0.0.1; default-port 953; }};\n",
            key()
        );
        let rndc = deploy("rndc.conf", &rndc)?.display().to_string();
        let threads = role.threads.to_string();
        let argv = role.command(&["named", "-f", "-n", &threads, "-U", &threads, "-c", &file]);
        let log = context.logs.join(name("bind.log"));
        let place = context.network.host.as_ref().ok_or_else(|| super::no_middle(context.spec))?;
        let daemon = context.backend.run(Some(place), &argv, Output::Log(&log))?;
        let ask = ["rndc", "-c", &rndc, "stats"].map(str::to_owned);
        Ok(Deployed {
            daemon: Some(daemon),
            config,
            argv,
            reader: context.backend.inside(place, &ask),
            run_dir: Some(folder),
            ..Deployed::default()
        })
    }

    fn counters(&self, deployed: &Deployed) -> Result<Option<Value>> {
        let argv: Vec<&str> = deployed.reader.iter().map(String::as_str).collect();
        let folder = deployed.run_dir.clone().unwrap_or_default();
        let file = folder.join(STATISTICS);
        // It appends, and would grow with each reading.
        let _ = std::fs::remove_file(&file);
        run_str(&argv)?.ok()?;
        let text = std::fs::read_to_string(&file).map_err(LabError::file(&file))?;
        let asked = parse(&text).ok_or_else(|| LabError::Parse {
            tool: "rndc stats",
            why: "no count of requests".into(),
        })?;
        Ok(Some(json!({ "queries": asked })))
    }

    fn asked(&self, before: &Value, after: &Value) -> Option<u64> {
        Some(after["queries"].as_u64()?.saturating_sub(before["queries"].as_u64()?))
    }
}

/// The count of requests with operation code QUERY; before the first one the section is empty.
fn parse(text: &str) -> Option<u64> {
    let section = text.split("++ Incoming Requests ++").nth(1)?;
    let section = section.split("++ ").next()?;
    let line = section.lines().find(|line| line.trim_end().ends_with(" QUERY"));
    Some(line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_from_their_section() {
        let text = "+++ Statistics Dump +++ (1)\n++ Incoming Requests ++\n               17 QUERY\n\
                    ++ Incoming Queries ++\n                 9 AAAA\n";
        assert_eq!(parse(text), Some(17));
        assert_eq!(parse("++ Incoming Requests ++\n++ Incoming Queries ++\n"), Some(0));
        assert_eq!(parse("nothing"), None);
        assert_eq!(Bind.asked(&json!({"queries": 3}), &json!({"queries": 10})), Some(7));
    }

    #[test]
    fn it_synthesises_only_where_that_is_its_part() {
        let role = |prefix| Role {
            listen: "2001:db8:f::1".parse().unwrap(),
            upstream: "198.51.100.2".parse().unwrap(),
            prefix,
            threads: 2,
            before: vec![],
        };
        let text = config(&role(Some("2001:db8:64::/96")), Path::new("/run/x"));
        assert!(text.contains("  dns64 2001:db8:64::/96 { clients { any; }; };\n};\n"), "{text}");
        assert!(!config(&role(None), Path::new("/run/x")).contains("dns64"));
    }
}
