//! `fordway top`.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use fordway_daemon::failure::Failure;
use fordway_daemon::output;
use fordway_daemon::runtime::event_loop;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::size;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{Global, TopArgs};
use crate::top::{Screen, View, Watched, text};

/// How often keys, signals and new samples are looked for.
const LOOK: Duration = Duration::from_millis(50);

/// Width of plain text where no terminal and no COLUMNS say another.
const WIDTH: u16 = 100;

pub(crate) fn run(global: &Global, args: &TopArgs) -> Result<(), Failure> {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    // A serial line need not know its size.
    let has_size = || size().is_ok_and(|(columns, rows)| columns > 0 && rows > 1);
    match args.once || args.json || !is_terminal || is_dumb || !has_size() {
        true => lines(global, args),
        false => screen(global, args.interval),
    }
}

/// Writes views as text or as JSON, for ever or once. Two samples make a view with rates.
fn lines(global: &Global, args: &TopArgs) -> Result<(), Failure> {
    let mut watched = Watched::default();
    let first = watched.look(global.sockets_to_read());
    if args.once
        && let Some(error) = first.unreachable()
    {
        return Err(Failure::failed(error)
            .hint("start one (fordway run -c FILE), or name its socket with --socket"));
    }
    loop {
        thread::sleep(args.interval);
        let view = watched.look(global.sockets_to_read());
        match args.json {
            true => output::print_json_line(&view)?,
            false => output::print(&text(&view, width()))?,
        }
        if args.once {
            return Ok(());
        }
        if !args.json {
            output::print("\n")?;
        }
    }
}

fn width() -> u16 {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let of_terminal = || size().ok().map(|(columns, _)| columns);
    let is_terminal = std::io::stdout().is_terminal();
    let width = columns.or_else(|| if is_terminal { of_terminal() } else { None });
    width.filter(|width| *width > 0).unwrap_or(WIDTH)
}

/// The terminal while the view is on it. Dropping it restores the terminal.
struct Terminal(DefaultTerminal);

impl Terminal {
    fn open() -> Result<Terminal, Failure> {
        let opened = ratatui::try_init().map(Terminal);
        opened.map_err(|error| {
            let _ = ratatui::try_restore();
            Failure::failed(format!("cannot draw on this terminal: {error}"))
                .hint("fordway top --once writes plain lines")
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = ratatui::try_restore();
    }
}

/// Draws until a key or a signal ends it.
fn screen(global: &Global, interval: Duration) -> Result<(), Failure> {
    let is_ended = ended_by_signal()?;
    let views = sample(global.clone(), interval)?;
    let failed = |error: std::io::Error| Failure::failed(format!("the terminal: {error}"));
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut terminal = Terminal::open()?;
    let mut scrolled: u16 = 0;
    let mut view: Option<View> = None;
    loop {
        let is_new = match views.try_recv() {
            Ok(new) => {
                view = Some(new);
                true
            }
            Err(TryRecvError::Empty) => false,
            Err(TryRecvError::Disconnected) => return Err(Failure::failed("sampling has ended")),
        };
        let is_event = event::poll(LOOK).map_err(failed)?;
        if is_ended.load(Ordering::Relaxed) {
            return Ok(());
        }
        if is_event {
            match event::read().map_err(failed)? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match wish(key) {
                    Wish::Quit => return Ok(()),
                    Wish::Scroll(lines) => scrolled = scrolled.saturating_add_signed(lines),
                    Wish::Nothing => {}
                },
                _ => {}
            }
        }
        if let Some(view) = &view
            && (is_new || is_event)
        {
            let draw = |frame: &mut ratatui::Frame<'_>| {
                let screen = Screen { view, scrolled: &mut scrolled, colours };
                frame.render_widget(screen, frame.area());
            };
            terminal.0.draw(draw).map_err(failed)?;
        }
    }
}

/// What a key asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    Quit,
    /// Down by so many lines.
    Scroll(i16),
    Nothing,
}

fn wish(key: KeyEvent) -> Wish {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Wish::Quit,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Wish::Quit,
        KeyCode::Up | KeyCode::Char('k') => Wish::Scroll(-1),
        KeyCode::Down | KeyCode::Char('j') => Wish::Scroll(1),
        KeyCode::PageUp => Wish::Scroll(-10),
        KeyCode::PageDown | KeyCode::Char(' ') => Wish::Scroll(10),
        KeyCode::Home => Wish::Scroll(i16::MIN),
        KeyCode::End => Wish::Scroll(i16::MAX),
        _ => Wish::Nothing,
    }
}

/// Samples on a thread of its own, so that a daemon that does not answer keeps no key waiting.
fn sample(global: Global, interval: Duration) -> Result<Receiver<View>, Failure> {
    let (sender, views) = channel();
    let work = move || {
        let mut watched = Watched::default();
        while sender.send(watched.look(global.sockets_to_read())).is_ok() {
            thread::sleep(interval);
        }
    };
    thread::Builder::new()
        .name("fordway-samples".to_owned())
        .spawn(work)
        .map_err(|error| Failure::failed(format!("cannot start a thread: {error}")))?;
    Ok(views)
}

/// A flag that signals set which would otherwise end the program with the terminal as it is.
fn ended_by_signal() -> Result<Arc<AtomicBool>, Failure> {
    let runtime = event_loop()?;
    let failed = |error| Failure::failed(format!("cannot catch signals: {error}"));
    let caught = {
        let _inside = runtime.enter();
        [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal)
    };
    let [interrupt, terminate, hangup] = caught;
    let mut interrupt = interrupt.map_err(failed)?;
    let mut terminate = terminate.map_err(failed)?;
    let mut hangup = hangup.map_err(failed)?;
    let is_ended = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_ended);
    let wait = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
        });
        flag.store(true, Ordering::Relaxed);
    };
    thread::Builder::new()
        .name("fordway-signals".to_owned())
        .spawn(wait)
        .map_err(|error| Failure::failed(format!("cannot start a thread: {error}")))?;
    Ok(is_ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_quit_and_scroll() {
        let key = |code, modifiers| wish(KeyEvent::new(code, modifiers));
        let (none, control) = (KeyModifiers::NONE, KeyModifiers::CONTROL);
        assert_eq!(key(KeyCode::Char('q'), none), Wish::Quit);
        assert_eq!(key(KeyCode::Char('c'), control), Wish::Quit);
        assert_eq!(key(KeyCode::Char('c'), none), Wish::Nothing);
        assert_eq!(key(KeyCode::Down, none), Wish::Scroll(1));
        assert_eq!(key(KeyCode::PageUp, none), Wish::Scroll(-10));
    }
}
