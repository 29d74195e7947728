//! What libbpf would print on standard error.

use std::cell::RefCell;
use std::sync::Once;

use libbpf_rs::{PrintLevel, set_print};

/// Lines of a log that are kept: a verifier explains itself at its end.
const KEPT_LINES: usize = 24;

thread_local! {
    /// `None`: messages are discarded.
    static LOG: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `operation` and gives the last lines that libbpf had to say in it. Nothing is printed.
pub(crate) fn captured<T>(operation: impl FnOnce() -> T) -> (T, String) {
    static SILENCE: Once = Once::new();
    SILENCE.call_once(|| {
        set_print(Some((PrintLevel::Warn, keep)));
    });
    LOG.with_borrow_mut(|log| *log = Some(String::new()));
    let value = operation();
    let log = LOG.with_borrow_mut(Option::take).unwrap_or_default();
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    let kept = lines[lines.len().saturating_sub(KEPT_LINES)..].join("\n");
    (value, kept)
}

#[allow(clippy::needless_pass_by_value, reason = "the library's signature")]
fn keep(_: PrintLevel, message: String) {
    LOG.with_borrow_mut(|log| {
        if let Some(log) = log {
            log.push_str(&message);
        }
    });
}

#[cfg(test)]
mod tests {
    use libbpf_rs::ObjectBuilder;

    use super::*;

    #[test]
    fn what_the_library_says_is_kept() {
        let (opened, log) = captured(|| ObjectBuilder::default().open_memory(b"no object"));
        assert!(opened.is_err());
        assert!(log.contains("libbpf"), "{log:?}");
        let (_, log) = captured(|| ());
        assert_eq!(log, "");
    }

    #[test]
    fn the_end_of_a_long_log_is_kept() {
        let ((), log) = captured(|| {
            for line in 0..100 {
                keep(PrintLevel::Warn, format!("line {line}\n\n"));
            }
        });
        assert_eq!(log.lines().count(), KEPT_LINES);
        assert!(log.ends_with("line 99"));
    }
}
