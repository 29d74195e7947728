//! DSTM's server, and the tunnel end point that a server on another host tells: from the configuration to what they
//! are told.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fordway_config::{Config, DstmServer, DstmTep, DstmTepPlace, SoftwireEnd};
use fordway_control::{DstmServerStatus, DstmTepStatus, Stats, Status};
use fordway_counters::dstm::LeaseView;
use fordway_dstmd::protocol::{
    ClientId, ClientKey, Key, LinkSettings, PrefixKey, ServerSettings, Slot,
};
use fordway_dstmd::{Agent, AgentSettings, Error, Server, Settings, TepPlace};
use fordway_net::privilege::Capability;

use super::failure::{listen, whole};
use super::kinds::at_most_one;
use super::servers::{Group, Kind, Servers};
use super::{Inputs, Services};
use crate::apply::tunnels::Tunnels;
use crate::failure::Failure;
use crate::output::joined_or;

/// The server, and the tunnel end point that a server on another host tells.
#[derive(Default)]
pub(super) struct Dstm {
    server: Servers<Server>,
    tep: Servers<Agent>,
}

impl Dstm {
    pub(super) fn groups(&mut self) -> [&mut dyn Group; 2] {
        [&mut self.server, &mut self.tep]
    }

    /// What runs.
    pub(super) fn add_status(&self, status: &mut Status) {
        status.dstm_server = self.server.one().map(|(server, settings)| {
            let stats = server.stats();
            DstmServerStatus {
                listen: settings.listen.clone(),
                pool: settings.server.pool.clone(),
                ports_per_client: settings.server.ports,
                tep: settings.server.tep,
                tep_up: stats.tep_up,
                leases: stats.leases,
                free: stats.free,
            }
        });
        status.dstm_tep = self.tep.one().map(|(server, settings)| DstmTepStatus {
            listen: settings.listen,
            bindings: server.stats().bindings,
            max_bindings: settings.most as u64,
        });
    }

    /// What has been counted.
    pub(super) fn add_stats(&self, stats: &mut Stats) {
        stats.dstm_server = self.server.one().map(|(server, _)| server.stats());
        stats.dstm_tep = self.tep.one().map(|(server, _)| server.stats());
    }
}

impl Kind for Server {
    const KEEPS: &'static [Capability] = &[];

    fn wanted(inputs: &Inputs<'_>) -> Result<BTreeMap<String, Settings>, Failure> {
        Ok(at_most_one::<Server>(server(inputs.config, inputs.tunnels)?))
    }

    fn announcement(name: &str, settings: &Settings) -> Option<String> {
        let (listen, pool) =
            (joined_or(&settings.listen, "none"), joined_or(&settings.server.pool, "none"));
        Some(format!("{name}: listening on {listen}; lends {pool}"))
    }
}

impl Kind for Agent {
    const KEEPS: &'static [Capability] = &[];

    fn wanted(inputs: &Inputs<'_>) -> Result<BTreeMap<String, AgentSettings>, Failure> {
        Ok(at_most_one::<Agent>(tep(inputs.config, inputs.tunnels)?))
    }

    fn announcement(name: &str, settings: &AgentSettings) -> Option<String> {
        Some(format!("{name}: listening on {}", settings.listen))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let hint = match &error {
            Error::Listen { address, source } => {
                listen((*address).into(), source.kind(), "[dstm_server]", "ss -lnup")
            }
            Error::File { .. } => Some("write another path in state".to_owned()),
            _ => None,
        };
        Failure::with(format!("DSTM: {}", whole(&error)), hint)
    }
}

/// What the server is told; `None`: there is none.
fn server(config: &Config, tunnels: &Tunnels) -> Result<Option<Settings>, Failure> {
    let Some(server) = &config.dstm_server else { return Ok(None) };
    one(config, server, tunnels).map(Some).map_err(|failure| failure.prefix("[dstm_server]: "))
}

fn one(config: &Config, server: &DstmServer, tunnels: &Tunnels) -> Result<Settings, Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::failed(error.to_string());
    let clients = server.clients.iter().map(|client| {
        Ok(ClientKey {
            id: ClientId::new(&client.id).map_err(|error| wrong(&error))?,
            key: key(&client.key_file)?,
            slot: client.v4.map(|v4| Slot { v4, ports: None }),
        })
    });
    let prefixes = server.prefixes.iter().map(|prefix| {
        let most = prefix.max_leases as usize;
        Ok(PrefixKey { prefix: prefix.prefix, key: key(&prefix.key_file)?, most })
    });
    let (address, tep) = match &server.tep {
        DstmTepPlace::Here(name) => {
            let found = config.translators.iter().find(|it| it.name == *name);
            let end = found.and_then(|it| Some(&it.softwire()?.end));
            let Some(SoftwireEnd::Tep { local, .. }) = end else {
                return Err(Failure::failed(format!("the tunnel end point {name} is not there")));
            };
            (*local, TepPlace::Here(tunnels.of(name.as_str())))
        }
        DstmTepPlace::There { address, control, key_file } => {
            (*address, TepPlace::There(LinkSettings { tep: *control, key: key(key_file)? }))
        }
    };
    let seconds = |time: std::time::Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    Ok(Settings {
        listen: server.listen.clone(),
        server: ServerSettings {
            pool: server.pool.clone(),
            ports: server.ports_per_client,
            lifetime: seconds(server.lifetime),
            max_lifetime: seconds(server.max_lifetime),
            rest: seconds(server.rest),
            tep: address,
            clients: clients.collect::<Result<_, Failure>>()?,
            prefixes: prefixes.collect::<Result<_, Failure>>()?,
        },
        state: server.state.clone(),
        tep,
    })
}

/// What a tunnel end point is told that hears of a server on another host; `None`: there is none.
fn tep(config: &Config, tunnels: &Tunnels) -> Result<Option<AgentSettings>, Failure> {
    let Some(tep) = &config.dstm_tep else { return Ok(None) };
    let DstmTep { listen, tep, key_file, max_bindings } = tep;
    let key = key(key_file).map_err(|failure| failure.prefix("[dstm_tep]: "))?;
    let (bindings, most) = (tunnels.of(tep.as_str()), *max_bindings as usize);
    Ok(Some(AgentSettings { listen: *listen, key, bindings, most }))
}

/// Reads a key. Access to the file is access to the lease.
pub(crate) fn key(file: &Path) -> Result<Key, Failure> {
    let path = file.display();
    let text = fs::read_to_string(file).map_err(|error| {
        Failure::failed(format!("can't read the key in {path}: {error}")).hint(format!(
            "make one with: (umask 077; openssl rand -hex 32 > {path}), and give it to the other side"
        ))
    })?;
    Key::from_hex(&text).map_err(|error| Failure::failed(format!("{path}: {error}")))
}

impl Services {
    /// The DSTM server's leases, by address.
    pub(crate) fn leases(&self) -> Result<Vec<LeaseView>, Failure> {
        Ok(self.dstm_server()?.leases()?)
    }

    /// Ends a client's lease. Gives what was done, in words.
    pub(crate) fn revoke(&self, client: &str) -> Result<String, Failure> {
        match self.dstm_server()?.revoke(client)? {
            true => Ok(format!("{client} has no lease any more")),
            false => Err(Failure::failed(format!("{client} has no lease"))
                .hint("fordway leases shows who has one: name the client as it does")),
        }
    }

    fn dstm_server(&self) -> Result<&Server, Failure> {
        self.dstm.server.one().map(|(server, _)| server).ok_or_else(|| {
            Failure::failed("this daemon runs no DSTM server")
                .hint("its configuration file has no [dstm_server]")
        })
    }
}
