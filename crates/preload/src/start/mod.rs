//! Start of the library: the loader calls it before the program's `main`.

mod sys;

use std::ffi::CString;

use crate::cancel;
use crate::cores;
use crate::exec::rights;
use crate::namespace;
use crate::process::{self, INHERIT};
use crate::signals;
use crate::stdio::standard::abi::on_placed;

/// Initialises the library if the program's environment says so, and keeps the variables it passes
/// on.
fn start(mut variables: Vec<CString>) {
    put_users_back(&mut variables);
    let has = |names: &[&[u8]]| {
        let mut all = variables.iter().map(|v| v.as_bytes());
        all.any(|v| names.iter().any(|name| v.starts_with(name)))
    };
    let has_cores = has(&[b"SLIPSTACK_CORES="]);
    let says_where = has(&sys::ADAPTER) || has(&[b"SLIPSTACK_BIN=", b"SLIPSTACK_INSTANCE="]);
    let is_adapter = !says_where && sys::is_adapter();
    let is_wanted = says_where || is_adapter || has(&[b"SLIPSTACK_"]);
    if is_adapter {
        // F-Stack's default, for a program that is linked with the adapter.
        variables.push(c"FF_PROC_ID=0".to_owned());
    }
    if !is_wanted || sys::is_secure() {
        return;
    }
    let inherits = has_inherited(&variables);
    namespace::begin(&mut variables);
    if process::keep(variables) {
        signals::at_end(process::end_by_signal);
        cancel::at_first(process::wake_sleepers);
        sys::register();
        process::watch_this_thread();
        if has_cores {
            cores::keep_initial();
        }
    }
    if inherits {
        process::activate();
        for number in 0..3 {
            on_placed(number);
        }
    }
}

/// Becomes the users that the program is to have. The programs that it starts are not to find the
/// variable.
fn put_users_back(variables: &mut Vec<CString>) {
    let names_users = |variable: &mut CString| {
        let rest = variable.as_bytes().strip_prefix(rights::USERS.as_bytes());
        rest.is_some_and(|rest| rest.starts_with(b"="))
    };
    for variable in variables.extract_if(.., names_users) {
        let text = variable.to_string_lossy();
        rights::come_back(&text[rights::USERS.len() + 1..]);
        sys::unset(rights::USERS);
    }
}

/// Whether the program before this one has left it sockets.
fn has_inherited(variables: &[CString]) -> bool {
    let mut all = variables.iter().map(|v| v.as_bytes());
    all.any(|v| v.starts_with(INHERIT.as_bytes()))
}
