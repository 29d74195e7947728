//! One try: one question to one server, with what that server needs to answer it.

use std::sync::Arc;
use std::time::Instant;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType;

use super::connection::Connection;
use super::cookie::Returned;
use super::error::AttemptError;
use super::links::Links;
use super::peer::Peer;
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
    let attempt = Attempt { peer, links, key, now };
    let style = Style {
        mixed_case: peer.server.protocol == Protocol::Udp && peer.health.keeps_case(now),
        edns: peer.health.knows_edns(now),
        padded: peer.tls.is_some(),
    };
    let message = attempt.ask(style).await?;
    if !(style.edns && lacks_edns(&message)) {
        return Ok(message);
    }
    // RFC 6891 section 7: such a server is asked without EDNS.
    let answer = attempt.ask(Style { edns: false, padded: false, ..style }).await?;
    if !lacks_edns(&answer) {
        peer.health.lacks_edns(now);
    }
    Ok(answer)
}

/// One question to one server.
struct Attempt<'a> {
    peer: &'a Arc<Peer>,
    links: &'a Links,
    key: &'a [u8],
    now: Instant,
}

impl Attempt<'_> {
    async fn ask(&self, style: Style) -> Result<Message, AttemptError> {
        let query = Query::new(self.key, style)?;
        if self.peer.server.protocol == Protocol::Udp {
            let counters = &self.peer.counters;
            let mut answer = self.by_udp(&query).await;
            if let Err(AttemptError::BadCookie) = answer {
                // With the cookie that has just come.
                answer = self.by_udp(&Query::new(self.key, style)?).await;
            }
            match answer {
                Err(AttemptError::Truncated) => counters.truncated.count(),
                Err(AttemptError::Suspicious) => counters.spoof_suspicions.count(),
                Err(AttemptError::OtherCase) => {
                    counters.case_mismatches.count();
                    return self.in_other_case(style).await;
                }
                // TCP does without a cookie.
                Err(AttemptError::BadCookie) => {}
                Err(AttemptError::NoCookie) => {
                    counters.spoof_suspicions.count();
                    return self.with_cookie(query).await;
                }
                Err(AttemptError::NoQuestion) => {
                    counters.mismatches.count();
                    return self.without_question(style).await;
                }
                other => return other,
            }
        }
        self.by_connection(&query).await.map(|(message, _)| message)
    }

    /// The answer by UDP had no cookie, though the server has given one: it is asked by TCP with the cookie. If that answer
    /// has none either, the server knows no cookies any more.
    async fn with_cookie(&self, query: Query) -> Result<Message, AttemptError> {
        let held = self.peer.jar.as_ref().and_then(|jar| Some((jar, jar.held_cookie()?)));
        let shown = held
            .and_then(|(jar, (client, cookie))| Some((jar, client, query.with_cookie(&cookie)?)));
        let Some((jar, client, with_cookie)) = shown else {
            return self.by_connection(&query).await.map(|(message, _)| message);
        };
        let (message, _) = self.by_connection(&with_cookie).await?;
        if jar.take(client, &message) == Returned::Missing {
            jar.forget();
        }
        if message.response_code == ResponseCode::BADCOOKIE {
            return self.by_connection(&query).await.map(|(message, _)| message);
        }
        Ok(message)
    }

    /// The answer by UDP came in another case than the question: TCP shows whether the server does that, or a forger did.
    async fn in_other_case(&self, style: Style) -> Result<Message, AttemptError> {
        let health = &self.peer.health;
        match self.by_connection(&Query::new(self.key, style)?).await {
            Ok((message, case_kept)) => {
                if case_kept {
                    self.peer.counters.spoof_suspicions.count();
                } else {
                    health.loses_case(self.now);
                }
                Ok(message)
            }
            Err(_) => {
                // A server without TCP: what is left is what every resolver without mixed case has.
                health.loses_case(self.now);
                self.by_udp(&Query::new(self.key, Style { mixed_case: false, ..style })?).await
            }
        }
    }

    /// An error came by UDP that does not say which question it answers: TCP shows the server's answer. A server without
    /// TCP that does not understand EDNS is asked without it, and nothing is concluded for later.
    async fn without_question(&self, style: Style) -> Result<Message, AttemptError> {
        match self.by_connection(&Query::new(self.key, style)?).await {
            Err(trouble) if style.edns => {
                let query = Query::new(self.key, Style { edns: false, padded: false, ..style })?;
                self.by_udp(&query).await.map_err(|_| trouble)
            }
            other => other.map(|(message, _)| message),
        }
    }

    async fn by_udp(&self, query: &Query) -> Result<Message, AttemptError> {
        udp::ask(self.peer, &self.links.sockets, query, self.now).await
    }

    /// Asks by a connection, and once more if the server has closed it in between; with whether the case was kept.
    async fn by_connection(&self, query: &Query) -> Result<(Message, bool), AttemptError> {
        let ask = async |connection: Connection| {
            self.peer.counters.queries.count();
            connection.ask(query).await
        };
        let mut response = match ask(self.links.connection(self.peer)).await {
            Err(AttemptError::Closed) => ask(self.links.connection(self.peer)).await?,
            other => other?,
        };
        let (message, case_kept) = self.peer.read_stream(query, &mut response)?;
        if message.metadata.truncation {
            // There is nothing larger to ask by.
            self.peer.counters.malformed.count();
            return Err(AttemptError::Malformed);
        }
        Ok((message, case_kept))
    }
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
