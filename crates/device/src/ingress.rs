//! The ingress drop: keeps frames to the stack's addresses from the kernel, which would answer them
//! with a reset or, with forwarding, send them back. Packet sockets see a frame before it is
//! dropped.
//!
//! On kernels from 6.6 the program is attached to a tcx link and goes with the last descriptor of
//! the link. Before that it is a filter of the clsact qdisc, which outlives every process: it lets
//! everything pass once the heartbeat in the steering table is a second old.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::bpf::programs::Maps;
use crate::bpf::sys::Extras;
use crate::bpf::{filters, sys};
use crate::error::DeviceError;
use crate::netlink::{self, Request, push_attribute};

/// Mode in which the drop is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropKind {
    /// A tcx link: removed with its descriptors.
    Tcx,
    /// A clsact filter: needs [`crate::Slots::beat`].
    Clsact,
    /// Nothing to drop: a TAP has no second receiver.
    None,
}

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
const BPF_DIRECT_ACTION: u32 = 1;

const HANDLE_CLSACT: u32 = 0xffff_0000;
const PARENT_CLSACT: u32 = 0xffff_fff1;
const PARENT_INGRESS: u32 = 0xffff_fff2;
/// Ours among the filters of the interface.
const PRIORITY: u32 = 0x51;
const ETH_P_ALL: u16 = 3;

#[derive(Debug)]
pub(crate) enum IngressDrop {
    Tcx(OwnedFd),
    Clsact { index: u32, owns_qdisc: bool },
}

impl IngressDrop {
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Tcx(link) => Some(link.as_fd()),
            Self::Clsact { .. } => None,
        }
    }

    /// Removes a hook that is not removed with a descriptor.
    pub(crate) fn remove(&self) {
        if let Self::Clsact { index, owns_qdisc } = *self {
            let _ = netlink::change(filter(netlink::DELTFILTER, 0, index));
            if owns_qdisc {
                let _ = netlink::change(qdisc(netlink::DELQDISC, 0, index));
            }
        }
    }
}

fn load(maps: Maps<'_>, attach: u32, needs_heartbeat: bool) -> Result<OwnedFd, DeviceError> {
    let code = filters::ingress_drop(maps, needs_heartbeat);
    load_program("slip_drop", sys::PROG_SCHED_CLS, attach, &code)
}

/// Loads a program and turns a refusal into an error with the verifier's last words.
pub(crate) fn load_program(
    program: &'static str,
    kind: u32,
    attach: u32,
    code: &[u64],
) -> Result<OwnedFd, DeviceError> {
    load_program_with(program, kind, attach, code, Extras::default())
}

/// As [`load_program`] for one that has something of its own.
pub(crate) fn load_program_with(
    program: &'static str,
    kind: u32,
    attach: u32,
    code: &[u64],
    extras: Extras<'_>,
) -> Result<OwnedFd, DeviceError> {
    sys::load_program(program, kind, attach, code, extras).map_err(|(source, log)| {
        match source.raw_os_error() {
            Some(libc::EPERM) => DeviceError::MissingCapability {
                capability: "CAP_BPF and CAP_NET_ADMIN",
                doing: "loading an eBPF program",
            },
            _ => DeviceError::Verifier {
                program,
                source,
                log,
            },
        }
    })
}

pub(crate) fn install_tcx(maps: Maps<'_>, index: u32) -> Result<IngressDrop, DeviceError> {
    let program = load(maps, sys::ATTACH_TCX_INGRESS, false)?;
    sys::link_tcx_ingress(program.as_fd(), index)
        .map(IngressDrop::Tcx)
        .map_err(attach_failed)
}

pub(crate) fn install_clsact(maps: Maps<'_>, index: u32) -> Result<IngressDrop, DeviceError> {
    let program = load(maps, 0, true)?;
    let flags = netlink::FLAG_CREATE | netlink::FLAG_EXCL;
    let owns_qdisc = match netlink::change(qdisc(netlink::NEWQDISC, flags, index)) {
        Ok(()) => true,
        Err(source) if source.raw_os_error() == Some(libc::EEXIST) => false,
        Err(source) => return Err(attach_failed(source)),
    };
    // The program that a killed predecessor left behind is replaced.
    let _ = netlink::change(filter(netlink::DELTFILTER, 0, index));
    let mut options = Vec::new();
    let fd = program.as_raw_fd().cast_unsigned();
    push_attribute(&mut options, TCA_BPF_FD, &fd.to_ne_bytes());
    push_attribute(&mut options, TCA_BPF_NAME, b"slip_drop\0");
    push_attribute(
        &mut options,
        TCA_BPF_FLAGS,
        &BPF_DIRECT_ACTION.to_ne_bytes(),
    );
    let request = filter(netlink::NEWTFILTER, flags, index).attribute(TCA_OPTIONS, &options);
    netlink::change(request).map_err(attach_failed)?;
    Ok(IngressDrop::Clsact { index, owns_qdisc })
}

fn attach_failed(source: io::Error) -> DeviceError {
    let doing = "attaching the ingress drop to the interface";
    DeviceError::system(doing, "CAP_NET_ADMIN", source)
}

/// `struct tcmsg`: family, padding, interface, handle, parent, info.
fn tcmsg(index: u32, handle: u32, parent: u32, info: u32) -> [u8; 20] {
    let mut fixed = [0; 20];
    for (word, at) in [index, handle, parent, info]
        .into_iter()
        .zip((4..).step_by(4))
    {
        fixed[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    fixed
}

fn qdisc(kind: u16, flags: u16, index: u32) -> Request {
    let fixed = tcmsg(index, HANDLE_CLSACT, PARENT_CLSACT, 0);
    Request::new(kind, flags, &fixed).attribute(TCA_KIND, b"clsact\0")
}

fn filter(kind: u16, flags: u16, index: u32) -> Request {
    let info = PRIORITY << 16 | u32::from(ETH_P_ALL.to_be());
    let fixed = tcmsg(index, 0, PARENT_INGRESS, info);
    Request::new(kind, flags, &fixed).attribute(TCA_KIND, b"bpf\0")
}
