//! Rows of the DNS64 server's cache.

use std::time::Instant;

use fordway_control::{CacheRow, Entries};
use fordway_nameserver::Caches;
use fordway_resolver::{Kept, Security, Selection};
use fordway_serve::clock;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::Name;

use super::{Filter, Read, parts};
use crate::failure::Failure;

/// Which names are meant: all, if none is named. It is read where requests are, on a thread without capabilities.
pub(crate) fn selection(name: Option<&str>, subtree: bool) -> Result<Selection, Failure> {
    let Some(name) = name else { return Ok(Selection::all()) };
    let read = Name::from_ascii(name).map_err(|_| {
        let text = format!("\"{name}\" is no name of the DNS");
        Failure::usage(text, "write a name such as www.example.net")
    });
    Ok(Selection::new(&read?, subtree))
}

/// Removes all that is known of some names. Says in words what that was.
pub(crate) fn flush(caches: &Caches, names: &Selection) -> String {
    let (upstream, ready) = caches.flush(names);
    format!("flushed {upstream} answers of upstream servers and {ready} made of them")
}

/// Gives the wanted rows to `take`, part by part, until it says no.
pub(crate) fn read(
    caches: &Caches,
    names: &Selection,
    wanted: &Filter,
    read: &mut Read,
    take: &mut dyn FnMut(Entries) -> bool,
) {
    let (resolver, now) = (caches.resolver(), clock::now());
    let rows = resolver.kept(names).map(|kept| row(&kept, now));
    parts(rows, wanted, read, Entries::Dns64Cache, take);
}

fn row(kept: &Kept, now: Instant) -> CacheRow {
    let Kept { question, outcome, expires } = kept;
    let left = expires.saturating_duration_since(now);
    let row = CacheRow {
        name: question.name.to_ascii(),
        record_type: question.record_type.to_string(),
        class: question.class.to_string(),
        dnssec_ok: question.dnssec_ok,
        checking_disabled: question.checking_disabled,
        // Of a second that has begun, nothing is left in the DNS.
        seconds: (!left.is_zero()).then_some(left.as_secs()),
        ..CacheRow::default()
    };
    let answer = match outcome {
        Ok(answer) => answer,
        Err(failure) => return CacheRow { failure: Some(failure.to_string()), ..row },
    };
    let message = answer.message_at(now);
    CacheRow {
        code: Some(code(message.metadata.response_code)),
        security: security(answer.security).to_owned(),
        records: message.answers.iter().map(ToString::to_string).collect(),
        ..row
    }
}

fn security(security: Security) -> &'static str {
    match security {
        Security::Unchecked => "unchecked",
        Security::Secure => "secure",
        Security::Insecure => "insecure",
        Security::Bogus => "bogus",
    }
}

/// As dig writes it.
fn code(code: ResponseCode) -> String {
    match code {
        ResponseCode::NoError => "NOERROR".to_owned(),
        ResponseCode::FormErr => "FORMERR".to_owned(),
        ResponseCode::ServFail => "SERVFAIL".to_owned(),
        ResponseCode::NXDomain => "NXDOMAIN".to_owned(),
        ResponseCode::NotImp => "NOTIMP".to_owned(),
        ResponseCode::Refused => "REFUSED".to_owned(),
        ResponseCode::YXDomain => "YXDOMAIN".to_owned(),
        other => format!("RCODE{}", u16::from(other)),
    }
}
