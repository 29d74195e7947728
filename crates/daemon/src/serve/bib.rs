//! What clients ask of stateful translators.

use std::net::{Ipv4Addr, SocketAddrV4, SocketAddrV6};
use std::sync::Arc;

use fordway_control::Change;
use fordway_xlat::nat64::{Protocol, StaticBib};
use tracing::{info, warn};

use super::handle::Handle;
use crate::apply::kernel::{self, Tuning};
use crate::apply::running::Running;
use crate::failure::Failure;
use crate::tables::{Reader, bib_error, bib_hint, written};
use fordway_engine::monotonic;

impl Handle {
    /// The tables of a translator, or of all that have any.
    pub(crate) fn readers(&self, name: Option<&str>) -> Result<Vec<Reader>, Failure> {
        let reader = |one: &mut Running| {
            let nat64 = Arc::clone(one.engine.core().tables()?);
            Some(Reader { name: one.name().to_owned(), nat64 })
        };
        match name {
            None => Ok(self.with_all(reader)),
            Some(name) => match self.with(name, reader) {
                Some(Some(reader)) => Ok(vec![reader]),
                Some(None) => Err(stateless(name)),
                None => Err(self.unknown(name)),
            },
        }
    }

    /// Makes a BIB entry.
    pub(crate) fn bib_add(
        &self,
        name: Option<&str>,
        protocol: &str,
        v4: SocketAddrV4,
        v6: SocketAddrV6,
    ) -> Result<String, Failure> {
        let (v4, v6) = ((*v4.ip(), v4.port()), (*v6.ip(), v6.port()));
        let entry = StaticBib { protocol: self::protocol(protocol)?, v6, v4 };
        if fordway_xlat::addr::classify::illegal_v6(v6.0).is_some() {
            let text = format!("{} can't be a host's address on a wire", v6.0);
            return Err(Failure::usage(text, "write the address of an IPv6 host"));
        }
        if entry.protocol != Protocol::Icmp && (v4.1 == 0 || v6.1 == 0) {
            return Err(Failure::usage("port 0 can't be used", "write ports from 1 to 65535"));
        }
        self.change_bib(name, &BibChange::Add(entry))
    }

    /// Takes a BIB entry away.
    pub(crate) fn bib_del(
        &self,
        name: Option<&str>,
        protocol: &str,
        v4: SocketAddrV4,
    ) -> Result<String, Failure> {
        let protocol = self::protocol(protocol)?;
        self.change_bib(name, &BibChange::Remove(protocol, (*v4.ip(), v4.port())))
    }

    fn change_bib(&self, name: Option<&str>, change: &BibChange) -> Result<String, Failure> {
        let name = match name {
            Some(name) => name.to_owned(),
            None => self.only_nat64()?,
        };
        let changed = self.with(&name, |one| one.change_bib(change));
        let text = changed.unwrap_or_else(|| Err(self.unknown(&name)))?;
        self.tell(Change::Bib { text: text.clone() });
        Ok(text)
    }

    /// The name of the translator of mode nat64, where there is one.
    fn only_nat64(&self) -> Result<String, Failure> {
        let names =
            self.with_all(|one| one.config.nat64().is_some().then(|| one.name().to_owned()));
        match names.as_slice() {
            [one] => Ok(one.clone()),
            [] => Err(Failure::failed("no translator is stateful (mode nat64)")),
            several => Err(Failure::failed("several translators are stateful")
                .hint(format!("choose one with --translator: {}", several.join(", ")))),
        }
    }

    /// Lets a translator make no new sessions, or make them again.
    pub(crate) fn drain(&self, name: &str, drains: bool) -> Result<String, Failure> {
        let drained = self.with(name, |one| {
            let translator = one.engine.core();
            let nat64 = translator.tables().ok_or_else(|| stateless(name))?;
            nat64.drain(drains);
            let text = match drains {
                true => format!("{name}: no new sessions from now on"),
                false => format!("{name}: new sessions again"),
            };
            info!("{text}");
            Ok(text)
        });
        let text = drained.unwrap_or_else(|| Err(self.unknown(name)))?;
        self.tell(Change::Drain { name: name.to_owned(), drains });
        Ok(text)
    }
}

