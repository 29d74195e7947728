//! One try: one question to one server, with what that server needs to answer it.

use std::sync::Arc;
use std::time::Instant;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType;

use super::connection::Connection;
use super::peer::{AttemptError, Links, Peer};
use super::query::{Query, Style};
use super::settings::Protocol;
use super::udp;

/// Asks a server once; the response answers the question, but may be an error.
pub(super) async fn ask(
    peer: &Arc<Peer>,
    links: &Links,
    key: &[u8],
    now: Instant,
) -> Result<Message, AttemptError> {
    let style = Style {
        mixed_case: peer.server.protocol == Protocol::Udp && peer.health.keeps_case(now),
        edns: peer.health.knows_edns(now),
        padded: peer.tls.is_some(),
    };
    let message = ask_in(peer, links, key, style, now).await?;
    if !(style.edns && lacks_edns(&message)) {
        return Ok(message);
    }
    // RFC 6891 section 7: such a server is asked without EDNS.
    let plain = Style { edns: false, padded: false, ..style };
    let answer = ask_in(peer, links, key, plain, now).await?;
    if !lacks_edns(&answer) {
        peer.health.lacks_edns(now);
    }
    Ok(answer)
}

async fn ask_in(
    peer: &Arc<Peer>,
    links: &Links,
    key: &[u8],
    style: Style,
    now: Instant,
) -> Result<Message, AttemptError> {
    let query = Query::new(key, style)?;
    if peer.server.protocol != Protocol::Udp {
        return by_connection(peer, links, &query).await.map(|(message, _)| message);
    }
    let counters = &peer.counters;
    match udp::ask(peer, &links.sockets, &query, now).await {
        Err(AttemptError::Truncated) => counters.truncated.count(),
        Err(AttemptError::Suspicious) => counters.spoof_suspicions.count(),
        Err(AttemptError::OtherCase) => {
            counters.case_mismatches.count();
            return in_other_case(peer, links, key, style, now).await;
        }
        Err(AttemptError::NoQuestion) => {
            counters.mismatches.count();
            return without_question(peer, links, key, style, now).await;
        }
        other => return other,
    }
    by_connection(peer, links, &query).await.map(|(message, _)| message)
}

/// The answer by UDP came in another case than the question: TCP shows whether the server does that, or a forger did.
async fn in_other_case(
    peer: &Arc<Peer>,
    links: &Links,
    key: &[u8],
    style: Style,
    now: Instant,
) -> Result<Message, AttemptError> {
    let query = Query::new(key, style)?;
    match by_connection(peer, links, &query).await {
        Ok((message, case_kept)) => {
            if case_kept {
                peer.counters.spoof_suspicions.count();
            } else {
                peer.health.loses_case(now);
            }
            Ok(message)
        }
        Err(_) => {
            // A server without TCP: what is left is what every resolver without mixed case has.
            peer.health.loses_case(now);
            let query = Query::new(key, Style { mixed_case: false, ..style })?;
            udp::ask(peer, &links.sockets, &query, now).await
        }
    }
}

/// An error came by UDP that does not say which question it answers: TCP shows what the server says. One without TCP
/// that does not understand EDNS is asked without, and nothing is concluded for later.
async fn without_question(
    peer: &Arc<Peer>,
    links: &Links,
    key: &[u8],
    style: Style,
    now: Instant,
) -> Result<Message, AttemptError> {
    let query = Query::new(key, style)?;
    match by_connection(peer, links, &query).await {
        Err(trouble) if style.edns => {
            let query = Query::new(key, Style { edns: false, padded: false, ..style })?;
            udp::ask(peer, &links.sockets, &query, now).await.map_err(|_| trouble)
        }
        other => other.map(|(message, _)| message),
    }
}

/// Asks by a connection, and once more if the server has closed it in between.
async fn by_connection(
    peer: &Arc<Peer>,
    links: &Links,
    query: &Query,
) -> Result<(Message, bool), AttemptError> {
    let ask = async |connection: Connection| {
        peer.counters.queries.count();
        connection.ask(query).await
    };
    let mut response = match ask(links.connection(peer)).await {
        Err(AttemptError::Closed) => ask(links.connection(peer)).await?,
        other => other?,
    };
    let (message, case_kept) = peer.read_stream(query, &mut response)?;
    if message.metadata.truncation {
        // There is nothing larger to ask by.
        peer.counters.malformed.count();
        return Err(AttemptError::Malformed);
    }
    Ok((message, case_kept))
}

/// Whether a response is one of a server that does not understand EDNS.
fn lacks_edns(message: &Message) -> bool {
    let code = message.response_code;
    message.edns.is_none() && [ResponseCode::FormErr, ResponseCode::NotImp].contains(&code)
}

/// What a response is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    /// It answers the question.
    Answer,
    /// The server has tried and failed; another may do better.
    Failure,
    /// The server does not serve this host, or does no recursion.
    Refusal,
}

/// What a response is good for.
pub(super) fn worth(message: &Message) -> Worth {
    match message.response_code {
        ResponseCode::NXDomain | ResponseCode::YXDomain => Worth::Answer,
        ResponseCode::NoError if is_referral(message) => Worth::Refusal,
        ResponseCode::NoError => Worth::Answer,
        ResponseCode::ServFail => Worth::Failure,
        _ => Worth::Refusal,
    }
}

/// Whether the server points to others, instead of asking them.
fn is_referral(message: &Message) -> bool {
    let has = |kind| message.authorities.iter().any(|record| record.record_type() == kind);
    !message.metadata.authoritative
        && message.answers.is_empty()
        && has(RecordType::NS)
        && !has(RecordType::SOA)
}
