//! A transfer over QUIC (RFC 9000), whose packets are as large as the path carries and never fragmented.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;

use fordway_testhost::PATIENCE;
use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime};
use rustls_pki_types::PrivateKeyDer;

use crate::common::netns::Netns;
use crate::common::traffic;

/// The name in the certificate.
const NAME: &str = "quic.example.net";

/// Sends `len` octets up and down again over one connection. Gives the address that the server saw.
pub(crate) fn transfer(client: &Netns, server: &Netns, to: IpAddr, len: usize) -> SocketAddr {
    let listen = server.inside(|| UdpSocket::bind("[::]:0").unwrap());
    let here = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = client.inside(|| UdpSocket::bind(here).unwrap());
    let port = listen.local_addr().unwrap().port();
    let certified = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).unwrap();
    let certificate = certified.cert.der().clone();
    let key = PrivateKeyDer::Pkcs8(certified.signing_key.serialize_der().into());
    let config = ServerConfig::with_single_cert(vec![certificate.clone()], key).unwrap();
    let serve = thread::spawn(move || block_on(echo(config, listen)));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let config = ClientConfig::with_root_certificates(Arc::new(roots)).unwrap();
    block_on(ask(config, socket, SocketAddr::new(to, port), len));
    serve.join().unwrap()
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE, work).await.expect("QUIC comes to an end")
    })
}

fn endpoint(config: Option<ServerConfig>, socket: UdpSocket) -> Endpoint {
    let runtime = Arc::new(TokioRuntime);
    Endpoint::new(EndpointConfig::default(), config, socket, runtime).unwrap()
}

/// Sends back what comes on one stream of one connection.
async fn echo(config: ServerConfig, socket: UdpSocket) -> SocketAddr {
    let endpoint = endpoint(Some(config), socket);
    let connection = endpoint.accept().await.unwrap().await.unwrap();
    let (mut send, mut receive) = connection.accept_bi().await.unwrap();
    let octets = receive.read_to_end(usize::MAX).await.unwrap();
    send.write_all(&octets).await.unwrap();
    send.finish().unwrap();
    connection.closed().await;
    let peer = connection.remote_address();
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

async fn ask(config: ClientConfig, socket: UdpSocket, to: SocketAddr, len: usize) {
    let mut endpoint = endpoint(None, socket);
    endpoint.set_default_client_config(config);
    let connection = endpoint.connect(to, NAME).unwrap().await.unwrap();
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let octets = traffic::pattern(len, 0);
    let (sent, received) = tokio::join!(
        async {
            send.write_all(&octets).await.unwrap();
            send.finish().unwrap();
        },
        receive.read_to_end(len + 1)
    );
    let () = sent;
    assert!(received.unwrap() == octets, "octets are damaged");
    connection.close(0u32.into(), b"done");
    endpoint.wait_idle().await;
}
