//! DNS cookies (RFC 7873) with the server cookies of RFC 9018, which servers with one secret make alike.
//!
//! ```text
//!  0               8          9          12          16          24
//!  | client cookie | version 1 | reserved | timestamp | SipHash-2-4 over all before and the client's address |
//! ```
//!
//! A client that shows a server cookie receives at the address that it sends from, so it is not limited as one whose
//! address may be forged.

use std::fmt;
use std::fs;
use std::hash::Hasher;
use std::net::IpAddr;
use std::path::Path;

use siphasher::sip::SipHasher24;
use subtle::ConstantTimeEq;

use super::error::Error;

/// Lengths of the client's cookie and of a server cookie.
const CLIENT: usize = 8;
const SERVER: usize = 16;
/// The whole option in an answer.
pub(super) const COOKIE: usize = CLIENT + SERVER;
/// Lengths that the server's part of a query's cookie may have (RFC 7873 section 4.2).
const SERVERS: std::ops::RangeInclusive<usize> = 8..=32;
const VERSION: u8 = 1;
/// How old a server cookie may be, how far ahead of this host's clock, and from which age on it is replaced, in seconds
/// (RFC 9018 section 4.3).
const OLDEST: i32 = 3600;
const AHEAD: i32 = 300;
const RENEWED: i32 = 1800;
/// A secret that was drawn is used for so long, in seconds.
const DAY: u32 = 86_400;

type Secret = [u8; 16];

/// What server cookies are made with.
pub(super) enum Secrets {
    /// One for each day, drawn from this.
    Drawn(Secret),
    /// Those of a file: the first makes cookies, all check them.
    Listed(Vec<Secret>),
}

/// Shows no secret.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Secrets::Drawn(_) => "Drawn",
            Secrets::Listed(_) => "Listed",
        })
    }
}

/// What a client has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// A server cookie of this server, or of one with its secret.
    Valid,
    /// Only its own: it has asked for the first time.
    First,
    /// A server cookie that is too old, somebody else's, or was made for another address.
    Invalid,
}

impl Secrets {
    /// A secret drawn at random.
    pub(super) fn draw() -> Result<Self, Error> {
        let mut master = [0; 16];
        getrandom::fill(&mut master).map_err(|error| Error::Random(error.into()))?;
        Ok(Secrets::Drawn(master))
    }

    /// Those of a file: 32 hexadecimal digits a line; empty lines and those that begin with `#` are comments.
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let wrong = |reason: String| Error::CookieSecret { path: path.to_owned(), reason };
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let mut secrets = Vec::new();
        for (number, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let secret = secret(line).ok_or_else(|| {
                wrong(format!("line {number} is not a secret of 32 hexadecimal digits"))
            })?;
            secrets.push(secret);
        }
        if secrets.is_empty() {
            return Err(wrong("there is no secret in it".to_owned()));
        }
        Ok(Secrets::Listed(secrets))
    }

    /// The cookie for an answer to a query that has `cookie`, and what that is worth. `now`: seconds since 1970.
    ///
    /// None: its length can't be a cookie's.
    pub(super) fn check(
        &self,
        cookie: &[u8],
        client: IpAddr,
        now: u32,
    ) -> Option<([u8; COOKIE], Shown)> {
        let (own, server) = cookie.split_first_chunk::<CLIENT>()?;
        if server.is_empty() {
            return Some((self.make(own, client, now), Shown::First));
        }
        if !SERVERS.contains(&server.len()) {
            return None;
        }
        let Ok(whole) = <&[u8; COOKIE]>::try_from(cookie) else {
            return Some((self.make(own, client, now), Shown::Invalid));
        };
        let made = u32::from_be_bytes([server[4], server[5], server[6], server[7]]);
        // RFC 1982: serial numbers, so that it goes on in 2106.
        let age = now.wrapping_sub(made).cast_signed();
        let hash = &whole[COOKIE - 8..];
        // In constant time, so that how long it takes does not say how much of a guess is right.
        let fits = |secret: &Secret| -> bool {
            hash_of(secret, &whole[..COOKIE - 8], client).ct_eq(hash).into()
        };
        let is_ours = server[0] == VERSION && (-AHEAD..=OLDEST).contains(&age);
        if !(is_ours && self.checking(made, fits)) {
            return Some((self.make(own, client, now), Shown::Invalid));
        }
        let cookie = if age < RENEWED { *whole } else { self.make(own, client, now) };
        Some((cookie, Shown::Valid))
    }

    fn make(&self, own: &[u8; CLIENT], client: IpAddr, now: u32) -> [u8; COOKIE] {
        let mut cookie = [0; COOKIE];
        cookie[..CLIENT].copy_from_slice(own);
        cookie[CLIENT] = VERSION;
        cookie[12..16].copy_from_slice(&now.to_be_bytes());
        let secret = match self {
            Secrets::Drawn(master) => of_day(master, now / DAY),
            Secrets::Listed(secrets) => secrets[0],
        };
        let hash = hash_of(&secret, &cookie[..COOKIE - 8], client);
        cookie[COOKIE - 8..].copy_from_slice(&hash);
        cookie
    }

    /// Whether `fits` holds for a secret that may have made a cookie at `made`.
    fn checking(&self, made: u32, fits: impl Fn(&Secret) -> bool) -> bool {
        match self {
            Secrets::Drawn(master) => fits(&of_day(master, made / DAY)),
            Secrets::Listed(secrets) => secrets.iter().any(fits),
        }
    }
}

