//! The calls with an open argument list, `execl(path, first, …, NULL)`: the registers are
//! pushed below the arguments that are on the stack already, which makes the array that
//! `execv` wants.

#[cfg(target_arch = "x86_64")]
macro_rules! list {
    ($name:ident, $body:ident) => {
        /// # Safety
        /// As in C.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "pop rax",  // return address
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi", // first argument of the new program
                "mov rsi, rsp",
                "push rbp",
                "mov rbp, rsp",
                "push rax",
                "and rsp, -16",
                "call {body}",
                // Only after a failure.
                "mov rdx, [rbp - 8]",
                "mov rsp, rbp",
                "pop rbp",
                "add rsp, 40",
                "push rdx",
                "ret",
                body = sym super::abi::$body,
            )
        }
    };
}

#[cfg(target_arch = "x86_64")]
list!(execl, execl);
#[cfg(target_arch = "x86_64")]
list!(execlp, execlp);
#[cfg(target_arch = "x86_64")]
list!(execle, execle);
