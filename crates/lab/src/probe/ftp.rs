//! A small FTP client and server (RFC 959, RFC 2428), to see whether a file gets through in either mode. The
//! server owns the usual port, since application gateways look at that one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::payload;

/// The port of FTP's control connection.
pub(crate) const PORT: u16 = 21;

/// Octets of the file.
const LENGTH: usize = 65_536;
/// What the file is made from.
const SEED: u64 = 0x0f7b;

/// How long either end waits for the other.
const PATIENCE: Duration = Duration::from_secs(3);

/// Longest line that either end reads, in octets.
const LINE: u64 = 512;

/// Serves one client after the other until killed.
pub(crate) fn serve(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        // A client that goes away midway is the client's failed check.
        let _ = session(&stream);
    }
}

/// Where the next file goes, or comes to.
enum Way {
    Passive(TcpListener),
    Active(SocketAddr),
}

fn session(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let own = stream.local_addr()?.ip().to_canonical();
    let peer = stream.peer_addr()?.ip().to_canonical();
    let mut lines = BufReader::new(stream);
    let mut way = None;
    say(stream, "220 ready")?;
    loop {
        let line = read_line(&mut lines)?;
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match word.to_ascii_uppercase().as_str() {
            "" | "QUIT" => return say(stream, "221 bye"),
            "USER" => say(stream, "230 come in")?,
            "TYPE" => say(stream, "200 as you like")?,
            "EPSV" => {
                let listener = TcpListener::bind((own, 0))?;
                say(stream, &format!("229 over there (|||{}|)", listener.local_addr()?.port()))?;
                way = Some(Way::Passive(listener));
            }
            "PASV" => match own {
                IpAddr::V4(own) => {
                    let listener = TcpListener::bind((own, 0))?;
                    let at = numbers(own, listener.local_addr()?.port());
                    say(stream, &format!("227 over there ({at})"))?;
                    way = Some(Way::Passive(listener));
                }
                IpAddr::V6(_) => say(stream, "425 ask with EPSV")?,
            },
            "EPRT" | "PORT" => match address(rest).filter(|to| to.is_ipv4() == own.is_ipv4()) {
                Some(to) if to.ip() == peer => {
                    way = Some(Way::Active(to));
                    say(stream, "200 noted")?;
                }
                // RFC 2577 section 3: a server does not connect to third parties.
                Some(to) => say(stream, &format!("501 {} is not {peer}", to.ip()))?,
                None if own.is_ipv4() => say(stream, "522 only IPv4 here (1)")?,
                None => say(stream, "522 only IPv6 here (2)")?,
            },
            "RETR" => {
                say(stream, "150 here it comes")?;
                match send(way.take()) {
                    Ok(()) => say(stream, "226 that was it")?,
                    Err(error) => say(stream, &format!("425 no way to you: {error}"))?,
                }
            }
            _ => say(stream, "502 what?")?,
        }
    }
}

fn send(way: Option<Way>) -> std::io::Result<()> {
    let mut data = match way {
        Some(Way::Passive(listener)) => accept(&listener)?,
        Some(Way::Active(to)) => TcpStream::connect_timeout(&to, PATIENCE)?,
        None => return Err(std::io::Error::other("nobody said where")),
    };
    data.set_write_timeout(Some(PATIENCE))?;
    data.write_all(&payload(SEED, LENGTH))
}

/// The next connection, if it comes in time.
fn accept(listener: &TcpListener) -> std::io::Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(error),
            Err(_) if Instant::now() > deadline => {
                return Err(std::io::ErrorKind::TimedOut.into());
            }
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// Fetches the file; `active`: the server connects to the client.
pub(crate) fn fetch(target: IpAddr, active: bool) -> Result<String, String> {
    let control = TcpStream::connect_timeout(&(target, PORT).into(), PATIENCE)
        .and_then(|stream| stream.set_read_timeout(Some(PATIENCE + PATIENCE)).map(|()| stream))
        .map_err(|error| format!("no control connection: {error}"))?;
    let mut lines = BufReader::new(&control);
    let mut ask = |line: &str| -> Result<String, String> {
        if !line.is_empty() {
            say(&control, line).map_err(|error| error.to_string())?;
        }
        read_line(&mut lines).map_err(|error| format!("after {line:?}: {error}"))
    };
    expect(ask("")?, '2')?;
    expect(ask("USER anonymous")?, '2')?;
    expect(ask("TYPE I")?, '2')?;
    let own = control.local_addr().map_err(|error| error.to_string())?.ip().to_canonical();
    let (mut data, how) = if active {
        let listener = TcpListener::bind((own, 0)).map_err(|error| error.to_string())?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        let (line, how) = match own {
            IpAddr::V4(own) => (format!("PORT {}", numbers(own, port)), "PORT"),
            IpAddr::V6(own) => (format!("EPRT |2|{own}|{port}|"), "EPRT"),
        };
        expect(ask(&line)?, '2')?;
        expect(ask("RETR file")?, '1')?;
        let data =
            accept(&listener).map_err(|error| format!("the server did not come: {error}"))?;
        (data, how)
    } else {
        let (to, how) = passive(target, &mut ask)?;
        let data = TcpStream::connect_timeout(&to, PATIENCE)
            .map_err(|error| format!("no way to {to}, as {how} said: {error}"))?;
        expect(ask("RETR file")?, '1')?;
        (data, how)
    };
    data.set_read_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
    let mut file = Vec::new();
    data.read_to_end(&mut file).map_err(|error| error.to_string())?;
    if file != payload(SEED, LENGTH) {
        return Err(format!("{} octets came, not the file", file.len()));
    }
    Ok(format!("{how}: {} KiB intact", LENGTH >> 10))
}

