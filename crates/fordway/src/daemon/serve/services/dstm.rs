//! DSTM's server, and the tunnel end point that a server on another host tells: from the configuration to what they
//! are told.

use std::fs;
use std::path::Path;

use fordway_config::{Config, DstmServer, DstmTep, DstmTepPlace, SoftwireEnd};
use fordway_dstmd::protocol::{
    ClientId, ClientKey, Key, LinkSettings, PrefixKey, ServerSettings, Slot,
};
use fordway_dstmd::{
    Agent, AgentSettings, AgentStats, Bound, BoundAgent, LeaseView, Server, Settings, Stats,
    TepPlace,
};

use super::Services;
use super::slot::Service;
use crate::daemon::apply::tunnels::Tunnels;
use crate::failure::Failure;
use fordway_control::{DstmServerStatus, DstmTepStatus};

/// What the server is told; `None`: there is none.
pub(super) fn server(config: &Config, tunnels: &Tunnels) -> Result<Option<Settings>, Failure> {
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
pub(super) fn tep(config: &Config, tunnels: &Tunnels) -> Result<Option<AgentSettings>, Failure> {
    let Some(tep) = &config.dstm_tep else { return Ok(None) };
    let DstmTep { listen, tep, key_file, max_bindings } = tep;
    let key = key(key_file).map_err(|failure| failure.prefix("[dstm_tep]: "))?;
    let (bindings, most) = (tunnels.of(tep.as_str()), *max_bindings as usize);
    Ok(Some(AgentSettings { listen: *listen, key, bindings, most }))
}

/// Reads a key. Whoever may read its file may speak for its owner.
pub(crate) fn key(file: &Path) -> Result<Key, Failure> {
    let path = file.display();
    let text = fs::read_to_string(file).map_err(|error| {
        Failure::failed(format!("can't read the key in {path}: {error}")).hint(format!(
            "make one with: (umask 077; openssl rand -hex 32 > {path}), and give it to the other side"
        ))
    })?;
    Key::from_hex(&text).map_err(|error| Failure::failed(format!("{path}: {error}")))
}

impl Service for Server {
    const NAME: &'static str = "dstm-server";
    type Settings = Settings;
    type Bound = Bound;

    fn bind(settings: &Settings) -> Result<Bound, Failure> {
        Ok(Bound::bind(settings.clone())?)
    }

    fn start(bound: Bound) -> Result<Server, Failure> {
        Ok(bound.start()?)
    }

    fn can_change(from: &Settings, to: &Settings) -> bool {
        Server::can_change(from, to)
    }

    fn replace(&self, settings: &Settings) -> Result<(), Failure> {
        Ok(Server::replace(self, settings.clone())?)
    }

    fn is_whole(&self) -> bool {
        Server::is_whole(self)
    }

    fn stop(self) {
        Server::stop(self);
    }

    fn leave(self) {
        Server::stop(self);
    }
}

impl Service for Agent {
    const NAME: &'static str = "dstm-tep";
    type Settings = AgentSettings;
    type Bound = BoundAgent;

    fn bind(settings: &AgentSettings) -> Result<BoundAgent, Failure> {
        Ok(BoundAgent::bind(settings.clone())?)
    }

    fn start(bound: BoundAgent) -> Result<Agent, Failure> {
        Ok(bound.start()?)
    }

    fn can_change(from: &AgentSettings, to: &AgentSettings) -> bool {
        from.listen == to.listen && from.most == to.most && from.key == to.key
    }

    fn replace(&self, _: &AgentSettings) -> Result<(), Failure> {
        Ok(())
    }

    fn is_whole(&self) -> bool {
        Agent::is_whole(self)
    }

    fn stop(self) {
        Agent::stop(self);
    }

    fn leave(self) {
        Agent::stop(self);
    }
}

impl Services {
    /// The DSTM server, if one runs.
    pub(crate) fn dstm_server_status(&self) -> Option<DstmServerStatus> {
        let (settings, stats) = (self.dstm_server.settings()?, self.dstm_server_stats()?);
        Some(DstmServerStatus {
            listen: settings.listen.clone(),
            pool: settings.server.pool.clone(),
            ports_per_client: settings.server.ports,
            tep: settings.server.tep,
            tep_up: stats.tep_up,
            leases: stats.leases,
            free: stats.free,
        })
    }

    /// The tunnel end point that a server on another host tells, if there is one.
    pub(crate) fn dstm_tep_status(&self) -> Option<DstmTepStatus> {
        let (settings, stats) = (self.dstm_tep.settings()?, self.dstm_tep_stats()?);
        let (bindings, max_bindings) = (stats.bindings, settings.most as u64);
        Some(DstmTepStatus { listen: settings.listen, bindings, max_bindings })
    }

    /// What the DSTM server has counted.
    pub(crate) fn dstm_server_stats(&self) -> Option<Stats> {
        self.dstm_server.server().map(Server::stats)
    }

    /// What the tunnel end point has heard of its server.
    pub(crate) fn dstm_tep_stats(&self) -> Option<AgentStats> {
        self.dstm_tep.server().map(Agent::stats)
    }

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
        self.dstm_server.server().ok_or_else(|| {
            Failure::failed("this daemon runs no DSTM server")
                .hint("its configuration file has no [dstm_server]")
        })
    }
}
