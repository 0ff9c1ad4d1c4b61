//! The program of an AF_XDP device.

use std::os::fd::BorrowedFd;

use super::asm::Reg::{R0, R1, R6, R10};
use super::asm::{Alu, Helper, If, Width};
use super::programs::{Emitter, Hook, Maps, PORTS, emit_steering};

/// Hands a frame of up to `len_max` bytes to the AF_XDP socket of its queue, if it is for the slot
/// that has the queue, and everything else to the kernel, where the packet sockets of the slots
/// are.
pub(crate) fn redirect(maps: Maps<'_>, sockets: BorrowedFd<'_>, len_max: u32) -> Vec<u64> {
    const ETHERTYPE_AT: i32 = 12;
    let mut emit = Emitter::new(maps, 14);
    emit.hook = Hook::Xdp(sockets);
    let kernels = emit.code.label();
    let code = &mut emit.code;
    code.alu_reg(Alu::Mov, R1, R6);
    code.call(Helper::XdpFrameLen);
    code.jump_if(If::Gt, R0, len_max.cast_signed(), kernels);
    emit.copy(ETHERTYPE_AT, PORTS, 2, kernels);
    emit.code.load(Width::B2, R0, R10, PORTS);
    emit_steering(&mut emit);
    emit.code.bind(kernels);
    emit.leave_to_keeper();
    emit.code.finish()
}
