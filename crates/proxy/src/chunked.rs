//! Reading the chunked transfer coding (RFC 9112 section 7.1).

use bytes::{Buf, BytesMut};

use super::fields::may_trail;

/// Octets of extensions that are skipped, of a whole message.
const MOST_EXTENSION: usize = 16 << 10;
/// Octets of a trailer section.
const MOST_TRAILER: usize = 16 << 10;
/// Field lines of a trailer section.
const MOST_LINES: usize = 64;

/// Where in the coding the next octet stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The size; how many digits there were.
    Size(u8),
    Extension,
    /// Behind the CR of a size's line.
    SizeEnd,
    Data,
    /// Behind the data of a chunk: its CR, its LF.
    DataCr,
    DataLf,
    /// In the trailer section.
    Trailer,
    Done,
}

/// A name and its value.
pub(super) type Field = (Vec<u8>, Vec<u8>);

/// What can't be the coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotChunked;

/// A reader of the coding, strict: a lone LF, a size that is not of digits alone, or one that does not fit, is an error.
/// Extensions are skipped (section 7.1.1).
#[derive(Debug)]
pub(super) struct Chunked {
    place: Place,
    /// The size so far; what is left of the data.
    size: u64,
    extension: usize,
    trailer: BytesMut,
}

impl Chunked {
    pub(super) fn new() -> Chunked {
        Chunked { place: Place::Size(0), size: 0, extension: 0, trailer: BytesMut::new() }
    }

    pub(super) fn is_done(&self) -> bool {
        self.place == Place::Done
    }

    /// Takes octets from `from` and gives the next piece of content; `None`: there is none before more octets come, or
    /// the message has ended ([`Chunked::is_done`]).
    pub(super) fn next(&mut self, from: &mut BytesMut) -> Result<Option<BytesMut>, NotChunked> {
        loop {
            match self.place {
                Place::Done => return Ok(None),
                Place::Data => {
                    if from.is_empty() {
                        return Ok(None);
                    }
                    let most = usize::try_from(self.size).unwrap_or(usize::MAX);
                    let piece = from.split_to(from.len().min(most));
                    self.size -= piece.len() as u64;
                    if self.size == 0 {
                        self.place = Place::DataCr;
                    }
                    return Ok(Some(piece));
                }
                Place::Trailer => {
                    let Some(end) = memchr::memchr(b'\n', from) else {
                        // The octets wait in `from`, whose owner bounds them.
                        return if from.len() > MOST_TRAILER { Err(NotChunked) } else { Ok(None) };
                    };
                    self.trailer_line(&from.split_to(end + 1))?;
                }
                _ => {
                    let Some(&octet) = from.first() else { return Ok(None) };
                    from.advance(1);
                    self.octet(octet)?;
                }
            }
        }
    }

    /// An octet that is neither data nor trailer.
    fn octet(&mut self, octet: u8) -> Result<(), NotChunked> {
        self.place = match (self.place, octet) {
            (Place::Size(digits), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                // 15 digits: no length of a message overflows.
                if digits == 15 {
                    return Err(NotChunked);
                }
                let value = (octet as char).to_digit(16).unwrap_or(0);
                self.size = self.size << 4 | u64::from(value);
                Place::Size(digits + 1)
            }
            (Place::Size(1..), b';' | b' ' | b'\t') => Place::Extension,
            (Place::Size(1..) | Place::Extension, b'\r') => Place::SizeEnd,
            (Place::Extension, b'\t' | 0x20..=0x7e | 0x80..) => {
                self.extension += 1;
                if self.extension > MOST_EXTENSION {
                    return Err(NotChunked);
                }
                Place::Extension
            }
            (Place::SizeEnd, b'\n') if self.size > 0 => Place::Data,
            (Place::SizeEnd, b'\n') => Place::Trailer,
            (Place::DataCr, b'\r') => Place::DataLf,
            (Place::DataLf, b'\n') => Place::Size(0),
            _ => return Err(NotChunked),
        };
        Ok(())
    }

    fn trailer_line(&mut self, line: &[u8]) -> Result<(), NotChunked> {
        if !line.ends_with(b"\r\n") {
            return Err(NotChunked);
        }
        if line.len() == 2 {
            self.place = Place::Done;
        } else if self.trailer.len() + line.len() > MOST_TRAILER {
            return Err(NotChunked);
        } else {
            self.trailer.extend_from_slice(line);
        }
        Ok(())
    }

