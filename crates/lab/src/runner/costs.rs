//! What one packet costs inside the gateway's programs, by its own command `bench`.

use std::path::Path;
use std::time::Duration;

use fordway_data::artefacts::COSTS;
use fordway_data::costs::{Cost, Costs};
use fordway_data::files::write_file;

use crate::error::{LabError, Result};
use crate::process::{Output, last_lines, start};

/// The longest that the command may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs the command on the machine itself and leaves the answer in the run's folder. That it is
/// missing, or fails, is an answer too.
pub(super) fn ask(fordway: Option<&Path>, out: &Path) -> Result<()> {
    let costs = match fordway {
        None => Costs::missing("the gateway's program was not found"),
        Some(program) => match bench(program) {
            Err(error) if error.ends_the_run() => return Err(error),
            Err(error) => Costs::missing(error.to_string()),
            Ok(costs) => costs,
        },
    };
    let text = serde_json::to_vec_pretty(&costs).unwrap_or_default();
    Ok(write_file(&out.join(COSTS), &text)?)
}

fn bench(program: &Path) -> Result<Costs> {
    let argv = [&program.display().to_string(), "bench", "--json"].map(str::to_owned);
    let done = start(&argv, Output::Keep)?.wait(LIMIT)?;
    if done.code() == 2 {
        return Ok(Costs::missing("this gateway has no command `bench`"));
    }
    if !done.status.success() {
        return Ok(Costs::missing(format!("`bench` failed: {}", last_lines(&done.stderr, 2))));
    }
    let rows: Vec<Cost> = serde_json::from_str(&done.stdout)
        .map_err(|e| LabError::Parse { tool: "fordway bench", why: e.to_string() })?;
    Ok(Costs { rows, missing: None })
}
