//! Queries and changes of the stack's network, through the keeper, while the program runs.

use slipstack_attach::net::{Answer, Change, Client, ClientError, NetworkState, Query};
use slipstack_attach::{Error, admin};
use slipstack_posix::Errno;

use crate::life;

fn client() -> Result<Client, Errno> {
    let settings = life::options().ok_or(Errno::ENETDOWN)?;
    let path = admin::control_socket(settings).map_err(|_: Error| Errno::ENETDOWN)?;
    Client::connect(&path).map_err(|error| errno_of(&error))
}

/// Returns the current network.
///
/// # Errors
/// ENETDOWN: there is no stack, or no keeper that can be reached. EPERM: it does not allow this
/// user to ask.
pub fn network() -> Result<NetworkState, Errno> {
    match client()?.ask(Query::Network) {
        Ok(Answer::Network(state)) => Ok(state),
        Ok(_) => Err(Errno::ENETDOWN),
        Err(error) => Err(errno_of(&error)),
    }
}

/// Applies all of the changes or none; they hold when this returns.
///
/// # Errors
/// As [`network`], and the refusal's errno on Linux: EEXIST, ESRCH, EINVAL and others.
pub fn change(changes: Vec<Change>) -> Result<(), Errno> {
    match client()?.ask(Query::Set(changes)) {
        Ok(_) => Ok(()),
        Err(error) => Err(errno_of(&error)),
    }
}

/// The beginning of a refusal's sentence, which is Linux's, and its number.
const SENTENCES: [(&str, i32); 8] = [
    ("File exists", libc::EEXIST),
    ("No such process", libc::ESRCH),
    ("No such file", libc::ENOENT),
    ("Nexthop", libc::ENETUNREACH),
    ("Cannot find device", libc::ENODEV),
    ("Operation not supported", libc::EOPNOTSUPP),
    ("No buffer space", libc::ENOBUFS),
    ("Invalid", libc::EINVAL),
];

fn errno_of(error: &ClientError) -> Errno {
    match error {
        ClientError::Denied(why) => {
            let found = SENTENCES.iter().find(|(start, _)| why.starts_with(start));
            found.map_or(Errno::EPERM, |(_, number)| Errno(*number))
        }
        ClientError::Io(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Errno::EPERM
        }
        _ => Errno::ENETDOWN,
    }
}
