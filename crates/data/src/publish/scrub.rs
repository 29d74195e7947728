//! Names of hosts and people, out of what was measured.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::error::Result;

/// What stands for a host's name.
const HOST: &str = "lab-host";
/// What stands for a person's name.
const USER: &str = "lab-user";
/// What stands for the run's own folder.
const FOLDER: &str = "RUN";

/// Names and what stands for them, and where they were found.
#[derive(Debug, Default)]
pub struct Scrub {
    names: BTreeMap<String, &'static str>,
    /// Occurrences by what stands for them.
    replaced: BTreeMap<&'static str, usize>,
    /// Folders in absolute paths that were left.
    kept: BTreeSet<String>,
    /// Files that are no text and were left as they are.
    opaque: BTreeSet<String>,
}

impl Scrub {
    /// Looks for names: of this machine's `host` and its `users`, of hosts that iperf3 names in its outputs, of people
    /// in paths below `/home`.
    pub fn of_run(dir: &Path, host: &str, users: &[String]) -> Result<Self> {
        let mut scrub = Self::default();
        scrub.host(host);
        users.iter().for_each(|user| scrub.user(user));
        for (_, path) in super::files(dir)? {
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            for_each_after(&text, "\"system_info\":", |rest| {
                // `Linux NAME RELEASE ...`
                if let Some(name) = rest.split_whitespace().nth(1) {
                    scrub.host(name);
                }
            });
            for_each_after(&text, "/home/", |rest| {
                scrub.user(rest.split(|c: char| !is_of_name(c)).next().unwrap_or_default());
            });
        }
        // Whether the spec is whole is for those to say who need it.
        let run = crate::artefacts::read_experiment(dir).ok().and_then(|experiment| experiment.run);
        for host in run.and_then(|run| run.hosts).into_iter().flat_map(|hosts| hosts.hosts) {
            // Its name in the hosts file is what reports call it by.
            let address = host.destination().filter(|address| *address != host.name);
            scrub.address(&address.unwrap_or_default());
        }
        for dir in [Some(dir.to_owned()), dir.canonicalize().ok()].into_iter().flatten() {
            if dir.is_absolute() {
                scrub.names.insert(dir.display().to_string(), FOLDER);
            }
        }
        Ok(scrub)
    }

