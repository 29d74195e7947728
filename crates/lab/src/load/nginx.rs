//! The configuration of nginx at the server.

use std::path::Path;

use fordway_data::addresses::SITE_PORT;

/// What its loads set.
pub(super) struct Nginx<'a> {
    /// Connections that may be open.
    pub(super) connections: u32,
    /// It closes a connection after so many requests.
    pub(super) kept: u32,
    /// Seconds for which a connection may idle.
    pub(super) idle_s: u32,
    /// What its socket has beside the port.
    pub(super) listen: &'a str,
    /// An address that is no file.
    pub(super) location: &'a str,
}

impl Nginx<'_> {
    /// The whole configuration: one worker, files from a folder's `root`.
    pub(super) fn config(&self, folder: &Path) -> String {
        let Self { connections, kept, idle_s, listen, location } = self;
        let at = folder.display();
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!(" {name}_temp_path {at}/{name};\n"))
            .concat();
        format!(
            "daemon off;\nuser root;\nworker_processes 1;\npid {at}/pid;\nerror_log stderr warn;\n\
             events {{ worker_connections {connections}; }}\n\
             http {{\n access_log off;\n sendfile on;\n tcp_nopush on;\n open_file_cache max=64;\n\
             \x20keepalive_requests {kept};\n keepalive_timeout {idle_s}s;\n{temporary}\
             \x20server {{ listen [::]:{SITE_PORT} ipv6only=off{listen}; root {at}/root;\n\
             \x20 location = {location} }}\n}}\n"
        )
    }
}
