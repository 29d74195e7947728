//! `fordway takeover`: what an earlier run has left, and whether the next start can take it over.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use fordway_bpf::{Left as Tables, StateMaps};
use fordway_config::{Config, Engine, Translator, load_with};
use fordway_daemon::failure::Failure;
use fordway_daemon::{MAPPINGS_HEAD, orphans};
use fordway_daemon::{output, pins};
use fordway_net::privilege::{Capability, require};
use fordway_xlat::nat64::{Filtering, Memory, Sizes, memory};
use serde::Serialize;

use super::check::print_warnings;
use super::control::{Left, left_behind};
use super::run::adjust;
use crate::cli::{Global, TakeoverArgs};

/// Something that an earlier run has left.
#[derive(Debug, Serialize)]
struct Found {
    /// The translator, or the section of the file.
    name: String,
    what: What,
    /// How many; `None`: this version can't tell.
    count: Option<u64>,
    /// Whether the next start goes on with it.
    taken_over: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// The file that it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum What {
    Translator,
    Sessions,
    Mappings,
    #[cfg(feature = "dstm")]
    Leases,
    HostChanges,
}

impl What {
    fn label(self) -> &'static str {
        match self {
            What::Translator => "translator",
            What::Sessions => "sessions",
            What::Mappings => "mappings",
            #[cfg(feature = "dstm")]
            What::Leases => "lease records",
            What::HostChanges => "host changes",
        }
    }
}

/// Another version has written it.
const OTHER: &str = "another version has written them";

impl Found {
    fn line(&self) -> String {
        let Found { name, count, why, .. } = self;
        let count = count.map_or("an unknown number of".to_owned(), output::group);
        let what = format!("{name}: {count} {}", self.what.label());
        match why {
            Some(why) => format!("{what}: not taken over: {why}\n"),
            None => format!("{what}: taken over\n"),
        }
    }
}

pub(crate) fn run(global: &Global, args: &TakeoverArgs) -> Result<(), Failure> {
    // Without it, pins and ledger can't be seen, and nothing seems to be left.
    require(&[Capability::CAP_NET_ADMIN])?;
    let mut loaded = load_with(args.file.path(), &args.set.settings())?;
    adjust(global, false).apply(&mut loaded.config);
    print_warnings(&loaded.warnings);
    let found = look(global, &loaded.config)?;
    if args.json {
        output::print_json(&found)?;
    } else if found.is_empty() {
        output::print("nothing is left by an earlier run\n")?;
    } else {
        output::print(&found.iter().map(Found::line).collect::<String>())?;
    }
    let mut lost = found.iter().filter(|one| !one.taken_over).peekable();
    if args.drop {
        return lost.try_for_each(|one| drop_it(global, one));
    }
    match lost.peek() {
        None => Ok(()),
        Some(_) => Err(Failure::failed("the next start can't take everything over").hint(
            "keep the daemon that runs, or restore what has changed; fordway leave, then this command with --drop, \
             gives up what can't be taken over",
        )),
    }
}

/// All that there is.
fn look(global: &Global, config: &Config) -> Result<Vec<Found>, Failure> {
    let mut found = Vec::new();
    for translator in &config.translators {
        found.extend(sessions(translator)?);
        if let Some(path) = translator.dynamic4().and_then(|dynamic4| dynamic4.file.as_ref()) {
            found.extend(file(translator.name.as_str(), What::Mappings, path, MAPPINGS_HEAD)?);
        }
    }
    for name in orphans(config, &global.run_dir)? {
        let sessions = match StateMaps::look(&pins::dir(&name)?, &Sizes::default())? {
            Tables::Nothing => None,
            Tables::Fits(maps) => Some(Some(memory::live_sessions(maps.regions().sessions))),
            Tables::Superseded(sessions) => Some(Some(sessions)),
            Tables::Misfit(sessions) => Some(sessions),
        };
        found.push(Found {
            name,
            what: sessions.map_or(What::Translator, |_| What::Sessions),
            count: sessions.unwrap_or(Some(1)),
            taken_over: false,
            why: Some("it is not in the file any more; the next start takes it down".to_owned()),
            file: None,
        });
    }
    #[cfg(feature = "dstm")]
    if let Some(server) = &config.dstm_server {
        let head = fordway_dstmd::LEASES_HEAD;
        found.extend(file("dstm_server", What::Leases, &server.state, head)?);
    }
    let foreign = fordway_net::owners(&global.run_dir)?.into_iter().filter(|(_, count)| *count > 0);
    found.extend(foreign.map(|(name, count)| Found {
        name,
        what: What::HostChanges,
        count: Some(count as u64),
        taken_over: false,
        why: Some(format!("{OTHER}; they stay, and fordway down of that version undoes them")),
        file: None,
    }));
    Ok(found)
}

