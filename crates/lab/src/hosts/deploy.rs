//! The lab's own programs on another host: by their hash, so that a second run copies nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fordway_data::spec::HostSpec;
use fordway_data::trial::hash;

use super::MARK;
use super::ssh::Connection;
use crate::error::{LabError, Result};

/// Where they stay between runs; `doctor --clean --hosts` removes them.
pub(super) const CACHE: &str = "/var/cache/fordway-lab";
/// How long copying a program may take.
const COPY: Duration = Duration::from_secs(300);
/// How long a short command may take.
const SHORT: Duration = Duration::from_secs(20);

/// The programs on a host.
#[derive(Debug, Clone)]
pub(super) struct Programs {
    /// The lab itself.
    pub(super) lab: PathBuf,
    /// The gateway, where this machine has it.
    pub(super) fordway: Option<PathBuf>,
}

/// An error unless the machine itself says that it is a lab host, and lets us be root; before anything is changed.
pub(super) fn allowed(connection: &Connection, host: &HostSpec) -> Result<()> {
    let said = connection.said(&format!("id -u; test -f {MARK} && echo marked || true"), SHORT)?;
    let mut words = said.split_whitespace();
    if words.next() != Some("0") {
        return Err(LabError::Usage(format!(
            "host {}: the login is not root's, who alone can make namespaces: write address = \"root@...\"",
            host.name
        )));
    }
    if words.next() != Some("marked") {
        return Err(LabError::Usage(format!(
            "host {}: it has no {MARK}, which says that this machine may be loaded to its limits. If it is the right \
             one, make it there with `touch {MARK}`, or with `fordway-lab hosts --mark FILE`",
            host.name
        )));
    }
    Ok(())
}

/// Puts this program, and the gateway's, on a host and tries whether they run there.
pub(super) fn programs(connection: &Connection, fordway: Option<&Path>) -> Result<Programs> {
    let own = std::env::current_exe().map_err(LabError::file("/proc/self/exe"))?;
    let lab = put(connection, &own, "fordway-lab")?;
    let fordway = fordway.map(|path| put(connection, path, "fordway")).transpose()?;
    for program in [Some(&lab), fordway.as_ref()].into_iter().flatten() {
        runs(connection, program)?;
    }
    Ok(Programs { lab, fordway })
}

/// Copies a file unless it is there already, and says where.
fn put(connection: &Connection, file: &Path, name: &str) -> Result<PathBuf> {
    let bytes = std::fs::read(file).map_err(LabError::file(file))?;
    let hash = hash(&bytes);
    let folder = format!("{CACHE}/{hash}");
    let path = format!("{folder}/{name}");
    let there = format!(
        "test \"$(sha256sum < {path} 2>/dev/null | cut -c1-64)\" = {hash} && echo there || true"
    );
    if connection.said(&there, SHORT)?.trim() == "there" {
        return Ok(path.into());
    }
    // Under another name first: a copy that is cut short must not look like the program.
    let copy = format!(
        "set -e; mkdir -p {folder}; cat > {path}.$$; chmod 755 {path}.$$; \
         test \"$(sha256sum < {path}.$$ | cut -c1-64)\" = {hash}; mv {path}.$$ {path}"
    );
    connection.said_reading(&copy, file, COPY).map_err(|error| {
        if error.is_lost_host() && connection.lost().is_some() {
            return error;
        }
        connection.error(&format!("cannot copy {name} to {folder}: {error}"))
    })?;
    Ok(path.into())
}

/// Whether a program starts on the host.
fn runs(connection: &Connection, program: &Path) -> Result<()> {
    let shown = program.display();
    let tried = format!(
        "{shown} --version 2>&1 || {{ uname -m; ldd --version 2>&1 | head -n 1; exit 1; }}"
    );
    connection.said(&tried, SHORT).map(drop).map_err(|error| {
        if connection.lost().is_some() {
            return error;
        }
        connection.error(&format!(
            "{shown} does not run there ({error}); it was made for {} with this machine's C library. For an older \
             library make static programs (`make static`), for another processor build them for it",
            std::env::consts::ARCH
        ))
    })
}