/// Where to fetch the file: EPSV first, then PASV, as curl asks.
fn passive(
    target: IpAddr,
    ask: &mut impl FnMut(&str) -> Result<String, String>,
) -> Result<(SocketAddr, &'static str), String> {
    let said = ask("EPSV")?;
    let port = said.split('|').nth(3).and_then(|port| port.parse().ok());
    if let (true, Some(port)) = (said.starts_with('2'), port) {
        return Ok((SocketAddr::new(target, port), "EPSV"));
    }
    let said = expect(ask("PASV")?, '2')?;
    let inside = said.split(['(', ')']).nth(1).and_then(address);
    inside.map(|to| (to, "PASV")).ok_or_else(|| format!("not understood: {said}"))
}

fn expect(said: String, first: char) -> Result<String, String> {
    if said.starts_with(first) { Ok(said) } else { Err(format!("the server said: {said}")) }
}

fn say(mut stream: &TcpStream, line: &str) -> std::io::Result<()> {
    stream.write_all(format!("{line}\r\n").as_bytes())
}

fn read_line(lines: &mut BufReader<&TcpStream>) -> std::io::Result<String> {
    let mut line = String::new();
    lines.take(LINE).read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

/// `h1,h2,h3,h4,p1,p2` (RFC 959).
fn numbers(address: Ipv4Addr, port: u16) -> String {
    let [a, b, c, d] = address.octets();
    format!("{a},{b},{c},{d},{},{}", port >> 8, port & 255)
}

/// The same, read; or `|1|ADDRESS|PORT|` (RFC 2428).
fn address(text: &str) -> Option<SocketAddr> {
    if text.starts_with('|') {
        let mut parts = text.split('|').skip(2);
        return Some(SocketAddr::new(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?));
    }
    let numbers: Vec<u8> =
        text.split(',').map(|part| part.trim().parse().ok()).collect::<Option<_>>()?;
    let [a, b, c, d, high, low] = numbers[..] else { return None };
    Some(SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), u16::from_be_bytes([high, low])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        let own = Ipv4Addr::new(192, 0, 2, 1);
        let at = |address: IpAddr, port| Some(SocketAddr::new(address, port));
        assert_eq!(address(&numbers(own, 5001)), at(own.into(), 5001));
        assert_eq!(address("|1|192.0.2.1|5001|"), at(own.into(), 5001));
        assert_eq!(address("|2|2001:db8::1|5001|"), at("2001:db8::1".parse().unwrap(), 5001));
        for broken in
            ["", "|", "|1|192.0.2.1|", "192,0,2,1,19", "192,0,2,1,19,256", "1,2,3,4,5,6,7"]
        {
            assert_eq!(address(broken), None, "{broken}");
        }
    }

    #[test]
    fn a_file_comes_in_both_modes_of_both_families() {
        for loopback in ["127.0.0.1", "::1"] {
            let own: IpAddr = loopback.parse().unwrap();
            let listener = TcpListener::bind((own, 0)).unwrap();
            let at = listener.local_addr().unwrap();
            std::thread::spawn(move || serve(&listener));
            // The port is another than FTP's own, which only root may have.
            for active in [false, true] {
                let control = TcpStream::connect(at).unwrap();
                control.set_read_timeout(Some(PATIENCE)).unwrap();
                let mut lines = BufReader::new(&control);
                assert!(read_line(&mut lines).unwrap().starts_with("220"));
                let data = if active {
                    let here = TcpListener::bind((own, 0)).unwrap();
                    let port = here.local_addr().unwrap().port();
                    let family = if own.is_ipv4() { 1 } else { 2 };
                    say(&control, &format!("EPRT |{family}|{own}|{port}|")).unwrap();
                    assert!(read_line(&mut lines).unwrap().starts_with("200"));
                    say(&control, "RETR file").unwrap();
                    accept(&here).unwrap()
                } else {
                    say(&control, "EPSV").unwrap();
                    let said = read_line(&mut lines).unwrap();
                    let port = said.split('|').nth(3).unwrap().parse().unwrap();
                    let data = TcpStream::connect(SocketAddr::new(own, port)).unwrap();
                    say(&control, "RETR file").unwrap();
                    data
                };
                let mut file = Vec::new();
                { data }.read_to_end(&mut file).unwrap();
                assert_eq!(file, payload(SEED, LENGTH));
            }
        }
    }
}
