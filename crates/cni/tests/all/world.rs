//! A node, its gateway, a server that has IPv4 only, and pods.
//!
//! ```text
//! pod eth0 ─── node up0 2001:db8:ff::2/64 ─── gw0 2001:db8:ff::1/64 gateway gw1 198.51.100.1/24 ─── s0 198.51.100.10 server
//! 2001:db8:5::/64                              NAT64 2001:db8:64::/96, 203.0.113.0/28; DNS64
//! ```

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use fordway_bpf::{PodHook, remove_empty};
use fordway_cni::{Failure, Request, Steps, answer};
use fordway_net::{NamespaceId, Netlink};
use fordway_testhost::namespace::Namespace;
use fordway_testhost::{PATIENCE, can_use_tun, has_programs, poll, require};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The plugin.
pub(crate) const CNI: &str = env!("CARGO_BIN_EXE_fordway-cni");

/// Where Debian installs the reference plugins.
const PLUGINS: &str = "/usr/lib/cni";

/// Octets of the larger page: many segments.
const LARGE: usize = 300_000;

/// A folder whose path is short wherever the folder for temporary files is: paths of sockets are limited.
pub(crate) fn short_folder() -> TempDir {
    tempfile::Builder::new().prefix("fwt-").tempdir_in("/tmp").expect("a folder")
}

pub(crate) fn can_run() -> bool {
    let gateway = Path::new(CNI).with_file_name("fordway");
    can_use_tun()
        && has_programs(&["ip", "curl", "dnsmasq", "ping"])
        && require(
            Path::new(PLUGINS).join("ptp").exists(),
            "containernetworking-plugins is not installed",
        )
        && require(gateway.exists(), "the program fordway is not built beside fordway-cni")
        && match fordway_bpf::probe() {
            Ok(_) => true,
            Err(why) => require(false, &why.to_string()),
        }
}

/// Where the plugin has a lock and discovered prefixes.
const RUN: &str = "/run/fordway-cni";

/// Whether a file there is that of a node, complete or not.
fn is_of(path: &Path, node: &str) -> bool {
    let name = path.file_name().expect("a name").to_string_lossy();
    let name = name.strip_suffix(".new").unwrap_or(&name);
    name.strip_suffix(node).is_some_and(|begin| begin.ends_with('-'))
}

/// Programs that end with the test.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
            let _ = child.wait();
        }
    }
}

pub(crate) struct World {
    pub(crate) node: Arc<Namespace>,
    pub(crate) gateway: Namespace,
    _server: Namespace,
    folder: TempDir,
    _children: Children,
}

impl Drop for World {
    /// What a test that failed has left: nobody else would find it.
    fn drop(&mut self) {
        let folder = self.pin("");
        let pins = self.pins().into_iter().map(|name| folder.join(name));
        for path in pins.chain(self.files()) {
            let _ = fs::remove_file(path);
        }
        remove_empty(&folder);
        let _ = fs::remove_dir(RUN);
    }
}

/// A pod before any plugin has run.
pub(crate) struct Pod {
    pub(crate) namespace: Namespace,
    pub(crate) id: String,
}

impl Pod {
    pub(crate) fn new() -> Pod {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let namespace = Namespace::create();
        Pod { namespace, id: format!("pod{number}-{}", std::process::id()) }
    }

    /// What is left of a CLAT in it.
    pub(crate) fn leftovers(&self) -> String {
        let addresses = self.namespace.ip("-o addr show scope global");
        let of_clat =
            addresses.lines().filter(|line| line.contains("192.0.0.1") || line.contains(":c1a"));
        let mut left: Vec<String> = of_clat.map(str::to_owned).collect();
        left.extend(self.namespace.ip("-4 route show").lines().map(str::to_owned));
        left.extend(self.programs());
        left.join("\n")
    }

    /// Programs of the plugin at its device.
    fn programs(&self) -> Vec<String> {
        self.namespace.run(|| {
            let hook = hook();
            hook.map_or_else(Vec::new, |hook| hook.names().expect("programs"))
        })
    }