fn protocol(text: &str) -> Result<Protocol, Failure> {
    let found = Protocol::ALL.into_iter().find(|protocol| protocol.label() == text);
    found.ok_or_else(|| {
        Failure::usage(format!("\"{text}\" is no protocol here"), "write tcp, udp or icmp")
    })
}

fn stateless(name: &str) -> Failure {
    Failure::failed(format!("{name} is stateless: it has neither sessions nor a BIB"))
}

impl Running {
    /// Adds or removes a BIB entry, in the tables and in the programs.
    fn change_bib(&mut self, change: &BibChange) -> Result<String, Failure> {
        let name = self.name().to_owned();
        let core = self.engine.core();
        let is_nat64 = self.config.nat64().is_some();
        let found = core.translator().filter(|_| is_nat64);
        let Some((translator, nat64)) = found.and_then(|it| Some((it, it.tables()?))) else {
            return Err(Failure::failed(format!("{name} is no stateful translator (mode nat64)")));
        };
        let failed = |error| {
            let text = format!("{name}: {}", bib_error(error));
            Failure::failed(text).hint(bib_hint(error))
        };
        let done = match change {
            BibChange::Add(_) if nat64.settings().shards.is_some() => {
                let text =
                    format!("{name} is shared by a cluster, which has no static BIB entries");
                return Err(Failure::failed(text).hint("see docs/cluster.md, \"Shards\""));
            }
            BibChange::Add(entry) => {
                if !nat64.owns_address(entry.v4.0) {
                    let text = format!("{name}: {} is no address of pool4", entry.v4.0);
                    return Err(Failure::failed(text)
                        .hint("write the entry in bib, so that the address is routed here"));
                }
                let pool6 = &translator.config().pool6;
                if let Some(pool6) = pool6.iter().find(|pool6| pool6.contains(entry.v6.0)) {
                    let text = format!("{name}: {} lies in pool6 {pool6}", entry.v6.0);
                    return Err(Failure::failed(text)
                        .hint("write the address of a host behind the translator"));
                }
                nat64.add_bib(entry, monotonic()).map_err(failed)?;
                format!("{name}: {} is bound", written(entry))
            }
            BibChange::Remove(protocol, v4) => {
                let gone = nat64.remove_bib(*protocol, *v4, monotonic()).map_err(failed)?;
                let entry = StaticBib { protocol: *protocol, v6: gone.v6, v4: gone.v4 };
                format!("{name}: {} is bound no more", written(&entry))
            }
        };
        let settings = self.kernel_settings();
        let (hook, tuning) = (self.hook(), Tuning::of(&self.config, &self.place.devices));
        if let Some(kernel) = &mut self.kernel {
            let config = kernel::config(translator.config(), self.place.attach);
            if let Err(error) = kernel.replace(config, hook, tuning, settings, None) {
                // An entry of which only one engine knows is none.
                if let BibChange::Add(entry) = change {
                    let _ = nat64.remove_bib(entry.protocol, entry.v4, monotonic());
                }
                return Err(error.into());
            }
            self.resume_tracing();
        }
        // A port on the host's own address has to be led here, or no more.
        if let Err(failure) = self.renew() {
            warn!("{}", failure.line());
        }
        if let Some(host) = &mut self.host {
            host.settle("");
        }
        info!("{done}");
        Ok(done)
    }
}

/// A change of the BIB by hand.
#[derive(Clone, Copy, Debug)]
enum BibChange {
    /// One more.
    Add(StaticBib),
    /// One less.
    Remove(Protocol, (Ipv4Addr, u16)),
}
