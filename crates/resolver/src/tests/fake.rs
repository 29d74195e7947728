//! A server on loopback that does what a test says.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use hickory_proto::op::{Message, MessageType};
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// What a server does with a query.
pub(super) enum Deed {
    /// Sends these octets.
    Send(Vec<u8>),
    /// Sends them from another port.
    SendFromElsewhere(Vec<u8>),
    /// Sends them when there is a permit, which is used up; until then nothing else is answered.
    Hold(Arc<Semaphore>, Vec<u8>),
    /// Closes the connection.
    Close,
}

/// A query as a server sees it.
pub(super) struct Seen {
    pub(super) octets: Vec<u8>,
    pub(super) from: SocketAddr,
    pub(super) tcp: bool,
    /// How many queries came before it.
    pub(super) before: usize,
}

/// A server by UDP and TCP on one port.
pub(super) struct Fake {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    tasks: [JoinHandle<()>; 2],
}

type Behaviour = Arc<dyn Fn(&Seen) -> Vec<Deed> + Send + Sync>;

impl Fake {
    /// A server that answers each query by what `edit` makes of an empty response to it.
    pub(super) async fn answering(edit: impl Fn(&mut Message) + Send + Sync + 'static) -> Self {
        Self::start(move |seen| vec![Deed::Send(respond(&seen.octets, &edit))]).await
    }

    /// A server that says nothing.
    pub(super) async fn silent() -> Self {
        Self::start(|_| Vec::new()).await
    }

    /// A server that does what `behave` says.
    pub(super) async fn start(behave: impl Fn(&Seen) -> Vec<Deed> + Send + Sync + 'static) -> Self {
        // The kernel's choice for TCP may be taken by UDP.
        let (listener, socket) = loop {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let address = listener.local_addr().unwrap();
            if let Ok(socket) = UdpSocket::bind(address).await {
                break (listener, socket);
            }
        };
        let address = socket.local_addr().unwrap();
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let behaviour: Behaviour = Arc::new(behave);
        let by_udp = serve_udp(socket, Arc::clone(&seen), Arc::clone(&behaviour));
        let by_tcp = serve_tcp(listener, Arc::clone(&seen), behaviour);
        Self { address, seen, tasks: [tokio::spawn(by_udp), tokio::spawn(by_tcp)] }
    }

    /// How many queries have come.
    pub(super) fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// What `look` sees in each query.
    pub(super) fn seen<T>(&self, look: impl Fn(&Seen) -> T) -> Vec<T> {
        self.seen.lock().unwrap().iter().map(look).collect()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// An address of loopback where nobody listens, neither by UDP nor by TCP, as long as this is there.
pub(super) struct Nobody {
    pub(super) address: SocketAddr,
    _tcp: Socket,
    _udp: std::net::UdpSocket,
}

impl Nobody {
    pub(super) fn new() -> Self {
        loop {
            let tcp = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            tcp.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
            let address = tcp.local_addr().unwrap().as_socket().unwrap();
            if let Ok(udp) = std::net::UdpSocket::bind(address) {
                // A connected socket hears its peer alone: to all others the port is closed.
                udp.connect(address).unwrap();
                return Self { address, _tcp: tcp, _udp: udp };
            }
        }
    }
}

/// The response that `edit` makes of an empty one to a query.
pub(super) fn respond(query: &[u8], edit: impl Fn(&mut Message)) -> Vec<u8> {
    let query = Message::from_vec(query).unwrap();
    let mut response = query.clone();
    response.metadata.message_type = MessageType::Response;
    response.metadata.recursion_available = true;
    edit(&mut response);
    response.to_vec().unwrap()
}

/// The question's name as it came.
pub(super) fn name_seen(seen: &Seen) -> String {
    Message::from_vec(&seen.octets).unwrap().queries[0].name().to_ascii()
}

fn note(log: &Mutex<Vec<Seen>>, octets: &[u8], from: SocketAddr, tcp: bool) -> Seen {
    let mut log = log.lock().unwrap();
    let before = log.len();
    log.push(Seen { octets: octets.to_vec(), from, tcp, before });
    Seen { octets: octets.to_vec(), from, tcp, before }
}

async fn serve_udp(socket: UdpSocket, log: Arc<Mutex<Vec<Seen>>>, behaviour: Behaviour) {
    let elsewhere = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let mut buffer = vec![0; 65_535];
    loop {
        let (len, from) = socket.recv_from(&mut buffer).await.unwrap();
        let seen = note(&log, &buffer[..len], from, false);
        for deed in behaviour(&seen) {
            // Whoever asked may have gone.
            let _ = match deed {
                Deed::Send(octets) => socket.send_to(&octets, from).await,
                Deed::SendFromElsewhere(octets) => elsewhere.send_to(&octets, from).await,
                Deed::Hold(gate, octets) => {
                    gate.acquire().await.unwrap().forget();
                    socket.send_to(&octets, from).await
                }
                Deed::Close => Ok(0),
            };
        }
    }
}

async fn serve_tcp(listener: TcpListener, log: Arc<Mutex<Vec<Seen>>>, behaviour: Behaviour) {
    loop {
        let (stream, from) = listener.accept().await.unwrap();
        let (log, behaviour) = (Arc::clone(&log), Arc::clone(&behaviour));
        tokio::spawn(async move { serve_stream(stream, from, &log, &behaviour).await });
    }
}

/// Serves one connection until it is closed.
async fn serve_stream(
    mut stream: TcpStream,
    from: SocketAddr,
    log: &Mutex<Vec<Seen>>,
    behaviour: &Behaviour,
) {
    while let Some(octets) = read_frame(&mut stream).await {
        let seen = note(log, &octets, from, true);
        for deed in behaviour(&seen) {
            match deed {
                Deed::Send(octets) | Deed::SendFromElsewhere(octets) => {
                    write_frame(&mut stream, &octets).await;
                }
                Deed::Hold(gate, octets) => {
                    gate.acquire().await.unwrap().forget();
                    write_frame(&mut stream, &octets).await;
                }
                Deed::Close => return,
            }
        }
    }
}

/// The next message of a stream, until it is closed.
pub(super) async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let len = stream.read_u16().await.ok()?;
    let mut octets = vec![0; usize::from(len)];
    stream.read_exact(&mut octets).await.ok()?;
    Some(octets)
}

/// Writes a message to a stream.
pub(super) async fn write_frame(stream: &mut (impl AsyncWrite + Unpin), octets: &[u8]) {
    let len = u16::try_from(octets.len()).unwrap();
    // Whoever asked may have gone.
    let _ = stream.write_all(&[&len.to_be_bytes()[..], octets].concat()).await;
    let _ = stream.flush().await;
}
