//! `fordway trace`.

use crate::cli::{Global, TraceArgs};
use crate::control::{self, Request};
use crate::failure::Failure;
use crate::output;
use crate::trace::{Filter, FilterError, SYNTAX};

pub(crate) fn run(global: &Global, args: &TraceArgs) -> Result<(), Failure> {
    let filter = args.filter.join(" ");
    filter
        .parse::<Filter>()
        .map_err(|error: FilterError| Failure::usage(format!("the filter: {error}"), SYNTAX))?;
    if args.count == Some(0) {
        return Ok(());
    }
    let request = Request::Trace { name: args.name.clone(), filter };
    let mut told = 0;
    control::trace(&global.socket(), &request, |line| {
        if args.json {
            let text = serde_json::to_string(&line)
                .map_err(|error| Failure::failed(format!("cannot make JSON: {error}")))?;
            output::print(&format!("{text}\n"))?;
        } else {
            output::print(&line.render())?;
        }
        told += 1;
        Ok(args.count.is_none_or(|count| told < count))
    })
}
