//! A program of the user's that chooses engines: an object file as a compiler makes it.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use aya::programs::SocketFilter;

use crate::error::DeviceError;

/// Loads the only socket filter of an object file, with its maps.
pub(crate) fn load(path: &Path) -> Result<OwnedFd, DeviceError> {
    let wrong = |why: String| {
        DeviceError::Unsuitable(format!(
            "the program of --spread-program {} cannot be used: {why}",
            path.display()
        ))
    };
    let mut object = aya::Ebpf::load_file(path).map_err(|error| wrong(chain(&error)))?;
    let mut filters = object
        .programs_mut()
        .filter_map(|(_, program)| <&mut SocketFilter>::try_from(program).ok());
    let (Some(filter), None) = (filters.next(), filters.next()) else {
        return Err(wrong(
            "it has to have one program, in a section that is named \"socket\"".to_owned(),
        ));
    };
    filter.load().map_err(|error| wrong(chain(&error)))?;
    let fd = filter.fd().map_err(|error| wrong(chain(&error)))?;
    let fd = fd.as_fd().try_clone_to_owned();
    fd.map_err(|error| wrong(error.to_string()))
}

/// An error and what it came of, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = error.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
