//! Installs the plugin on a node: the program, and its entry in the network's list of plugins.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::{Code, Command, Failure, Request, Result};

/// The plugin's type, and its program's name.
const TYPE: &str = "fordway-cni";

/// Endings of names that runtimes read; `.conflist` is a list of plugins.
const ENDINGS: [&str; 3] = ["conf", "conflist", "json"];

/// Keys of the plugin's entry that are not the caller's: the first is this plugin's, the others are the list's.
const RESERVED: [&str; 3] = ["type", "name", "cniVersion"];

/// Tells a version of a file from others without reading it: length, and time of the last change in s and ns.
type Stamp = (u64, i64, i64);

/// Where the plugin is installed, and how.
#[derive(Clone, Debug)]
pub struct Installation {
    bin_dir: PathBuf,
    conf_dir: PathBuf,
    /// The plugin's entry in the list.
    entry: Value,
    /// Of this program, and of the installed one when both were equal.
    equal: Option<[Stamp; 2]>,
}

impl Installation {
    /// `keys`: a JSON object with the plugin's own keys.
    ///
    /// # Errors
    ///
    /// As [`Request::read`] for a network with these keys.
    pub fn new(bin_dir: &Path, conf_dir: &Path, keys: &str) -> Result<Self> {
        let keys: Map<String, Value> = serde_json::from_str(keys).map_err(|error| {
            Failure::new(Code::Decoding, "the plugin's keys are no JSON object")
                .details(error.to_string())
        })?;
        if let Some(key) = RESERVED.into_iter().find(|key| keys.contains_key(*key)) {
            let what = format!("the key {key:?} is not one of the plugin's own");
            return Err(Failure::new(Code::Field, what).details("leave it out"));
        }
        let mut entry = json!({ "type": TYPE });
        let mut sample = json!({ "cniVersion": "1.1.0", "name": "sample", "type": TYPE });
        for map in [&mut entry, &mut sample] {
            if let Some(map) = map.as_object_mut() {
                map.extend(keys.clone());
            }
        }
        Request::read(Command::Status, |_| None, sample.to_string().as_bytes())?;
        let [bin_dir, conf_dir] = [bin_dir, conf_dir].map(Path::to_owned);
        Ok(Installation { bin_dir, conf_dir, entry, equal: None })
    }

    /// Installs what is missing or different. Returns what was done, as sentences; nothing if all was there.
    ///
    /// # Errors
    ///
    /// [`Code::Io`], and [`Code::Later`] while there is no list of plugins yet.
    pub fn install(&mut self) -> Result<Vec<String>> {
        let mut done: Vec<String> = self.install_program()?.into_iter().collect();
        let (path, mut list) = self.list()?;
        let plugins = plugins(&path, &mut list)?;
        let mut wanted: Vec<Value> =
            plugins.iter().filter(|it| it["type"] != TYPE).cloned().collect();
        wanted.push(self.entry.clone());
        if *plugins != wanted {
            *plugins = wanted;
            write(&path, &list)?;
            done.push(format!("added {TYPE} to {}", path.display()));
        }
        Ok(done)
    }

    /// Reads this program and the installed one only if one of them has changed since they were equal.
    fn install_program(&mut self) -> Result<Option<String>> {
        let program = self.bin_dir.join(TYPE);
        let own = Path::new("/proc/self/exe");
        let stamps = || Some([stamp(own)?, stamp(&program)?]);
        if self.equal.is_some() && stamps() == self.equal {
            return Ok(None);
        }
        let octets = fs::read(own).map_err(failed("read", own))?;
        // One that changes while it is read is read again.
        let before = stamps();
        if fs::read(&program).ok().as_ref() == Some(&octets) {
            self.equal = before;
            return Ok(None);
        }
        replace(&program, &octets, 0o755)?;
        self.equal = stamps();
        Ok(Some(format!("installed {}", program.display())))
    }

    /// Takes the entry out of all lists, so that no new pod has a CLAT. Returns what was done, as sentences.
    ///
    /// # Errors
    ///
    /// [`Code::Io`].
    pub fn uninstall(&self) -> Result<Vec<String>> {
        let mut done = Vec::new();
        for path in self.files()? {
            let Ok((path, mut list)) = read(path) else { continue };
            let Ok(plugins) = plugins(&path, &mut list) else { continue };
            let before = plugins.len();
            plugins.retain(|it| it["type"] != TYPE);
            if plugins.len() < before {
                write(&path, &list)?;
                done.push(format!("took {TYPE} out of {}", path.display()));
            }
        }
        Ok(done)
    }

