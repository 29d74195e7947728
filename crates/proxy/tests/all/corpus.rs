//! The committed corpora of the fuzz targets for the proxy, replayed. What must hold is in `proxy.rs`, which the fuzz
//! targets share.

mod proxy;

use std::fs;
use std::path::Path;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        // A panic does not say which file it was.
        println!("{}", path.display());
        run(&fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count > 0, "{} is empty", folder.display());
}

#[test]
fn requests() {
    replay("proxy_request", proxy::request);
}

#[test]
fn responses() {
    replay("proxy_response", proxy::response);
}

#[test]
fn an_ambiguous_request_would_be_noticed() {
    let is_noticed =
        |octets: &[u8]| std::panic::catch_unwind(|| proxy::is_one_request(octets)).is_err();
    assert!(!is_noticed(b"GET / HTTP/1.1\r\nHost: a\r\nVia: 1.1 rehearsal\r\n\r\n"));
    for octets in [
        &b"POST / HTTP/1.1\r\nHost: a\r\nVia: 1.1 rehearsal\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"[..],
        b"GET / HTTP/1.1\r\nHost: a\r\nVia: 1.1 rehearsal\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: b\nHost: c\r\nVia: 1.1 rehearsal\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX-A: b\r\n Content-Length: 4\r\nVia: 1.1 rehearsal\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nKeep-Alive: 1\r\nVia: 1.1 rehearsal\r\n\r\n",
        b"GET http://b/ HTTP/1.1\r\nHost: a\r\nVia: 1.1 rehearsal\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nVia: 1.1 rehearsal\r\nTransfer-Encoding: chunked\r\n\r\n1;\nx\r\na\r\n0\r\n\r\n",
    ] {
        assert!(is_noticed(octets), "{:?}", String::from_utf8_lossy(octets));
    }
}
