//! The table of back ends: every kind of device is one folder and one row here.

use crate::backend::Backend;
use crate::error::DeviceError;
use crate::joined::Joined;
use crate::{dpdk, memif, null, packet, replay, tap, xdp};

/// The kinds that `--device` may name, in the order of the help text.
pub static BACKENDS: &[&dyn Backend] = &[
    &packet::Packet,
    &xdp::Xdp,
    &tap::Tap,
    &memif::Memif,
    &dpdk::Dpdk,
    &null::Null,
    &replay::Replay,
];

/// Returns the back end that a text such as `tap` or `replay:FILE` names, and the text after the
/// colon.
///
/// # Errors
/// There is none of that name.
pub fn find(text: &str) -> Result<(&'static dyn Backend, Option<&str>), DeviceError> {
    let (name, argument) = match text.split_once(':') {
        Some((name, argument)) => (name, Some(argument)),
        None => (text, None),
    };
    let backend = BACKENDS.iter().find(|backend| backend.name() == name);
    match backend {
        Some(backend) => Ok((*backend, argument)),
        None => Err(DeviceError::NoSuchBackend {
            name: name.to_owned(),
            known: BACKENDS.iter().map(|backend| backend.name()).collect(),
        }),
    }
}

/// Returns the kinds that `--device` may name, for its help text.
pub fn usage() -> String {
    let kinds: Vec<&str> = BACKENDS.iter().map(|it| it.kind().usage).collect();
    match kinds.split_last() {
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Returns the back end of a slot by its name, that of devices with several ports included.
pub(crate) fn find_any(name: &str) -> Result<&'static dyn Backend, DeviceError> {
    match name == Joined.name() {
        true => Ok(&Joined),
        false => Ok(find(name)?.0),
    }
}

/// Returns the default back end, and the reason of the choice.
pub fn choose(interface: Option<&str>) -> (&'static dyn Backend, String) {
    match interface {
        None => (
            &tap::Tap,
            "no interface was named, so one was made".to_owned(),
        ),
        Some(name) => (
            &packet::Packet,
            format!("AF_PACKET shares {name} with the kernel and has its offloads"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_back_end_is_found_by_its_name() {
        for backend in BACKENDS {
            let (found, argument) = find(backend.name()).unwrap();
            assert_eq!((found.name(), argument), (backend.name(), None));
        }
        let (replay, file) = find("replay:/a:b.pcapng").unwrap();
        assert_eq!((replay.name(), file), ("replay", Some("/a:b.pcapng")));
        assert!(matches!(
            find("fddi:0").map(|_| ()),
            Err(DeviceError::NoSuchBackend { name, .. }) if name == "fddi"
        ));
    }

    #[test]
    fn device_names_are_distinguished() {
        let mut names: Vec<_> = BACKENDS.iter().map(|backend| backend.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), BACKENDS.len());
    }
}
