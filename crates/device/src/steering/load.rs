//! The steering's program, and the right to write its tables.

use std::os::fd::{BorrowedFd, OwnedFd};

use super::Steering;
use crate::bpf::{programs, sys};
use crate::error::DeviceError;
use crate::ingress::load_program;

pub(crate) fn writable(steering: &Steering) -> Result<[BorrowedFd<'_>; 3], DeviceError> {
    steering.fds().ok_or(DeviceError::ReadOnly)
}

pub(crate) fn load_steering(steering: &Steering, l3: i32) -> Result<OwnedFd, DeviceError> {
    let [table, exceptions, _] = writable(steering)?;
    let code = programs::steering(table, exceptions, l3);
    load_program("slip_steer", sys::PROG_SOCKET_FILTER, 0, &code)
}
