//! The documents and example files say what the program does.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use fordway_config::{load, parse};
use fordway_testhost::has_programs;
use fordway_xlat::DropReason;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document(name: &str) -> String {
    std::fs::read_to_string(root().join("docs").join(name)).unwrap()
}

#[test]
fn every_drop_reason_is_documented_with_its_number_and_text() {
    let text = document("drop-reasons.md");
    let rows: Vec<&str> = text.lines().filter(|line| line.contains(" | `")).collect();
    assert_eq!(rows.len(), DropReason::ALL.len());
    for (row, reason) in rows.iter().zip(DropReason::ALL) {
        let start = format!("| {} | `{}` | {} | ", reason.number(), reason.label(), reason.text());
        let advice = row.strip_prefix(&start).unwrap_or_else(|| panic!("{row}\nexpected {start}"));
        assert!(advice.len() > 5, "{row}");
    }
}

#[test]
fn every_key_is_documented() {
    let text = document("configuration.md");
    let example = "[[translator]]\nname = 'a'\nmode = 'siit'\npool6 = ['2001:db8:64::/96']\n\
                   dynamic4 = ['203.0.113.0/24']\ndynamic4_clients = ['2001:db8::/32']\n\
                   attach = 'ingress'\ndevices = ['eth0']\nforward = 'direct'\n\
                   [[translator]]\nname = 'b'\nmode = 'clat'\npref64 = '64:ff9b::/96'\n\
                   attach = 'xdp'\ndevices = ['eth0']\n\
                   [[translator]]\nname = 'c'\nmode = 'nat64'\npool6 = ['2001:db8:65::/96']\n\
                   pool4 = ['192.0.2.1']\nport_blocks = { size = 512 }\nalg = ['ftp']\n\
                   [[translator.pool]]\npool4 = ['192.0.2.2']\nmark = 1\n\
                   clients = ['2001:db8::/128']\ndeterministic = { size = 512 }\n\
                   [[translator.log]]\nwhat = ['blocks']\nto = 'ipfix:tls:192.0.2.9:4740'\n\
                   ca = '/ca'\ncertificate = '/c'\nkey = '/k'\n\
                   [[translator]]\nname = 'd'\nmode = 'clat'\npref64 = 'auto'\nalways = true\nmetric = 9\n\
                   [[translator]]\nname = 'e'\nmode = 'nat44'\nclients = ['198.51.100.0/24']\n\
                   uplink = 'wan0'\ndevices = ['lan0']\npool4 = ['192.0.2.3']\n\
                   [[translator]]\nname = 'f'\nmode = 'dual-stack'\ndevices = ['lan0']\n\
                   [[translator]]\nname = 'g'\nmode = 'softwire'\nrole = 'tep'\nlocal = '2001:db8:2::1'\n\
                   bindings = [{ v4 = '192.0.2.9', remote = '2001:db8:1::9' }]\n\
                   [[translator]]\nname = 'h'\nmode = 'softwire'\nrole = 'client'\nv4 = '192.0.2.8'\n\
                   remote = '2001:db8:3::1'\npsid = 1\npsid_len = 4\nmetric = 8\n\
                   [dns64]\nlisten = ['::1']\nupstream = ['tls://192.0.2.53']\nca = '/ca'\n\
                   pool6 = ['2001:db8:64::/96']\nreverse = 'local'\nreverse_domain = 'example'\n\
                   validate = true\ntrust_anchor = '/key'\ncookie_secret = '/s'\n\
                   [[dns64.forward]]\ndomain = 'a.example'\nupstream = ['192.0.2.54']\nsynthesise = true\n\
                   [[dns64.policy]]\nclient = ['::/1']\nexclude = []\n\
                   [[advertise]]\ndevice = 'lan0'\nprefix = []\nrdnss = []\npref64 = []\n\
                   captive_portal = 'https://a.example/'\n\
                   [[advertise.dnr]]\nname = 'a.example'\n\
                   [[advertise.route]]\nprefix = '2001:db8:64::/48'\n\
                   [[proxy]]\nname = 'a'\nlisten = ['::1']\nca = '/ca'\ncertificate = '/c'\nkey = '/k'\n\
                   [[proxy.rule]]\nclient = ['::/1']\nto = ['a.example']\nports = [1]\naction = 'allow'\n\
                   [[proxy]]\nname = 'b'\nmode = 'reverse'\nlisten = ['::1']\nupstream = ['192.0.2.1']\n\
                   [[proxy.tls]]\ncertificate = '/c'\nkey = '/k'\n\
                   [proxy.check]\nkind = 'http'\nhost = 'a.example'\n\
                   [[proxy]]\nname = 'c'\nmode = 'passthrough'\nlisten = ['::2']\n\
                   [[proxy.route]]\nname = ['a.example']\nupstream = ['192.0.2.1']\n\
                   [control]\nread_group = 'fordway'\n[metrics]\ntoken_file = '/t'\n\
                   [dstm_server]\nlisten = ['::1']\npool = ['192.0.2.64/28']\ntep_address = '2001:db8:2::1'\n\
                   tep_control = '2001:db8:2::2'\ntep_key_file = '/k'\n\
                   [[dstm_server.client]]\nid = 'a'\nkey_file = '/k'\nv4 = '192.0.2.65'\n\
                   [[dstm_server.prefix]]\nprefix = '2001:db8:1::/64'\nkey_file = '/k'\n\
                   [dstm_tep]\nlisten = '::1'\ntep = 'g'\nkey_file = '/k'\n\
                   [[dstm_client]]\nname = 'i'\nserver = ['2001:db8::1']\nid = 'a'\nkey_file = '/k'\n";
    let written = parse("example", example).unwrap().config.to_string();
    // A key has its value behind it, or is the last word of a table's header.
    let key = |line: &str| match line.split_once(" = ") {
        Some((key, _)) => Some(key.to_owned()),
        None => {
            let header = line.trim_matches(['[', ']']);
            let (_, key) = line.starts_with('[').then_some(header)?.rsplit_once('.')?;
            Some(key.to_owned())
        }
    };
    // A gateway shows servers of the store in one way who it is, and a cluster shares one translator.
    let logins =
        ["credentials_file = '/c'", "nkey_file = '/n'", "user = 'u'\npassword_file = '/p'"];
    let clusters = logins.map(|login| {
        let text = format!(
            "[[translator]]\nname = 'g'\nmode = 'nat64'\nengine = 'user'\npool6 = ['2001:db8:64::/96']\npool4 = ['192.0.2.0/26']\n\
             [cluster]\nname = 'a'\nkey_file = '/k'\ncertificate = '/c'\nkey = '/y'\nauthority = '/a'\n\
             [[cluster.gateway]]\nnumber = 1\nname = 'a'\naddress = '2001:db8::1'\nnext_hop = '2001:db8::1'\nnext_hop4 = '192.0.2.65'\n\
             [cluster.store]\nservers = ['tls://a']\ncertificate = '/c'\nkey = '/y'\nauthority = '/a'\n{login}\n"
        );
        parse("cluster", &text).unwrap().config.to_string()
    });
    let lines = written.lines().chain(clusters.iter().flat_map(|text| text.lines()));
    let keys: HashSet<String> = lines.filter_map(key).collect();
    assert!(keys.len() > 120);
    for key in &keys {
        assert!(text.contains(&format!("| `{key}` |")), "`{key}` is not in configuration.md");
    }
    // And nothing else is.
    for line in text.lines() {
        if let Some(key) = line.strip_prefix("| `").and_then(|rest| rest.split('`').next()) {
            assert!(keys.contains(key), "`{key}` in configuration.md is no key");
        }
    }
}

