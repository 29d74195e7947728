//! The layout: a page as wide as the terminal, of which a window is shown. Without a terminal the page is text.

use std::time::Duration;

use fordway_daemon::output::group;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Row, Table, Widget};

use super::view::{ClusterView, DaemonView, DropView, Occupancy, ServerView, TranslatorView, View};

/// Columns between those of a table.
const GAP: u16 = 2;

/// Shares of a table or pool from which its row is a warning, and an alarm.
const WARN: f64 = 0.8;
const ALARM: f64 = 0.95;

const HELP: &str = "q quits, arrows and PgUp/PgDn scroll";

/// A column of a table, with its cells.
struct Column {
    head: &'static str,
    is_number: bool,
    /// Columns of the highest rank are left out first where the width does not suffice; that of rank 0 stays.
    rank: u8,
    cells: Vec<String>,
}

impl Column {
    /// Whether it is a sentence, which has no head, takes the room that is left, and is cut there.
    fn is_sentence(&self) -> bool {
        self.head.is_empty()
    }

    fn constraint(&self) -> Constraint {
        match self.is_sentence() {
            true => Constraint::Fill(1),
            false => Constraint::Length(self.width()),
        }
    }

    fn width(&self) -> u16 {
        let cells = self.cells.iter().map(|cell| Line::from(cell.as_str()).width());
        let width = cells.chain([self.head.len()]).max().unwrap_or(0);
        u16::try_from(width).unwrap_or(u16::MAX)
    }
}

