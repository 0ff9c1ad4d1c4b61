//! Descriptors in control messages (SCM_RIGHTS): their conversion when they leave or arrive.

use slipstack_posix::{Passing, Process};

use super::HEADER_LEN;
use crate::descriptors::created;
use crate::process;
use crate::thread::InCall;

/// A descriptor number.
const NUMBER_LEN: usize = size_of::<i32>();

/// Positions of descriptor numbers in these control messages.
fn places(control: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(header) = control.get(at..at + HEADER_LEN) {
        let kind = [libc::SOL_SOCKET, libc::SCM_RIGHTS].map(i32::to_ne_bytes);
        let len = header[..8].try_into().map_or(0, usize::from_ne_bytes);
        let end = at.saturating_add(len);
        if len < HEADER_LEN || end > control.len() {
            break;
        }
        if header[8..] == kind.concat() {
            let numbers = (end - at - HEADER_LEN) / NUMBER_LEN;
            found.extend((0..numbers).map(|index| at + HEADER_LEN + index * NUMBER_LEN));
        }
        at = end.next_multiple_of(8);
    }
    found
}

fn number_at(control: &[u8], place: usize) -> i32 {
    let bytes = control[place..place + NUMBER_LEN].try_into();
    bytes.map_or(-1, i32::from_ne_bytes)
}

/// Control messages that name connections of ours, with their replacements.
pub struct Departure {
    pub control: Vec<u8>,
    passing: Passing,
}

impl Departure {
    /// `None`: the program's own control messages will do.
    pub fn prepare(process: &Process, control: &[u8]) -> Option<Departure> {
        let _in_call = InCall::enter();
        let mut passing = Passing::default();
        let mut changes = Vec::new();
        for place in places(control) {
            let number = number_at(control, place);
            if process.is_ours(number)
                && let Some(substitute) = process.prepare_passing(&mut passing, number, false)
            {
                changes.push((place, substitute.to_ne_bytes()));
            }
        }
        if changes.is_empty() {
            return None;
        }
        let mut control = control.to_vec();
        for (place, bytes) in changes {
            control[place..place + NUMBER_LEN].copy_from_slice(&bytes);
        }
        Some(Departure { control, passing })
    }

    /// The message has been sent, or not.
    pub fn end(self, process: &'static Process, is_sent: bool) {
        let _in_call = InCall::enter();
        process.end_passing(self.passing, is_sent);
    }
}

/// Looks at the descriptors that have come with a message.
pub fn on_arrival(control: &[u8]) {
    for place in places(control) {
        let number = number_at(control, place);
        created(number);
        let is_passed = {
            let _in_call = InCall::enter();
            slipstack_posix::is_passed(number)
        };
        if is_passed && let Some(process) = process::activate() {
            let _in_call = InCall::enter();
            process.receive(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = (HEADER_LEN + data.len()).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    fn numbers(control: &[u8]) -> Vec<i32> {
        let places = places(control).into_iter();
        places.map(|place| number_at(control, place)).collect()
    }

    #[test]
    fn descriptors_are_found_among_other_messages() {
        let rights: Vec<u8> = [7i32, 9, 11].iter().flat_map(|n| n.to_ne_bytes()).collect();
        let mut control = message(libc::SOL_SOCKET, libc::SCM_CREDENTIALS, &[0; 12]);
        control.extend(message(libc::SOL_SOCKET, libc::SCM_RIGHTS, &rights));
        control.extend(message(libc::SOL_SOCKET, libc::SCM_RIGHTS, &rights[..4]));
        assert_eq!(numbers(&control), [7, 9, 11, 7]);
    }

    #[test]
    fn invalid_lengths_end_the_search() {
        let rights = message(libc::SOL_SOCKET, libc::SCM_RIGHTS, &5i32.to_ne_bytes());
        for len in [0usize, 8, 15, 25, 1000, usize::MAX] {
            let mut lie = rights.clone();
            lie[..8].copy_from_slice(&len.to_ne_bytes());
            assert!(numbers(&lie).is_empty(), "{len}");
        }
        assert!(numbers(&rights[..18]).is_empty());
        assert!(numbers(&[]).is_empty());
    }
}
