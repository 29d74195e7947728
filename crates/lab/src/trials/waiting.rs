//! What a user waits for: sessions to their first octet, pages to their last.

use fordway_data::spec::{By, Kind, Metric};
use fordway_data::trial::Trial;
use fordway_load::web::session::Timed;
use fordway_stats::describe::midmean;

use super::{Measured, Values, now};
use crate::error::Result;
use crate::load::sessions::{Wanted, measure as load, serve};

/// Sessions of a hundred that may fail.
const MAX_FAILED: f64 = 0.01;

/// Times sessions, or pages.
pub(super) fn measure(
    at: &Measured<'_>,
    by: By,
    pages: bool,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    let (metric, count) = match (pages, by) {
        (false, By::FreshName) => (Metric::SessionFresh, at.profile.sessions),
        (false, By::KnownName) => (Metric::SessionKnown, at.profile.sessions),
        (false, By::Literal) => (Metric::SessionLiteral, at.profile.sessions),
        (true, By::Literal) => (Metric::PageLiteral, at.profile.pages),
        (true, _) => (Metric::PageName, at.profile.pages),
    };
    let log = at.raw.join(format!("{}-{}-server.log", at.name, metric.name()));
    let _server = serve(at.backend, &at.network.server, &log)?;
    let resolver = at.network.resolver()?;
    trial.started = now();
    let before = super::Before::read(at)?;
    let wanted = Wanted { by, pages, count };
    let (finished, timed) = load(at.backend, &at.network.app, resolver, at.network.target, wanted)?;
    before.finish(at, trial)?;
    at.keep(&format!("{}.json", metric.name()), &finished.stdout)?;
    trial.exit_status = Some(finished.code());
    trial.argv = finished.argv;
    trial.sent = Some(u64::from(count) + 1);
    trial.arrived = Some(timed.ms.len() as u64);
    // By name, an IPv6-only network is reached over IPv6; everybody else over what the application speaks.
    let whole = at.kind == Some(Kind::Xlat464);
    let v6 = at.network.target.is_ipv6() || (whole && by != By::Literal);
    trial.failed.extend(failure(&timed, count));
    trial.invalid.extend(misled(&timed, v6));
    if timed.failed > 0 {
        let why = timed.why.as_deref().unwrap_or_default();
        trial.flags.push(format!("{} of {count} failed: {why}", timed.failed));
    }
    if let Some(typical) = midmean(&timed.ms) {
        trial.value = Some(typical);
        values.insert(metric, Ok(typical));
    }
    trial.replies = timed.ms;
    Ok(())
}

/// What of the sessions failed, where they are too many.
fn failure(timed: &Timed, count: u32) -> Option<String> {
    let why = timed.why.as_deref().unwrap_or_default();
    (timed.failed as f64 > MAX_FAILED * f64::from(count))
        .then(|| format!("{} of {count} failed: {why}", timed.failed))
}

/// Why what was timed is not what is measured.
fn misled(timed: &Timed, v6: bool) -> Option<String> {
    let wanted = if v6 { timed.ms.len() as u64 } else { 0 };
    let (family, done) = (if v6 { "IPv6" } else { "IPv4" }, timed.ms.len());
    (timed.over_v6 != wanted)
        .then(|| format!("not all went over {family}: {} of {done} over IPv6", timed.over_v6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_count_when_they_went_the_way_that_is_measured() {
        let timed = Timed { ms: vec![1.0; 100], over_v6: 100, ..Timed::default() };
        assert_eq!((failure(&timed, 100), misled(&timed, true)), (None, None));
        assert!(misled(&timed, false).unwrap().contains("not all went over IPv4"));
        let failed = Timed { failed: 2, why: Some("refused".into()), ..timed };
        assert!(failure(&failed, 100).unwrap().contains("2 of 100 failed: refused"));
        assert_eq!(failure(&Timed { failed: 1, ..failed }, 100), None);
    }
}