/// The head of a column, whether it has numbers, its rank, and its cell of a row.
type ColumnOf<T> = (&'static str, bool, u8, fn(&T) -> String);

/// Columns of `rows`.
fn columns<T, const N: usize>(rows: &[T], of: [ColumnOf<T>; N]) -> Vec<Column> {
    let of = of.into_iter().map(|(head, is_number, rank, cell)| Column {
        head,
        is_number,
        rank,
        cells: rows.iter().map(cell).collect(),
    });
    of.collect()
}

/// A part of the page.
enum Part {
    Line(Line<'static>),
    /// A table, with the style of each row.
    Table(Vec<Column>, Vec<Style>),
}

impl Part {
    fn height(&self) -> u16 {
        match self {
            Part::Line(_) => 1,
            Part::Table(_, rows) => u16::try_from(rows.len()).unwrap_or(u16::MAX).saturating_add(1),
        }
    }

    fn draw(self, area: Rect, page: &mut Buffer) {
        let (columns, styles) = match self {
            Part::Line(line) => return line.render(area, page),
            Part::Table(columns, styles) => (fitting(columns, area.width), styles),
        };
        let aligned = |column: &Column, text: &str| {
            let text = Text::from(text.to_owned());
            Cell::from(if column.is_number { text.right_aligned() } else { text })
        };
        let head = Row::new(columns.iter().map(|column| aligned(column, column.head))).dim();
        let rows = styles.iter().enumerate().map(|(at, style)| {
            Row::new(columns.iter().map(|it| aligned(it, &it.cells[at]))).style(*style)
        });
        let widths = columns.iter().map(Column::constraint);
        Widget::render(Table::new(rows, widths).header(head).column_spacing(GAP), area, page);
    }
}

/// The columns for which there is room.
fn fitting(mut columns: Vec<Column>, width: u16) -> Vec<Column> {
    let needed = |columns: &[Column]| -> u32 {
        let whole = columns.iter().filter(|it| !it.is_sentence());
        whole.map(|it| u32::from(it.width()) + u32::from(GAP)).sum()
    };
    while needed(&columns) > u32::from(width) + u32::from(GAP) {
        let last = columns.iter().map(|it| it.rank).max().unwrap_or(0);
        if last == 0 {
            break;
        }
        columns.retain(|it| it.rank != last);
    }
    columns
}

fn parts(view: &View) -> Vec<Part> {
    let mut parts = Vec::new();
    for daemon in &view.daemons {
        if !parts.is_empty() {
            parts.push(Part::Line(Line::default()));
        }
        daemon_parts(daemon, &mut parts);
    }
    parts
}

fn daemon_parts(daemon: &DaemonView, parts: &mut Vec<Part>) {
    if let Some(error) = &daemon.error {
        let line = Line::from(vec![
            Span::from("not reachable").fg(Color::Red).bold(),
            Span::from(format!("  {}: {error}", daemon.socket)),
        ]);
        return parts.push(Part::Line(line));
    }
    let up = humantime::format_duration(Duration::from_secs(daemon.uptime_seconds));
    let about = format!("  process {}, up {up}, {}", daemon.pid, daemon.config);
    let title = Span::from(format!("fordway {}", daemon.version)).bold();
    parts.push(Part::Line(Line::from(vec![title, Span::from(about)])));
    let (running, waiting): (Vec<_>, Vec<_>) =
        daemon.translators.iter().partition(|it| it.waiting.is_none());
    for it in waiting {
        let why = it.waiting.as_deref().unwrap_or_default();
        let line = format!("{} ({}) waits: {why}", it.name, it.mode);
        parts.push(Part::Line(Line::from(line).fg(Color::Yellow)));
    }
    let mut table = |columns: Vec<Column>, styles: Vec<Style>| {
        if !styles.is_empty() {
            parts.push(Part::Line(Line::default()));
            parts.push(Part::Table(columns, styles));
        }
    };
    table(translators(&running), each(&running, |_| Style::new()));
    table(servers(&daemon.servers), each(&daemon.servers, |_| Style::new()));
    let cluster: Vec<_> = daemon.cluster.iter().collect();
    table(clusters(&cluster), each(&cluster, cluster_style));
    table(drops(&daemon.drops), each(&daemon.drops, drop_style));
    table(occupancy(&daemon.occupancy), each(&daemon.occupancy, occupancy_style));
}

fn each<T>(rows: &[T], style: fn(&T) -> Style) -> Vec<Style> {
    rows.iter().map(style).collect()
}

fn translators(rows: &[&TranslatorView]) -> Vec<Column> {
    columns(
        rows,
        [
            ("TRANSLATOR", false, 0, |it| it.name.clone()),
            ("MODE", false, 5, |it| it.mode.clone()),
            ("ENGINE", false, 6, |it| format!("{} at {}", it.engine, it.attach)),
            ("4>6 pkt/s", true, 1, |it| rate(it.v4_to_v6.packets_per_second)),
            ("Mbit/s", true, 4, |it| megabits(it.v4_to_v6.bits_per_second)),
            ("6>4 pkt/s", true, 1, |it| rate(it.v6_to_v4.packets_per_second)),
            ("Mbit/s", true, 4, |it| megabits(it.v6_to_v4.bits_per_second)),
            ("DROP/s", true, 2, |it| rate(it.dropped_per_second)),
            ("SESSIONS", true, 3, |it| it.sessions.map(group).unwrap_or_default()),
            ("NEW/s", true, 4, |it| match it.sessions {
                Some(_) => rate(it.sessions_created_per_second),
                None => String::new(),
            }),
        ],
    )
}

fn servers(rows: &[ServerView]) -> Vec<Column> {
    columns(
        rows,
        [
            ("SERVER", false, 0, |it| it.name.clone()),
            ("KIND", false, 3, |it| it.kind.to_owned()),
            ("RATE", true, 1, |it| format!("{} {}/s", rate(it.per_second), it.unit)),
            ("Mbit/s", true, 2, |it| {
                it.bits_per_second.map_or(String::new(), |it| megabits(Some(it)))
            }),
            ("OPEN", true, 1, |it| group(it.open)),
            ("REFUSED/s", true, 2, |it| rate(it.refused_per_second)),
        ],
    )
}

fn clusters(rows: &[&ClusterView]) -> Vec<Column> {
    columns(
        rows,
        [
            ("GATEWAY", false, 0, |it| it.gateway.clone()),
            ("PHASE", false, 1, |it| it.phase.word().to_owned()),
            ("STORE", false, 2, |it| {
                if it.store_connected { "connected" } else { "gone" }.to_owned()
            }),
            ("OWN", true, 0, |it| group(it.shards.owned())),
            ("READY", true, 1, |it| group(it.shards.ready)),
            ("UNCOVERED", true, 2, |it| group(it.shards.uncovered)),
            ("RECORDS", true, 3, |it| group(it.records.own)),
            ("LAG", true, 2, |it| group(it.records.lag)),
            ("HANDED OVER/s", true, 4, |it| rate(it.handed_over_per_second)),
        ],
    )
}

fn cluster_style(it: &&ClusterView) -> Style {
    match it {
        it if !it.translates => Style::new().fg(Color::Red).bold(),
        it if !it.store_connected || it.shards.uncovered > 0 => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    }
}

fn drops(rows: &[DropView]) -> Vec<Column> {
    columns(
        rows,
        [
            ("DROPS OF", false, 1, |it| it.name.clone()),
            ("REASON", false, 0, |it| it.reason.clone()),
            ("/s", true, 0, |it| rate(it.per_second)),
            ("PACKETS", true, 1, |it| group(it.packets)),
            ("", false, 0, |it| it.text.clone()),
        ],
    )
}

fn drop_style(it: &DropView) -> Style {
    match it.per_second {
        Some(rate) if rate > 0.0 => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    }
}

fn share(it: &Occupancy) -> f64 {
    if it.size == 0 { 0.0 } else { it.used as f64 / it.size as f64 }
}

fn occupancy(rows: &[Occupancy]) -> Vec<Column> {
    columns(
        rows,
        [
            ("FULL", true, 0, |it| format!("{:.0} %", share(it) * 100.0)),
            ("OF", false, 1, |it| it.name.clone()),
            ("WHAT", false, 0, |it| it.what.clone()),
            ("USED", true, 0, |it| group(it.used)),
            ("SIZE", true, 1, |it| group(it.size)),
        ],
    )
}

fn occupancy_style(it: &Occupancy) -> Style {
    match share(it) {
        share if share >= ALARM => Style::new().fg(Color::Red).bold(),
        share if share >= WARN => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    }
}

/// A rate: with a decimal below 10, and a dash if it is not known yet.
fn rate(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_owned(),
        Some(rate) if rate > 0.0 && rate < 10.0 => format!("{rate:.1}"),
        Some(rate) => group(rate.round() as u64),
    }
}

fn megabits(bits: Option<f64>) -> String {
    rate(bits.map(|bits| bits / 1e6))
}

/// The whole page, as high as it must be.
fn page(view: &View, width: u16) -> Buffer {
    let parts = parts(view);
    let height = parts.iter().fold(0_u16, |sum, part| sum.saturating_add(part.height()));
    let mut page = Buffer::empty(Rect::new(0, 0, width, height));
    let mut top = 0;
    for part in parts {
        let height = part.height().min(page.area.height - top);
        part.draw(Rect::new(0, top, width, height), &mut page);
        top += height;
    }
    page
}

/// The page as text of lines, without styles.
pub(crate) fn text(view: &View, width: u16) -> String {
    let page = page(view, width);
    let lines = page.content.chunks(usize::from(width.max(1))).map(|cells| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        format!("{}\n", line.trim_end())
    });
    lines.collect()
}

