//! The program of an AF_XDP device.

use std::os::fd::BorrowedFd;

use aya_obj::btf::{Btf, BtfKind};

use super::asm::Reg::{R0, R1, R2, R3, R6, R10};
use super::asm::{Alu, Helper, If, Width};
use super::programs::{Emitter, Hook, Maps, PORTS, emit_steering};

/// Returns the number of the kernel's function that tells the tag which a driver keeps beside a
/// frame (Linux 6.8).
pub(crate) fn tag_function() -> Option<u32> {
    let types = Btf::from_sys_fs().ok()?;
    let name = "bpf_xdp_metadata_rx_vlan_tag";
    types.id_by_type_name_kind(name, BtfKind::Func).ok()
}

/// Hands a frame of up to `len_max` bytes to the AF_XDP socket of its queue, if it is for the slot
/// that has the queue, and everything else to the kernel, where the packet sockets of the slots
/// are. With `tag_function` the kernel also gets frames with a tag beside them: without their tags
/// they look like those of the stack's own network. Such a program is for one interface.
pub(crate) fn redirect(
    maps: Maps<'_>,
    sockets: BorrowedFd<'_>,
    len_max: u32,
    tag_function: Option<u32>,
) -> Vec<u64> {
    const ETHERTYPE_AT: i32 = 12;
    let mut emit = Emitter::new(maps, 14);
    emit.hook = Hook::Xdp(sockets);
    let kernels = emit.code.label();
    let code = &mut emit.code;
    code.alu_reg(Alu::Mov, R1, R6);
    code.call(Helper::XdpFrameLen);
    code.jump_if(If::Gt, R0, len_max.cast_signed(), kernels);
    if let Some(function) = tag_function {
        code.alu(Alu::Mov, R1, 0);
        code.store(Width::B8, R10, PORTS, R1);
        code.alu_reg(Alu::Mov, R1, R6);
        for (argument, at) in [(R2, PORTS), (R3, PORTS + 4)] {
            code.alu_reg(Alu::Mov, argument, R10);
            code.alu(Alu::Add, argument, i32::from(at));
        }
        code.call_kernel(function);
        code.jump_if(If::Eq, R0, 0, kernels);
    }
    emit.copy(ETHERTYPE_AT, PORTS, 2, kernels);
    emit.code.load(Width::B2, R0, R10, PORTS);
    emit_steering(&mut emit);
    emit.code.bind(kernels);
    emit.leave_to_keeper();
    emit.code.finish()
}
