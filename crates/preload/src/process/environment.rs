//! Environment variables of ours: those the program was started with, and those its successors get.

use std::ffi::CString;
use std::sync::OnceLock;

use rustix::net::{SocketType, sockopt};
use slipstack_posix::Descriptor;

/// The environment of a new program under the library: `LD_PRELOAD`, every `SLIPSTACK_` variable
/// and those of F-Stack's adapter, as they were when this program started. Empty: we stay out.
static ENVIRONMENT: OnceLock<Vec<CString>> = OnceLock::new();

/// Describes sockets that survive an exec, to the program that comes after it. The names of further
/// variables, for the rest of a long text, begin with it.
pub const INHERIT: &str = "SLIPSTACK_INHERIT";

/// The name of the variable with part `index` of the text about sockets that survive an exec.
pub fn inherit_name(index: usize) -> String {
    match index {
        0 => INHERIT.to_owned(),
        index => format!("{INHERIT}_{index}"),
    }
}

/// Names the inherited connections to the keeper, or to each instance.
const CONTROL: &[u8] = b"SLIPSTACK_CONTROL_FD=";

/// Whether the descriptor is a control connection's: a program without the library may have closed
/// that, and opened something else.
fn is_control(inherited: Descriptor) -> bool {
    sockopt::socket_type(inherited.as_fd()) == Ok(SocketType::SEQPACKET)
}

/// The variables that a new program needs.
pub fn environment() -> &'static [CString] {
    ENVIRONMENT.get().map_or(&[], Vec::as_slice)
}

/// Returns a variable of ours. If a program has cleared its environment before its first socket, it
/// is the value at the program's start.
pub fn variable(name: &str) -> Option<String> {
    if let Some(text) = std::env::var_os(name) {
        return text.into_string().ok();
    }
    let is_it = |kept: &&CString| {
        let rest = kept.as_bytes().strip_prefix(name.as_bytes());
        rest.is_some_and(|rest| rest.first() == Some(&b'='))
    };
    let kept = environment().iter().find(is_it)?;
    String::from_utf8(kept.as_bytes()[name.len() + 1..].to_vec()).ok()
}

/// Keeps the variables of a program that is looked after. Returns false if there are some already.
pub fn keep(variables: Vec<CString>) -> bool {
    let control = variables
        .iter()
        .find_map(|v| v.as_bytes().strip_prefix(CONTROL));
    let numbers = control
        .and_then(|text| str::from_utf8(text).ok())
        .unwrap_or("");
    let numbers = numbers.split(',').filter_map(|number| number.parse().ok());
    let inherited = numbers.filter_map(Descriptor::new);
    inherited
        .filter(|it| is_control(*it))
        .for_each(Descriptor::list);
    let kept = |v: &CString| !v.as_bytes().starts_with(INHERIT.as_bytes());
    ENVIRONMENT
        .set(variables.into_iter().filter(kept).collect())
        .is_ok()
}
