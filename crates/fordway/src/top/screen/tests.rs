use insta::assert_snapshot;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::top::view::tests::two_seconds;

fn view() -> View {
    let gone = DaemonView {
        socket: "/run/fordway-test/control.sock".to_owned(),
        error: Some("no daemon listens on the control socket".to_owned()),
        ..DaemonView::default()
    };
    View { time: "2026-01-02T03:04:05Z".to_owned(), daemons: vec![two_seconds(), gone] }
}

/// What a terminal of a size shows.
fn drawn(width: u16, height: u16, scrolled: &mut u16, colours: bool) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let view = view();
    let draw = |frame: &mut ratatui::Frame<'_>| {
        frame.render_widget(Screen { view: &view, scrolled, colours }, frame.area());
    };
    terminal.draw(draw).unwrap();
    terminal
}

#[test]
fn a_wide_terminal_has_every_column() {
    assert_snapshot!(drawn(132, 30, &mut 0, true).backend());
}

#[test]
fn a_terminal_of_80_columns_and_24_lines() {
    assert_snapshot!(drawn(80, 24, &mut 0, true).backend());
}

#[test]
fn a_small_terminal_keeps_what_matters_and_scrolls() {
    assert_snapshot!("top", drawn(40, 12, &mut 0, true).backend());
    let mut scrolled = u16::MAX;
    assert_snapshot!("end", drawn(40, 12, &mut scrolled, true).backend());
    assert!(scrolled < 40, "drawing lowers it to what there is: {scrolled}");
}

#[test]
fn no_size_is_a_panic() {
    for width in [0, 1, 2, 7] {
        for height in [0, 1, 2] {
            drawn(width, height, &mut 3, true);
        }
    }
}

#[test]
fn without_colours_only_attributes_are_left() {
    let has_colours = |colours| {
        let terminal = drawn(132, 30, &mut 0, colours);
        terminal.backend().buffer().content.iter().any(|cell| cell.fg != Color::Reset)
    };
    assert!(has_colours(true) && !has_colours(false));
}

/// Terminals that know no more than the 16 colours of ANSI show all of them, each as its user has chosen it.
#[test]
fn colours_are_those_of_every_terminal() {
    let terminal = drawn(132, 30, &mut 0, true);
    let cells = &terminal.backend().buffer().content;
    let needs_more = |colour| matches!(colour, Color::Rgb(..) | Color::Indexed(_));
    assert!(!cells.iter().any(|cell| needs_more(cell.fg) || needs_more(cell.bg)));
}

#[test]
fn without_a_terminal_each_line_is_whole() {
    let text = text(&view(), 132);
    assert!(text.starts_with("fordway 1.2.3  process 7, up 1h 2m 5s, /etc/fordway/fordway.toml\n"));
    assert!(text.lines().all(|line| line.trim_end() == line), "{text}");
    assert!(text.ends_with(
        "not reachable  /run/fordway-test/control.sock: no daemon listens on the control socket\n"
    ));
}
