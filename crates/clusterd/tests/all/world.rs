//! Gateways and servers of one test, each gateway on a host of its own:
//!
//! ```text
//! gateway N ── host N ════ bridge in the middle, with the servers
//! ```

use std::io::{BufRead, BufReader, Write};
use std::net::Ipv6Addr;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use fordway_serve::boottime;
use fordway_testhost::certificates::Authority;
use fordway_testhost::namespace::Namespace;
use fordway_testhost::{poll_or, wait};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::gateway::GATEWAY;
use crate::ledger;
use crate::nats::Nats;

/// The address of the servers.
pub(crate) const MIDDLE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xc, 0, 0, 0, 1, 0);

/// The address of a gateway.
pub(crate) fn address(number: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xc, 0, 0, 0, 2, number)
}

/// A gateway's process.
struct Process {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

/// Servers, and gateways with numbers from 0.
pub(crate) struct World {
    folder: tempfile::TempDir,
    pub(crate) middle: Arc<Namespace>,
    pub(crate) hosts: Vec<Namespace>,
    pub(crate) nats: Nats,
    gateways: Vec<Option<Process>>,
    pub(crate) authority: Authority,
    shards: u16,
    /// Variables of each gateway's environment.
    pub(crate) environment: Vec<(String, String)>,
    /// What gateways are told of the store: see [`crate::gateway::be`]; `servers` instead of the servers' own URLs.
    store: Value,
}

impl World {
    /// So many servers of the store, gateways and shards.
    pub(crate) fn new(servers: u16, gateways: u16, shards: u16) -> Self {
        Self::with([servers, gateways, shards], |_, _| (String::new(), Value::Null))
    }

    /// The same, with more for the servers' files, and what gateways are told of the store, made in the folder with the authority.
    pub(crate) fn with(
        [servers, gateways, shards]: [u16; 3],
        more: impl FnOnce(&Path, &Authority) -> (String, Value),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path(), "ca");
        let (more, store) = more(folder.path(), &authority);
        let middle = Arc::new(Namespace::create());
        middle.ip("link add bridge type bridge");
        middle.ip("link set bridge up");
        let host = |number: u16| {
            let host = Namespace::create();
            middle
                .ip(&format!("link add gw{number} type veth peer name uplink netns {}", host.path));
            middle.ip(&format!("link set gw{number} up master bridge"));
            host.ip("link set dev uplink up");
            host.add_address(&format!("{}/64", address(number)), "uplink");
            host
        };
        let hosts = (0..gateways).map(host).collect();
        middle.add_address(&format!("{MIDDLE}/64"), "bridge");
        let nats = Nats::start(&middle, folder.path(), servers, &more);
        let mut world = Self {
            folder,
            middle,
            hosts,
            nats,
            gateways: Vec::new(),
            authority,
            environment: Vec::new(),
            shards,
            store,
        };
        world.gateways.resize_with(gateways.into(), || None);
        for number in 0..gateways {
            let name = format!("gw{number}.example");
            world.authority.write(world.folder.path(), &format!("gw{number}"), &[&name]);
        }
        (0..gateways.into()).for_each(|number| world.start(number));
        world
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts a gateway.
    pub(crate) fn start(&mut self, number: usize) {
        self.start_with(number, 4711);
    }

