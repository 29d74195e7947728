//! Why a request is not served, and what its sender is told.

use std::fmt::Write;

/// One reason as others see it.
pub(super) struct Meaning {
    /// The label of its counter, and its word in the access log.
    pub(super) label: &'static str,
    /// The status code (RFC 9110 section 15).
    pub(super) status: u16,
    /// The error type of Proxy-Status (RFC 9209 section 2.3).
    pub(super) error: &'static str,
    /// A sentence for people.
    pub(super) text: &'static str,
}

macro_rules! reasons {
    ($($reason:ident $label:literal $status:literal $error:literal $text:literal;)*) => {
        /// Why a request, or an exchange with a server, ends with an answer of the proxy's own.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Reason {
            $($reason,)*
        }

        /// What each reason means to others, in the order of the enum.
        pub(super) static MEANINGS: [Meaning; REASONS] =
            [$(Meaning { label: $label, status: $status, error: $error, text: $text },)*];

        /// How many there are.
        pub(super) const REASONS: usize = [$($label),*].len();
    };
}

reasons! {
    Malformed "malformed" 400 "http_request_error" "The request is not well-formed HTTP.";
    Framing "framing" 400 "http_request_error" "The length of the request's content is ambiguous.";
    Host "host" 400 "http_request_error" "The request does not say which host it is for, or says it wrongly.";
    ClientDenied "client_denied" 403 "http_request_denied" "Clients of your network may not use this proxy.";
    DestinationDenied "destination_denied" 403 "destination_ip_prohibited" "This proxy does not connect to that destination.";
    PortDenied "port_denied" 403 "http_request_denied" "This proxy does not connect to that port.";
    Method "method" 405 "http_request_denied" "This method is not served here.";
    HeaderTimeout "header_timeout" 408 "http_request_error" "The request did not come in time.";
    BodyTimeout "body_timeout" 408 "http_request_error" "The content of the request did not come in time.";
    BodyTooLarge "body_too_large" 413 "http_request_denied" "The content of the request is too large.";
    TargetTooLong "target_too_long" 414 "http_request_denied" "The request-target is too long.";
    Expectation "expectation" 417 "http_request_error" "This expectation can't be met.";
    FieldsTooLarge "fields_too_large" 431 "http_request_denied" "The header section of the request is too large.";
    Coding "coding" 501 "http_request_error" "This transfer coding is not known here.";
    Scheme "scheme" 501 "http_request_error" "Only http is served here; clients use CONNECT for https.";
    Version "version" 505 "http_request_error" "This version of HTTP is not known here.";
    Loop "loop" 508 "proxy_loop_detected" "The request has come by this proxy before.";
    NoSuchName "no_such_name" 502 "dns_error" "The host's name has no address.";
    NameFailed "name_failed" 502 "dns_error" "The host's name could not be looked up.";
    NameTimeout "name_timeout" 504 "dns_timeout" "The host's name could not be looked up in time.";
    Refused "refused" 502 "connection_refused" "The server refuses connections.";
    Unreachable "unreachable" 502 "destination_unavailable" "The server can't be reached.";
    ConnectTimeout "connect_timeout" 504 "connection_timeout" "The server did not take the connection in time.";
    BadResponse "bad_response" 502 "http_protocol_error" "The server's response is not well-formed HTTP.";
    ResponseTooLarge "response_too_large" 502 "http_response_header_section_size" "The header section of the server's response is too large.";
    Incomplete "incomplete" 502 "http_response_incomplete" "The server closed the connection before it had answered.";
    ResponseTimeout "response_timeout" 504 "http_response_timeout" "The server did not answer in time.";
    Hello "hello" 400 "tls_protocol_error" "The connection does not begin as one of TLS does.";
    UnknownName "unknown_name" 421 "http_request_denied" "No server here has the name that was asked for, or none was.";
    Busy "busy" 503 "connection_limit_reached" "The proxy is busy, or no server is available.";
}

