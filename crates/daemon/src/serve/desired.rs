//! Keys of the configuration that a controller sets: they replace those of the file, at once and at each start and reload
//! from then on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use fordway_config::{Config, Settings, value_of};
use fordway_control::{Applied, AppliedKey, Change};
use rustix::fs::OFlags;
use serde_json::{Map, Value as Json};
use tracing::{info, warn};

use super::handle::Handle;
use crate::failure::Failure;

/// Keys and their values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Desired {
    values: BTreeMap<String, Json>,
}

/// What a controller asks for.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// Values of keys; null: the file's is to hold again.
    values: BTreeMap<String, Json>,
    /// Keys that are not named are set no more.
    replace: bool,
    dry_run: bool,
}

impl Wanted {
    /// Reads a JSON object of keys and values.
    pub(crate) fn read(document: &[u8], replace: bool, dry_run: bool) -> Result<Wanted, Failure> {
        let values = read(document).map_err(|error| {
            Failure::usage(
                format!("the document is no JSON object of keys and values: {error}"),
                "write it as {\"translator.nat64.bib\": [[\"tcp\", \"192.0.2.1:80\", \"[2001:db8::5]:80\"]]}",
            )
        })?;
        let good = |key: &str| {
            let word = |it: &str| {
                !it.is_empty()
                    && it.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-'))
            };
            key.contains('.') && key.split('.').all(word)
        };
        match values.keys().find(|key| !good(key)) {
            None => Ok(Wanted { values, replace, dry_run }),
            Some(key) => Err(Failure::usage(
                format!("\"{key}\" is no key of a section"),
                "write SECTION.KEY or SECTION.NAME.KEY, such as translator.nat64.eam",
            )),
        }
    }
}

fn read(document: &[u8]) -> Result<BTreeMap<String, Json>, serde_json::Error> {
    let values: Map<String, Json> = serde_json::from_slice(document)?;
    Ok(values.into_iter().collect())
}

impl Desired {
    /// Where a daemon that listens on `socket` keeps them.
    pub(crate) fn path(socket: &Path) -> PathBuf {
        let mut path = socket.as_os_str().to_owned();
        path.push(".applied");
        path.into()
    }

    /// What an earlier daemon has kept; nothing where there is no file.
    pub(crate) fn load(path: &Path) -> Result<Desired, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::failed(format!("keys that a controller has set: {}: {error}", path.display()))
                .hint("remove the file to start with the configuration file alone")
        };
        let mut text = Vec::new();
        // Whose folder it is may put a link or a pipe there.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
        match file.and_then(|mut file| file.read_to_end(&mut text)) {
            Ok(_) => Ok(Desired { values: read(&text).map_err(|error| failed(&error))? }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Desired::default()),
            Err(error) => Err(failed(&error)),
        }
    }

    fn store(&self, path: &Path) -> std::io::Result<()> {
        if self.values.is_empty() {
            return match fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let new = path.with_extension("applied.new");
        let text = serde_json::to_vec(&self.values)?;
        let _ = fs::remove_file(&new);
        // Not through a link, which somebody may have put there meanwhile.
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(new, path)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &String> {
        self.values.keys()
    }

    /// As settings that replace values of the file, behind those of the command line.
    pub(crate) fn settings(&self) -> Result<Vec<String>, Failure> {
        let one = |(key, value): (&String, &Json)| match toml::Value::try_from(value) {
            Ok(value) => Ok(format!("{key}={value}")),
            Err(error) => Err(Failure::usage(
                format!("{key}: {error}"),
                "write values as the configuration file has them, without null in them",
            )),
        };
        self.values.iter().map(one).collect()
    }

    fn with(&self, wanted: &Wanted) -> Desired {
        let mut values = if wanted.replace { BTreeMap::new() } else { self.values.clone() };
        for (key, value) in &wanted.values {
            match value {
                Json::Null => drop(values.remove(key)),
                value => drop(values.insert(key.clone(), value.clone())),
            }
        }
        Desired { values }
    }
}

/// What becomes of the items of a key.
fn compare(key: &str, old: Option<&toml::Value>, new: Option<&toml::Value>) -> AppliedKey {
    fn items(value: Option<&toml::Value>) -> impl Iterator<Item = String> + '_ {
        let items = match value {
            None => &[][..],
            Some(toml::Value::Array(items)) => items.as_slice(),
            Some(value) => std::slice::from_ref(value),
        };
        items.iter().map(ToString::to_string)
    }
    let mut before: HashMap<String, u64> = HashMap::new();
    items(old).for_each(|item| *before.entry(item).or_default() += 1);
    let (mut added, mut unchanged) = (0, 0);
    for item in items(new) {
        match before.get_mut(&item).filter(|left| **left > 0) {
            Some(left) => {
                *left -= 1;
                unchanged += 1;
            }
            None => added += 1,
        }
    }
    AppliedKey { key: key.to_owned(), added, removed: before.values().sum(), unchanged }
}