/// What is on the terminal: a window on the page, over a line about time and keys.
pub(crate) struct Screen<'a> {
    pub(crate) view: &'a View,
    /// Lines of the page above the window. Drawing lowers it to what the page has.
    pub(crate) scrolled: &'a mut u16,
    pub(crate) colours: bool,
}

impl Widget for Screen<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        if area.is_empty() {
            return;
        }
        let page = page(self.view, area.width);
        let window = area.height - 1;
        let below = page.area.height.saturating_sub(window);
        *self.scrolled = (*self.scrolled).min(below);
        let skipped = usize::from(*self.scrolled) * usize::from(area.width);
        let cells = page.content.into_iter().skip(skipped);
        for (at, cell) in cells.take(usize::from(window) * usize::from(area.width)).enumerate() {
            let (row, column) = (at / usize::from(area.width), at % usize::from(area.width));
            buffer[(area.x + column as u16, area.y + row as u16)] = cell;
        }
        let more = match below - *self.scrolled {
            0 => String::new(),
            lines => format!(", {lines} more lines"),
        };
        let last = Rect { y: area.y + window, height: 1, ..area };
        Line::from(format!("{}{more}  {HELP}", self.view.time)).dim().render(last, buffer);
        if !self.colours {
            for cell in &mut buffer.content {
                cell.fg = Color::Reset;
            }
        }
    }
}

#[cfg(test)]
mod tests;
