//! A client with IPv6 alone, a host with both families for the proxy, and servers.
//!
//! ```text
//! client c0 2001:db8:1::5/64, ::6 ─── 2001:db8:1::1/64 lan0 gateway wan0 203.0.113.1/24 ─── s0 server
//!                                                             2001:db8:5::1/64
//! ```
//!
//! The server is 203.0.113.10 (v4only.example.net), and 203.0.113.20 and 2001:db8:5::20 (dual.example.net).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use fordway_testhost::{poll, poll_or};

use crate::common::daemon::{Daemon, RunDir};
use crate::common::dns::{Upstream, Zone};
use crate::common::netns::Netns;
use crate::common::process::Process;

/// The proxy as clients are told of it.
pub(crate) const PROXY: &str = "http://[2001:db8:1::1]:3128";

/// A proxy for all clients of the link, with a resolver of its own.
pub(crate) const FORWARD: &str = "[[proxy]]\nname = 'clients'\nlisten = ['2001:db8:1::1']\n\
                                  allow = ['2001:db8:1::/64']\nresolver = ['203.0.113.53']\n";

pub(crate) struct Network {
    pub(crate) client: Netns,
    pub(crate) gateway: Netns,
    pub(crate) server: Netns,
    pub(crate) origin: Origin,
    _names: Upstream,
    pub(crate) run: RunDir,
}

impl Network {
    pub(crate) fn new() -> Network {
        let [client, gateway, server] = ["client", "gw", "server"].map(Netns::new);
        gateway.link("lan0", &client, "c0");
        gateway.link("wan0", &server, "s0");
        client.ip("addr add 2001:db8:1::5/64 dev c0");
        // For those who ask for it.
        client.ip("addr add 2001:db8:1::6/64 dev c0 preferred_lft 0");
        gateway.configure(&[
            "addr add 2001:db8:1::1/64 dev lan0",
            "addr add 203.0.113.1/24 dev wan0",
            "addr add 2001:db8:5::1/64 dev wan0",
        ]);
        server.configure(&[
            "addr add 203.0.113.10/24 dev s0",
            "addr add 203.0.113.20/24 dev s0",
            "addr add 203.0.113.53/24 dev s0",
            "addr add 2001:db8:5::20/64 dev s0",
        ]);
        let _names = Upstream::start(&server, "203.0.113.53:53", zone());
        let origin = Origin::start(&server);
        Network { client, gateway, server, origin, _names, run: RunDir::new() }
    }

    /// Starts the daemon with this file.
    pub(crate) fn start(&self, text: &str) -> Daemon<'_> {
        let file = self.run.file("proxy.toml", text);
        Daemon::start(&self.run, &self.gateway, &format!("run {}", file.display()))
    }

    /// Puts another file in place and has it taken up.
    pub(crate) fn reload(&self, text: &str) {
        self.run.file("proxy.toml", text);
        let said = self.fordway("reload");
        assert!(!said.contains("error"), "{said}");
    }

    /// Runs a command of the program that must succeed.
    pub(crate) fn fordway(&self, arguments: &str) -> String {
        let output = self.run.output(&self.gateway, arguments);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(output.status.success(), "{arguments}: {said}");
        said
    }

    /// curl on the client, without a proxy; gives what it wrote. It must succeed.
    pub(crate) fn curl(&self, arguments: &str) -> String {
        output(self.client.command("curl").args(["-sS", "--max-time", "60"]).args(words(arguments)))
    }

    /// curl through the proxy.
    pub(crate) fn through(&self, arguments: &str) -> String {
        self.curl(&format!("--proxy {PROXY} {arguments}"))
    }

    /// The status that curl gets through the proxy.
    pub(crate) fn status_of(&self, arguments: &str) -> String {
        self.through(&format!("-o /dev/null -w %{{http_code}} {arguments}"))
    }

    /// What one proxy has counted.
    pub(crate) fn count(&self, daemon: &Daemon<'_>, what: &str) -> u64 {
        let stats = daemon.all_stats();
        let pointer = format!("/proxies/0/{what}");
        stats
            .pointer(&pointer)
            .and_then(serde_json::Value::as_u64)
            .unwrap_or_else(|| panic!("{what}: {stats}"))
    }

    /// Waits until a proxy has counted this and no more.
    #[track_caller]
    pub(crate) fn until_count(&self, daemon: &Daemon<'_>, what: &str, wanted: u64) {
        poll_or(
            || (self.count(daemon, what) >= wanted).then_some(()),
            || format!("{wanted} {what}: {}", self.count(daemon, what)),
        );
        assert_eq!(self.count(daemon, what), wanted, "{what}");
    }

    /// Lines of a file below the daemon's folder, once there are as many.
    pub(crate) fn lines(&self, name: &str, wanted: usize) -> Vec<String> {
        let path = self.run.path().join(name);
        poll("the lines are written", || {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            (lines.len() >= wanted).then_some(lines)
        })
    }

    /// Writes a certificate for these names, and its key.
    pub(crate) fn certificate(&self, names: &[&str]) -> (PathBuf, PathBuf) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let certificate = self.run.file("certificate.pem", &made.cert.pem());
        (certificate, self.run.file("key.pem", &made.signing_key.serialize_pem()))
    }

    /// OpenSSL's server on 203.0.113.10, which speaks TLS and answers any request with a page about it.
    pub(crate) fn tls_server(&self) -> Process {
        let (certificate, key) = self.certificate(&["v4only.example.net"]);
        let mut command = self.server.command("openssl");
        command.args(["s_server", "-quiet", "-www", "-accept", "203.0.113.10:443", "-cert"]);
        command.arg(certificate).arg("-key").arg(key).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process::start(&mut command);
        poll("the TLS server listens", || {
            self.server.run("ss -Hltn sport = :443").contains(":443").then_some(())
        });
        process
    }
}

