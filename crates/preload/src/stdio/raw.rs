//! `dprintf(fd, format, …)`: collects its open argument list as the `va_list` that
//! `vdprintf` takes.

#[cfg(target_arch = "x86_64")]
macro_rules! collected {
    // `$named`: bytes of the register save area that the named arguments take; `$place`: the
    // register in which the body wants the list.
    ($name:ident, $body:ident, $named:literal, $place:literal) => {
        /// # Safety
        /// As in C.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "sub rsp, 216",
                // Register save area, from rsp + 32.
                "mov [rsp + 32], rdi",
                "mov [rsp + 40], rsi",
                "mov [rsp + 48], rdx",
                "mov [rsp + 56], rcx",
                "mov [rsp + 64], r8",
                "mov [rsp + 72], r9",
                "test al, al",
                "je 2f",
                "movaps [rsp + 80], xmm0",
                "movaps [rsp + 96], xmm1",
                "movaps [rsp + 112], xmm2",
                "movaps [rsp + 128], xmm3",
                "movaps [rsp + 144], xmm4",
                "movaps [rsp + 160], xmm5",
                "movaps [rsp + 176], xmm6",
                "movaps [rsp + 192], xmm7",
                "2:",
                // The va_list at rsp: gp_offset, fp_offset, overflow area, save area.
                concat!("mov dword ptr [rsp], ", $named),
                "mov dword ptr [rsp + 4], 48",
                "lea rax, [rsp + 224]",
                "mov [rsp + 8], rax",
                "lea rax, [rsp + 32]",
                "mov [rsp + 16], rax",
                concat!("mov ", $place, ", rsp"),
                "call {body}",
                "add rsp, 216",
                "ret",
                body = sym super::abi::$body,
            )
        }
    };
}

#[cfg(target_arch = "x86_64")]
collected!(dprintf, print_list, "16", "rdx");
#[cfg(target_arch = "x86_64")]
collected!(__dprintf_chk, print_list_checked, "24", "rcx");