#[test]
fn files_in_documents_and_packaging_are_valid() {
    let text = document("configuration.md");
    let mut blocks = text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    assert!(blocks.clone().count() >= 1);
    assert!(blocks.all(|block| parse("configuration.md", block).is_ok()));
    let packaging = root().join("packaging");
    let examples = std::fs::read_dir(packaging.join("examples")).unwrap();
    let mut files: Vec<PathBuf> = examples.map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 4);
    files.push(packaging.join("fordway.toml"));
    let examples = std::fs::read_dir(root().join("examples")).unwrap();
    let examples = examples.map(|entry| entry.unwrap().path());
    // Beside them is a script.
    files.extend(examples.filter(|path| path.extension().is_some_and(|it| it == "toml")));
    for file in files {
        let loaded = load(&file).unwrap_or_else(|error| panic!("{error}"));
        assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    }
}

/// Whole translators parse; lines of one are put into a small one first.
#[test]
fn examples_of_nat64_are_valid() {
    let text = document("nat64.md");
    let blocks: Vec<&str> =
        text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() >= 7);
    for block in blocks {
        let whole = if block.starts_with("[[translator]]") {
            block.to_owned()
        } else {
            format!(
                "[[translator]]\nname = 'nat64'\nmode = 'nat64'\npool6 = ['64:ff9b::/96']\n\
                 pool4 = ['192.0.2.1']\n{block}"
            )
        };
        let loaded = parse("nat64.md", &whole).unwrap_or_else(|report| panic!("{report}"));
        assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    }
}