    /// Takes the programs off, as somebody in the pod may.
    pub(crate) fn detach(&self) {
        self.namespace.run(|| hook().expect("a device").detach(false).expect("to detach"));
    }
}

/// The hook of the device, in the pod's namespace; without the device there is nothing at it.
fn hook() -> Option<PodHook> {
    let link = Netlink::open().expect("netlink").find_link("eth0").expect("links")?;
    Some(PodHook::new(link.index, false))
}

impl World {
    pub(crate) fn new() -> World {
        let [node, gateway, server] = [(); 3].map(|()| Namespace::create());
        node.ip(&format!("link add up0 type veth peer name gw0 netns {}", gateway.path));
        gateway.ip(&format!("link add gw1 type veth peer name s0 netns {}", server.path));
        for (namespace, devices) in
            [(&node, &["up0"][..]), (&gateway, &["gw0", "gw1"]), (&server, &["s0"])]
        {
            devices.iter().for_each(|device| drop(namespace.ip(&format!("link set {device} up"))));
        }
        node.add_address("2001:db8:ff::2/64", "up0");
        gateway.add_address("2001:db8:ff::1/64", "gw0");
        gateway.add_address("198.51.100.1/24", "gw1");
        server.add_address("198.51.100.10/24", "s0");
        node.sysctl("ipv6/conf/all/forwarding", "1");
        node.ip("-6 route add default via 2001:db8:ff::1");
        gateway.ip("-6 route add 2001:db8:5::/64 via 2001:db8:ff::2");
        gateway.ip("-6 route add 2001:db8:c1a7::/64 via 2001:db8:ff::2");
        server.ip("route add 203.0.113.0/28 via 198.51.100.1");
        let folder = short_folder();
        let mut children = Children(Vec::new());
        children.0.push(name_server(&gateway));
        children.0.push(translator(&gateway, folder.path()));
        serve(&server);
        serve_echo(&server);
        World { node: Arc::new(node), gateway, _server: server, folder, _children: children }
    }

    /// The configuration of the plugin before, `ptp` or `bridge`.
    pub(crate) fn first(&self, kind: &str) -> Value {
        let subnet = json!([[{ "subnet": "2001:db8:5::/64" }]]);
        let data = self.folder.path().join("ipam");
        let ipam = json!({ "type": "host-local", "dataDir": data, "ranges": subnet, "routes": [{ "dst": "::/0" }] });
        let mut first =
            json!({ "cniVersion": "1.0.0", "name": "pods", "type": kind, "ipam": ipam });
        if kind == "bridge" {
            first["bridge"] = json!("cni0");
            first["isGateway"] = json!(true);
            // The tests' namespaces have no time to lose.
            first["hairpinMode"] = json!(false);
        }
        first
    }

    /// The plugin's own, with these keys.
    pub(crate) fn second(more: &Value) -> Value {
        let mut all = json!({ "cniVersion": "1.0.0", "name": "pods", "type": "fordway-cni", "pref64": "2001:db8:64::/96" });
        let map = all.as_object_mut().expect("an object");
        map.extend(more.as_object().expect("an object").clone());
        all
    }

    /// Runs a plugin as a runtime does. Its answer, or the error that it printed.
    pub(crate) fn call(
        &self,
        plugin: &Path,
        command: &str,
        pod: Option<&Pod>,
        conf: &Value,
    ) -> Result<Value, Value> {
        let mut run = Command::new(plugin);
        run.env("CNI_COMMAND", command).env("CNI_PATH", PLUGINS);
        if let Some(pod) = pod {
            run.env("CNI_CONTAINERID", &pod.id)
                .env("CNI_NETNS", &pod.namespace.path)
                .env("CNI_IFNAME", "eth0");
        }
        run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let conf = conf.to_string();
        let output = self.node.run(move || {
            let mut child = run.spawn().expect("a plugin");
            child.stdin.take().expect("a pipe").write_all(conf.as_bytes()).expect("to write");
            child.wait_with_output().expect("its output")
        });
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let value = if text.is_empty() { Ok(Value::Null) } else { serde_json::from_str(&text) };
        let value =
            value.unwrap_or_else(|error| panic!("{plugin:?} {command}: {error}: {text}{said}"));
        if output.status.success() { Ok(value) } else { Err(value) }
    }

