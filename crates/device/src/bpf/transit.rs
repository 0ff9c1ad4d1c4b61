//! Steering of packets to addresses that are not the stack's: the slot whose connection has such an
//! address as its own end, or the slot that forwards them.

use super::asm::{Alu, If, Label, Width};
use super::programs::{
    Emitter, Family, Hook, IP_DESTINATION, IP_SOURCE, IP6_DESTINATION, IP6_SOURCE, KIND_HOST,
    PORTS, SKB_KIND, emit_chain, mix,
};
use crate::steering::hash;
use crate::steering::layout;

use super::asm::Reg::{R0, R1, R2, R3, R5, R6, R7, R9, R10};

/// From a header on the stack whose destination is not ours to the slot of its flow's exception,
/// or to the slot that passes it on, or to `keeper`: packets for others are not taken, or it was
/// sent to a group or another station.
pub(super) fn emit(emit: &mut Emitter<'_>, family: Family, keeper: Label) {
    const GROUP: i32 = 1;
    let [portless, is_known, by_hash] = core::array::from_fn(|_| emit.code.label());
    emit.strange_flow(family, by_hash);
    emit.code
        .jump_if(If::Eq, R0, layout::KERNEL_SLOT.into(), keeper);
    emit.leave();
    emit.code.bind(by_hash);
    emit.table(R2, layout::FLAGS);
    let code = &mut emit.code;
    let is_on = code.label();
    code.load(Width::B4, R1, R2, 0);
    code.jump_if(If::AnySet, R1, layout::FLAG_FORWARD.cast_signed(), is_on);
    code.jump(keeper);
    code.bind(is_on);
    match (emit.hook, emit.l3) {
        (Hook::Skb, 0) => {
            emit.code.load(Width::B4, R0, R6, SKB_KIND);
            emit.code.jump_if(If::Ne, R0, KIND_HOST, keeper);
        }
        // The stack checks the rest of the link-layer address.
        _ => {
            emit.copy(0, PORTS, 1, keeper);
            emit.code.load(Width::B1, R0, R10, PORTS);
            emit.code.jump_if(If::AnySet, R0, GROUP, keeper);
        }
    }
    emit.ports(family, portless);
    emit.code.jump(is_known);
    emit.code.bind(portless);
    emit.code.alu(Alu::Mov, R9, 0);
    emit.code.bind(is_known);
    emit_transit_hash(emit, family);
    let base = usize::from(layout::TRANSIT_GROUP) * layout::BUCKETS;
    emit.code.alu(Alu::Mov, R7, base as i32);
    emit_chain(emit);
}

/// Leaves the hash of a flow that is passed on in R1, from the ports in R9: `hash::of_transit`.
fn emit_transit_hash(emit: &mut Emitter<'_>, family: Family) {
    emit.table(R2, layout::HASH_KEY);
    let code = &mut emit.code;
    for (ip, ip6, shift) in [
        (IP_SOURCE, IP6_SOURCE, 0),
        (IP_DESTINATION, IP6_DESTINATION, 16),
    ] {
        code.load(Width::B8, R3, R2, 0);
        code.alu_reg(Alu::Mov, R1, R9);
        code.alu(Alu::Rsh, R1, shift);
        code.alu(Alu::And, R1, 0xffff);
        code.alu_reg(Alu::Xor, R1, R3);
        match family {
            Family::V4 => {
                code.load(Width::B4, R3, R10, ip);
                code.alu(Alu::Lsh, R3, 32);
                code.alu_reg(Alu::Xor, R1, R3);
                mix(code, hash::MULTIPLIER_1);
            }
            Family::V6 => {
                for word in [0, 8] {
                    code.load(Width::B8, R3, R10, ip6 + word);
                    code.alu_reg(Alu::Xor, R1, R3);
                    mix(code, hash::MULTIPLIER_1);
                }
            }
        }
        if shift == 0 {
            code.alu_reg(Alu::Mov, R5, R1);
        } else {
            code.alu_reg(Alu::Add, R1, R5);
        }
    }
    mix(code, hash::MULTIPLIER_2);
}
