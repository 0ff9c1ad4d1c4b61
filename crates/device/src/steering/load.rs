//! Loads the steering program, and gives the right to write its tables.

use std::os::fd::OwnedFd;

use super::Steering;
use crate::bpf::programs::{self, Maps};
use crate::bpf::sys;
use crate::error::DeviceError;
use crate::ingress::load_program;

/// Returns the maps that the programs look things up in.
pub(crate) fn maps(steering: &Steering) -> Result<Maps<'_>, DeviceError> {
    let [table, exceptions, _] = steering.fds().ok_or(DeviceError::ReadOnly)?;
    Ok(Maps { table, exceptions })
}

pub(crate) fn load_steering(steering: &Steering, l3: i32) -> Result<OwnedFd, DeviceError> {
    let code = programs::steering(maps(steering)?, l3);
    load_program("slip_steer", sys::PROG_SOCKET_FILTER, 0, &code)
}