    /// Runs the plugin before.
    pub(crate) fn call_first(&self, kind: &str, command: &str, pod: &Pod) -> Value {
        let plugin = PathBuf::from(PLUGINS).join(kind);
        self.call(&plugin, command, Some(pod), &self.first(kind))
            .unwrap_or_else(|error| panic!("{kind} {command}: {error}"))
    }

    /// Runs the plugin.
    pub(crate) fn cni(&self, command: &str, pod: &Pod, conf: &Value) -> Result<Value, Value> {
        self.call(Path::new(CNI), command, Some(pod), conf)
    }

    /// A pod with an IPv6 address by `kind`, and the plugin's configuration with the result.
    pub(crate) fn pod(&self, kind: &str, more: &Value) -> (Pod, Value) {
        let pod = Pod::new();
        let previous = self.call_first(kind, "ADD", &pod);
        let mut conf = World::second(more);
        conf["prevResult"] = previous;
        (pod, conf)
    }

    /// Runs the library's side of a command, with these steps only.
    pub(crate) fn steps(
        &self,
        command: fordway_cni::Command,
        pod: &Pod,
        conf: &Value,
        number: usize,
    ) -> Result<Option<String>, Failure> {
        let (id, netns) = (pod.id.clone(), pod.namespace.path.clone());
        let variable = move |name: &str| match name {
            "CNI_CONTAINERID" => Some(id.clone()),
            "CNI_NETNS" => Some(netns.clone()),
            "CNI_IFNAME" => Some("eth0".to_owned()),
            _ => None,
        };
        let conf = conf.to_string();
        self.node.run(move || {
            let request = Request::read(command, variable, conf.as_bytes())?;
            answer(&request, Steps::only(number))
        })
    }

    /// What `fordway-cni list --json` says of a pod.
    pub(crate) fn listed(&self, pod: &Pod) -> Option<Value> {
        let text = self.node.output(CNI, "list --json");
        let all: Value = serde_json::from_str(&text).expect("JSON");
        all["pods"].as_array().expect("a list").iter().find(|it| it["container"] == pod.id).cloned()
    }

    /// A pin of the node.
    pub(crate) fn pin(&self, name: &str) -> PathBuf {
        let id = self.node.run(|| NamespaceId::current().expect("a namespace")).to_string();
        Path::new("/sys/fs/bpf/fordway-cni").join(id).join(name)
    }

    /// The names of the node's pins.
    pub(crate) fn pins(&self) -> Vec<String> {
        let entries = fs::read_dir(self.pin("")).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// The node's files of the plugin.
    fn files(&self) -> Vec<PathBuf> {
        let id = self.node.run(|| NamespaceId::current().expect("a namespace")).to_string();
        let entries = fs::read_dir(RUN).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| is_of(path, &id)).collect()
    }

    /// The file of a discovered prefix.
    pub(crate) fn prefix_file(&self) -> Option<PathBuf> {
        self.files().into_iter().find(|path| path.display().to_string().contains("/pref64-"))
    }

    /// What is left on the node: entries, programs, routes, files.
    pub(crate) fn leftovers(&self) -> String {
        let mut left = Vec::new();
        let pins = self.pin("");
        if pins.exists() {
            left.push(pins.display().to_string());
        }
        left.extend(self.files().iter().map(|path| path.display().to_string()));
        left.extend(self.node.ip("-6 route show proto 246").lines().map(str::to_owned));
        left.join("\n")
    }

