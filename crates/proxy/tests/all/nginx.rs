//! nginx as a server behind the proxy, and certificates for it.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output};

use fordway_proxy::Files;
use fordway_testhost::{certificates, poll};
use tempfile::TempDir;

/// A running nginx; it ends with this.
pub(crate) struct Nginx {
    child: Child,
    _folder: TempDir,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

impl Nginx {
    /// Serves what `servers` has, blocks of nginx's configuration, and listens at `port` of loopback when this returns.
    pub(crate) fn start(servers: &str, port: u16) -> Nginx {
        let folder = TempDir::new().unwrap();
        let path = folder.path().display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|it| format!("{it}_temp_path {path}/{it};"))
            .concat();
        let text = format!(
            "daemon off; user root; master_process off; pid {path}/pid; error_log {path}/error.log;\n\
             events {{}}\nhttp {{ access_log off; default_type text/plain; {temporary}\n{servers}\n}}\n"
        );
        let file = folder.path().join("nginx.conf");
        fs::write(&file, text).unwrap();
        let child = Command::new("nginx").arg("-c").arg(&file).spawn().unwrap();
        poll("nginx listens", || std::net::TcpStream::connect(("::1", port)).ok());
        Nginx { child, _folder: folder }
    }
}

/// Writes a certificate of its own authority for names, and its key, in the place of those that were there.
pub(crate) fn certificate(folder: &Path, file: &str, names: &[&str]) -> Files {
    let [certificate, key] = certificates::write(folder, file, names);
    Files { certificate, key }
}

/// A program with its arguments, without input.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).stdin(std::process::Stdio::null()).output().unwrap()
}

/// What curl prints.
pub(crate) fn curl(arguments: &[&str]) -> String {
    let output = run("curl", &[&["-sS", "-k", "--max-time", "30"], arguments].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text + &String::from_utf8_lossy(&output.stderr)
}