impl Handle {
    /// Sets keys as a controller wants them, or says what that would do.
    pub(crate) fn apply(&self, wanted: &Wanted) -> Result<Applied, Failure> {
        self.goes_on()?;
        let (mut applied, desired) = {
            let daemon = self.state();
            let desired = daemon.desired.with(wanted);
            let mut new = daemon.read_with(&desired)?;
            daemon.leave_down(&mut new);
            daemon.check(&new)?;
            let (old, new) = (daemon.config.to_toml(), new.to_toml());
            let all: BTreeSet<&String> = daemon.desired.keys().chain(desired.keys()).collect();
            let keys = all.into_iter();
            let keys = keys.map(|key| compare(key, value_of(&old, key), value_of(&new, key)));
            let keys = keys.collect();
            let generation = self.generation();
            let dry_run = wanted.dry_run;
            (Applied { generation, dry_run, stored: !dry_run, keys }, desired)
        };
        if wanted.dry_run {
            return Ok(applied);
        }
        let changed: Vec<AppliedKey> =
            applied.keys.iter().filter(|it| it.added + it.removed > 0).cloned().collect();
        let path = Desired::path(&self.state().job.config.control.socket);
        if !changed.is_empty() {
            let before = std::mem::replace(&mut self.state().desired, desired.clone());
            let done = self.reload_with(false).inspect_err(|_| self.state().desired = before);
            info!("a controller has set keys: {}", done?);
        } else {
            self.state().desired = desired.clone();
        }
        if let Err(error) = desired.store(&path) {
            warn!(
                "the next start will not know what a controller has set: {}: {error}",
                path.display()
            );
            applied.stored = false;
        }
        if !changed.is_empty() {
            applied.generation = self.tell(Change::Applied { keys: changed });
        }
        Ok(applied)
    }

    /// The values of keys in the configuration that is in use.
    pub(crate) fn values(&self, keys: &[String]) -> Result<BTreeMap<String, Json>, Failure> {
        let daemon = self.state();
        let table = daemon.config.to_toml();
        let one = |key: &String| -> Result<(String, Json), Failure> {
            let value = value_of(&table, key).map(serde_json::to_value);
            Ok((key.clone(), value.transpose()?.unwrap_or(Json::Null)))
        };
        if keys.is_empty() {
            return daemon.desired.keys().map(one).collect();
        }
        keys.iter().map(one).collect()
    }
}

/// The configuration with what an earlier daemon of this socket has kept.
pub fn with_kept(
    config: Config,
    load: impl FnOnce(&Settings) -> Result<Config, Failure>,
    settings: &Settings,
) -> Result<(Config, Desired), Failure> {
    let path = Desired::path(&config.control.socket);
    let kept = Desired::load(&path)?;
    if kept.is_empty() {
        return Ok((config, kept));
    }
    let config = load(&settings.with_applied(kept.settings()?))
        .map_err(|failure| because_of_keys(failure, &path))?;
    Ok((config, kept))
}

/// The failure of a configuration that is right without the keys of a controller, which are kept at `path`.
pub(super) fn because_of_keys(failure: Failure, path: &Path) -> Failure {
    match failure {
        Failure::Config(report) => Failure::Config(report.with_note(format!(
            "without the keys that a controller has set, the configuration is right. They are kept in {0}: remove it \
             before a start, or give them back to a running daemon: echo '{{}}' | fordway apply --replace -",
            path.display()
        ))),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn wanted(document: &str, replace: bool) -> Wanted {
        Wanted::read(document.as_bytes(), replace, false).unwrap()
    }

    #[test]
    fn keys_are_set_kept_and_given_up() {
        let one = Desired::default()
            .with(&wanted("{\"log.level\": \"info\", \"translator.a.mtu\": 1400}", false));
        let two =
            one.with(&wanted("{\"translator.a.mtu\": null, \"log.format\": \"json\"}", false));
        assert_eq!(two.settings().unwrap(), ["log.format=\"json\"", "log.level=\"info\""]);
        let three = two.with(&wanted("{\"dns64.rate\": \"10/s\"}", true));
        assert_eq!(three.settings().unwrap(), ["dns64.rate=\"10/s\""]);
        let dir = tempfile::TempDir::new().unwrap();
        let path = Desired::path(&dir.path().join("control.sock"));
        assert_eq!(Desired::load(&path).unwrap(), Desired::default());
        two.store(&path).unwrap();
        assert_eq!(Desired::load(&path).unwrap(), two);
        Desired::default().store(&path).unwrap();
        assert!(!path.exists());
        // Links that somebody has put into the folder lead nowhere.
        let (theirs, draft) = (dir.path().join("theirs"), path.with_extension("applied.new"));
        fs::write(&theirs, "{}").unwrap();
        symlink(&theirs, &draft).unwrap();
        one.store(&path).unwrap();
        assert_eq!(Desired::load(&path).unwrap(), one);
        assert!(!draft.exists());
        fs::remove_file(&path).unwrap();
        symlink(&theirs, &path).unwrap();
        assert!(Desired::load(&path).is_err());
        two.store(&path).unwrap();
        assert!(!path.is_symlink());
        assert_eq!(fs::read_to_string(&theirs).unwrap(), "{}");
        fs::write(&path, "{").unwrap();
        assert!(Desired::load(&path).unwrap_err().line().contains("control.sock.applied"));
    }

    #[test]
    fn what_is_no_document_is_refused() {
        for wrong in ["", "[]", "{\"bib\": []}", "{\"a.b = 1\\nc.d\": 1}", "{\"a..b\": 1}"] {
            assert!(Wanted::read(wrong.as_bytes(), false, false).is_err(), "{wrong}");
        }
        let nulls = Desired::default().with(&wanted("{\"a.b\": [null]}", false));
        assert!(nulls.settings().is_err());
    }

    #[test]
    fn items_are_compared_as_a_set_with_repetitions() {
        let list = |items: &[i64]| toml::Value::from(items.to_vec());
        let it = compare("a.b", Some(&list(&[1, 2, 2, 3])), Some(&list(&[3, 2, 4])));
        assert_eq!((it.added, it.removed, it.unchanged), (1, 2, 2));
        let it = compare("a.b", None, Some(&"x".into()));
        assert_eq!((it.added, it.removed, it.unchanged), (1, 0, 0));
        let it = compare("a.b", Some(&"x".into()), Some(&"y".into()));
        assert_eq!((it.added, it.removed, it.unchanged), (1, 1, 0));
    }
}
