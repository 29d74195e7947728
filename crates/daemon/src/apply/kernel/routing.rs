//! What programs in front of routing hear of changes of the kernel's routing.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fordway_bpf::RoutingNews;
use tracing::warn;

/// For how long programs keep an answer of which no change is heard: of path MTUs that the host learns nothing is told.
const LIFE: Duration = Duration::from_secs(1);

/// One value serves the programs of all translators, for as long as the process lives.
static NEWS: OnceLock<Option<Arc<RoutingNews>>> = OnceLock::new();

/// The value, made when it is first needed. `None`: the kernel makes no such map, so programs ask again and again.
pub(super) fn news() -> Option<Arc<RoutingNews>> {
    let made = NEWS.get_or_init(|| {
        let made = RoutingNews::new(LIFE);
        made.inspect_err(|error| warn!("changes of routes can't be told to programs: {error}"))
            .ok()
            .map(Arc::new)
    });
    made.clone()
}

/// The value, if there have ever been programs in front of routing.
pub(crate) fn made() -> Option<Arc<RoutingNews>> {
    NEWS.get()?.clone()
}
