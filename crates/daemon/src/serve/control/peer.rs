//! Who asks: the socket says what it may ask, the kernel says who it is, and the log keeps what it has changed.

use std::io;

use fordway_control::{Reply, Request};
use tokio::net::UnixStream;
use tracing::info;

use crate::log::AUDIT;

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// For everything.
    Admin,
    /// For requests that change nothing.
    Read,
}

/// A client: the process that has connected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    access: Access,
    uid: u32,
    gid: u32,
    /// 0: the process is in another PID namespace.
    pid: i32,
}

impl Peer {
    /// The client of a connection, as the kernel names it (SO_PEERCRED).
    pub(super) fn of(stream: &UnixStream, access: Access) -> io::Result<Peer> {
        let credentials = stream.peer_cred()?;
        let (uid, gid) = (credentials.uid(), credentials.gid());
        Ok(Peer { access, uid, gid, pid: credentials.pid().unwrap_or(0) })
    }

    /// The answer to a request that the client may not make.
    pub(super) fn refuses(&self, request: &Request) -> Option<Reply> {
        if self.access == Access::Admin || request.is_read() {
            return None;
        }
        Some(Reply::Failed {
            text: "this request is not one for reading, and your access is for reading only"
                .to_owned(),
            hint: Some("ask as root".to_owned()),
            config: false,
        })
    }

    /// Writes a request that is more than reading into the log, with what became of it. `reply`: the first answer to it, or
    /// why there is none.
    pub(super) fn audit(&self, request: &str, reply: Result<Option<&Reply>, &io::Error>) {
        let result = match reply {
            Ok(Some(Reply::Done(_)) | None) => "done",
            Ok(Some(Reply::Unknown(_))) => "unknown name",
            Ok(Some(Reply::Failed { text, .. } | Reply::Error(text))) => {
                text.lines().next().unwrap_or("failed")
            }
            Ok(Some(_)) => "answered",
            Err(error) => &error.to_string(),
        };
        let Peer { uid, gid, pid, .. } = *self;
        info!(target: AUDIT, uid, gid, pid, %request, %result, "audit");
    }
}
