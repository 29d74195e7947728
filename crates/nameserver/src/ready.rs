//! Encoded answers, which serve many queries: only identifier, case of the question, TTLs and length differ.

use hickory_proto::op::{Edns, Message};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::{BinEncodable, BinEncoder};

use super::extras::{Extras, add_option};
use super::query::{HEADER, MAX_MESSAGE, OPTION_KEEPALIVE, Query};

/// Flag TC, in the third octet of a message.
const TRUNCATED: u8 = 0x02;
/// What makes two octets a pointer to a name, and how far it reaches (RFC 1035 section 4.1.4).
const POINTER: u16 = 0xc000;
const POINTERS: u16 = 0x4000;
/// The shortest life of an answer that is made anew before its end, in milliseconds.
const LEAST_LIFE: u64 = 10_000;
/// Length of an OPT record without options.
const OPT_LEN: usize = 11;

/// An answer in octets.
#[derive(Debug)]
pub(super) struct Ready {
    /// Header, question, records, and the OPT record, if there is one; behind these octets where the TTLs are, two octets
    /// each in the processor's order.
    data: Box<[u8]>,
    /// Where the message ends.
    end: u16,
    /// Where the question ends.
    question_end: u16,
    /// Where the OPT record begins: the end, if there is none.
    opt: u16,
    rcode: u16,
    /// Where RRsets end, if it may have to be truncated.
    cuts: Box<[Cut]>,
    /// When it was made; TTLs are those of then.
    made: u64,
    /// When it expires.
    expires: u64,
    /// From when on it should be made anew if it is still asked for.
    due: u64,
}

/// An answer may end here: between two RRsets (RFC 2181 section 9).
#[derive(Debug, Clone, Copy)]
struct Cut {
    end: u16,
    /// Records up to here, in each of the three sections.
    counts: [u16; 3],
}

/// How an answer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// By UDP, with at most so many octets.
    Datagram(usize),
    /// By TCP; with the time that a silent connection lives, in units of 100 ms, if the client has asked for it.
    Stream(Option<u16>),
}

impl Ready {
    /// Encodes a response. `now` and `expires` are in milliseconds. `size` is the size of datagrams that this server
    /// takes (RFC 6891 section 6.2.3).
    ///
    /// None: it can't be encoded, which no response of the kind that servers make does.
    pub(super) fn encode(message: &Message, size: u16, now: u64, expires: u64) -> Option<Ready> {
        let mut octets = Vec::with_capacity(512);
        let mut encoding = Encoding::begin(&mut octets, message)?;
        let whole = encoding.records(message);
        let Encoding { question_end, ttls, counts, mut cuts, .. } = encoding;
        let (end, mut counts) = match whole {
            Some(()) => (octets.len(), counts),
            // Longer than any message: what has fitted.
            None => {
                octets[2] |= TRUNCATED;
                let last = cuts.last().map_or((question_end, [0; 3]), |cut| (cut.end, cut.counts));
                (last.0.into(), last.1)
            }
        };
        octets.truncate(end);
        let mut ttls = ttls;
        ttls.retain(|at| usize::from(*at) < end);
        if let Some(edns) = &message.edns {
            let mut edns = edns.clone();
            edns.set_max_payload(size).set_rcode_high(message.metadata.response_code.high());
            append_opt(&mut octets, &edns)?;
            counts[2] += 1;
        }
        put_counts(&mut octets, counts);
        if octets.len() <= usize::from(super::query::MIN_UDP_SIZE) {
            cuts = Vec::new();
        }
        let message_end = octets.len() as u16;
        octets.extend(ttls.into_iter().flat_map(u16::to_ne_bytes));
        Some(Ready {
            data: octets.into(),
            end: message_end,
            question_end,
            opt: end as u16,
            rcode: message.metadata.response_code.into(),
            cuts: cuts.into(),
            made: now,
            expires,
            due: due(now, expires),
        })
    }

    /// The message.
    fn octets(&self) -> &[u8] {
        &self.data[..self.end.into()]
    }

    /// Where the TTLs are.
    fn ttls(&self) -> impl Iterator<Item = u16> {
        let (places, _) = self.data[self.end.into()..].as_chunks();
        places.iter().map(|place| u16::from_ne_bytes(*place))
    }

    /// Whether it has not expired at `now`.
    pub(super) fn is_fresh(&self, now: u64) -> bool {
        now < self.expires
    }

    /// Whether it is in the last tenth of its life at `now`.
    pub(super) fn is_due(&self, now: u64) -> bool {
        now >= self.due
    }

