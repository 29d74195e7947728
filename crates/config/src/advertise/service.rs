//! URIs in advertisements: of a captive portal's API, and the path of DNS over HTTPS.

use crate::keys::form::{Plain, text};
use crate::problem::{Problem, Problems, Value};
use crate::value;

/// Longest of both, in octets: what an option of DHCPv4 holds, so that all options say the same (RFC 8910 section 2).
const LONGEST: usize = 255;

/// What the option says where there is no portal (RFC 8910 section 2).
const UNRESTRICTED: &str = "urn:ietf:params:capport:unrestricted";

pub(super) const CAPTIVE_PORTAL: Plain<String> = text(captive_portal, ("URI", "URIs", "URI"));
pub(super) const DOHPATH: Plain<String> = text(dohpath, ("URI template", "URI templates", "PATH"));

const PORTAL_HELP: &str = "write the URI of the portal's API such as \"https://portal.example.net/api\", or \
                           \"urn:ietf:params:capport:unrestricted\" where there is no portal";
const PATH_HELP: &str = "write a path with the variable dns, such as \"/dns-query{?dns}\"";

/// The host of a captive portal's URI; `None` where the URI says that there is no portal.
pub(crate) fn portal_host(uri: &str) -> Option<String> {
    let uri: http::Uri = uri.parse().ok()?;
    uri.host().map(str::to_owned)
}

/// RFC 8908 section 4: the API is reached by HTTPS.
fn captive_portal(v: &Value<'_>) -> Result<String, Problems> {
    let written = value::string(v, "a URI", PORTAL_HELP)?;
    let wrong = |message: String| Err(Problem::new(v.span(), message, PORTAL_HELP).into());
    if written.len() > LONGEST {
        return wrong(format!("a URI of {} octets: an option has 255 at most", written.len()));
    }
    if written == UNRESTRICTED {
        return Ok(written.to_owned());
    }
    // The parser passes over what a server is not told.
    let Ok(uri) = written.parse::<http::Uri>() else {
        return wrong(format!("\"{written}\" is no URI"));
    };
    if uri.scheme_str() != Some("https") {
        return wrong(format!("\"{written}\": the API of a portal is reached by https"));
    }
    let host = uri.host().unwrap_or_default();
    let plain = !written.contains(['#', '@']) && written.bytes().all(|it| it.is_ascii_graphic());
    match plain && (is_literal(host) || value::server_name(host).is_some()) {
        true => Ok(written.to_owned()),
        false => wrong(format!("\"{written}\" is no URI of a portal's API")),
    }
}

/// Whether a host is an address.
pub(crate) fn is_literal(host: &str) -> bool {
    let bracketed = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    bracketed.unwrap_or(host).parse::<std::net::IpAddr>().is_ok()
}

/// RFC 9461 section 5: a template in relative form that has the variable `dns`.
fn dohpath(v: &Value<'_>) -> Result<String, Problems> {
    let written = value::string(v, "a path", PATH_HELP)?;
    let good = written.starts_with('/')
        && written.len() <= LONGEST
        && written.bytes().all(|it| it.is_ascii_graphic() && !b"\"<>\\^`|#".contains(&it))
        && variables(written).is_some_and(|all| all.contains(&"dns"));
    match good {
        true => Ok(written.to_owned()),
        false => {
            let message = format!("\"{written}\" is no path of DNS over HTTPS");
            Err(Problem::new(v.span(), message, PATH_HELP).into())
        }
    }
}

/// The variables of a URI template (RFC 6570 section 2.2); `None` if a brace has no other.
fn variables(template: &str) -> Option<Vec<&str>> {
    let mut all = Vec::new();
    let mut rest = template;
    while let Some((before, behind)) = rest.split_once('{') {
        let (expression, behind) = behind.split_once('}')?;
        if before.contains('}') || expression.is_empty() || expression.contains('{') {
            return None;
        }
        let names = expression.trim_start_matches(['+', '.', '/', ';', '?', '&']);
        all.extend(names.split(','));
        rest = behind;
    }
    (!rest.contains('}')).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_templates() {
        assert_eq!(variables("/q{?dns}"), Some(vec!["dns"]));
        assert_eq!(variables("/{tenant}/q{?a,dns}"), Some(vec!["tenant", "a", "dns"]));
        assert_eq!(variables("/q"), Some(vec![]));
        for broken in ["/q{?dns", "/q?dns}", "/{a{b}}", "/{}", "/}{dns}"] {
            assert_eq!(variables(broken), None, "{broken}");
        }
    }

    #[test]
    fn literals() {
        for host in ["192.0.2.1", "[2001:db8::1]"] {
            assert!(is_literal(host), "{host}");
        }
        assert!(!is_literal("portal.example.net"));
    }
}
