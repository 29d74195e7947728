//! `fordway trace`.

use fordway_control::{Client, Request};
use fordway_daemon::failure::Failure;
use fordway_daemon::output;
use fordway_daemon::trace::{Filter, FilterError, SYNTAX};

use crate::cli::{Global, TraceArgs};
use crate::report::Render;

pub(crate) fn run(global: &Global, args: &TraceArgs) -> Result<(), Failure> {
    let filter = args.filter.join(" ");
    filter
        .parse::<Filter>()
        .map_err(|error: FilterError| Failure::usage(format!("the filter: {error}"), SYNTAX))?;
    if args.count == Some(0) {
        return Ok(());
    }
    let client = Client::new(global.socket());
    let lost_before = lost(&client, &args.name);
    let request = Request::Trace { name: args.name.clone(), filter };
    let mut told = 0;
    client.trace(&request, |line| {
        match args.json {
            true => output::print_json_line(&line)?,
            false => output::print(&line.render())?,
        }
        told += 1;
        Ok::<_, Failure>(args.count.is_none_or(|count| told < count))
    })?;
    if let (Some(before), Some(after)) = (lost_before, lost(&client, &args.name))
        && after > before
    {
        let lost = after - before;
        output::complain(&format!(
            "{lost} more packets were not told: there were too many at once"
        ));
    }
    Ok(())
}

/// Events that the programs did not write so far.
fn lost(client: &Client, name: &str) -> Option<u64> {
    let stats = client.stats().ok()?;
    let translator = stats.translators.into_iter().find(|translator| translator.name == name)?;
    translator.kernel.map(|kernel| kernel.trace_lost)
}