impl Reason {
    pub(super) fn meaning(self) -> &'static Meaning {
        &MEANINGS[self as usize]
    }

    pub(super) fn label(self) -> &'static str {
        self.meaning().label
    }

    pub(super) fn status(self) -> u16 {
        self.meaning().status
    }

    /// Whether the connection to the client can't go on: what follows could be anything.
    pub(super) fn ends_connection(self) -> bool {
        use Reason::*;
        matches!(
            self,
            Malformed
                | Framing
                | Host
                | ClientDenied
                | HeaderTimeout
                | BodyTimeout
                | BodyTooLarge
                | TargetTooLong
                | FieldsTooLarge
                | Coding
                | Version
        )
    }

    /// The answer; `proxy` is the proxy's name in Proxy-Status (RFC 9209 section 2).
    pub(super) fn answer(self, proxy: &str, date: &str) -> Answer {
        let Meaning { status, error, text, .. } = self.meaning();
        let mut fields = vec![
            ("Date", date.to_owned()),
            ("Content-Type", "text/plain; charset=utf-8".to_owned()),
            ("Cache-Control", "no-store".to_owned()),
            ("Proxy-Status", format!("{proxy}; error={error}")),
        ];
        if self == Reason::Method {
            fields.push(("Allow", ALLOW.to_owned()));
        }
        Answer {
            status: *status,
            fields,
            page: format!("{status} {}\n\n{text}\n", phrase(*status)),
        }
    }
}

/// An answer of the proxy's own.
pub(super) struct Answer {
    pub(super) status: u16,
    fields: Vec<(&'static str, String)>,
    /// The content.
    pub(super) page: String,
}

impl Answer {
    /// To OPTIONS for the proxy itself (RFC 9110 section 9.3.7).
    pub(super) fn options(date: &str) -> Answer {
        let fields = vec![("Date", date.to_owned()), ("Allow", ALLOW.to_owned())];
        Answer { status: 204, fields, page: String::new() }
    }

    /// The whole answer in HTTP/1.1; `head`: without its content.
    pub(super) fn http1(&self, close: bool, head: bool) -> Vec<u8> {
        let mut answer = format!("HTTP/1.1 {} {}\r\n", self.status, phrase(self.status));
        let length = Some(self.page.len().to_string()).filter(|_| self.status != 204);
        let length = length.iter().map(|length| ("Content-Length", length));
        for (name, value) in self.fields.iter().map(|(name, value)| (*name, value)).chain(length) {
            let _ = write!(answer, "{name}: {value}\r\n");
        }
        if close {
            answer += "Connection: close\r\n";
        }
        answer += "\r\n";
        if !head {
            answer += &self.page;
        }
        answer.into_bytes()
    }

    /// The header section in HTTP/2.
    pub(super) fn http2(&self) -> http::response::Builder {
        let mut answer = http::Response::builder().status(self.status);
        for (name, value) in &self.fields {
            answer = answer.header(*name, value);
        }
        answer
    }
}

/// The methods of a 405 answer; others that are not listed pass, too.
pub(super) const ALLOW: &str = "GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH, CONNECT";

/// The reason phrase of a status that the proxy itself sends.
pub(super) fn phrase(status: u16) -> &'static str {
    http::StatusCode::from_u16(status).ok().and_then(|it| it.canonical_reason()).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_a_phrase() {
        for told in &MEANINGS {
            assert!(!phrase(told.status).is_empty(), "{}", told.status);
        }
        assert_eq!(Reason::Busy.meaning().label, "busy");
    }

    #[test]
    fn an_answer_is_whole() {
        let answer = Reason::HeaderTimeout.answer("fordway", "Thu, 01 Jan 1970 00:00:00 GMT");
        let text = String::from_utf8(answer.http1(true, false)).unwrap();
        let (head, page) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}\r\n", page.len())), "{head}");
        assert!(head.contains("Proxy-Status: fordway; error=http_request_error"), "{head}");
        assert!(head.ends_with("Connection: close"), "{head}");
    }
}
