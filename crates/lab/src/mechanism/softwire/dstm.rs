//! What is particular to DSTM: server and tunnel end point in one, a client that asks, and the key that they share.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use fordway_data::addresses::{BOUND_V4, CLAT_V6, HOST_V6, POOL4, TUNNEL_END_V6};
use fordway_data::files::write_file;
use fordway_data::spec::MechanismSpec;

use super::{engine, place};
use crate::error::{LabError, Result};
use crate::mechanism::{Context, run_dir};

/// The client's name.
const ID: &str = "lab";

/// Makes a key for this deployment alone, and says where it is.
pub(super) fn key(context: Context<'_>) -> Result<String> {
    let file = run_dir(context).join("key");
    let octets: [u8; 32] = rand::random();
    let text: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
    write_file(&file, text.as_bytes())?;
    std::fs::set_permissions(&file, Permissions::from_mode(0o600))
        .map_err(LabError::file(&file))?;
    Ok(file.display().to_string())
}

/// Options of server and tunnel end point: the client always gets the same address of the pool.
pub(super) fn server(context: Context<'_>, key: &str) -> Vec<String> {
    let client = format!("{ID}={key},{BOUND_V4}");
    let leases = run_dir(context).join("leases").display().to_string();
    let own = ["dstm-server", "--listen", HOST_V6, "--local", TUNNEL_END_V6, "--pool", POOL4];
    let rest = ["--client", &client, "--state", &leases, "--engine", engine(context.spec)];
    [&own[..], &rest, &place(context.spec)].concat().into_iter().map(str::to_owned).collect()
}

/// Options of the client.
pub(super) fn client(arm: &MechanismSpec, key: &str) -> Vec<String> {
    let own = ["dstm-client", "--server", HOST_V6, "--key-file", key, "--id", ID];
    let rest = ["--local", CLAT_V6, "--uplink", "uplink", "--engine", engine(arm)];
    [&own[..], &rest].concat().into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fordway_data::spec::Experiment;

    #[test]
    fn client_and_server_meet() {
        let experiment = Experiment::find("interop-mechanisms").unwrap();
        let arm = experiment.mechanism("dstm-fordway-interface").unwrap();
        let client = client(arm, "/key").join(" ");
        assert!(client.contains("--server 2001:db8:f::1 --key-file /key --id lab"), "{client}");
        assert!(client.contains("--engine kernel"), "{client}");
        assert!(POOL4.starts_with("203.0.113.64/") && BOUND_V4 == "203.0.113.65");
    }
}
