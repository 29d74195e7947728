//! Servers of NATS with JetStream at the router's address.

use std::net::{Ipv6Addr, TcpStream};
use std::path::PathBuf;
use std::process::Stdio;

use fordway_testhost::nats::{PORT, configure, request};
use fordway_testhost::poll;
use serde_json::Value;

use crate::common::daemon::RunDir;
use crate::common::netns::Netns;
use crate::common::process::Process;

/// The router's address.
const ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xc, 0, 0, 0, 0, 0x100);

/// Servers that are one cluster, or one alone.
pub(super) struct Store {
    files: Vec<PathBuf>,
    servers: Vec<Option<Process>>,
}

impl Store {
    /// Starts so many.
    pub(super) fn start(router: &Netns, folder: &RunDir, number: u16) -> Store {
        let files = configure(folder.path(), ADDRESS, number, "");
        let mut store = Store { servers: files.iter().map(|_| None).collect(), files };
        (0..number.into()).for_each(|n| store.start_one(router, n));
        store
    }

    /// Starts one that does not run, with what it has stored.
    pub(super) fn start_one(&mut self, router: &Netns, n: usize) {
        let mut command = router.command("nats-server");
        command.arg("-c").arg(&self.files[n]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = Process::start(&mut command);
        let port = PORT + n as u16;
        poll("the store listens", || {
            assert!(server.0.try_wait().unwrap().is_none(), "the store has ended");
            router.inside(|| TcpStream::connect((ADDRESS, port))).ok()
        });
        self.servers[n] = Some(server);
    }

    /// The processes of those that run.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.servers.iter().flatten().map(|server| server.0.id()).collect()
    }

    /// Kills one.
    pub(super) fn kill(&mut self, n: usize) {
        self.servers[n] = None;
    }

    /// Which one leads the others as far as the gateways' values are concerned.
    pub(super) fn leader(&self, router: &Netns) -> usize {
        poll("the store has a leader", || {
            let any = router.inside(|| TcpStream::connect((ADDRESS, PORT)));
            let said = request(any.unwrap(), "$JS.API.STREAM.INFO.KV_fordway", "");
            let said: Value = serde_json::from_str(&said).unwrap();
            said.pointer("/cluster/leader")?.as_str()?.trim_start_matches("nats").parse().ok()
        })
    }

    /// What gateways are told of them.
    pub(super) fn configuration(&self) -> String {
        let url = |n| format!("'nats://[{ADDRESS}]:{}'", PORT + n);
        let number = self.files.len() as u16;
        let urls: Vec<_> = (0..number).map(url).collect();
        format!("[cluster.store]\nservers = [{}]\nreplicas = {number}\n", urls.join(", "))
    }
}
