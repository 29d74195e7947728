//! The kernel's clock source: read, list, switch.

use std::path::Path;

use crate::error::{LabError, Result};

const DIR: &str = "/sys/devices/system/clocksource/clocksource0";

/// The clock source in use.
pub(crate) fn current() -> Result<String> {
    read("current_clocksource")
}

/// The clock sources that the kernel offers.
pub(crate) fn available() -> Result<Vec<String>> {
    Ok(read("available_clocksource")?.split_whitespace().map(str::to_owned).collect())
}

/// Switches, and checks that the kernel did.
pub(crate) fn switch(name: &str) -> Result<()> {
    if current()? == name {
        return Ok(());
    }
    let path = Path::new(DIR).join("current_clocksource");
    std::fs::write(&path, name).map_err(LabError::file(&path))?;
    let now = current()?;
    if now == name {
        return Ok(());
    }
    Err(LabError::Usage(format!(
        "the kernel keeps clock source {now} and refuses {name}; it offers: {}",
        available()?.join(", ")
    )))
}

fn read(file: &str) -> Result<String> {
    let path = Path::new(DIR).join(file);
    let text = std::fs::read_to_string(&path).map_err(LabError::file(&path))?;
    Ok(text.trim().to_owned())
}
