//! Socket options: Linux's numbers, and those of FreeBSD's that F-Stack passes through.

use slipstack_posix::{Errno, Outcome, Process};

use crate::io::control;

/// FreeBSD's netinet/in.h, at IPPROTO_IP: numbers that mean something else on Linux.
const IP_RECVDSTADDR: i32 = 7;
const IP_DONTFRAG: i32 = 67;

pub fn set(process: &Process, fd: i32, (level, name): (i32, i32), value: &[u8]) -> Outcome<()> {
    if !process.is_alone(fd) || level != libc::IPPROTO_IP {
        return process.setsockopt(fd, level, name, value);
    }
    match name {
        IP_RECVDSTADDR => {
            let is_on = int(value)? != 0;
            process.setsockopt(fd, level, libc::IP_PKTINFO, value)?;
            control::set_asking(fd, is_on);
            Ok(())
        }
        IP_DONTFRAG => {
            let mode = match int(value)? {
                0 => libc::IP_PMTUDISC_DONT,
                _ => libc::IP_PMTUDISC_DO,
            };
            process.setsockopt(fd, level, libc::IP_MTU_DISCOVER, &mode.to_ne_bytes())
        }
        _ => process.setsockopt(fd, level, name, value),
    }
}

pub fn get(
    process: &Process,
    fd: i32,
    (level, name): (i32, i32),
    place: &mut [u8],
) -> Outcome<usize> {
    if !process.is_alone(fd) || level != libc::IPPROTO_IP {
        return process.getsockopt(fd, level, name, place);
    }
    match name {
        IP_RECVDSTADDR => process.getsockopt(fd, level, libc::IP_PKTINFO, place),
        IP_DONTFRAG => {
            let mut mode = [0; 4];
            process.getsockopt(fd, level, libc::IP_MTU_DISCOVER, &mut mode)?;
            let is_on = i32::from_ne_bytes(mode) == libc::IP_PMTUDISC_DO;
            let len = place.len().min(4);
            place[..len].copy_from_slice(&i32::from(is_on).to_ne_bytes()[..len]);
            Ok(len)
        }
        _ => process.getsockopt(fd, level, name, place),
    }
}

fn int(value: &[u8]) -> Result<i32, Errno> {
    let bytes = value.first_chunk().ok_or(Errno::EINVAL)?;
    Ok(i32::from_ne_bytes(*bytes))
}
