//! Proof to an instance that a former instance of its name has admitted a program. It is needed
//! where the program has changed its user since then, because the connection that it inherited has
//! ended with the former instance.
//!
//! A ticket is a memory file with the instance's name, made and sealed by the instance. It cannot
//! be forged: the file belongs to the instance's user, a file's owner cannot be given away, and
//! seals cannot be broken. As for an inherited connection, possession is the permission.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};
use slipstack_keeper::runtime::network_namespace;
use slipstack_mem::{PrivateFd, raised};

const SEALS: SealFlags = SealFlags::SEAL
    .union(SealFlags::SHRINK)
    .union(SealFlags::GROW)
    .union(SealFlags::WRITE);

/// The tickets of one instance and its successors.
#[derive(Debug)]
pub(crate) struct Tickets {
    text: String,
    one: PrivateFd,
}

impl Tickets {
    /// # Errors
    /// There is no memory or number for the file.
    pub(crate) fn new(instance: &str, interface: &str) -> io::Result<Tickets> {
        let namespace = network_namespace().map_err(io::Error::other)?;
        let text = format!("slipstack instance {instance} on {interface} in {namespace}");
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let one = raised(memfd_create("slipstack-ticket", flags)?);
        rustix::io::write(&one, text.as_bytes())?;
        fcntl_add_seals(&one, SEALS)?;
        Ok(Tickets { text, one })
    }

    pub(crate) fn issue(&self) -> io::Result<OwnedFd> {
        self.one.try_clone()
    }

    /// Only memory files have seals, so that the read does not block.
    pub(crate) fn is_valid(&self, ticket: &OwnedFd) -> bool {
        let is_sealed = fcntl_get_seals(ticket).is_ok_and(|seals| seals.contains(SEALS));
        let own = rustix::process::geteuid().as_raw();
        is_sealed && fstat(ticket).is_ok_and(|stat| stat.st_uid == own) && self.says_so(ticket)
    }

    fn says_so(&self, ticket: &OwnedFd) -> bool {
        let mut text = vec![0; self.text.len() + 1];
        let read = rustix::io::pread(ticket, &mut text[..], 0);
        read.is_ok_and(|len| text[..len] == *self.text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str, seals: SealFlags) -> OwnedFd {
        let file = memfd_create("ticket", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::io::write(&file, text.as_bytes()).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    }

    #[test]
    fn a_ticket_is_valid_for_the_next_instance_of_the_same_name() {
        let issued = Tickets::new("a", "eth1").unwrap().issue().unwrap();
        assert!(Tickets::new("a", "eth1").unwrap().is_valid(&issued));
        assert!(!Tickets::new("b", "eth1").unwrap().is_valid(&issued));
        assert!(!Tickets::new("a", "eth2").unwrap().is_valid(&issued));
    }

    #[test]
    fn a_writable_file_is_no_ticket() {
        let tickets = Tickets::new("a", "eth1").unwrap();
        assert!(tickets.is_valid(&file(&tickets.text, SEALS)));
        let writable = SEALS.difference(SealFlags::WRITE);
        assert!(!tickets.is_valid(&file(&tickets.text, writable)));
        assert!(!tickets.is_valid(&file("", SEALS)));
        let longer = format!("{}0", tickets.text);
        assert!(!tickets.is_valid(&file(&longer, SEALS)));
        let (pipe, _end) = rustix::pipe::pipe().unwrap();
        assert!(!tickets.is_valid(&pipe));
    }
}