/// RFC 9018 section 4.4.
fn hash_of(secret: &Secret, begin: &[u8], client: IpAddr) -> [u8; 8] {
    let mut hasher = SipHasher24::new_with_key(secret);
    hasher.write(begin);
    match client.to_canonical() {
        IpAddr::V4(v4) => hasher.write(&v4.octets()),
        IpAddr::V6(v6) => hasher.write(&v6.octets()),
    }
    hasher.finish().to_le_bytes()
}

/// The secret of a day.
fn of_day(master: &Secret, day: u32) -> Secret {
    let half = |which: u8| {
        let mut hasher = SipHasher24::new_with_key(master);
        hasher.write(&day.to_be_bytes());
        hasher.write(&[which]);
        hasher.finish().to_le_bytes()
    };
    let mut secret = [0; 16];
    let (low, high) = secret.split_at_mut(8);
    low.copy_from_slice(&half(0));
    high.copy_from_slice(&half(1));
    secret
}

fn secret(line: &str) -> Option<Secret> {
    let mut secret = [0; 16];
    let octets = line.as_bytes();
    if octets.len() != 2 * secret.len() {
        return None;
    }
    for (octet, digits) in secret.iter_mut().zip(octets.chunks(2)) {
        let digit = |at: usize| char::from(digits[at]).to_digit(16);
        *octet = (digit(0)? << 4 | digit(1)?) as u8;
    }
    Some(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(hex: &str) -> Vec<u8> {
        let digits = hex.as_bytes().chunks(2);
        digits.map(|it| u8::from_str_radix(std::str::from_utf8(it).unwrap(), 16).unwrap()).collect()
    }

    fn listed(secrets: &[&str]) -> Secrets {
        Secrets::Listed(secrets.iter().map(|it| secret(it).unwrap()).collect())
    }

    /// The examples of RFC 9018 appendix A.
    #[test]
    fn cookies_are_those_of_other_servers() {
        let v4 = "198.51.100.100".parse().unwrap();
        let secrets = listed(&["e5e973e5a6b2a43f48e7dc849e37bfcf"]);
        let first = octets("2464c4abcf10c957");
        let cookie = octets("2464c4abcf10c957010000005cf79f111f8130c3eee29480");
        let (made, shown) = secrets.check(&first, v4, 1_559_731_985).unwrap();
        assert_eq!((&made[..], shown), (&cookie[..], Shown::First));
        // A.2: 40 minutes later it is replaced.
        let renewed = octets("2464c4abcf10c957010000005cf7a871d4a564a1442aca77");
        let (made, shown) = secrets.check(&cookie, v4, 1_559_734_385).unwrap();
        assert_eq!((&made[..], shown), (&renewed[..], Shown::Valid));
        // A.3: reserved octets of another server are taken as they are.
        let cookie = octets("fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5");
        let other = "203.0.113.203".parse().unwrap();
        let renewed = octets("fc93fc62807ddb86010000005cf7a9acf73a7810aca2381e");
        let (made, shown) = secrets.check(&cookie, other, 1_559_728_000).unwrap();
        assert_eq!((&made[..], shown), (&cookie[..], Shown::Valid));
        let (made, _) = secrets.check(&cookie, other, 1_559_734_700).unwrap();
        assert_eq!(made[..], renewed);
        // A.4: an IPv6 client, and a new secret beside the old one.
        let v6 = "2001:db8:220:1:59de:d0f4:8769:82b8".parse().unwrap();
        let secrets =
            listed(&["445536bcd2513298075a5d379663c962", "dd3bdf9344b678b185a6f5cb60fca715"]);
        let cookie = octets("22681ab97d52c298010000005cf7c57926556bd0934c72f8");
        let renewed = octets("22681ab97d52c298010000005cf7c609a6bb79d16625507a");
        let (made, shown) = secrets.check(&cookie, v6, 1_559_741_961).unwrap();
        assert_eq!((&made[..], shown), (&cookie[..], Shown::Valid), "younger than half an hour");
        let (made, _) = secrets.check(&cookie[..8], v6, 1_559_741_961).unwrap();
        assert_eq!(made[..], renewed);
    }

    #[test]
    fn what_is_worth_nothing() {
        let client: IpAddr = "2001:db8::1".parse().unwrap();
        let secrets = Secrets::draw().unwrap();
        let now = 1_700_000_000;
        let (cookie, _) = secrets.check(&[7; 8], client, now).unwrap();
        let shown = |cookie: &[u8], client, now| secrets.check(cookie, client, now).map(|it| it.1);
        assert_eq!(shown(&cookie, client, now), Some(Shown::Valid));
        for (later, valid) in [(3600, true), (3601, false), (DAY, false)] {
            let expected = if valid { Shown::Valid } else { Shown::Invalid };
            assert_eq!(shown(&cookie, client, now + later), Some(expected), "{later}");
        }
        assert_eq!(shown(&cookie, client, now - 300), Some(Shown::Valid));
        assert_eq!(shown(&cookie, client, now - 301), Some(Shown::Invalid));
        assert_eq!(shown(&cookie, "2001:db8::2".parse().unwrap(), now), Some(Shown::Invalid));
        for at in 0..COOKIE {
            let mut other = cookie;
            other[at] ^= 1;
            assert_eq!(shown(&other, client, now), Some(Shown::Invalid), "octet {at}");
        }
        assert_eq!(shown(&[&cookie[..], &[0; 16]].concat(), client, now), Some(Shown::Invalid));
        for len in [0, 1, 7, 9, 15, 41, 100] {
            assert_eq!(shown(&[0; 100][..len], client, now), None, "{len}");
        }
        let others = Secrets::draw().unwrap();
        assert_eq!(others.check(&cookie, client, now).unwrap().1, Shown::Invalid);
    }

    #[test]
    fn a_cookie_lives_on_after_midnight() {
        let (client, secrets) = ("192.0.2.1".parse().unwrap(), Secrets::draw().unwrap());
        let midnight = 20_000 * DAY;
        let (before, _) = secrets.check(&[7; 8], client, midnight - 60).unwrap();
        assert_eq!(secrets.check(&before, client, midnight + 60).unwrap().1, Shown::Valid);
        let (after, _) = secrets.check(&[7; 8], client, midnight + 60).unwrap();
        assert_eq!(secrets.check(&after, client, midnight + 60).unwrap().1, Shown::Valid);
        assert_ne!(of_day(&[1; 16], 20_000), of_day(&[1; 16], 20_001));
    }

    #[test]
    fn secrets_of_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |text: &str| {
            fs::write(file.path(), text).unwrap();
            Secrets::read(file.path()).map_err(|error| error.to_string())
        };
        let text = "# now\nE5e973e5a6b2a43f48e7dc849e37bfcf\n\n445536bcd2513298075a5d379663c962\n";
        let Ok(Secrets::Listed(secrets)) = read(text) else { panic!("it is good") };
        assert_eq!((secrets.len(), secrets[0][0], secrets[1][15]), (2, 0xe5, 0x62));
        assert_eq!(format!("{:?}", Secrets::Listed(secrets)), "Listed");
        for (text, wrong) in [
            ("", "there is no secret in it"),
            ("\n445536\n", "line 2 is not a secret of 32 hexadecimal digits"),
            ("445536bcd2513298075a5d379663c96ü", "line 1 is not"),
        ] {
            assert!(read(text).unwrap_err().contains(wrong), "{text}");
        }
    }
}
