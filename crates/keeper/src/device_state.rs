//! State of the device since it was opened: other programs may set it down or delete it.

use slipstack_device::DeviceError;
use slipstack_device::iface::KernelInterface;

/// The device as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceState {
    Usable,
    /// No interface has the device's name, or another one has it.
    Deleted,
    Down,
}

impl DeviceState {
    pub(crate) fn of(link: Result<KernelInterface, DeviceError>, index: u32) -> DeviceState {
        match link {
            Ok(link) if link.index != index => DeviceState::Deleted,
            Ok(link) if !link.is_up => DeviceState::Down,
            Err(DeviceError::NoSuchInterface(_)) => DeviceState::Deleted,
            // Properties that cannot be read now are taken to be unchanged.
            Ok(_) | Err(_) => DeviceState::Usable,
        }
    }

    /// Reason why frames do not pass; `None`: they do. `is_own`: the keeper has made the interface,
    /// and makes it again if it can.
    pub fn trouble(self, is_own: bool) -> Option<String> {
        match self {
            DeviceState::Usable => None,
            DeviceState::Deleted if !is_own => Some(
                "the interface has been deleted, nothing passes until it is made again under its \
                 name and set up"
                    .to_owned(),
            ),
            DeviceState::Deleted => Some(
                "the TAP has been deleted and could not be made again, nothing passes; end its \
                 programs and start them again"
                    .to_owned(),
            ),
            DeviceState::Down => Some("the interface is down, nothing passes".to_owned()),
        }
    }
}
