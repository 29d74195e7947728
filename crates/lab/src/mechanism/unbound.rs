//! Unbound: a caching resolver that forwards, with its module `dns64`.

use std::path::Path;

use fordway_data::spec::Kind;
use serde_json::{Map, Value};

use super::dns::{CACHE_MIB, Role};
use super::{Availability, Context, Deployed, Mechanism};
use crate::error::{LabError, Result};
use crate::process::{Output, run_str};

/// What the counters tell.
const COUNTED: &[&str] = &["total.num.queries", "total.num.cachehits", "total.num.cachemiss"];

/// The `unbound` program.
pub(super) struct Unbound;

/// The whole configuration. Buffers and slabs are those that its own page on performance asks for; it does
/// not validate, as the tester's zone is not signed.
fn config(role: &Role, folder: &Path) -> String {
    let folder = folder.display();
    let (modules, prefix) = match role.prefix {
        Some(prefix) => ("dns64 iterator", format!("  dns64-prefix: {prefix}\n")),
        None => ("iterator", String::new()),
    };
    let slabs = role.threads.next_power_of_two();
    let mut text = format!(
        "server:\n\
         \x20 chroot: \"\"\n  username: \"\"\n  directory: \"{folder}\"\n  pidfile: \"{folder}/pid\"\n\
         \x20 do-daemonize: no\n  use-syslog: no\n  logfile: \"\"\n  verbosity: 1\n\
         \x20 interface: {listen}\n  port: {port}\n  access-control: ::/0 allow\n\
         \x20 num-threads: {threads}\n  so-reuseport: yes\n  so-rcvbuf: 4m\n  so-sndbuf: 4m\n\
         \x20 msg-cache-size: {cache}m\n  rrset-cache-size: {twice}m\n\
         \x20 msg-cache-slabs: {slabs}\n  rrset-cache-slabs: {slabs}\n\
         \x20 infra-cache-slabs: {slabs}\n  key-cache-slabs: {slabs}\n\
         \x20 module-config: \"{modules}\"\n{prefix}\
         \x20 local-zone: \"8.b.d.0.1.0.0.2.ip6.arpa.\" nodefault\n",
        listen = role.listen,
        port = role.port(),
        threads = role.threads,
        // Its manual wants twice as much for records as for messages.
        cache = CACHE_MIB / 3,
        twice = 2 * CACHE_MIB / 3,
    );
    text.push_str(&format!(
        "remote-control:\n  control-enable: yes\n  control-use-cert: no\n\
         \x20 control-interface: \"{folder}/control\"\n\
         forward-zone:\n  name: \".\"\n  forward-addr: {}\n",
        role.upstream
    ));
    text
}

impl Mechanism for Unbound {
    fn availability(&self, _kind: Kind) -> Availability {
        Availability::of_package("Unbound", "unbound", &["unbound", "unbound-control"])
    }

    fn deploy(&self, context: Context<'_>) -> Result<Deployed> {
        let role = Role::of(context)?;
        let folder = super::run_dir(context);
        std::fs::create_dir_all(&folder).map_err(LabError::file(&folder))?;
        let config = config(&role, &folder);
        let file =
            context.backend.deploy(&format!("{}-unbound.conf", context.name), config.as_bytes())?;
        let file = file.display().to_string();
        let argv = role.command(&["unbound", "-d", "-c", &file]);
        let log = context.logs.join(format!("{}-unbound.log", context.name));
        let place = context.network.host.as_ref().ok_or_else(|| super::no_middle(context.spec))?;
        let daemon = context.backend.run(Some(place), &argv, Output::Log(&log))?;
        let reader = ["unbound-control", "-c", &file, "stats_noreset"].map(str::to_owned).into();
        Ok(Deployed {
            daemon: Some(daemon),
            config,
            argv,
            reader,
            run_dir: Some(folder),
            ..Deployed::default()
        })
    }

    fn counters(&self, deployed: &Deployed) -> Result<Option<Value>> {
        let argv: Vec<&str> = deployed.reader.iter().map(String::as_str).collect();
        let said = run_str(&argv)?.ok()?.stdout;
        let counters = parse(&said);
        // What is not there could not disagree.
        asked(&counters).ok_or_else(|| LabError::Parse {
            tool: "unbound-control stats_noreset",
            why: "no total.num.queries".into(),
        })?;
        Ok(Some(counters))
    }

    fn asked(&self, before: &Value, after: &Value) -> Option<u64> {
        Some(asked(after)?.saturating_sub(asked(before)?))
    }
}

fn asked(counters: &Value) -> Option<u64> {
    counters[COUNTED[0]].as_u64()
}

/// Lines of `name=value`.
fn parse(text: &str) -> Value {
    let wanted = |line: &str| {
        let (name, value) = line.split_once('=')?;
        let number = value.trim().parse::<u64>().ok().filter(|_| COUNTED.contains(&name))?;
        Some((name.to_owned(), Value::from(number)))
    };
    Value::Object(text.lines().filter_map(wanted).collect::<Map<String, Value>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_the_difference_of_two_readings() {
        let told =
            |n| parse(&format!("thread0.num.queries=1\ntotal.num.queries={n}\ntime.up=1.5\n"));
        assert_eq!(Unbound.asked(&told(3), &told(10)), Some(7));
        assert_eq!(Unbound.asked(&parse(""), &told(10)), None);
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
        assert!(
            text.contains("module-config: \"dns64 iterator\"\n  dns64-prefix: 2001:db8:64::/96\n")
        );
        assert!(text.contains("num-threads: 2\n") && text.contains("forward-addr: 198.51.100.2\n"));
        assert!(!config(&role(None), Path::new("/run/x")).contains("dns64"));
    }
}
