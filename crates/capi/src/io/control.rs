//! Control messages of FreeBSD's kind: IP_RECVDSTADDR with an `in_addr`, both ways, where Linux has
//! IP_PKTINFO.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// IP_RECVDSTADDR, which is IP_SENDSRCADDR too.
pub const DESTINATION: i32 = 7;
/// `struct cmsghdr` of 64-bit Linux.
const HEADER_LEN: usize = 16;
const PACKET_INFO_LEN: usize = 12;

/// Sockets that get a datagram's destination address by FreeBSD's control message.
static ASKING: Mutex<Option<HashSet<i32>>> = Mutex::new(None);
static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// The option was set on a socket.
pub fn set_asking(fd: i32, is_on: bool) {
    let Ok(mut asking) = ASKING.lock() else {
        return;
    };
    let asking = asking.get_or_insert_default();
    match is_on {
        true => asking.insert(fd),
        false => asking.remove(&fd),
    };
    IS_ASKED.store(!asking.is_empty(), Ordering::Release);
}

pub fn is_asking(fd: i32) -> bool {
    IS_ASKED.load(Ordering::Acquire)
        && ASKING
            .lock()
            .is_ok_and(|asking| asking.as_ref().is_some_and(|asking| asking.contains(&fd)))
}

/// The number is closed.
pub fn forget(fd: i32) {
    if IS_ASKED.load(Ordering::Acquire) {
        set_asking(fd, false);
    }
}

/// Level, kind and data of each message.
fn each(control: &[u8], mut visit: impl FnMut(i32, i32, &[u8])) {
    let mut rest = control;
    while let Some(len) = rest.first_chunk().map(|len| usize::from_ne_bytes(*len)) {
        if len < HEADER_LEN || len > rest.len() {
            return;
        }
        let word = |at: usize| {
            let bytes = rest[at..].first_chunk().copied();
            bytes.map_or(0, i32::from_ne_bytes)
        };
        visit(word(8), word(12), &rest[HEADER_LEN..len]);
        rest = rest.get(len.next_multiple_of(8)..).unwrap_or(&[]);
    }
}

fn append(to: &mut Vec<u8>, level: i32, kind: i32, data: &[u8]) {
    to.extend_from_slice(&(HEADER_LEN + data.len()).to_ne_bytes());
    to.extend_from_slice(&level.to_ne_bytes());
    to.extend_from_slice(&kind.to_ne_bytes());
    to.extend_from_slice(data);
    to.resize(to.len().next_multiple_of(8), 0);
}

/// Returns control data to be sent, with Linux's messages; `None` if it stays as it is.
pub fn outgoing(control: &[u8]) -> Option<Vec<u8>> {
    let mut has_destination = false;
    let mut changed = Vec::new();
    each(control, |level, kind, data| {
        match (level, kind, data.first_chunk::<4>()) {
            (libc::IPPROTO_IP, DESTINATION, Some(address)) => {
                has_destination = true;
                let mut info = [0; PACKET_INFO_LEN];
                info[4..8].copy_from_slice(address);
                append(&mut changed, level, libc::IP_PKTINFO, &info);
            }
            _ => append(&mut changed, level, kind, data),
        }
    });
    has_destination.then_some(changed)
}

/// Returns received control data, with FreeBSD's messages.
pub fn incoming(control: &[u8]) -> Vec<u8> {
    let mut changed = Vec::new();
    each(control, |level, kind, data| match (level, kind) {
        (libc::IPPROTO_IP, libc::IP_PKTINFO) if data.len() == PACKET_INFO_LEN => {
            append(&mut changed, level, DESTINATION, &data[8..]);
        }
        _ => append(&mut changed, level, kind, data),
    });
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_address_round_trips() {
        let mut info = [0; PACKET_INFO_LEN];
        info[8..].copy_from_slice(&[10, 0, 0, 5]);
        let mut received = Vec::new();
        append(&mut received, libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
        append(
            &mut received,
            libc::IPPROTO_IP,
            libc::IP_TTL,
            &[64, 0, 0, 0],
        );
        let messages = incoming(&received);
        let mut kinds = Vec::new();
        each(&messages, |_, kind, data| kinds.push((kind, data.to_vec())));
        assert_eq!(
            kinds,
            [
                (DESTINATION, vec![10, 0, 0, 5]),
                (libc::IP_TTL, vec![64, 0, 0, 0])
            ]
        );
        let mut sent = Vec::new();
        let back = outgoing(&messages).unwrap();
        each(&back, |_, kind, data| sent.push((kind, data.to_vec())));
        assert_eq!(sent[0].0, libc::IP_PKTINFO);
        assert_eq!(sent[0].1[4..8], [10, 0, 0, 5]);
        assert_eq!(outgoing(&received), None);
    }
}
