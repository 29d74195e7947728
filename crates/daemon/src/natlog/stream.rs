//! IPFIX over TCP and TLS (RFC 7011 section 10.4): a connection that is made again when it breaks.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fordway_config::NatLog;
use rustls::crypto::ring;
use rustls::{ClientConfig, ClientConnection};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use super::sink::{Ready, Sink};

/// Time to connect, with the handshake of TLS, and time in which a collector takes a message.
const PATIENCE: Duration = Duration::from_secs(5);

/// Reads at once of what a collector sends: one that never stops must not hold up the log.
const READS: usize = 64;

/// Time between attempts to connect.
const AGAIN: Duration = Duration::from_secs(1);

/// A collector that is reached by a stream.
pub(crate) struct Stream {
    to: SocketAddr,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    connection: Option<Connection>,
    /// No attempt to connect before this.
    next: Option<Instant>,
}

struct Connection {
    tcp: TcpStream,
    tls: Option<ClientConnection>,
}

impl Stream {
    pub(crate) fn tcp(to: SocketAddr) -> Stream {
        Stream { to, tls: None, connection: None, next: None }
    }

    /// With TLS: the collector has to have a certificate for `name`, by default its address, of the authorities of the
    /// settings; it may ask for this program's own.
    pub(crate) fn tls(to: SocketAddr, name: Option<&str>, log: &NatLog) -> io::Result<Stream> {
        let name = match name {
            Some(name) => ServerName::try_from(name.to_owned()).map_err(io::Error::other)?,
            None => to.ip().into(),
        };
        let roots = fordway_resolver::authorities(log.ca.as_deref()).map_err(io::Error::other)?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots);
        let config = match log.certificate.as_ref().zip(log.key.as_ref()) {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let wrong = |path: &std::path::Path, error: &dyn std::fmt::Display| {
                    io::Error::other(format!("{}: {error}", path.display()))
                };
                let chain = CertificateDer::pem_file_iter(certificate)
                    .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                    .map_err(|error| wrong(certificate, &error))?;
                let private = PrivateKeyDer::from_pem_file(key).map_err(|it| wrong(key, &it))?;
                let with = config.with_client_auth_cert(chain, private);
                with.map_err(|error| wrong(certificate, &error))?
            }
        };
        Ok(Stream { to, tls: Some((Arc::new(config), name)), connection: None, next: None })
    }

    fn connect(&self) -> io::Result<Connection> {
        let deadline = Instant::now() + PATIENCE;
        let tcp = TcpStream::connect_timeout(&self.to, PATIENCE)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(PATIENCE))?;
        tcp.set_write_timeout(Some(PATIENCE))?;
        let mut connection = Connection { tcp, tls: None };
        if let Some((config, name)) = &self.tls {
            let tls = ClientConnection::new(Arc::clone(config), name.clone());
            connection.tls = Some(tls.map_err(io::Error::other)?);
            connection.shake_hands(deadline)?;
        }
        Ok(connection)
    }
}

impl Connection {
    fn shake_hands(&mut self, deadline: Instant) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.is_handshaking() {
            if Instant::now() > deadline {
                return Err(ErrorKind::TimedOut.into());
            }
            while tls.wants_write() {
                tls.write_tls(&mut self.tcp)?;
            }
            if tls.wants_read() {
                if tls.read_tls(&mut self.tcp)? == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                if let Err(error) = tls.process_new_packets() {
                    // The alert says why to the collector, which may have gone.
                    let _gone = tls.write_tls(&mut self.tcp);
                    return Err(io::Error::other(error));
                }
            }
        }
        while tls.wants_write() {
            tls.write_tls(&mut self.tcp)?;
        }
        Ok(())
    }

    /// Whether the collector still reads, as far as can be known: it has not ended the connection. What it sends has no
    /// meaning in IPFIX and is passed over.
    fn is_open(&mut self) -> bool {
        let nonblocking = self.tcp.set_nonblocking(true);
        let open = nonblocking.is_ok()
            && self.drained().is_err_and(|it| it.kind() == ErrorKind::WouldBlock);
        open && self.tcp.set_nonblocking(false).is_ok()
    }

    /// Reads what has come until there is an end, nothing more, or enough of it, which is as if there were nothing more.
    fn drained(&mut self) -> io::Result<()> {
        let mut some = [0; 4096];
        for _ in 0..READS {
            let count = match &mut self.tls {
                None => self.tcp.read(&mut some)?,
                Some(tls) => {
                    let count = tls.read_tls(&mut self.tcp)?;
                    let state = tls.process_new_packets().map_err(io::Error::other)?;
                    if state.peer_has_closed() {
                        return Ok(());
                    }
                    let mut left = state.plaintext_bytes_to_read();
                    while left > 0 {
                        left = left.saturating_sub(tls.reader().read(&mut some)?.max(1));
                    }
                    count
                }
            };
            if count == 0 {
                return Ok(());
            }
        }
        Err(ErrorKind::WouldBlock.into())
    }

    fn write(&mut self, message: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return self.tcp.write_all(message) };
        tls.writer().write_all(message)?;
        while tls.wants_write() {
            tls.write_tls(&mut self.tcp)?;
        }
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            // The collector may have gone.
            let _gone = tls.write_tls(&mut self.tcp);
        }
    }
}

impl Sink for Stream {
    fn ready(&mut self) -> Ready {
        if self.connection.as_mut().is_some_and(Connection::is_open) {
            return Ready::Known;
        }
        self.connection = None;
        let now = Instant::now();
        if self.next.is_some_and(|next| now < next) {
            return Ready::Not(ErrorKind::NotConnected.into());
        }
        match self.connect() {
            Ok(connection) => {
                self.connection = Some(connection);
                self.next = None;
                Ready::Anew
            }
            Err(error) => {
                self.next = Some(Instant::now() + AGAIN);
                Ready::Not(error)
            }
        }
    }

    fn write(&mut self, message: &[u8]) -> io::Result<()> {
        let Some(connection) = &mut self.connection else {
            return Err(ErrorKind::NotConnected.into());
        };
        let written = connection.write(message);
        if written.is_err() {
            // Half a message would make all that follow it unreadable.
            self.connection = None;
        }
        written
    }
}
