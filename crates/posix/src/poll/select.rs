//! The sets of select as the entries of a poll, and back.

/// POLLIN_SET, POLLOUT_SET and POLLEX_SET of fs/select.c.
const READ: i16 =
    libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLIN | libc::POLLHUP | libc::POLLERR | CLOSED;
const WRITE: i16 = libc::POLLWRBAND | libc::POLLWRNORM | libc::POLLOUT | libc::POLLERR | CLOSED;
const EXCEPT: i16 = libc::POLLPRI | CLOSED;
const CLOSED: i16 = libc::POLLNVAL;

const WORD: usize = u64::BITS as usize;

fn is_set(set: Option<&[u64]>, fd: usize) -> bool {
    set.and_then(|words| words.get(fd / WORD))
        .is_some_and(|word| word >> (fd % WORD) & 1 == 1)
}

/// The entries that the sets ask for.
pub(crate) fn wanted(nfds: usize, sets: &[Option<&mut [u64]>; 3]) -> Vec<libc::pollfd> {
    let mut fds = Vec::new();
    for fd in 0..nfds {
        let mut events = 0;
        for (set, bits) in sets.iter().zip([READ, WRITE, EXCEPT]) {
            if is_set(set.as_deref(), fd) {
                events |= bits & !CLOSED;
            }
        }
        if events != 0 {
            fds.push(libc::pollfd {
                fd: fd as i32,
                events,
                revents: 0,
            });
        }
    }
    fds
}

/// Leaves the requested bits that hold in the sets; returns their number.
pub(crate) fn write_back(
    nfds: usize,
    sets: [Option<&mut [u64]>; 3],
    fds: &[libc::pollfd],
) -> usize {
    let mut count = 0;
    for (set, bits) in sets.into_iter().zip([READ, WRITE, EXCEPT]) {
        let Some(words) = set else { continue };
        let asked: Vec<u64> = words.to_vec();
        for fd in 0..nfds {
            if let Some(word) = words.get_mut(fd / WORD) {
                *word &= !(1 << (fd % WORD));
            }
        }
        for fd in fds {
            let number = fd.fd as usize;
            if fd.revents & bits != 0 && is_set(Some(&asked), number) {
                words[number / WORD] |= 1 << (number % WORD);
                count += 1;
            }
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_set_keeps_its_own_bits() {
        let (mut read, mut write) = ([0b110u64], [0b100u64]);
        let sets = [Some(&mut read[..]), Some(&mut write[..]), None];
        let mut fds = wanted(3, &sets);
        assert_eq!(fds.len(), 2);
        fds[1].revents = libc::POLLOUT;
        assert_eq!(write_back(3, sets, &fds), 1);
        assert_eq!((read[0], write[0]), (0, 0b100));
    }

    #[test]
    fn bits_beyond_nfds_stay_as_they_are() {
        let mut read = [0b1_0001u64];
        let sets = [Some(&mut read[..]), None, None];
        let fds = wanted(2, &sets);
        assert_eq!(write_back(2, sets, &fds), 0);
        assert_eq!(read[0], 0b1_0000);
    }
}
