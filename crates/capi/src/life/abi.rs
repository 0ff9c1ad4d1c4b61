//! `ff_init`, `ff_run` and `ff_stop_run`, declared as in F-Stack's headers.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]
#![allow(non_upper_case_globals, reason = "C names it")]

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::CString;

use slipstack_abi::raw;
use slipstack_posix::Errno;

use crate::{life, run};

/// F-Stack's `loop_func_t`.
type Loop = unsafe extern "C" fn(*mut c_void) -> c_int;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_init(argc: c_int, argv: *const *const c_char) -> c_int {
    // SAFETY: the program's arguments.
    let words = unsafe { words(argc, argv) };
    match super::begin_or_exit(words) {
        Ok(()) => 0,
        Err(errno) => raw::fail(errno),
    }
}

/// The arguments after the program's name.
unsafe fn words(argc: c_int, argv: *const *const c_char) -> Vec<String> {
    let mut words = Vec::new();
    for index in 1..usize::try_from(argc).unwrap_or(0) {
        if argv.is_null() {
            break;
        }
        // SAFETY: inside the program's array.
        let at = unsafe { argv.add(index) };
        // SAFETY: as above.
        let word = unsafe { *at };
        if word.is_null() {
            break;
        }
        // SAFETY: a C string of the program's.
        let text = unsafe { CStr::from_ptr(word) };
        words.push(text.to_string_lossy().into_owned());
    }
    words
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_run(work: Option<Loop>, argument: *mut c_void) {
    let Some(process) = life::process() else {
        raw::set_errno(Errno::ENETDOWN.0);
        return;
    };
    let result = run::run(process, || {
        if let Some(work) = work {
            // SAFETY: the program's function, with the program's argument.
            unsafe { work(argument) };
        }
    });
    if let Err(errno) = result {
        raw::set_errno(errno.0);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn ff_stop_run() {
    run::stop();
}

/// [`ff_run`] by the name of F-Stack's device layer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_dpdk_run(work: Option<Loop>, argument: *mut c_void) {
    // SAFETY: as the program's call.
    unsafe { ff_run(work, argument) };
}

/// [`ff_stop_run`] by the name of F-Stack's device layer.
#[unsafe(no_mangle)]
pub extern "C" fn ff_dpdk_stop() {
    ff_stop_run();
}

/// Reads arguments and file without starting anything.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_load_config(argc: c_int, argv: *const *const c_char) -> c_int {
    // SAFETY: the program's arguments.
    let words = unsafe { words(argc, argv) };
    match super::load(words) {
        Ok(()) => 0,
        Err(sentence) => {
            raw::write_stderr(format!("slipstack: {sentence}\n").as_bytes());
            raw::fail(Errno::EINVAL)
        }
    }
}

/// EAL's arguments in F-Stack, of which there are none.
#[unsafe(no_mangle)]
pub static mut dpdk_argc: c_int = 0;
#[unsafe(no_mangle)]
pub static mut dpdk_argv: [*mut c_char; ARGUMENTS_MAX + 1] =
    [core::ptr::null_mut(); ARGUMENTS_MAX + 1];
/// DPDK_CONFIG_NUM.
const ARGUMENTS_MAX: usize = 16;

/// `struct ff_config`.
#[repr(C)]
pub struct Config {
    file: *const c_char,
    kind: *const c_char,
    number: c_int,
    count: c_int,
}

/// Written by `ff_load_config`, and by `ff_init` once.
#[unsafe(no_mangle)]
pub static mut ff_global_cfg: Config = Config {
    file: core::ptr::null(),
    kind: c"auto".as_ptr(),
    number: 0,
    count: 1,
};

/// Publishes what the program was started with. The program may keep the texts for as long as it
/// runs.
pub fn tell_config(file: Option<CString>, kind: Option<CString>, number: u32, count: u16) {
    let config = &raw mut ff_global_cfg;
    let text = |text: Option<CString>| text.map(|text| text.into_raw().cast_const());
    // SAFETY: the program looks after the call in which this is written.
    let config = unsafe { &mut *config };
    config.file = text(file).unwrap_or(core::ptr::null());
    config.kind = text(kind).unwrap_or(config.kind);
    config.number = c_int::try_from(number).unwrap_or(0);
    config.count = c_int::from(count);
}