    /// When it expires.
    pub(super) fn expires(&self) -> u64 {
        self.expires
    }

    /// Memory that it takes, in octets.
    pub(super) fn memory(&self) -> usize {
        size_of::<Ready>() + self.data.len() + size_of_val::<[Cut]>(&self.cuts)
    }

    /// RCODE, with the part that the OPT record has.
    pub(super) fn rcode(&self) -> u16 {
        self.rcode
    }

    /// Appends the answer to `query`, which must ask for the same but for its case, and says whether it was cut.
    pub(super) fn write(&self, query: &Asked<'_>, form: Form, now: u64, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let (mut cut, mut end) = (false, self.opt);
        let added = query.extras.len();
        match form {
            Form::Datagram(size) if self.octets().len() + added > size => {
                (cut, end) = self.write_cut(size - added, out);
            }
            _ => out.extend_from_slice(self.octets()),
        }
        let answer = &mut out[start..];
        answer[..2].copy_from_slice(&query.id.to_be_bytes());
        let question = HEADER..usize::from(self.question_end);
        if question.len() == query.question.len() {
            answer[question].copy_from_slice(query.question);
        }
        let age = (now.saturating_sub(self.made) / 1000) as u32;
        if age > 0 {
            for at in self.ttls().take_while(|at| *at < end).map(usize::from) {
                let ttl = &mut answer[at..at + 4];
                let left = u32::from_be_bytes([ttl[0], ttl[1], ttl[2], ttl[3]]).saturating_sub(age);
                ttl.copy_from_slice(&left.to_be_bytes());
            }
        }
        // A message without OPT record is of a client that has sent none, and so no option.
        if start + usize::from(end) < out.len() {
            let opt = start + usize::from(end) + OPT_LEN - 2;
            if let Form::Stream(Some(timeout)) = form {
                add_option(start, opt, OPTION_KEEPALIVE, &timeout.to_be_bytes(), out);
            }
            query.extras.write(start, opt, out);
        }
        cut
    }

    /// Appends as many whole RRsets as fit (RFC 2181 section 9), and says where they end and whether any of those that
    /// the client needs is missing; additional records may be left out without TC.
    fn write_cut(&self, size: usize, out: &mut Vec<u8>) -> (bool, u16) {
        let start = out.len();
        let octets = self.octets();
        let opt = &octets[usize::from(self.opt)..];
        let fits = |cut: &&Cut| usize::from(cut.end) + opt.len() <= size;
        let (end, mut counts) = self
            .cuts
            .iter()
            .rev()
            .find(fits)
            .map_or((self.question_end, [0; 3]), |cut| (cut.end, cut.counts));
        out.extend_from_slice(&octets[..end.into()]);
        out.extend_from_slice(opt);
        let full = [6, 8].map(|at| u16::from_be_bytes([octets[at], octets[at + 1]]));
        let cut = counts[..2] != full;
        if cut {
            out[start + 2] |= TRUNCATED;
        }
        counts[2] += u16::from(!opt.is_empty());
        put_counts(&mut out[start..], counts);
        (cut, end)
    }
}

/// When an answer of such a life comes into the last tenth of it. The short-lived never do: they would be asked for all the
/// time.
fn due(made: u64, expires: u64) -> u64 {
    match expires.saturating_sub(made) {
        life @ LEAST_LIFE.. => expires - life / 10,
        _ => u64::MAX,
    }
}

/// The query that an answer is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    /// The number of the query.
    pub(super) id: u16,
    /// The question as the client has written it; empty: as the answer has it.
    pub(super) question: &'a [u8],
    pub(super) extras: Extras,
}

impl<'a> Asked<'a> {
    /// A query that is told apart by its number alone.
    pub(super) fn bare(id: u16) -> Self {
        Asked { id, question: &[], extras: Extras::default() }
    }

    pub(super) fn of(query: &Query<'a>, extras: Extras) -> Self {
        Asked { id: query.id, question: query.question, extras }
    }
}

/// Writes the numbers of records, after the number of questions.
fn put_counts(octets: &mut [u8], counts: [u16; 3]) {
    for (at, count) in [6, 8, 10].into_iter().zip(counts) {
        octets[at..at + 2].copy_from_slice(&count.to_be_bytes());
    }
}

fn append_opt(octets: &mut Vec<u8>, edns: &Edns) -> Option<()> {
    let mut opt = Vec::new();
    edns.emit(&mut BinEncoder::new(&mut opt)).ok()?;
    if octets.len() + opt.len() > MAX_MESSAGE {
        return None;
    }
    octets.extend_from_slice(&opt);
    Some(())
}