/// The sessions in the kernel's tables of a translator; `None`: there are no such tables.
fn sessions(translator: &Translator) -> Result<Option<Found>, Failure> {
    let settings = match (translator.nat64(), translator.dynamic4()) {
        (Some(nat64), _) => nat64.settings(|_| Vec::new()),
        (None, Some(dynamic4)) => dynamic4.settings(),
        (None, None) => return Ok(None),
    };
    let by_address = settings.filtering == Filtering::AddressDependent;
    let (count, why) =
        match StateMaps::look(&pins::dir(translator.name.as_str())?, &settings.sizes)? {
            Tables::Nothing => return Ok(None),
            Tables::Superseded(sessions) => {
                (Some(sessions), Some("an earlier version left them in tables that can't be used"))
            }
            Tables::Misfit(None) => {
                (None, Some("another version left them in tables that this one can't read"))
            }
            Tables::Misfit(sessions) => (
                sessions,
                Some("max_sessions, max_bib, max_subscribers or filtering is not as it was"),
            ),
            Tables::Fits(maps) => {
                let regions = maps.regions();
                let pool6 = translator.pool6();
                let why = if translator.engine == Engine::User {
                    Some("engine = \"user\" has its own tables")
                } else if !memory::suits(regions.meta, by_address) {
                    Some("filtering is not as it was")
                } else if translator.nat64().is_some()
                    && !memory::keeps_prefixes(regions.meta, pool6, settings.subscriber_len)
                {
                    Some("pool6 or subscriber_len is not as it was")
                } else {
                    None
                };
                (Some(memory::live_sessions(regions.sessions)), why)
            }
        };
    Ok(Some(Found {
        name: translator.name.to_string(),
        what: What::Sessions,
        count,
        taken_over: why.is_none(),
        why: why.map(str::to_owned),
        file: None,
    }))
}

/// What is in a file with one line for each entry behind its head; `None`: there is no such file.
fn file(name: &str, what: What, path: &Path, head: &str) -> Result<Option<Found>, Failure> {
    let mut text = Vec::new();
    match File::open(path).and_then(|mut file| file.read_to_end(&mut text)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        read => read
            .map_err(|error| Failure::failed(format!("cannot read {}: {error}", path.display())))?,
    };
    let is_own = text.starts_with(head.as_bytes());
    let lines = text.iter().filter(|octet| **octet == b'\n').count().saturating_sub(1);
    Ok(Some(Found {
        name: name.to_owned(),
        what,
        count: is_own.then_some(lines as u64),
        taken_over: is_own,
        why: (!is_own).then(|| format!("{OTHER} to {}", path.display())),
        file: Some(path.to_owned()),
    }))
}

/// Gives up what the next start can't take over, so that it succeeds.
fn drop_it(global: &Global, found: &Found) -> Result<(), Failure> {
    let name = &found.name;
    if let Some(path) = &found.file {
        let mut aside = path.as_os_str().to_owned();
        aside.push(".other");
        let aside = PathBuf::from(aside);
        std::fs::rename(path, &aside).map_err(|error| {
            Failure::failed(format!("cannot move {} away: {error}", path.display()))
        })?;
        return output::print(&format!(
            "{name}: {} is kept as {}\n",
            path.display(),
            aside.display()
        ));
    }
    if found.what == What::HostChanges {
        return Ok(());
    }
    match left_behind(global, name)? {
        Left::Done(text) => output::print(&format!("{text}\n")),
        Left::Nothing => Ok(()),
        Left::InUse => Err(Failure::failed(format!("{name} is in use: its daemon runs"))
            .hint("end it first: fordway leave")),
    }
}
