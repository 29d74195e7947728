//! Another name for a translator that runs: its interface, its part of the ledger and its pins get it, and packets flow
//! on.

use std::path::Path;

use fordway_config::InterfaceName;
use tracing::{info, warn};

use super::kernel::Kernel;
use super::running::Running;
use crate::failure::Failure;
use crate::pins;

impl Running {
    /// Whether it can have another name: all that bears the name is this program's own and can be moved.
    pub(crate) fn can_rename(&self) -> bool {
        let in_kernel = |kernel: &Kernel| kernel.can_move();
        let has_maps = self.stateful.as_ref().is_some_and(|stateful| stateful.maps.is_some());
        // Leased bindings of a softwire know its name.
        self.own
            && self.config.manage
            && self.config.softwire().is_none()
            && self.kernel.as_ref().map_or(!has_maps, in_kernel)
    }

    /// Gives it another name. On an error it has the old one. Needs a kernel that renames interfaces that are up.
    pub(crate) fn rename(&mut self, name: &InterfaceName, run_dir: &Path) -> Result<(), Failure> {
        let before = self.config.name.clone();
        let logs = self.logs_under(name.as_str())?;
        if let Err(failure) = self.move_to(name, run_dir) {
            if let Err(failure) = self.move_to(&before, run_dir) {
                warn!("{before}: the rollback is incomplete: {}", failure.line());
            }
            return Err(failure.prefix(&format!("cannot rename {before} to {name}: ")));
        }
        if let (Some(stateful), Some(logs)) = (&self.stateful, logs) {
            stateful.events.set_logs(logs);
        }
        info!("{before}: the name is {name} now");
        Ok(())
    }

    /// Moves what has another name so far. The ledger comes first: of a daemon that is killed meanwhile, the next start
    /// finds everything.
    fn move_to(&mut self, name: &InterfaceName, run_dir: &Path) -> Result<(), Failure> {
        if let Some(host) = &mut self.host {
            host.rename(name.as_str())?;
        }
        let folder = pins::dir(name.as_str())?;
        if let Some(kernel) = &mut self.kernel {
            kernel.move_to(&folder)?;
        }
        if let Some(stateful) = &mut self.stateful {
            stateful.moved_to(folder);
        }
        let device = self.engine.device_mut();
        if device.name() != name.as_str() {
            device.rename(name.as_str(), run_dir)?;
        }
        self.config.name = name.clone();
        // Policy rules name the interface.
        self.renew()
    }
}