/// A message that is being written.
struct Encoding<'a> {
    encoder: BinEncoder<'a>,
    question_end: u16,
    ttls: Vec<u16>,
    counts: [u16; 3],
    cuts: Vec<Cut>,
    /// The owner of the record before, and where its name begins. The library looks for names to point to, too, but
    /// gives up after a number of them.
    owner: Option<(&'a Name, u16)>,
}

impl<'a> Encoding<'a> {
    /// Writes header and question.
    fn begin(octets: &'a mut Vec<u8>, message: &'a Message) -> Option<Encoding<'a>> {
        let mut encoder = BinEncoder::new(octets);
        // Room for an OPT record is kept.
        encoder.set_max_size((MAX_MESSAGE - 1024) as u16);
        let mut header = Vec::with_capacity(HEADER);
        header.extend_from_slice(&message.metadata.id.to_be_bytes());
        header.extend_from_slice(&flags(message).to_be_bytes());
        header.extend_from_slice(&(message.queries.len() as u16).to_be_bytes());
        header.extend_from_slice(&[0; 6]);
        encoder.emit_vec(&header).ok()?;
        encoder.emit_all(message.queries.iter()).ok()?;
        let question_end = encoder.offset() as u16;
        // The name asked for begins right after the header; in the client's case, too.
        let asked = message.queries.first().filter(|query| !query.name.is_root());
        let owner = asked.map(|query| (&query.name, HEADER as u16));
        Some(Encoding {
            encoder,
            question_end,
            ttls: Vec::new(),
            counts: [0; 3],
            cuts: Vec::new(),
            owner,
        })
    }

    /// Writes the records. None: there is no room for all of them; whole RRsets up to the last cut are there.
    fn records(&mut self, message: &'a Message) -> Option<()> {
        let sections = [&message.answers, &message.authorities, &message.additionals];
        for (section, records) in sections.into_iter().enumerate() {
            for (index, record) in records.iter().enumerate() {
                self.record(record)?;
                self.counts[section] += 1;
                if records.get(index + 1).is_none_or(|next| !same_rrset(record, next)) {
                    self.cuts.push(Cut { end: self.encoder.offset() as u16, counts: self.counts });
                }
            }
        }
        Some(())
    }

    fn record(&mut self, record: &'a Record) -> Option<()> {
        let encoder = &mut self.encoder;
        match self.owner {
            Some((owner, at)) if at < POINTERS && *owner == record.name => {
                encoder.emit_u16(POINTER | at).ok()?;
            }
            _ => {
                self.owner = Some((&record.name, encoder.offset() as u16));
                record.name.emit(encoder).ok()?;
            }
        }
        encoder.emit_u16(record.record_type().into()).ok()?;
        encoder.emit_u16(record.dns_class.into()).ok()?;
        self.ttls.push(encoder.offset() as u16);
        encoder.emit_u32(record.ttl).ok()?;
        match &record.data {
            RData::AAAA(address) => {
                encoder.emit_u16(16).ok()?;
                encoder.emit_vec(&address.octets()).ok()?;
            }
            RData::A(address) => {
                encoder.emit_u16(4).ok()?;
                encoder.emit_vec(&address.octets()).ok()?;
            }
            data => {
                let len = encoder.place::<u16>().ok()?;
                data.emit(encoder).ok()?;
                let written = encoder.len_since_place(&len) as u16;
                len.replace(encoder, written).ok()?;
            }
        }
        Some(())
    }
}

/// Whether two records that follow each other must not be separated: of one RRset, or signature after what it signs.
fn same_rrset(record: &Record, next: &Record) -> bool {
    let (one, other) = (record.record_type(), next.record_type());
    (one == other || other == RecordType::RRSIG) && record.name == next.name
}

/// The flags of the header.
fn flags(message: &Message) -> u16 {
    let metadata = &message.metadata;
    let bit = |set: bool, bit: u16| if set { bit } else { 0 };
    u16::from(u8::from(metadata.op_code)) << 11
        | bit(true, 0x8000)
        | bit(metadata.authoritative, 0x0400)
        | bit(metadata.truncation, 0x0200)
        | bit(metadata.recursion_desired, 0x0100)
        | bit(metadata.recursion_available, 0x0080)
        | bit(metadata.authentic_data, 0x0020)
        | bit(metadata.checking_disabled, 0x0010)
        | u16::from(metadata.response_code.low())
}

#[cfg(test)]
mod tests;