    /// Sends a datagram to the server's echo service, and waits for the answer's length.
    pub(crate) fn echo(&self, pod: &Pod, len: usize) -> usize {
        pod.namespace.run(move || {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
            socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            socket.send_to(&vec![7; len], "198.51.100.10:7").expect("to send");
            socket.recv(&mut vec![0; 65_535]).expect("an answer")
        })
    }

    /// Fetches a page, in the pod, with the gateway's DNS64 as its resolver.
    pub(crate) fn fetch(&self, pod: &Pod, url: &str) -> String {
        let resolv = self.folder.path().join("resolv.conf");
        fs::write(&resolv, "nameserver 2001:db8:ff::1\n").expect("a file");
        let script = format!(
            "mount --bind {} /etc/resolv.conf && exec curl -sS --max-time 60 {url}",
            resolv.display()
        );
        let output = pod.namespace.run(move || {
            let mut command = Command::new("unshare");
            command
                .args(["--mount", "sh", "-c", &script])
                .stdin(Stdio::null())
                .output()
                .expect("unshare")
        });
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{url}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// Answers for a name that has IPv4 only.
fn name_server(gateway: &Namespace) -> Child {
    gateway.run(|| {
        let mut command = Command::new("dnsmasq");
        command.args([
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--no-resolv",
            "--no-hosts",
            "--pid-file=",
        ]);
        command.args([
            "--user=root",
            "--bind-interfaces",
            "--listen-address=127.0.0.53",
            "--log-facility=-",
        ]);
        command.arg("--address=/v4only.example.net/198.51.100.10");
        command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("dnsmasq")
    })
}

fn translator(gateway: &Namespace, folder: &Path) -> Child {
    let config = folder.join("gateway.toml");
    let text = "[[translator]]\nname = \"nat64\"\nmode = \"nat64\"\npool6 = [\"2001:db8:64::/96\"]\n\
                pool4 = [\"203.0.113.0/28\"]\n\n\
                [dns64]\nlisten = [\"2001:db8:ff::1\"]\nupstream = [\"127.0.0.53\"]\nallow = [\"2001:db8::/32\"]\n";
    fs::write(&config, text).expect("a file");
    let log = folder.join("gateway.log");
    let (run_dir, out) = (folder.join("run"), File::create(&log).expect("a file"));
    let mut child = gateway.run(move || {
        let mut command = Command::new(Path::new(CNI).with_file_name("fordway"));
        command.arg("--run-dir").arg(run_dir).arg("run").arg("-c").arg(config);
        command.env_remove("NOTIFY_SOCKET").env_remove("JOURNAL_STREAM").env("NO_COLOR", "1");
        command.stdin(Stdio::null()).stderr(out).spawn().expect("fordway")
    });
    poll("the gateway is ready", || {
        let text = fs::read_to_string(&log).expect("a log");
        assert!(child.try_wait().expect("a child").is_none(), "the gateway has ended: {text}");
        text.contains("ready after").then_some(())
    });
    child
}

/// A service that sends datagrams back.
fn serve_echo(server: &Namespace) {
    let socket = server.run(|| UdpSocket::bind("0.0.0.0:7").expect("a socket"));
    thread::spawn(move || {
        let mut octets = vec![0; 65_535];
        while let Ok((len, from)) = socket.recv_from(&mut octets) {
            let _ = socket.send_to(&octets[..len], from);
        }
    });
}

/// A web server that tells its visitors their address; `/large` is a page of many segments.
fn serve(server: &Namespace) {
    let listener = server.run(|| TcpListener::bind("0.0.0.0:80").expect("a listener"));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || -> std::io::Result<()> {
                let from = stream.peer_addr()?.ip();
                let mut lines = BufReader::new(stream.try_clone()?).lines();
                let asked = lines.next().transpose()?.unwrap_or_default();
                while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
                let body = if asked.contains("/large") {
                    "x".repeat(LARGE)
                } else {
                    format!("you are {from}")
                };
                write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                )
            });
        }
    });
}
