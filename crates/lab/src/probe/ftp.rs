//! A file by FTP, from a real server (vsftpd) to a real client (curl), to see whether it gets through in either
//! mode. The server owns the usual port, since application gateways look at that one.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use fordway_data::files::write_file;
use fordway_data::trial::Check;

use super::payload;
use crate::backend::{Backend, Served};
use crate::error::{LabError, Result};
use crate::load::to_install;
use crate::process::{Output, last_lines};
use crate::state;
use crate::topology::Network;

/// The port of FTP's control connection.
const PORT: u16 = 21;
/// Octets of the file.
const LENGTH: usize = 65_536;
/// What the file is made from.
const SEED: u64 = 0x0f7b;
/// Seconds that a file may take, or fail in.
const PATIENCE_S: u64 = 6;

/// The whole configuration. Logged in or not, nobody can change anything.
fn config(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "listen=NO\nlisten_ipv6=YES\nbackground=NO\nanonymous_enable=YES\nno_anon_password=YES\n\
         anon_root={folder}/root\nsecure_chroot_dir={folder}/empty\nconnect_from_port_20=YES\n\
         accept_timeout=2\nconnect_timeout=2\nseccomp_sandbox=NO\nisolate_network=NO\nisolate=NO\n"
    )
}

/// What is not installed, with the line that installs it.
pub(super) fn missing() -> Option<String> {
    to_install(&[("vsftpd", "vsftpd"), ("curl", "curl")])
}

/// Starts the server of a network, until dropped, in a folder that its unprivileged user gets into.
pub(super) fn serve(backend: &dyn Backend, network: &Network, log: &Path) -> Result<Served> {
    let folder = state::notes().join(format!("{}-ftp", network.server.0));
    write_file(&folder.join("root/file"), &payload(SEED, LENGTH))?;
    let empty = folder.join("empty");
    std::fs::create_dir_all(&empty).map_err(LabError::file(&empty))?;
    for path in [&folder, &folder.join("root"), &empty] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
            .map_err(LabError::file(path))?;
    }
    let file = folder.join("vsftpd.conf");
    write_file(&file, config(&folder).as_bytes())?;
    let argv = ["vsftpd", &file.display().to_string()].map(str::to_owned);
    Served::start(backend, &network.server, &argv, PORT, folder, log)
}

/// Fetches the file; `active`: the server connects to the client.
pub(super) fn fetch(
    backend: &dyn Backend,
    network: &Network,
    active: bool,
    into: &Path,
) -> Result<Check> {
    let file = into.display().to_string();
    let _ = std::fs::remove_file(into);
    let patience = PATIENCE_S.to_string();
    let mut argv = vec!["curl", "-sS", "-v", "-g", "--max-time", &patience];
    argv.extend(["--connect-timeout", "4", "--output", &file]);
    if active {
        argv.extend(["--ftp-port", "-"]);
    }
    let proxy = network.proxy()?.map(|proxy| format!("http://{proxy}"));
    if let Some(proxy) = &proxy {
        argv.extend(["--proxytunnel", "--proxy", proxy]);
    }
    let target = network.target;
    let host = if target.is_ipv6() { format!("[{target}]") } else { target.to_string() };
    let url = format!("ftp://{host}/file");
    argv.push(&url);
    let argv: Vec<String> = argv.into_iter().map(str::to_owned).collect();
    let limit = Duration::from_secs(PATIENCE_S + 5);
    let out = backend.run(Some(&network.app), &argv, Output::Keep)?.wait(limit)?;
    let came = std::fs::read(into).unwrap_or_default();
    let _ = std::fs::remove_file(into);
    let outcome = if !out.status.success() {
        Err(reason(&out.stderr))
    } else if came != payload(SEED, LENGTH) {
        Err(format!("{} octets came, not the file", came.len()))
    } else {
        Ok(format!("{}: {} KiB intact", asked(&out.stderr), LENGTH >> 10))
    };
    Ok(Check::of(if active { "FTP active" } else { "FTP passive" }, outcome))
}

/// How data connections were asked for at last: `EPSV`, `PASV`, `EPRT`, `PORT`.
fn asked(said: &str) -> String {
    let commands = ["EPSV", "PASV", "EPRT", "PORT"];
    let sent = said.lines().filter_map(|line| line.strip_prefix("> "));
    let word = |line: &str| commands.into_iter().find(|command| line.starts_with(command));
    sent.filter_map(word).next_back().unwrap_or("no command").to_owned()
}

/// Why there is no file: what the server refused, or what curl says.
fn reason(said: &str) -> String {
    let server = |line: &&str| {
        let status = line.strip_prefix("< ").and_then(|rest| rest.get(..4)).unwrap_or_default();
        matches!(status.as_bytes(), [b'4' | b'5', _, _, b' '])
    };
    let refused = said.lines().rfind(server).map(|line| line[2..].trim().to_owned());
    let curl = said.lines().rfind(|line| line.starts_with("curl: "));
    let curl = curl.map_or_else(|| last_lines(said, 1), |line| line.trim().to_owned());
    // What curl says of a refusal is its own guess at the reason.
    refused.map_or(curl, |refused| format!("after {}: the server says: {refused}", asked(said)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_and_why_not_is_read_from_what_curl_says() {
        let said = "* Trying\n> USER anonymous\n< 230 come in\n> EPRT |2|2001:db8::1|4000|\n\
                    < 522 Bad network protocol.\n> PORT 1,2\n< 500 Illegal PORT command.\n\
                    curl: (30) Failed to do PORT\n";
        assert_eq!(asked(said), "PORT");
        let why = reason(said);
        assert_eq!(why, "after PORT: the server says: 500 Illegal PORT command.");
        let silent = "* Trying\ncurl: (28) Connection timed out after 4001 milliseconds\n";
        assert_eq!(reason(silent), "curl: (28) Connection timed out after 4001 milliseconds");
    }

    #[test]
    fn nobody_can_change_what_is_served() {
        let text = config(Path::new("/run/x"));
        assert!(text.contains("anon_root=/run/x/root\n") && !text.contains("write_enable"));
    }
}
