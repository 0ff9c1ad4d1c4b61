//! `ff_ifconfig`, `ff_route`, `ff_arp`, `ff_ndp`, `ff_ipfw` and `ff_knictl`: FreeBSD's grammar, as
//! F-Stack's tools have it.

pub mod arp;
pub mod ifconfig;
pub mod ipfw;
pub mod knictl;
pub mod ndp;
mod neighbours;
pub mod route;

use slipstack_channel::control::net::MAIN_TABLE;

use crate::failure::Failure;
use crate::net::words::Words;

/// The table of a FIB: 0 is the main one, others have their number.
pub fn table_of(fib: u32) -> Result<u32, Failure> {
    match fib {
        0 => Ok(MAIN_TABLE),
        1..=252 => Ok(fib),
        _ => Err(Failure::new(format!(
            "fib {fib} is not one of 0 to 252: tables 253 to 255 are the stack's own"
        ))),
    }
}

fn fib_of(table: u32) -> u32 {
    match table {
        MAIN_TABLE => 0,
        id => id,
    }
}

/// Takes the option that names the engine: `--engine 0`, or the letter of F-Stack's tool with or
/// without a space (`-p 0`, `-p0`).
fn take_engine(words: &mut Words<'_>, option: &str) -> Result<Option<u32>, Failure> {
    if words.take("--engine") {
        return words.parsed("--engine").map(Some);
    }
    let Some(rest) = words.peek().and_then(|word| word.strip_prefix(option)) else {
        return Ok(None);
    };
    match rest {
        "" => {
            words.next();
            words.parsed(option).map(Some)
        }
        digits if digits.bytes().all(|b| b.is_ascii_digit()) => {
            words.next();
            digits
                .parse()
                .map(Some)
                .map_err(|_| words.wrong(option, digits))
        }
        _ => Ok(None),
    }
}
