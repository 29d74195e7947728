//! A page with its objects, over several connections, as browsers load one by HTTP/1.1: the page first,
//! over the first connection; its objects over that one and others, each as soon as it is free.

use std::net::SocketAddr;
use std::time::Instant;

use rustix::event::{PollFd, Timespec, poll};

use super::fetch::Fetch;
use super::session::PATIENCE;
use super::{CONNECTIONS, content, page_path};

/// Loads a page and everything on it, and compares each octet.
pub(super) fn load(target: SocketAddr, objects: u32, size: u32) -> Result<(), String> {
    let words = |error: std::io::Error| format!("{target}: {error}");
    let deadline = Instant::now() + PATIENCE;
    let mut first = Fetch::open(target).map_err(words)?;
    first.want(page_path(objects, size));
    let mut connections = vec![first];
    let mut waiting: Vec<String> = Vec::new();
    let mut whole = 0;
    let mut known = false;
    while !known || whole < objects {
        for connection in &mut connections {
            if connection.idle()
                && let Some(path) = waiting.pop()
            {
                connection.want(path);
            }
        }
        while connections.len() < CONNECTIONS
            && let Some(path) = waiting.pop()
        {
            let mut connection = Fetch::open(target).map_err(words)?;
            connection.want(path);
            connections.push(connection);
        }
        for ready in ready(&connections, deadline)? {
            let Some((path, body)) = connections[ready].go_on().map_err(words)? else { continue };
            if known {
                check(&path, &body, size)?;
                whole += 1;
            } else {
                waiting = sources(&body);
                known = true;
                if waiting.len() != objects as usize {
                    return Err(format!("the page names {} objects, not {objects}", waiting.len()));
                }
            }
        }
    }
    Ok(())
}

/// The connections that can go on.
fn ready(connections: &[Fetch], deadline: Instant) -> Result<Vec<usize>, String> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(format!("the page took more than {} s", PATIENCE.as_secs()));
    }
    let busy: Vec<usize> = (0..connections.len()).filter(|at| !connections[*at].idle()).collect();
    let of =
        |at: &usize| PollFd::from_borrowed_fd(connections[*at].fd(), connections[*at].interest());
    let mut fds: Vec<PollFd<'_>> = busy.iter().map(of).collect();
    let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    match poll(&mut fds, Some(&left)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.to_string()),
    }
    let told = busy.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
    Ok(told.map(|(at, _)| *at).collect())
}

/// What a page wants to have loaded.
fn sources(page: &[u8]) -> Vec<String> {
    let page = String::from_utf8_lossy(page);
    let parts = page.split("src=\"").skip(1);
    parts.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect()
}

/// An object must be the one that was asked for, octet for octet.
fn check(path: &str, body: &[u8], size: u32) -> Result<(), String> {
    let number = path.split('/').nth(2).and_then(|word| word.parse().ok());
    match number.map(|number| content(number, size)) {
        Some(wanted) if wanted == body => Ok(()),
        _ => Err(format!("{path} did not arrive as it was sent")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::server::local;
    use super::*;

    #[test]
    fn a_page_is_loaded_whole_whatever_its_size() {
        let server = local();
        for (objects, size) in [(0, 1), (1, 100_000), (40, 3000)] {
            assert_eq!(load(server, objects, size), Ok(()));
        }
    }

    #[test]
    fn an_object_that_changed_on_the_way_is_told() {
        let path = "/object/3/100";
        assert_eq!(check(path, &content(3, 100), 100), Ok(()));
        assert!(check(path, &content(4, 100), 100).is_err());
        assert!(check(path, &content(3, 99), 100).is_err());
        assert_eq!(sources(b"<img src=\"/a\"><img src=\"/b\">"), ["/a", "/b"]);
    }
}
