//! The access log of a proxy that runs.

use fordway_proxy::{Log, LogFormat, LogTarget, Settings};
use fordway_serve::Service as _;
use fordway_testhost::poll;

use super::world::{OK, RawServer, World, forward};

#[test]
fn each_request_has_a_line_and_a_file_may_be_moved_away() {
    let server = RawServer::saying(OK);
    let folder = tempfile::tempdir().unwrap();
    let (path, old) = (folder.path().join("access.log"), folder.path().join("old.log"));
    let log = Log { target: LogTarget::File(path.clone()), format: LogFormat::Json };
    let settings = Settings { log: Some(log), ..forward() };
    let world = World::new(&settings);
    let url = server.url();
    world
        .client()
        .send(format!("GET {url}\"x HTTP/1.1\r\nHost: a\r\nUser-Agent: me\r\n\r\n"))
        .response();
    world.ask("GET http://a/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    let lines = || std::fs::read_to_string(&path).unwrap_or_default();
    poll("two lines", || (lines().matches('\n').count() == 2).then_some(()));
    let parsed: Vec<serde_json::Value> =
        lines().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(parsed[0]["target"], format!("{url}\"x"));
    assert_eq!((&parsed[0]["status"], &parsed[0]["user_agent"]), (&200.into(), &"me".into()));
    assert_eq!(parsed[0]["server"], server.address.to_string());
    assert_eq!((&parsed[1]["status"], &parsed[1]["reason"]), (&400.into(), &"host".into()));
    std::fs::rename(&path, &old).unwrap();
    world.server.replace(settings).unwrap();
    poll("another file", || path.exists().then_some(()));
    world.client().send(format!("GET {url} HTTP/1.1\r\nHost: a\r\n\r\n")).response();
    drop(world.server);
    assert_eq!(lines().lines().count(), 1, "the last lines are written at the end");
    assert_eq!(std::fs::read_to_string(old).unwrap().lines().count(), 2);
}
