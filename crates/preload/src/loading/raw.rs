//! `dlopen` itself. libc looks at the address it was called from (whose search path counts), so it
//! is jumped to with the program's return address.

/// # Safety
/// As in C.
#[cfg(target_arch = "x86_64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen() {
    core::arch::naked_asm!(
        "push rdi",
        "mov edi, esi",
        "call {way}",
        "pop rdi",
        "mov rsi, rdx",
        "jmp rax",
        way = sym super::abi::way,
    )
}