fn zone() -> Zone {
    Zone::new("example.net")
        .a("v4only.example.net", "203.0.113.10")
        .a("dual.example.net", "203.0.113.20")
        .aaaa("dual.example.net", "2001:db8:5::20")
        // Names whose owners would like to see what is behind the proxy.
        .a("loopback.example.net", "127.0.0.1")
        .aaaa("loopback6.example.net", "::1")
        .aaaa("mapped.example.net", "::ffff:127.0.0.1")
        .aaaa("translated.example.net", "64:ff9b::7f00:1")
        .aaaa("own-translated.example.net", "64:ff9b::cb00:7101")
        .a("own.example.net", "203.0.113.1")
        .aaaa("own6.example.net", "2001:db8:1::1")
        .a("cloud.example.net", "169.254.169.254")
        .aaaa("link.example.net", "fe80::1")
}

/// A line as words; a word in double quotes may have spaces.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('"').enumerate();
    parts
        .flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        })
        .collect()
}

/// What a command wrote; it must succeed.
pub(crate) fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {text}{errors}");
    text
}

/// A web server that tells what it was asked, serves pages of any size, and one in two halves.
pub(crate) struct Origin {
    gate: Arc<Gate>,
}

/// Lets the second half of `/halves` go; and how many have come for it.
#[derive(Default)]
struct Gate(Mutex<bool>, Condvar, AtomicUsize);

/// Octets of each half.
pub(crate) const HALF: usize = 600_000;

impl Origin {
    fn start(server: &Netns) -> Origin {
        let gate = Arc::new(Gate::default());
        let listener = server.inside(|| TcpListener::bind("[::]:80").unwrap());
        let shared = Arc::clone(&gate);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let gate = Arc::clone(&shared);
                thread::spawn(move || serve(stream, &gate));
            }
        });
        Origin { gate }
    }

    /// Waits until somebody has been sent a first half.
    pub(crate) fn half_way(&self) {
        poll("half is sent", || (self.gate.2.load(Ordering::Relaxed) > 0).then_some(()));
    }

    /// Lets what waits, and what comes, have its second half.
    pub(crate) fn open(&self) {
        *self.gate.0.lock().unwrap() = true;
        self.gate.1.notify_all();
    }
}

fn serve(mut stream: TcpStream, gate: &Gate) -> std::io::Result<()> {
    let from = stream.peer_addr()?.ip().to_canonical();
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let content = content(&head, &mut reader)?;
        let path = head.split(' ').nth(1).unwrap_or_default();
        let (first, second) =
            match path.strip_prefix("/size/").map(|size| size.parse().unwrap_or(0)) {
                Some(size) => (vec![b'x'; size], Vec::new()),
                None if path == "/halves" => (vec![b'1'; HALF], vec![b'2'; HALF]),
                None => {
                    let text = format!(
                        "<p>you are {from}</p>\n<p>{content} octets</p>\n<pre>{head}</pre>\n"
                    );
                    (text.into_bytes(), Vec::new())
                }
            };
        let length = first.len() + second.len();
        let fields = format!("Content-Type: text/html\r\nContent-Length: {length}\r\n");
        stream.write_all(format!("HTTP/1.1 200 OK\r\n{fields}\r\n").as_bytes())?;
        if head.starts_with("HEAD ") {
            continue;
        }
        stream.write_all(&first)?;
        if !second.is_empty() {
            gate.2.fetch_add(1, Ordering::Relaxed);
            let open = gate.0.lock().unwrap();
            drop(gate.1.wait_while(open, |open| !*open).unwrap());
            stream.write_all(&second)?;
        }
    }
}

/// Reads what follows on a header section; tells how many octets.
fn content(head: &str, reader: &mut impl BufRead) -> std::io::Result<u64> {
    let field = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    if field("Transfer-Encoding").is_some() {
        let mut sum = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let size = u64::from_str_radix(line.trim(), 16).map_err(std::io::Error::other)?;
            std::io::copy(&mut reader.by_ref().take(size), &mut std::io::sink())?;
            reader.read_line(&mut line)?;
            if size == 0 {
                return Ok(sum);
            }
            sum += size;
        }
    }
    let length = field("Content-Length").and_then(|it| it.parse().ok()).unwrap_or(0);
    std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink())
}
