//! The HTTP endpoint of the metrics beyond loopback: a token, TLS, and both read again at a reload.

use fordway_testhost::{can_use_tun, certificates, has_programs};

use crate::common::daemon::{Daemon, RunDir};
use crate::common::topology::Border;

/// The name in the certificates.
const NAME: &str = "gateway.example";

#[test]
fn beyond_loopback_a_token_and_tls_are_needed() {
    if !can_use_tun() || !has_programs(&["curl"]) {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let config = |more: &str| {
        format!(
            "[metrics]\nlisten = ['198.51.100.1:9464']\n{more}[[translator]]\nname = 'siit0'\n\
             mode = 'siit'\npool6 = ['2001:db8:64::/96']\n"
        )
    };
    let file = run.file("gateway.toml", &config(""));
    let output = run.output(&net.gateway, &format!("run -c {}", file.display()));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("198.51.100.1:9464 is beyond loopback"), "{said}");

    let folder = run.path().display();
    certificates::write(run.path(), "metrics", &[NAME]);
    run.file("token", "first-token-of-all\n");
    let text = config(&format!(
        "certificate = '{folder}/metrics.pem'\nkey = '{folder}/metrics.key'\n\
         token_file = '{folder}/token'\n"
    ));
    std::fs::write(&file, text).unwrap();
    let daemon = Daemon::start(&run, &net.gateway, &format!("run -c {}", file.display()));
    // What is shown, then the status.
    let get = |token: Option<&str>, url: &str| {
        let mut curl = net.v4.command("curl");
        curl.args(["-sS", "--max-time", "30", "-w", "%{http_code}", "--noproxy", "*", "--cacert"]);
        curl.arg(run.path().join("metrics.pem"));
        curl.args(["--resolve", &format!("{NAME}:9464:198.51.100.1")]);
        if let Some(token) = token {
            curl.args(["-H", &format!("Authorization: Bearer {token}")]);
        }
        let output = curl.arg(url).output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let metrics = format!("https://{NAME}:9464/metrics");
    let first = Some("first-token-of-all");
    let shown = get(first, &metrics);
    assert!(shown.contains("fordway_packets_total") && shown.ends_with("# EOF\n200"), "{shown}");
    for wrong in [None, Some("first-token-of-al"), Some("second-token-of-all")] {
        let shown = get(wrong, &metrics);
        assert!(shown.ends_with("token_file\n401"), "{wrong:?}: {shown}");
    }
    for (path, shown) in [("healthz", "alive\n200"), ("readyz", "ready\n200")] {
        assert_eq!(get(None, &format!("https://{NAME}:9464/{path}")), shown);
    }
    let plain = get(first, &format!("http://{NAME}:9464/metrics"));
    assert!(!plain.contains("fordway_") && plain.contains("curl: "), "{plain}");

    // What can't be read changes nothing; what can counts from the reload on.
    let reload = || {
        let output = run.output(&net.gateway, "reload");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    };
    run.file("token", "short\n");
    let (done, said) = reload();
    assert!(!done && said.contains("16 visible ASCII characters"), "{said}");
    assert!(get(first, &metrics).ends_with("200"));
    run.file("token", "second-token-of-all\n");
    certificates::write(run.path(), "metrics", &[NAME]);
    let (done, said) = reload();
    assert!(done, "{said}");
    let shown = get(Some("second-token-of-all"), &metrics);
    assert!(shown.ends_with("# EOF\n200"), "{shown}");
    assert!(get(first, &metrics).ends_with("401"));
    daemon.stop();
}