    /// Removes the program. As long as pods with a CLAT live, a runtime that keeps the list of a pod's making calls it for their
    /// DEL. Returns what was done, if anything was.
    ///
    /// # Errors
    ///
    /// [`Code::Io`].
    pub fn remove_program(&self) -> Result<Option<String>> {
        let program = self.bin_dir.join(TYPE);
        match fs::remove_file(&program) {
            Ok(()) => Ok(Some(format!("removed {}", program.display()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("remove", &program)(error)),
        }
    }

    /// The list that a runtime uses: the first by name.
    fn list(&self) -> Result<(PathBuf, Value)> {
        let none = || {
            Failure::new(
                Code::Later,
                format!("{} has no network configuration", self.conf_dir.display()),
            )
            .details("the cluster's network plugin writes it")
        };
        read(self.files()?.into_iter().next().ok_or_else(none)?)
    }

    /// Network configurations, in the order of their names.
    fn files(&self) -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir(&self.conf_dir).map_err(failed("read", &self.conf_dir))?;
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let is_read = |path: &PathBuf| {
            path.extension().and_then(OsStr::to_str).is_some_and(|end| ENDINGS.contains(&end))
        };
        let mut paths: Vec<PathBuf> = paths.filter(is_read).collect();
        paths.sort();
        Ok(paths)
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let found = path.metadata().ok()?;
    Some((found.len(), found.mtime(), found.mtime_nsec()))
}

fn read(path: PathBuf) -> Result<(PathBuf, Value)> {
    let text = fs::read(&path).map_err(failed("read", &path))?;
    let list = serde_json::from_slice(&text).map_err(|error| {
        Failure::new(Code::Later, format!("{} is no JSON", path.display()))
            .details(error.to_string())
    })?;
    Ok((path, list))
}

fn plugins<'a>(path: &Path, list: &'a mut Value) -> Result<&'a mut Vec<Value>> {
    let none = || {
        Failure::new(Code::Configuration, format!("{} is no list of plugins", path.display()))
            .details("a chained plugin needs a .conflist with \"plugins\"")
    };
    list.get_mut("plugins").and_then(Value::as_array_mut).ok_or_else(none)
}

fn write(path: &Path, list: &Value) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(list).unwrap_or_default();
    text.push(b'\n');
    replace(path, &text, 0o600)
}

/// Replaces a file at once. Until it is complete it has a name that no runtime reads.
fn replace(path: &Path, octets: &[u8], mode: u32) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}.new"));
    let put = || {
        fs::write(&new, octets)?;
        // That of the file before, if there is one.
        let mode = path.metadata().map_or(mode, |it| it.permissions().mode() & 0o777);
        fs::set_permissions(&new, fs::Permissions::from_mode(mode))?;
        fs::rename(&new, path)
    };
    put().map_err(failed("write", path))
}

fn failed<'a>(verb: &'a str, path: &'a Path) -> impl Fn(io::Error) -> Failure + 'a {
    move |error| {
        Failure::new(Code::Io, format!("cannot {verb} {}", path.display()))
            .details(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_list_gets_the_plugin_once_and_loses_it_again() {
        let [bin, conf] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let first = conf.path().join("10-pods.conflist");
        let second = conf.path().join("20-other.conflist");
        let list = json!({ "cniVersion": "1.0.0", "name": "pods", "plugins": [{ "type": "ptp", "mtu": 1400 }] });
        for path in [&first, &second] {
            fs::write(path, list.to_string()).unwrap();
        }
        fs::write(conf.path().join("05-note.txt"), "{").unwrap();
        let with = |keys: &str| Installation::new(bin.path(), conf.path(), keys).unwrap();
        let types = |path: &Path| -> Vec<Value> {
            let (_, list) = read(path.to_owned()).unwrap();
            list["plugins"].as_array().unwrap().iter().map(|it| it["type"].clone()).collect()
        };
        let mut installation = with(r#"{ "pref64": "64:ff9b::/96" }"#);
        assert_eq!(installation.install().unwrap().len(), 2);
        assert_eq!(installation.install().unwrap(), Vec::<String>::new());
        assert_eq!(types(&first), ["ptp", TYPE]);
        assert_eq!(types(&second), ["ptp"]);
        let program = bin.path().join(TYPE);
        assert_eq!(program.metadata().unwrap().permissions().mode() & 0o777, 0o755);
        // Another program in its place, and none.
        fs::write(&program, "other").unwrap();
        assert_eq!(installation.install().unwrap().len(), 1);
        fs::remove_file(&program).unwrap();
        assert_eq!(installation.install().unwrap().len(), 1);
        assert_eq!(installation.install().unwrap(), Vec::<String>::new());
        // Other keys replace the entry.
        assert_eq!(with("{}").install().unwrap().len(), 1);
        assert_eq!(types(&first), ["ptp", TYPE]);
        // The network's own plugin writes its list anew.
        fs::write(&first, list.to_string()).unwrap();
        assert_eq!(with("{}").install().unwrap().len(), 1);
        assert_eq!(with("{}").uninstall().unwrap().len(), 1);
        assert_eq!(read(first).unwrap().1, list);
        assert_eq!(with("{}").uninstall().unwrap(), Vec::<String>::new());
        assert!(program.exists());
        assert!(with("{}").remove_program().unwrap().is_some());
        assert_eq!(fs::read_dir(bin.path()).unwrap().count(), 0);
        assert_eq!(with("{}").remove_program().unwrap(), None);
    }

    #[test]
    fn what_can_not_be_installed_is_told() {
        let [bin, conf] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let new = |keys: &str| Installation::new(bin.path(), conf.path(), keys);
        assert_eq!(new("[]").unwrap_err().code, Code::Decoding);
        assert_eq!(new(r#"{ "pref46": "x" }"#).unwrap_err().code, Code::Field);
        for key in RESERVED {
            assert_eq!(new(&json!({ key: "x" }).to_string()).unwrap_err().code, Code::Field);
        }
        let mut installation = new("{}").unwrap();
        assert_eq!(installation.install().unwrap_err().code, Code::Later);
        fs::write(conf.path().join("10-pods.conf"), r#"{ "type": "ptp" }"#).unwrap();
        assert_eq!(installation.install().unwrap_err().code, Code::Configuration);
    }
}
