//! Active checks of a site's servers, beside what requests find out.
//!
//! One thread of a proxy checks; the others read one word of a server.

use std::fmt::Write as _;
use std::rc::Rc;

use fordway_serve::spawn_here;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsConnector;

use super::authority::{Authority, Host};
use super::ends::own_header;
use super::eyeballs::{self, Plan};
use super::reason::Reason;
use super::settings::{Backend, Check, CheckKind, Mode, SendProxy};
use super::shared::Active;
use super::site::Member;
use super::tls;
use super::worker::Worker;

/// Longest header section of a response to a check, with those of interim responses before it, in octets.
const LONGEST: usize = 16 << 10;

/// The tasks that check servers. Dropping it ends them.
pub(super) struct Checks(Vec<JoinHandle<()>>);

impl Drop for Checks {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

impl Checks {
    /// Begins to check all servers, by the current settings.
    pub(super) fn begin(worker: &Rc<Worker>) -> Checks {
        let active = worker.active();
        if active.settings.mode.backend().is_none_or(|it| it.check.is_none()) {
            return Checks(Vec::new());
        }
        let each = 0..active.site.servers().len();
        let task = |at| {
            let active = Rc::clone(&active);
            spawn_here(async move {
                let backend = active.settings.mode.backend();
                if let Some((backend, check)) =
                    backend.and_then(|it| Some((it, it.check.as_ref()?)))
                {
                    watch(&active, backend, check, &active.site.servers()[at]).await;
                }
            })
        };
        Checks(each.map(task).collect())
    }
}

/// Checks one server again and again.
async fn watch(active: &Active, backend: &Backend, check: &Check, member: &Member) {
    let mut ticks = interval(check.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut row, mut succeeded) = (0, None);
    loop {
        ticks.tick().await;
        let once = once(active, backend, check, &member.authority);
        let outcome = timeout(check.timeout, once).await;
        let outcome = outcome.unwrap_or_else(|_| Err("no answer in time".to_owned()));
        row = if succeeded == Some(outcome.is_ok()) { row + 1 } else { 1 };
        succeeded = Some(outcome.is_ok());
        let why = outcome.as_ref().err().cloned().unwrap_or_default();
        if member.health.note(outcome, row, check) {
            match why.as_str() {
                "" => tracing::info!("{} passes its checks again", member.authority),
                why => tracing::warn!("{} fails its checks: {why}", member.authority),
            }
        }
    }
}

/// One check; an error is a reason for people.
async fn once(
    active: &Active,
    backend: &Backend,
    check: &Check,
    server: &Authority,
) -> Result<(), String> {
    let plan = Plan {
        names: &active.names,
        client: None,
        eyeballs: active.settings.eyeballs,
        pref64: &active.settings.pref64,
        translated: &active.settings.translated,
        allows: &|_, _| true,
    };
    let connected = eyeballs::connect(server, &plan).await;
    let mut stream = connected.map_err(|it| Reason::meaning(it).text.to_owned())?.stream;
    begin(&mut stream, backend.send_proxy).await.map_err(|it| it.to_string())?;
    match &check.kind {
        CheckKind::Tcp => Ok(()),
        CheckKind::Tls { name } => handshake(stream, name.as_deref(), server).await,
        CheckKind::Http { path, host, status } => {
            let of_requests = match &active.settings.mode {
                Mode::Reverse(reverse) => reverse.host.clone(),
                Mode::Forward(_) | Mode::Passthrough(_) => None,
            };
            let host = host.clone().or(of_requests).unwrap_or_else(|| server.field(80));
            let found = get(stream, path, &host).await?;
            match status.contains(&found) {
                true => Ok(()),
                false => Err(format!("status {found}")),
            }
        }
    }
}

async fn begin(stream: &mut TcpStream, version: SendProxy) -> std::io::Result<()> {
    match own_header(version) {
        Some(header) => stream.write_all(&header).await,
        None => Ok(()),
    }
}

/// A TLS handshake. The certificate may be any: the check asks whether the server works.
async fn handshake(
    stream: TcpStream,
    name: Option<&str>,
    server: &Authority,
) -> Result<(), String> {
    let of_name = |name: &str| ServerName::try_from(name.to_owned()).map_err(|it| it.to_string());
    let name = match (name, &server.host) {
        (None, Host::Address(address)) => ServerName::from(*address),
        (Some(name), _) => of_name(name)?,
        (None, Host::Name(name)) => of_name(name)?,
    };
    let config = tls::checking().map_err(|it| it.to_string())?;
    let done = TlsConnector::from(config).connect(name, stream).await;
    done.map(drop).map_err(|it| format!("TLS: {it}"))
}

/// The status of a response.
async fn get(mut stream: TcpStream, path: &str, host: &str) -> Result<u16, String> {
    let mut request = String::new();
    let _ = write!(
        request,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: fordway-check\r\nConnection: close\r\n\r\n"
    );
    let failed = |error: std::io::Error| error.to_string();
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let (mut head, mut received) = (Vec::new(), 0);
    while received < LONGEST {
        match stream.read_buf(&mut head).await.map_err(failed)? {
            0 => return Err("it has closed the connection".to_owned()),
            count => received += count,
        }
        while let Some((status, len)) = status(&head)? {
            // Another response follows an interim one (RFC 9110 section 15.2). 101 is final: nobody has asked for it.
            if !matches!(status, 100 | 102..=199) {
                return Ok(status);
            }
            head.drain(..len);
        }
    }
    Err("a header section that is too long".to_owned())
}

/// The status of a response, and how long its header section is; `None`: it is not whole yet.
fn status(head: &[u8]) -> Result<Option<(u16, usize)>, String> {
    let mut fields = [httparse::EMPTY_HEADER; super::MOST_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    match response.parse(head) {
        Ok(httparse::Status::Complete(len)) => {
            let status = response.code.ok_or_else(|| "no status".to_owned())?;
            Ok(Some((status, len)))
        }
        Ok(httparse::Status::Partial) => Ok(None),
        Err(error) => Err(format!("no response of HTTP: {error}")),
    }
}
