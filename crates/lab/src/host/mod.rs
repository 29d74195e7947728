//! The machine: what it is, what time it keeps, what its processors do.

pub(crate) mod affinity;
pub(crate) mod clocksource;
pub(crate) mod conntrack;
pub(crate) mod cpu;
pub(crate) mod memory;

/// The present time (RFC 3339, UTC, whole seconds).
pub(crate) fn now() -> String {
    let now = time::OffsetDateTime::now_utc();
    let now = now.replace_nanosecond(0).unwrap_or(now);
    now.format(&time::format_description::well_known::Rfc3339).unwrap_or_default()
}
