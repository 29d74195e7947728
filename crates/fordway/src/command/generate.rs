//! `fordway completions`, `fordway schema` and `fordway man`.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use fordway_daemon::failure::Failure;
use fordway_daemon::output;

use crate::cli::{Cli, SchemaOf};
use crate::top;

pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "fordway", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

pub(crate) fn schema(of: SchemaOf) -> Result<(), Failure> {
    let schema = match of {
        SchemaOf::Config => fordway_config::schema(),
        SchemaOf::Control => fordway_control::schema(),
        SchemaOf::Top => top::schema(),
    };
    output::print(&format!("{schema:#}\n"))
}

pub(crate) fn manual(dir: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::failed(format!("cannot write manual pages to {}: {error}", dir.display()))
    };
    std::fs::create_dir_all(dir).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), dir).map_err(failed)?;
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let own =
            name == "fordway.1" || name.starts_with("fordway-") && !name.starts_with("fordway-lab");
        if own && name.ends_with(".1") {
            let page = std::fs::read_to_string(&path).map_err(failed)?;
            std::fs::write(&path, with_examples(&page)).map_err(failed)?;
        }
    }
    Ok(())
}

/// The page with its examples in a section of their own, each on a line as it is typed.
fn with_examples(page: &str) -> String {
    let Some((before, rest)) = page.split_once(".SH EXTRA\nExamples:\n") else {
        return page.to_owned();
    };
    let (examples, after) = rest.find(".SH ").map_or((rest, ""), |at| rest.split_at(at));
    format!("{before}.SH EXAMPLES\n.nf\n{}\n.fi\n{after}", examples.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_a_manual_page_keep_their_lines() {
        let dir = tempfile::tempdir().unwrap();
        manual(dir.path()).unwrap();
        let page = std::fs::read_to_string(dir.path().join("fordway.1")).unwrap();
        let (_, examples) = page.split_once(".SH EXAMPLES\n.nf\n").expect("examples");
        let (examples, _) = examples.split_once("\n.fi\n").expect("their end");
        assert!(examples.lines().count() > 1 && !page.contains(".SH EXTRA"), "{page}");
        assert_eq!(with_examples("a\n"), "a\n");
    }
}