    #[cfg(test)]
    pub(crate) fn of_names(names: &[(&str, &'static str)]) -> Self {
        let names = names.iter().map(|(name, by)| ((*name).to_owned(), *by)).collect();
        Self { names, ..Self::default() }
    }

    fn host(&mut self, name: &str) {
        if name.is_empty() || name == "localhost" || name == HOST {
            return;
        }
        self.names.insert(name.to_owned(), HOST);
        // Of a full name its first part is the host's, too.
        if let Some((short, _)) = name.split_once('.').filter(|(short, _)| !short.is_empty()) {
            self.names.insert(short.to_owned(), HOST);
        }
    }

    /// Where ssh found one of two hosts.
    fn address(&mut self, destination: &str) {
        let (user, host) = destination.split_once('@').unwrap_or(("", destination));
        self.user(user);
        match host.parse::<std::net::IpAddr>() {
            Ok(_) => drop(self.names.insert(host.to_owned(), HOST)),
            Err(_) => self.host(host),
        }
    }

    fn user(&mut self, name: &str) {
        if !["", "root", USER].contains(&name) {
            self.names.insert(name.to_owned(), USER);
        }
    }

    /// The octets of a file without those names; what is no text stays as it is.
    pub fn bytes(&mut self, file: &str, bytes: &[u8]) -> Vec<u8> {
        let Ok(text) = std::str::from_utf8(bytes) else {
            self.opaque.insert(file.to_owned());
            return bytes.to_vec();
        };
        let mut text = text.to_owned();
        // Longer names first: a full name holds the short one.
        let mut names: Vec<(&String, &&str)> = self.names.iter().collect();
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        for (name, by) in names {
            let (changed, count) = replace_word(&text, name, by);
            if count > 0 {
                text = changed;
                *self.replaced.entry(by).or_default() += count;
            }
        }
        for root in ["/home/", "/root/", "/tmp/", "/opt/", "/srv/", "/mnt/"] {
            for_each_after(&text, root, |rest| {
                let next = rest.split(|c: char| !is_of_name(c)).next().unwrap_or_default();
                self.kept.insert(format!("{root}{next}"));
            });
        }
        text.into_bytes()
    }

    /// What was replaced, in words.
    pub fn replaced(&self) -> Vec<String> {
        let what = |by: &str| match by {
            HOST => "names of hosts",
            USER => "names of people",
            _ => "the path of the run's own folder",
        };
        self.replaced.iter().map(|(by, n)| format!("{}, {n} times, by `{by}`", what(by))).collect()
    }

    /// What was left and may tell something, in words.
    pub fn kept(&self) -> Vec<String> {
        let paths = self.kept.iter().map(|path| format!("paths below `{path}`"));
        paths.chain(self.opaque.iter().map(|file| format!("`{file}`, which is no text"))).collect()
    }
}

/// Calls `found` with what follows each `before`.
fn for_each_after(text: &str, before: &str, mut found: impl FnMut(&str)) {
    for (at, _) in text.match_indices(before) {
        found(&text[at + before.len()..]);
    }
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '-'
}

/// Replaces a name where it stands alone, not inside a longer word.
fn replace_word(text: &str, name: &str, by: &str) -> (String, usize) {
    let mut out = String::with_capacity(text.len());
    let (mut done, mut count) = (0, 0);
    for (at, _) in text.match_indices(name) {
        let end = at + name.len();
        let inside = |c: Option<char>| c.is_some_and(is_of_name);
        if inside(text[..at].chars().next_back()) || inside(text[end..].chars().next()) {
            continue;
        }
        out.push_str(&text[done..at]);
        out.push_str(by);
        (done, count) = (end, count + 1);
    }
    out.push_str(&text[done..]);
    (out, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_replaced_where_it_stands_alone() {
        assert_eq!(replace_word("vm kvm vm-1 (vm)", "vm", "H"), ("H kvm vm-1 (H)".into(), 2));
        assert_eq!(replace_word("", "vm", "H"), (String::new(), 0));
    }

    #[test]
    fn names_are_found_in_outputs_and_paths() {
        let dir = tempfile::tempdir().unwrap();
        let iperf = "{\"system_info\":\t\"Linux box7.example.org 6.1 #1\"}";
        std::fs::write(dir.path().join("a.json"), iperf).unwrap();
        std::fs::write(dir.path().join("b.log"), "read /home/mallory/x").unwrap();
        let mut scrub = Scrub::of_run(dir.path(), "vm7", &["trent".into()]).unwrap();
        let mut after = |text: &str| String::from_utf8(scrub.bytes("f", text.as_bytes())).unwrap();
        assert_eq!(after("on box7.example.org and box7"), "on lab-host and lab-host");
        assert_eq!(after("/home/mallory/key"), "/home/lab-user/key");
        assert_eq!(after("trent at vm7"), "lab-user at lab-host");
        assert_eq!(after(&format!("{}/raw/x", dir.path().display())), "RUN/raw/x");
        assert_eq!(after("/opt/lab/fordway"), "/opt/lab/fordway");
        assert_eq!(scrub.replaced().len(), 3);
        assert!(scrub.kept().contains(&"paths below `/opt/lab`".to_owned()), "{:?}", scrub.kept());
    }

    #[test]
    fn addresses_of_two_hosts_are_names_too() {
        let mut scrub = Scrub::default();
        scrub.address("root@2001:db8::7");
        scrub.address("mallory@192.0.2.7");
        let text = "address = \"root@[2001:db8::7]\" mallory@192.0.2.7 192.0.2.70";
        let text = String::from_utf8(scrub.bytes("spec.toml", text.as_bytes())).unwrap();
        assert_eq!(text, "address = \"root@[lab-host]\" lab-user@lab-host 192.0.2.70");
    }

    #[test]
    fn what_is_no_text_is_left_and_said() {
        let mut scrub = Scrub::of_names(&[("box7", HOST)]);
        assert_eq!(scrub.bytes("capture", &[0xff, 0xfe]), [0xff, 0xfe]);
        assert_eq!(scrub.kept(), ["`capture`, which is no text"]);
    }
}
