//! Which servers are asked for which names: of the domains that have servers of their own, the longest that a name is in.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::quality::RandomState;
use fordway_dns64::Question;
use hickory_proto::op::Message;
use hickory_proto::rr::rdata::CNAME;
use hickory_proto::rr::{Name, RData, Record, RecordType};

use super::error::Error;
use super::key::{self, KeyBuf, question};
use super::peer::Peer;
use super::race::Racers;
use super::settings::{Server, Settings};

/// The servers of all names.
#[derive(Debug)]
pub(super) struct Routes {
    /// Each server once, in the order of the settings.
    peers: Vec<Arc<Peer>>,
    /// The first is that of names in no domain.
    routes: Vec<Route>,
    /// Domains in lower case, as on the wire.
    by_domain: HashMap<Vec<u8>, usize, RandomState>,
}

/// The servers of some names.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) racers: Racers,
    /// Whether answers are validated here, if any are.
    validates: bool,
}

/// An alias that leads to a name of other servers.
#[derive(Debug)]
pub(super) struct Crossing {
    /// How many records of the answer section lead there.
    pub(super) kept: usize,
    pub(super) target: Name,
}

impl Routes {
    pub(super) fn new(settings: &Settings) -> Result<Self, Error> {
        let of_domains = settings.domains.iter().map(|it| (&it.servers, it.validate));
        let all = [(&settings.servers, true)].into_iter().chain(of_domains);
        let mut seen = HashSet::new();
        let servers = all.clone().flat_map(|(servers, _)| servers);
        let servers: Vec<_> = servers.filter(|server| seen.insert(*server)).collect();
        let peers = Peer::all(&servers, settings)?;
        let mut routes = Vec::new();
        for (own, validates) in all {
            let find =
                |server: &Server| peers.iter().find(|peer| peer.server == *server).map(Arc::clone);
            let own: Vec<_> = own.iter().filter_map(find).collect();
            if own.is_empty() {
                return Err(Error::NoServers);
            }
            routes.push(Route { racers: Racers::new(own, settings), validates });
        }
        let mut by_domain = HashMap::default();
        for (index, domain) in settings.domains.iter().enumerate() {
            for name in &domain.names {
                let key = KeyBuf::new(&question(name.clone(), RecordType::NS), false);
                // A name of the library always has one.
                let key = key.as_ref().map(|key| key::name(key.as_octets()).to_vec());
                by_domain.extend(key.map(|key| (key, index + 1)));
            }
        }
        Ok(Self { peers, routes, by_domain })
    }

    pub(super) fn peers(&self) -> &[Arc<Peer>] {
        &self.peers
    }

    /// The servers of a question.
    pub(super) fn of(&self, key: &[u8]) -> &Route {
        &self.routes[self.index(key)]
    }

    /// Whether answers to a question are validated here, if any are.
    pub(super) fn validates(&self, question: &Question) -> bool {
        let key = || KeyBuf::new(question, false);
        self.by_domain.is_empty() || key().is_none_or(|key| self.of(key.as_octets()).validates)
    }

    /// The first alias of an answer that leads to a name of other servers than those that gave it: they know that name
    /// better. They gave the answer section from `begin` on, where the chain is at the name of `asked`.
    pub(super) fn crossing(
        &self,
        key: &[u8],
        asked: &Question,
        answer: &Message,
        begin: usize,
    ) -> Option<Crossing> {
        let follows = ![RecordType::CNAME, RecordType::ANY].contains(&asked.record_type);
        if self.by_domain.is_empty() || !follows {
            return None;
        }
        let here = self.index(key);
        let mut name = asked.name.clone();
        for (place, record) in answer.answers.iter().enumerate().skip(begin) {
            let RData::CNAME(CNAME(target)) = &record.data else { continue };
            if record.name != name {
                continue;
            }
            name.clone_from(target);
            let key = KeyBuf::new(&Question { name: target.clone(), ..asked.clone() }, false)?;
            if self.index(key.as_octets()) != here {
                // The signatures of an alias follow it.
                let mut kept = place + 1;
                let is_its = |record: &&Record| record.record_type() == RecordType::RRSIG;
                kept += answer.answers[kept..].iter().take_while(is_its).count();
                return Some(Crossing { kept, target: target.clone() });
            }
        }
        None
    }

    fn index(&self, key: &[u8]) -> usize {
        if self.by_domain.is_empty() {
            return 0;
        }
        let mut name = key::name(key);
        // The DS record of a zone is its parent's (RFC 4035 section 3.1.4.1).
        if key::type_and_class(key)[..2] == u16::from(RecordType::DS).to_be_bytes() {
            name = key::parent(name).unwrap_or(name);
        }
        let mut next = Some(name);
        while let Some(name) = next {
            if let Some(index) = self.by_domain.get(name) {
                return *index;
            }
            next = key::parent(name);
        }
        0
    }
}
