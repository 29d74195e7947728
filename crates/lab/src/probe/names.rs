//! Probes of a DNS64 server: does it synthesise what it should, and only that?

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use fordway_data::trial::{Check, NAMES};
use fordway_load::dns::PORT;
use fordway_load::dns::message::{
    AAAA, Name, PTR, Sort, embedded, id, is_right, question, question_for, reply,
};

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_millis(1500);
/// How long a server may take to give its first answer.
const COMING_UP: Duration = Duration::from_secs(5);
/// A series that no load uses.
const SERIES: u16 = 0x7fff;

/// Waits until the server gives an answer without an error; whether it did.
pub(crate) fn wait(server: IpAddr) -> bool {
    let start = Instant::now();
    let mut number = 0;
    while start.elapsed() < COMING_UP {
        // Another name each time: a failure may be remembered.
        number += 1;
        let name = Name { sort: Sort::Both, series: SERIES, number: 0x100 + number };
        let asked = question(rand::random(), name, AAAA);
        let said = by_udp(server, &asked, Duration::from_millis(200));
        if said.is_ok_and(|message| reply(&message).is_some_and(|said| said.code == 0)) {
            return true;
        }
        if crate::process::interrupted() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

/// Runs the probes; `few`: only the first.
pub(crate) fn run(server: IpAddr, prefix: Ipv6Addr, few: bool) -> Vec<Check> {
    let mut octets = [0; 12];
    octets.copy_from_slice(&prefix.octets()[..12]);
    let probe = Probe { server, prefix: octets };
    let mut checks = vec![Check::of(NAMES[0], probe.synthesis(false))];
    if !few {
        checks.push(Check::of(NAMES[1], probe.native()));
        checks.push(Check::of(NAMES[2], probe.absence()));
        checks.push(Check::of(NAMES[3], probe.synthesis(true)));
        checks.push(Check::of(NAMES[4], probe.reverse()));
    }
    checks
}

struct Probe {
    server: IpAddr,
    prefix: [u8; 12],
}

impl Probe {
    fn ask(&self, asked: &[u8]) -> Result<Vec<u8>, String> {
        // A datagram may be lost by right; three of the same in a row are not lost by chance.
        let mut last = String::new();
        for _ in 0..3 {
            match by_udp(self.server, asked, PATIENCE) {
                Ok(message) => return Ok(message),
                Err(why) => last = why,
            }
        }
        Err(last)
    }

    fn synthesis(&self, tcp: bool) -> Result<String, String> {
        let name = Name { sort: Sort::OnlyA, series: SERIES, number: 1 + u32::from(tcp) };
        let asked = question(rand::random(), name, AAAA);
        let message = if tcp { by_tcp(self.server, &asked)? } else { self.ask(&asked)? };
        if !is_right(&message, name, self.prefix) {
            return Err(format!("{} has no synthesised address: {}", name.text(), words(&message)));
        }
        Ok(format!("{} is {}", name.v4(), Ipv6Addr::from(embedded(self.prefix, name.v4()))))
    }

    fn native(&self) -> Result<String, String> {
        let name = Name { sort: Sort::Both, series: SERIES, number: 3 };
        let message = self.ask(&question(rand::random(), name, AAAA))?;
        if !is_right(&message, name, self.prefix) || words(&message) != "1 AAAA records" {
            return Err(format!("an AAAA record of its own is not kept: {}", words(&message)));
        }
        Ok("an AAAA record of its own is kept".into())
    }

    fn absence(&self) -> Result<String, String> {
        let asked = question_for(rand::random(), "nothing.lab.example", AAAA).unwrap_or_default();
        let message = self.ask(&asked)?;
        match reply(&message) {
            Some(said) if said.code == 3 && said.answers.is_empty() => {
                Ok("a name that does not exist does not exist".into())
            }
            _ => Err(format!("a name that does not exist: {}", words(&message))),
        }
    }

    fn reverse(&self) -> Result<String, String> {
        let name = Name { sort: Sort::OnlyA, series: SERIES, number: 1 };
        let address = u128::from_be_bytes(embedded(self.prefix, name.v4()));
        let nibbles = (0..32).map(|place| format!("{:x}.", address >> (4 * place) & 15));
        let text = nibbles.collect::<String>() + "ip6.arpa";
        let message = self.ask(&question_for(rand::random(), &text, PTR).unwrap_or_default())?;
        let named = |said: &fordway_load::dns::message::Reply<'_>| {
            said.answers.iter().any(|found| found.record_type == PTR)
        };
        if reply(&message).as_ref().is_some_and(named) {
            return Ok(format!("{text} has a name"));
        }
        Err(format!("a synthesised address has no name: {}", words(&message)))
    }
}

fn by_udp(server: IpAddr, asked: &[u8], patience: Duration) -> Result<Vec<u8>, String> {
    let exchange = || -> std::io::Result<Vec<u8>> {
        let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any)?;
        socket.connect((server, PORT))?;
        socket.set_read_timeout(Some(patience))?;
        socket.send(asked)?;
        let mut buffer = vec![0; 4096];
        loop {
            let length = socket.recv(&mut buffer)?;
            if id(&buffer[..length]) == id(asked) {
                buffer.truncate(length);
                return Ok(buffer);
            }
        }
    };
    exchange().map_err(|e| no_answer(&e))
}

fn by_tcp(server: IpAddr, asked: &[u8]) -> Result<Vec<u8>, String> {
    let exchange = || -> std::io::Result<Vec<u8>> {
        let target = SocketAddr::new(server, PORT);
        let mut stream = TcpStream::connect_timeout(&target, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        // RFC 1035 section 4.2.2: two octets of length in front.
        stream.write_all(&[&(asked.len() as u16).to_be_bytes(), asked].concat())?;
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut message = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut message)?;
        Ok(message)
    };
    exchange().map_err(|e| no_answer(&e))
}

fn no_answer(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => "no answer".into(),
        _ => error.to_string(),
    }
}

/// A reply in words.
fn words(message: &[u8]) -> String {
    match reply(message) {
        None => "the reply is damaged".into(),
        Some(said) if said.code != 0 => format!("response code {}", said.code),
        Some(said) if said.truncated => "cut short".into(),
        Some(said) => {
            let count = said.answers.iter().filter(|found| found.record_type == AAAA).count();
            format!("{count} AAAA records")
        }
    }
}