#[test]
fn examples_of_nat44_and_dstm_are_valid() {
    for (name, least) in [("nat44.md", 3), ("dstm.md", 2)] {
        let text = document(name);
        let blocks = text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
        assert!(blocks.clone().count() >= least);
        for block in blocks {
            let loaded = parse(name, block).unwrap_or_else(|report| panic!("{report}"));
            assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
        }
    }
}

#[test]
fn the_systemd_unit_is_sound() {
    let unit = std::fs::read_to_string(root().join("packaging/fordway.service")).unwrap();
    for line in [
        "Type=notify",
        "User=fordway",
        "AmbientCapabilities=CAP_NET_ADMIN CAP_BPF CAP_PERFMON CAP_NET_BIND_SERVICE CAP_NET_RAW",
        "CapabilityBoundingSet=CAP_NET_ADMIN CAP_BPF CAP_PERFMON CAP_NET_BIND_SERVICE CAP_NET_RAW",
        "NoNewPrivileges=yes",
    ] {
        assert!(unit.lines().any(|found| found == line), "{line}");
    }
}

#[test]
fn systemd_finds_no_fault_with_the_units() {
    if !has_programs(&["systemd-analyze"]) {
        return;
    }
    for name in ["fordway.service", "fordway-clat.service"] {
        let unit = std::fs::read_to_string(root().join("packaging").join(name)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        // The program need not be installed, nor its manual pages.
        let unit = unit.replace("@BINDIR@/fordway", env!("CARGO_BIN_EXE_fordway"));
        let lines = unit.lines().filter(|line| !line.starts_with("Documentation="));
        std::fs::write(&path, lines.collect::<Vec<_>>().join("\n")).unwrap();
        let output = Command::new("systemd-analyze").arg("verify").arg(&path).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && !errors.contains(name), "{errors}");
        // An exposure level of 2.0 at most.
        let mut security = Command::new("systemd-analyze");
        security.args(["security", "--no-pager", "--offline=yes", "--threshold=20"]).arg(&path);
        let output = security.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn manual_pages_and_completions_are_made() {
    let dir = tempfile::tempdir().unwrap();
    let fordway = || Command::new(env!("CARGO_BIN_EXE_fordway"));
    assert!(fordway().arg("man").arg(dir.path()).status().unwrap().success());
    for page in
        ["fordway.1", "fordway-run.1", "fordway-clat.1", "fordway-trace.1", "fordway-nat64.1"]
    {
        let text = std::fs::read_to_string(dir.path().join(page)).unwrap();
        assert!(text.contains(".SH NAME") && text.contains(".SH EXAMPLES"), "{page}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let output = fordway().arg("completions").arg(shell).output().unwrap();
        let script = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && script.contains("print-config"), "{shell}");
    }
}
