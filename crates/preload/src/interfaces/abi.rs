//! Interposed lists of interfaces, with C's signatures.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr;
use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libc::{addrinfo, ifaddrs, sockaddr, sockaddr_in, sockaddr_in6};
use slipstack_posix::OwnAddress;

use super::families::Families;
use super::{Address, name_of, number_of, own_addresses};
use crate::namespace::is_elsewhere;
use crate::next;
use crate::raw;
use crate::thread::InCall;

/// Data of the first of our nodes, by which the list is recognised. As large as the data in libc's
/// nodes of links (struct rtnl_link_stats).
static OURS: [u64; 16] = [0; 16];

/// One address. All nodes of one list are in one block of memory.
#[repr(C)]
struct Node {
    it: ifaddrs,
    address: Address,
    netmask: Address,
    broadcast: Address,
    name: [u8; libc::IF_NAMESIZE],
    /// Number of entries in the piece.
    count: usize,
}

impl Node {
    fn new(own: &OwnAddress, flags: c_uint, count: usize) -> Node {
        let mut name = [0; libc::IF_NAMESIZE];
        let len = own.name.len().min(name.len() - 1);
        name[..len].copy_from_slice(&own.name.as_bytes()[..len]);
        let last = own.broadcast().unwrap_or(std::net::Ipv4Addr::UNSPECIFIED);
        Node {
            it: ifaddrs {
                ifa_next: ptr::null_mut(),
                ifa_name: ptr::null_mut(),
                ifa_flags: flags,
                ifa_addr: ptr::null_mut(),
                ifa_netmask: ptr::null_mut(),
                ifa_ifu: ptr::null_mut(),
                ifa_data: ptr::null_mut(),
            },
            address: Address::new(own.ip, own.interface),
            netmask: Address::new(own.netmask(), 0),
            broadcast: Address::new(IpAddr::V4(last), 0),
            name,
            count,
        }
    }

    /// Sets the pointers into the node, at its final place.
    fn settle(&mut self, next: *mut ifaddrs, has_broadcast: bool) {
        self.it.ifa_next = next;
        self.it.ifa_name = (&raw mut self.name).cast::<c_char>();
        self.it.ifa_addr = (&raw mut self.address).cast::<sockaddr>();
        self.it.ifa_netmask = (&raw mut self.netmask).cast::<sockaddr>();
        if has_broadcast {
            self.it.ifa_ifu = (&raw mut self.broadcast).cast::<sockaddr>();
        }
    }
}

pub unsafe fn getifaddrs(list: *mut *mut ifaddrs) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { (next::getifaddrs.get())(list) };
    if result == 0 && !is_elsewhere() {
        let own = own_addresses();
        if !own.is_empty() {
            // SAFETY: libc has just made the list.
            unsafe { append(list, &own) };
        }
    }
    result
}

/// libc's hints for a program that gives none.
const NO_HINTS: addrinfo = addrinfo {
    ai_flags: libc::AI_V4MAPPED | libc::AI_ADDRCONFIG,
    ai_family: libc::AF_UNSPEC,
    ai_socktype: 0,
    ai_protocol: 0,
    ai_addrlen: 0,
    ai_addr: ptr::null_mut(),
    ai_canonname: ptr::null_mut(),
    ai_next: ptr::null_mut(),
};

/// libc asks the kernel which families the host has (AI_ADDRCONFIG), which does not know of the
/// stack's addresses.
pub unsafe fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    found: *mut *mut addrinfo,
) -> c_int {
    let next = next::getaddrinfo.get();
    // SAFETY: the program's hints, or null.
    let mut asked = unsafe { hints.as_ref() }.copied().unwrap_or(NO_HINTS);
    let families = (asked.ai_flags & libc::AI_ADDRCONFIG != 0)
        .then(|| families_beside_the_kernels(asked.ai_family))
        .flatten();
    let Some(families) = families else {
        // SAFETY: the program's own call.
        return unsafe { next(node, service, hints, found) };
    };
    let Some(family) = families.narrowed(asked.ai_family) else {
        return libc::EAI_NONAME;
    };
    asked.ai_family = family;
    asked.ai_flags &= !libc::AI_ADDRCONFIG;
    // SAFETY: the program's own call, with hints of ours.
    unsafe { next(node, service, &raw const asked, found) }
}

/// Returns the families of the kernel and the stack together if the stack adds one that matters
/// to a look-up for `asked`.
fn families_beside_the_kernels(asked: c_int) -> Option<Families> {
    let kernels = kernels_families();
    let mut all = kernels;
    if !kernels.are_enough(asked) && !is_elsewhere() {
        for own in own_addresses() {
            all.add(own.ip);
        }
    }
    (all != kernels).then_some(all)
}

