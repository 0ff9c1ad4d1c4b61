//! Loads the steering program, and gives the right to write its tables.

use std::os::fd::OwnedFd;

use super::Steering;
use crate::bpf::btf::Functions;
use crate::bpf::programs::{self, Maps};
use crate::bpf::sys;
use crate::error::DeviceError;
use crate::ingress::load_program_with;

/// Returns the maps that the programs look things up in.
pub(crate) fn maps(steering: &Steering) -> Result<Maps<'_>, DeviceError> {
    let [table, exceptions, _] = steering.fds().ok_or(DeviceError::ReadOnly)?;
    Ok(Maps {
        table,
        exceptions,
        chooser: steering.chooser(),
    })
}

pub(crate) fn load_steering(steering: &Steering, l3: i32) -> Result<OwnedFd, DeviceError> {
    let code = programs::steering(maps(steering)?, l3);
    let functions = code.function_at.map(Functions::load).transpose();
    let functions = functions.map_err(|source| {
        let doing = "telling the kernel what functions the steering has";
        DeviceError::system(doing, "CAP_BPF", source)
    })?;
    let kind = sys::PROG_SOCKET_FILTER;
    let extras = sys::Extras {
        functions: functions.as_ref(),
        device: 0,
    };
    load_program_with("slip_steer", kind, 0, &code.instructions, extras)
}
