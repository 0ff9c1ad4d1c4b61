//! Scripts in packetdrill's language: a list of timed events.
//!
//! Each event is `TIME EVENT`: a packet that arrives (`<`) or leaves (`>`), a socket call with its
//! expected result, an assertion about TCP_INFO (`%{ … }%`), or a command in backticks; the
//! commands that set a default (`sysctl -w NAME=VALUE`) are supported. Options come before the
//! first event (`--tolerance_usecs=4000`).

mod call;
mod lexer;
mod packet;
mod parser;

use std::fmt;

use crate::packet::PacketSpec;

pub use parser::parse;

/// A whole script.
#[derive(Debug)]
pub struct Script {
    /// `--name=value`
    pub options: Vec<(String, String)>,
    pub events: Vec<Event>,
}

#[derive(Clone, Debug)]
pub struct Event {
    pub line: usize,
    pub time: Time,
    /// A call that blocks ends at this time: `TIME...END`.
    pub end: Option<Stamp>,
    pub action: Action,
}

/// A point in time in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    Absolute(u64),
    /// After the event before.
    Relative(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    At(Stamp),
    Between(Stamp, Stamp),
    /// `*`
    Any,
}

#[derive(Clone, Debug)]
pub enum Action {
    Arrives(PacketSpec),
    Leaves(PacketSpec),
    Call(Call),
    Code(String),
    Command(String),
}

#[derive(Clone, Debug)]
pub struct Call {
    pub name: String,
    pub args: Vec<Expr>,
    /// `None` for `= ?`.
    pub result: Option<Expr>,
    /// Name of the error number.
    pub errno: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    Number(i64),
    Text(String),
    /// A constant, or several joined by `|`.
    Names(Vec<String>),
    List(Vec<Expr>),
    Struct(Vec<(String, Expr)>),
    /// `...`
    Any,
}

/// Position of a script's error, and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    pub line: usize,
    pub reason: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for ScriptError {}