    /// The field lines of the trailer section that may go on, each with CRLF.
    pub(super) fn trailer(&self) -> Result<Vec<Field>, NotChunked> {
        if self.trailer.is_empty() {
            return Ok(Vec::new());
        }
        let mut whole = self.trailer.to_vec();
        whole.extend_from_slice(b"\r\n");
        let mut room = [httparse::EMPTY_HEADER; MOST_LINES];
        let Ok(httparse::Status::Complete((_, lines))) = httparse::parse_headers(&whole, &mut room)
        else {
            return Err(NotChunked);
        };
        let kept = lines.iter().filter(|line| may_trail(line.name.as_bytes()));
        Ok(kept.map(|line| (line.name.as_bytes().to_vec(), line.value.to_vec())).collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The content and what is behind it.
    fn read(pieces: &[&[u8]]) -> Result<(Vec<u8>, Vec<u8>, bool), NotChunked> {
        let (mut chunked, mut from, mut content) = (Chunked::new(), BytesMut::new(), Vec::new());
        for piece in pieces {
            from.extend_from_slice(piece);
            while let Some(data) = chunked.next(&mut from)? {
                content.extend_from_slice(&data);
            }
        }
        Ok((content, from.to_vec(), chunked.is_done()))
    }

    #[test]
    fn chunks_in_one_piece_and_octet_by_octet() {
        let octets = b"3\r\nabc\r\n0A;name=\"value\" \r\n0123456789\r\n0\r\nX: y\r\n\r\nnext";
        let expected = (b"abc0123456789".to_vec(), b"next".to_vec(), true);
        assert_eq!(read(&[octets]).unwrap(), expected);
        let single: Vec<&[u8]> = octets.chunks(1).collect();
        assert_eq!(read(&single).unwrap(), expected);
    }

    #[test]
    fn what_others_might_read_differently() {
        for octets in [
            &b"3\nabc\r\n0\r\n\r\n"[..],
            b"3\r\nabc\n0\r\n\r\n",
            b"3\r\nabcd\r\n0\r\n\r\n",
            b"0x3\r\nabc\r\n0\r\n\r\n",
            b"+3\r\nabc\r\n0\r\n\r\n",
            b"-3\r\nabc\r\n0\r\n\r\n",
            b" 3\r\nabc\r\n0\r\n\r\n",
            b"\r\nabc\r\n0\r\n\r\n",
            b";a\r\nabc\r\n0\r\n\r\n",
            b"3;a\nabc\r\n0\r\n\r\n",
            b"3;a\rb\r\nabc\r\n0\r\n\r\n",
            b"3_0\r\nabc\r\n0\r\n\r\n",
            b"1000000000000000\r\nabc",
            b"0000000000000003\r\nabc",
            b"0\r\nX: y\n\r\n",
        ] {
            assert_eq!(read(&[octets]), Err(NotChunked), "{:?}", String::from_utf8_lossy(octets));
        }
    }

    #[test]
    fn extensions_and_trailers_are_bounded() {
        let mut long = b"1;".to_vec();
        long.extend(vec![b'a'; MOST_EXTENSION + 1]);
        assert_eq!(read(&[&long]), Err(NotChunked));
        let mut long = b"0\r\n".to_vec();
        (0..MOST_TRAILER / 8 + 1).for_each(|_| long.extend(b"A: bcd\r\n"));
        assert_eq!(read(&[&long]), Err(NotChunked));
        let mut long = b"0\r\nA: ".to_vec();
        long.extend(vec![b'a'; MOST_TRAILER + 1]);
        assert_eq!(read(&[&long]), Err(NotChunked));
    }

    #[test]
    fn trailers_that_harm_are_left_out() {
        let octets = b"0\r\nX-Sum: 1\r\nContent-Length: 5\r\nHost: a\r\nSet-Cookie: a\r\nTransfer-Encoding: x\r\n\r\n";
        let (mut chunked, mut from) = (Chunked::new(), BytesMut::from(&octets[..]));
        assert_eq!(chunked.next(&mut from), Ok(None));
        assert_eq!(chunked.trailer().unwrap(), [(b"X-Sum".to_vec(), b"1".to_vec())]);
        let folded = b"0\r\nX-Sum: 1\r\n 2\r\n\r\n";
        let (mut chunked, mut from) = (Chunked::new(), BytesMut::from(&folded[..]));
        assert_eq!(chunked.next(&mut from), Ok(None));
        assert_eq!(chunked.trailer(), Err(NotChunked));
    }

    proptest! {
        #[test]
        fn whatever_is_written_in_chunks_is_read(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..8),
            cut in 1usize..20,
        ) {
            let mut octets = Vec::new();
            for chunk in &chunks {
                octets.extend(format!("{:X}\r\n", chunk.len()).into_bytes());
                octets.extend(chunk);
                octets.extend(b"\r\n");
            }
            octets.extend(b"0\r\n\r\n!");
            let pieces: Vec<&[u8]> = octets.chunks(cut).collect();
            prop_assert_eq!(read(&pieces).unwrap(), (chunks.concat(), b"!".to_vec(), true));
        }

        #[test]
        fn no_octets_make_it_panic(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&[&octets]);
        }
    }
}
