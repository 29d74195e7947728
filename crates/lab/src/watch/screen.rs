//! A run's state as lines for a terminal.

use fordway_data::numbers::nice;
use fordway_data::plan::in_words;

use super::{QUIET_S, Remark, State, Value, Values};

/// A line, and how it is written.
struct Text(Vec<(anstyle::Style, String)>);

const PLAIN: anstyle::Style = anstyle::Style::new();
const BOLD: anstyle::Style = anstyle::Style::new().bold();
const DIM: anstyle::Style = anstyle::Style::new().dimmed();
const YELLOW: anstyle::Style = anstyle::AnsiColor::Yellow.on_default();
const CYAN: anstyle::Style = anstyle::AnsiColor::Cyan.on_default();

impl Text {
    fn of(style: anstyle::Style, text: impl Into<String>) -> Self {
        Self(vec![(style, text.into())])
    }

    fn and(mut self, style: anstyle::Style, text: impl Into<String>) -> Self {
        self.0.push((style, text.into()));
        self
    }

    /// Cut to a width, with its styles.
    fn cut(self, width: usize) -> String {
        let mut left = width;
        let whole: usize = self.0.iter().map(|(_, text)| text.chars().count()).sum();
        let mut line = String::new();
        for (style, text) in self.0 {
            let mut text: String = text.chars().take(left).collect();
            left -= text.chars().count();
            if left == 0 && whole > width {
                text.pop();
                text.push('…');
            }
            if style == PLAIN {
                line.push_str(&text);
            } else {
                line.push_str(&format!("{style}{text}{style:#}"));
            }
            if left == 0 {
                break;
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// The lines of a state: at most `height`, each at most `width` wide. Without `height`, all of them.
pub(crate) fn lines(state: &State, width: usize, height: Option<usize>) -> Vec<String> {
    let width = width.max(20);
    let mut all = head(state, width);
    let mut notes = notes(state);
    let mut tables = tables(state, width);
    if let Some(height) = height {
        // What went wrong may take a third of the screen; the values have the rest.
        let for_notes = notes.len().min((height / 3).max(1));
        shorten(&mut notes, for_notes);
        shorten(&mut tables, height.saturating_sub(all.len() + notes.len()));
    }
    all.extend(tables);
    all.extend(notes);
    let mut all: Vec<String> = all.into_iter().map(|text| text.cut(width)).collect();
    all.truncate(height.unwrap_or(usize::MAX));
    all
}

/// Leaves so many lines, the last of which says how many are not shown.
fn shorten(lines: &mut Vec<Text>, room: usize) {
    if lines.len() > room {
        let hidden = lines.len() - room.saturating_sub(1);
        lines.truncate(room.saturating_sub(1));
        if room > 0 {
            lines.push(Text::of(DIM, format!("… {hidden} more lines: --once prints all")));
        }
    }
}

fn head(state: &State, width: usize) -> Vec<Text> {
    let block = match state.block {
        0 => "gates".to_owned(),
        block => format!("block {block} of {}", state.blocks),
    };
    let title = Text::of(BOLD, state.name.clone())
        .and(DIM, format!("  {}, seed {}  ", state.profile, state.seed));
    let title = if state.ended { title.and(PLAIN, "ended") } else { title.and(PLAIN, block) };
    let left = match (state.ended, state.left_s) {
        (true, _) => String::new(),
        (_, left) => format!(", {} left", in_words(left)),
    };
    let count = format!("trial {} of {}{left}", state.done, state.of);
    let room = width.saturating_sub(count.chars().count() + 2).clamp(4, 40);
    let full = state.done * room / state.of.max(1);
    let bar = Text::of(CYAN, "━".repeat(full))
        .and(DIM, "─".repeat(room - full))
        .and(PLAIN, format!("  {count}"));
    let mut all = vec![title, bar];
    if let Some(now) = &state.now {
        let what = match now.metrics.is_empty() {
            true => now.label.clone(),
            false => format!("{}: {}", now.label, now.metrics.join(", ")),
        };
        all.push(Text::of(DIM, "now  ").and(PLAIN, format!("{what} ({})", in_words(now.seconds))));
        let quiet = state.quiet_s;
        if quiet > QUIET_S.max(3.0 * now.seconds) {
            let what = format!("no trial for {}: interrupted? `resume` continues", in_words(quiet));
            all.push(Text::of(YELLOW, what));
        }
    }
    all
}

/// Tables of medians: a row for each mechanism, as many quantities side by side as the width takes.
fn tables(state: &State, width: usize) -> Vec<Text> {
    let mut mechanisms: Vec<(&str, &str)> = Vec::new();
    for value in state.values.iter().flat_map(|values| &values.of) {
        if !mechanisms.iter().any(|(name, _)| *name == value.mechanism) {
            mechanisms.push((&value.mechanism, &value.label));
        }
    }
    let longest = mechanisms.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(0);
    let first = longest.min((width / 3).max(12));
    let mut all = Vec::new();
    let mut columns: Vec<Vec<String>> =
        state.values.iter().map(|of| column(of, &mechanisms)).collect();
    while !columns.is_empty() {
        let mut taken = 0;
        let mut used = first;
        while taken < columns.len() {
            let next = wide(&columns[taken]) + 2;
            if taken > 0 && used + next > width {
                break;
            }
            (taken, used) = (taken + 1, used + next);
        }
        let shown: Vec<Vec<String>> = columns.drain(..taken).collect();
        all.push(Text::of(PLAIN, ""));
        for row in 0..=mechanisms.len() {
            let label = match row.checked_sub(1) {
                None => "median (n)",
                Some(row) => mechanisms[row].1,
            };
            let cells = shown.iter().map(|column| format!("  {:>1$}", column[row], wide(column)));
            let text = format!("{}{}", fitted(label, first), cells.collect::<String>());
            // A mechanism without any of these quantities has no row.
            if row == 0 || shown.iter().any(|column| !column[row].is_empty()) {
                all.push(Text::of(if row == 0 { DIM } else { PLAIN }, text));
            }
        }
    }
    all
}

fn wide(column: &[String]) -> usize {
    column.iter().map(|cell| cell.chars().count()).max().unwrap_or(0)
}

fn fitted(text: &str, width: usize) -> String {
    let mut cut: String = text.chars().take(width).collect();
    if text.chars().count() > width {
        cut.pop();
        cut.push('…');
    }
    format!("{cut:<width$}")
}

/// The head of a quantity, and its cell for each mechanism.
fn column(values: &Values, mechanisms: &[(&str, &str)]) -> Vec<String> {
    let condition = match values.condition.as_str() {
        "" => String::new(),
        condition => format!(" [{condition}]"),
    };
    let head = format!("{}, {}{condition}", values.quantity, values.unit);
    let cell = |value: Option<&Value>| {
        let Some(value) = value else { return String::new() };
        let median = value.median.map_or_else(|| "–".into(), nice);
        let failed = match value.failed {
            0 => String::new(),
            n => format!(" {n} failed"),
        };
        format!("{median} ({}){failed}", value.n)
    };
    let own = |name: &str| values.of.iter().find(|value| value.mechanism == name);
    let cells = mechanisms.iter().map(|(name, _)| cell(own(name)));
    std::iter::once(head).chain(cells).collect()
}

/// What went wrong, the newest kinds of it first.
fn notes(state: &State) -> Vec<Text> {
    let mut all = Vec::new();
    for (flag, trials) in &state.noise {
        all.push(Text::of(YELLOW, "noise  ").and(PLAIN, format!("{flag}: {trials} trials")));
    }
    let told = |what: &str, remarks: &[Remark]| -> Vec<Text> {
        let of = |r: &Remark| {
            let which = match r.block {
                0 => r.mechanism.clone(),
                block => format!("{}, block {block}, {}", r.mechanism, r.quantity),
            };
            Text::of(YELLOW, format!("{what}  ")).and(PLAIN, format!("{which}: {}", r.why))
        };
        remarks.iter().map(of).collect()
    };
    all.extend(told("broken", &state.broken));
    all.extend(told("discarded", &state.discarded));
    all.extend(told("failed", &state.failed));
    if !all.is_empty() {
        all.insert(0, Text::of(PLAIN, ""));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::{Now, State};
    use super::*;

    fn value(mechanism: &str, label: &str, median: Option<f64>, n: usize, failed: usize) -> Value {
        Value { mechanism: mechanism.into(), label: label.into(), median, n, failed }
    }

    fn state() -> State {
        let values = |quantity: &str, unit: &'static str, factor: f64| Values {
            quantity: quantity.into(),
            unit,
            condition: String::new(),
            of: vec![
                value("native-v6", "Native IPv6, one hop", Some(31.26 * factor), 3, 0),
                value(
                    "clat-tayga",
                    "CLAT by TAYGA, a user-space translator",
                    Some(2.1 * factor),
                    2,
                    1,
                ),
                value("clat-own", "CLAT", None, 0, 2),
            ],
        };
        let why = "excluded by `steal > 0.1`: it was 0.213 (the hypervisor took the time)";
        let remark = |mechanism: &str, why: &str| Remark {
            mechanism: mechanism.into(),
            quantity: "TCP up".into(),
            block: 2,
            why: why.into(),
        };
        State {
            name: "mine".into(),
            profile: "quick".into(),
            seed: 42,
            done: 17,
            of: 60,
            left_s: 83.0,
            quiet_s: 1.0,
            ended: false,
            block: 3,
            blocks: 7,
            now: Some(Now {
                label: "CLAT by TAYGA, a user-space translator".into(),
                metrics: vec!["TCP", "RTT"],
                seconds: 4.0,
            }),
            values: vec![
                values("TCP up", "Gbit/s", 1.0),
                values("TCP down", "Gbit/s", 0.9),
                values("RTT", "ms", 0.01),
            ],
            discarded: vec![remark("clat-tayga", why)],
            failed: vec![remark("clat-own", "nothing got through")],
            broken: Vec::new(),
            noise: [("other programs kept cores busy".to_owned(), 3)].into(),
        }
    }

    /// Without styles, as where colours are off.
    fn plain(state: &State, width: usize, height: Option<usize>) -> String {
        let lines = lines(state, width, height);
        anstream::adapter::strip_str(&lines.join("\n")).to_string()
    }

    #[test]
    fn a_screen_of_each_size() {
        for (width, height) in [(120, 30), (80, 24), (40, 12)] {
            let text = plain(&state(), width, Some(height));
            assert!(text.lines().count() <= height, "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            insta::assert_snapshot!(format!("screen_{width}x{height}"), text);
        }
    }

    #[test]
    fn a_run_that_has_ended_or_is_quiet_says_so() {
        let ended = State { ended: true, now: None, done: 60, ..state() };
        let text = plain(&ended, 80, None);
        assert!(text.contains("ended") && !text.contains("left"), "{text}");
        let quiet = State { quiet_s: 600.0, ..state() };
        assert!(plain(&quiet, 80, None).contains("no trial for 10 min 00 s"));
        assert!(!plain(&state(), 80, None).contains("no trial for"));
    }

    #[test]
    fn colours_are_only_styles_around_the_same_words() {
        let styled = lines(&state(), 80, Some(24)).join("\n");
        assert!(styled.contains("\u{1b}["));
        assert!(!plain(&state(), 80, Some(24)).contains('\u{1b}'));
    }
}