/// The families of the kernel's addresses.
fn kernels_families() -> Families {
    let mut families = Families::default();
    let mut list = ptr::null_mut();
    // SAFETY: room for the list.
    if unsafe { (next::getifaddrs.get())(&raw mut list) } != 0 {
        return families;
    }
    let mut at = list;
    // SAFETY: null or a node of the list.
    while let Some(node) = unsafe { at.as_ref() } {
        // SAFETY: null or an address of libc's.
        if let Some(ip) = unsafe { ip_of(node.ifa_addr) } {
            families.add(ip);
        }
        at = node.ifa_next;
    }
    // SAFETY: libc's list, which nobody else has.
    unsafe { (next::freeifaddrs.get())(list) };
    families
}

/// # Safety
/// `addr` is null or a socket address of the length that its family has.
unsafe fn ip_of(addr: *const sockaddr) -> Option<IpAddr> {
    // SAFETY: by the caller's promise.
    match i32::from(unsafe { addr.as_ref() }?.sa_family) {
        libc::AF_INET => {
            // SAFETY: an address of this family.
            let v4 = unsafe { addr.cast::<sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: an address of this family.
            let v6 = unsafe { addr.cast::<sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

/// Adds nodes of ours at the end.
unsafe fn append(list: *mut *mut ifaddrs, own: &[OwnAddress]) {
    let (mut end, mut flags) = (list, 0);
    loop {
        // SAFETY: the list's head or a link of it.
        let next = unsafe { end.read() };
        // SAFETY: null or a node of the list.
        let Some(node) = (unsafe { next.as_mut() }) else {
            break;
        };
        // SAFETY: libc's nodes have names.
        let name = unsafe { CStr::from_ptr(node.ifa_name) };
        if own.iter().any(|own| own.name.as_bytes() == name.to_bytes()) {
            flags = node.ifa_flags;
        }
        end = &raw mut node.ifa_next;
    }
    let _in_call = InCall::enter();
    let nodes = own.iter().map(|it| Node::new(it, flags, own.len()));
    let nodes: Box<[Node]> = nodes.collect();
    let nodes = Box::leak(nodes);
    nodes[0].it.ifa_data = (&raw const OURS).cast_mut().cast::<c_void>();
    let mut following = ptr::null_mut();
    for (node, own) in nodes.iter_mut().zip(own).rev() {
        node.settle(following, own.broadcast().is_some());
        following = ptr::from_mut(node).cast::<ifaddrs>();
    }
    // SAFETY: the last link of the list.
    unsafe { *end = following };
}

pub unsafe fn if_nametoindex(name: *const c_char) -> c_uint {
    // SAFETY: the program's own call.
    let index = unsafe { (next::if_nametoindex.get())(name) };
    if index != 0 || name.is_null() || is_elsewhere() {
        return index;
    }
    let errno = raw::errno();
    // SAFETY: the program's string.
    let name = unsafe { CStr::from_ptr(name) };
    let found = number_of(name.to_bytes());
    raw::set_errno(errno);
    found.unwrap_or(0)
}

pub unsafe fn if_indextoname(index: c_uint, name: *mut c_char) -> *mut c_char {
    // SAFETY: the program's own call.
    let found = unsafe { (next::if_indextoname.get())(index, name) };
    if !found.is_null() || name.is_null() || is_elsewhere() {
        return found;
    }
    let errno = raw::errno();
    let own = name_of(index);
    raw::set_errno(errno);
    let Some(own) = own.filter(|own| own.len() < libc::IF_NAMESIZE) else {
        return ptr::null_mut();
    };
    let mut text = [0_u8; libc::IF_NAMESIZE];
    text[..own.len()].copy_from_slice(own.as_bytes());
    // SAFETY: the program has room for IF_NAMESIZE bytes.
    unsafe { ptr::copy_nonoverlapping(text.as_ptr(), name.cast::<u8>(), own.len() + 1) };
    name
}

pub unsafe fn freeifaddrs(list: *mut ifaddrs) {
    // SAFETY: the program's list.
    if let Some(nodes) = unsafe { detach(list) } {
        let _in_call = InCall::enter();
        drop(nodes);
    }
    // SAFETY: the program's own call.
    unsafe { (next::freeifaddrs.get())(list) };
}

/// Takes our nodes out of the list.
unsafe fn detach(mut list: *mut ifaddrs) -> Option<Box<[Node]>> {
    // SAFETY: null or a node of the program's list.
    while let Some(node) = unsafe { list.as_mut() } {
        let next = node.ifa_next;
        // SAFETY: null or the next node of the list.
        let is_ours = unsafe { next.as_ref() }
            .is_some_and(|next| ptr::eq(next.ifa_data, (&raw const OURS).cast()));
        if is_ours {
            node.ifa_next = ptr::null_mut();
            let first = next.cast::<Node>();
            // SAFETY: only nodes of ours have this data.
            let count = unsafe { (*first).count };
            let nodes = ptr::slice_from_raw_parts_mut(first, count);
            // SAFETY: the piece that `append` has leaked, once.
            return Some(unsafe { Box::from_raw(nodes) });
        }
        list = next;
    }
    None
}
