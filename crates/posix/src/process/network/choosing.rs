//! setsockopt of options that choose a packet's route (table, mark, interface), where the kernel is
//! not asked or knows another interface.

use slipstack_channel::control::net::Interface;
use slipstack_mem::Descriptor;

use crate::errno::Errno;
use crate::kernel::Kernel;
use crate::process::network::Network;
use crate::socket::description::Description;
use crate::socket::options::record::int_of;
use crate::socket::options::way::{FIBS, SO_SETFIB, STACKS_LINK};

impl Network {
    /// Sets an option of these that the kernel does not judge; `false`: it is none.
    pub(crate) fn choose_way(
        &self,
        kernel: &dyn Kernel,
        socket: &Description,
        (level, name): (i32, i32),
        value: &[u8],
    ) -> Result<bool, Errno> {
        match (level, name) {
            (libc::SOL_SOCKET, SO_SETFIB) => {
                let fib = int_of(value).ok_or(Errno::EINVAL)?;
                if !(0..FIBS).contains(&fib) {
                    return Err(Errno::EINVAL);
                }
                socket.set_way(SO_SETFIB, value);
                Ok(true)
            }
            (libc::SOL_SOCKET, libc::SO_BINDTODEVICE | libc::SO_BINDTOIFINDEX) => {
                let chosen = self.link_of(name, value);
                let had_link = socket.cold.lock().options.has_link();
                if chosen.is_none() && !had_link {
                    return Ok(false);
                }
                bind_to(kernel, socket, chosen.as_ref())?;
                // The kernel judges a name that is no interface of the stack.
                Ok(chosen.is_some())
            }
            _ => Ok(false),
        }
    }

    /// Learns the interface of the stack to which the program that made a socket has bound it.
    pub(crate) fn learn_link(&self, kernel: &dyn Kernel, socket: &Description, number: Descriptor) {
        let (level, name) = (libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX);
        let mut index = [0; 4];
        let told = kernel.getsockopt(number.number(), level, name, &mut index);
        if told == Ok(index.len())
            && index != [0; 4]
            && let Some(link) = self.link_of(name, &index)
        {
            record_link(socket, Some(&link));
        }
    }

    /// The interface of the stack that is named.
    fn link_of(&self, option: i32, value: &[u8]) -> Option<Interface> {
        let policy = self.policy()?;
        let found = match option {
            libc::SO_BINDTOIFINDEX => {
                let index = int_of(value)?.cast_unsigned();
                policy
                    .network()
                    .interfaces
                    .iter()
                    .find(|link| link.index == index)
            }
            _ => {
                let name = value.split(|byte| *byte == 0).next()?;
                let mut links = policy.network().interfaces.iter();
                links.find(|link| link.name.as_bytes() == name)
            }
        };
        found.filter(|link| link.index != 0).cloned()
    }
}

/// The kernel's part is bound to the interface's number, which for a VLAN of the stack the
/// kernel does not have: nothing comes to it by others.
fn bind_to(
    kernel: &dyn Kernel,
    socket: &Description,
    link: Option<&Interface>,
) -> Result<(), Errno> {
    if let Some(number) = socket.kernel_number() {
        let (level, name) = (libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX);
        kernel.setsockopt(number.number(), level, name, &index_of(link))?;
    }
    record_link(socket, link);
    Ok(())
}

fn index_of(link: Option<&Interface>) -> [u8; 4] {
    let index = link.map_or(0, |link| link.index);
    index.cast_signed().to_ne_bytes()
}

fn record_link(socket: &Description, link: Option<&Interface>) {
    let index = index_of(link);
    let place = link.map_or(0, |link| i32::from(link.link) + 1);
    let mut cold = socket.cold.lock();
    cold.options
        .set(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &[]);
    cold.options
        .set(libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, &index);
    drop(cold);
    socket.set_way(STACKS_LINK, &place.to_ne_bytes());
}