    /// The same, whose configuration has this hash.
    pub(crate) fn start_with(&mut self, number: usize, config: u64) {
        let file = |name: String| self.folder.path().join(name).display().to_string();
        let given = json!({
            "me": number,
            "gateways": self.gateways.len(),
            "shards": self.shards,
            "config": config,
            "servers": match &self.store["servers"] {
                Value::Null => json!(self.nats.urls()),
                others => others.clone(),
            },
            "store": self.store,
            "ledger": file(format!("{number}.ledger")),
            "ca": self.authority.certificate.display().to_string(),
            "certificate": file(format!("gw{number}.pem")),
            "key": file(format!("gw{number}.key")),
        });
        let environment = self.environment.clone();
        let mut child = self.hosts[number].run(move || {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "strangers::strangers_are_refused_and_counted", "--nocapture"])
                .env(GATEWAY, given.to_string())
                .envs(environment)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        });
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        self.gateways[number] = Some(Process { child, stdin, stdout });
    }

    /// Kills a gateway's process; when, in ns of CLOCK_BOOTTIME.
    pub(crate) fn kill(&mut self, number: usize) -> u64 {
        let at = boottime::now().as_nanos() as u64;
        if let Some(mut process) = self.gateways[number].take() {
            process.child.kill().unwrap();
            wait(&mut process.child, "a gateway that was killed");
        }
        at
    }

    /// The longest time for which a shard that a gateway owned at a time was translated by nobody then, in ms: from that time on, as
    /// if the gateway's data path had ended with it.
    pub(crate) fn outage(&self, gateway: u16, at: u64) -> f64 {
        let all = ledger::read(self.folder.path(), self.gateways.len() as u16);
        let of = |spans: &Vec<ledger::Span>| {
            let own = spans.iter().any(|s| s.gateway == gateway && s.from <= at && at < s.to);
            let next = spans.iter().find(|s| s.gateway != gateway && s.from > at).filter(|_| own);
            next.map_or(0, |next| next.from - at)
        };
        all.values().map(of).max().unwrap_or(0) as f64 / 1e6
    }

    /// Sends a gateway's process a signal.
    pub(crate) fn signal(&self, number: usize, signal: Signal) {
        let process = self.gateways[number].as_ref().expect("it runs");
        kill(Pid::from_raw(process.child.id() as i32), signal).unwrap();
    }

    /// From now on a gateway's host takes nothing from these addresses any more.
    pub(crate) fn deafen(&self, number: usize, to: &[Ipv6Addr]) {
        let host = &self.hosts[number];
        host.output("nft", "add table inet cut");
        host.output("nft", "add chain inet cut in { type filter hook input priority 0; }");
        for address in to {
            host.output("nft", &format!("add rule inet cut in ip6 saddr {address} drop"));
        }
    }

    /// The host takes everything again.
    pub(crate) fn mend(&self, number: usize) {
        self.hosts[number].output("nft", "flush ruleset");
    }

    /// Gives a gateway a command; how it stands then.
    pub(crate) fn tell(&mut self, number: usize, command: &str) -> Value {
        let process = self.gateways[number].as_mut().expect("it runs");
        writeln!(process.stdin, "{command}").unwrap();
        let mut line = String::new();
        loop {
            line.clear();
            let read = process.stdout.read_line(&mut line).unwrap();
            assert!(read > 0, "gateway {number} has ended");
            // The test harness says something, too.
            if let Some(at) = line.find('{') {
                return serde_json::from_str(&line[at..]).unwrap();
            }
        }
    }

    /// How all that run stand.
    pub(crate) fn all(&mut self) -> Vec<(usize, Value)> {
        let run: Vec<usize> =
            (0..self.gateways.len()).filter(|n| self.gateways[*n].is_some()).collect();
        run.into_iter().map(|number| (number, self.tell(number, "status"))).collect()
    }

    /// Waits until what all gateways say fulfils something.
    pub(crate) fn until(
        &mut self,
        what: &str,
        is: impl Fn(&[(usize, Value)]) -> bool,
    ) -> Vec<(usize, Value)> {
        let last = std::cell::RefCell::new(Vec::new());
        poll_or(
            || {
                let all = self.all();
                let found = is(&all).then(|| all.clone());
                last.replace(all);
                found
            },
            || {
                let lines =
                    last.borrow().iter().map(|one| format!("\n{one:?}")).collect::<String>();
                format!("{what}{lines}")
            },
        )
    }

    /// Waits until these gateways own all shards, and each has a standby that has everything.
    pub(crate) fn settled(&mut self, owners: &[usize]) -> Vec<(usize, Value)> {
        let shards = usize::from(self.shards);
        let owners = owners.to_vec();
        self.until(&format!("{owners:?} own all shards, with standbys"), |all| {
            let of = |key: &str| {
                all.iter().map(|(_, one)| one[key].as_array().map_or(0, Vec::len)).sum::<usize>()
            };
            let alien = all.iter().any(|(number, one)| {
                !owners.contains(number)
                    && one["owned"].as_array().is_some_and(|own| !own.is_empty())
            });
            let lag: u64 = all.iter().filter_map(|(_, one)| one["lag"].as_u64()).sum();
            let covered = owners.len() < 2 || of("covered") == shards && of("ready") >= shards;
            // Who has no peers yet when he dies is not fenced.
            let known = owners.iter().all(|owner| {
                let one = all.iter().find(|(number, _)| number == owner);
                one.is_some_and(|(_, one)| {
                    one["peers"].as_u64() >= Some(owners.len() as u64 - 1)
                        && one["owned"].as_array().is_some_and(|own| !own.is_empty())
                })
            });
            of("owned") == shards && !alien && lag == 0 && covered && known
        })
    }

    /// Asserts what must hold at the end; the longest time without an owner in ms.
    pub(crate) fn check(&self) -> f64 {
        let spans = ledger::read(self.folder.path(), self.gateways.len() as u16);
        assert_eq!(spans.len(), usize::from(self.shards), "every shard was owned");
        ledger::check(&spans);
        ledger::longest_gap(&spans)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for number in 0..self.gateways.len() {
            self.kill(number);
        }
    }
}

/// Records of the shards that a gateway owns, by shard.
pub(crate) fn owned(all: &[(usize, Value)]) -> std::collections::BTreeMap<u64, Value> {
    let of = |one: &Value| {
        let own: Vec<u64> =
            one["owned"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
        own.into_iter()
            .map(|shard| (shard, one["contents"][shard.to_string()].clone()))
            .collect::<Vec<_>>()
    };
    all.iter().flat_map(|(_, one)| of(one)).collect()
}
