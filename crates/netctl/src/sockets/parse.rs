//! The filter language of `ss`: `state established ( sport = :80 or dst 10.0.0.0/8 )`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::SocketState;
use super::filter::{Comparison, Expression, Filter, Side};

/// Parentheses and negations within each other at most.
const DEPTH_MAX: u32 = 32;

/// Reason why a filter is none: one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError(String);

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SyntaxError {}

fn wrong<T>(text: impl Into<String>) -> Result<T, SyntaxError> {
    Err(SyntaxError(text.into()))
}

/// Parses states and an expression; `None` for parts that are not given. `port_of` knows the names
/// of services.
///
/// # Errors
/// A word that is not allowed there.
pub fn parse_filter(
    text: &str,
    port_of: &dyn Fn(&str) -> Option<u16>,
) -> Result<(Option<u16>, Expression), SyntaxError> {
    let words = words(text);
    let mut parser = Parser {
        words: &words,
        at: 0,
        port_of,
    };
    let states = parser.states()?;
    if parser.peek().is_none() {
        return Ok((states, Expression::EVERYTHING));
    }
    let expression = parser.any(0)?;
    match parser.peek() {
        None => Ok((states, expression)),
        Some(word) => wrong(format!("\"{word}\" has no place in the filter there")),
    }
}

/// Splits at blanks, and around parentheses and operators.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let is_operator = "()!=<>&|".contains(letter);
        if (letter.is_whitespace() || is_operator) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if is_operator {
            let mut operator = String::from(letter);
            let may_follow = match letter {
                '=' | '!' | '<' | '>' => "=",
                '&' => "&",
                '|' => "|",
                _ => "",
            };
            if let Some(next) = letters.next_if(|next| may_follow.contains(*next)) {
                operator.push(next);
            }
            words.push(operator);
        } else if !letter.is_whitespace() {
            word.push(letter);
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

struct Parser<'a> {
    words: &'a [String],
    at: usize,
    port_of: &'a dyn Fn(&str) -> Option<u16>,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).map(String::as_str)
    }

    fn next(&mut self) -> Option<&'a str> {
        let word = self.peek()?;
        self.at += 1;
        Some(word)
    }

    fn take(&mut self, any: &[&str]) -> bool {
        let is_there = self.peek().is_some_and(|word| any.contains(&word));
        self.at += usize::from(is_there);
        is_there
    }

    fn states(&mut self) -> Result<Option<u16>, SyntaxError> {
        let mut states = None;
        loop {
            let is_out = match self.peek() {
                Some("state") => false,
                Some("exclude") => true,
                _ => return Ok(states),
            };
            self.at += 1;
            let Some(word) = self.next() else {
                return wrong("the name of a state is missing");
            };
            let Some(set) = state_set(word) else {
                return wrong(format!("there is no state \"{word}\""));
            };
            states = Some(match (states, is_out) {
                (None, false) => set,
                (Some(before), false) => before | set,
                (before, true) => before.unwrap_or(Filter::STATES_ALL) & !set,
            });
        }
    }

    fn any(&mut self, depth: u32) -> Result<Expression, SyntaxError> {
        let mut any = vec![self.all(depth)?];
        while self.take(&["or", "|", "||"]) {
            any.push(self.all(depth)?);
        }
        Ok(match any.len() {
            1 => any.remove(0),
            _ => Expression::Any(any),
        })
    }

    fn all(&mut self, depth: u32) -> Result<Expression, SyntaxError> {
        let mut all = vec![self.one(depth)?];
        loop {
            let is_said = self.take(&["and", "&", "&&"]);
            match self.peek() {
                None | Some("or" | "|" | "||" | ")") if !is_said => break,
                _ => all.push(self.one(depth)?),
            }
        }
        Ok(match all.len() {
            1 => all.remove(0),
            _ => Expression::All(all),
        })
    }

    fn one(&mut self, depth: u32) -> Result<Expression, SyntaxError> {
        if depth > DEPTH_MAX {
            return wrong("the filter is nested too deeply");
        }
        match self.next() {
            Some("not" | "!") => Ok(Expression::Not(Box::new(self.one(depth + 1)?))),
            Some("(") => {
                let inner = self.any(depth + 1)?;
                match self.take(&[")"]) {
                    true => Ok(inner),
                    false => wrong("a parenthesis is not closed"),
                }
            }
            Some("sport") => self.port(Side::Local),
            Some("dport") => self.port(Side::Remote),
            Some("src") => self.host(Side::Local),
            Some("dst") => self.host(Side::Remote),
            Some(word @ ("dev" | "fwmark" | "cgroup" | "autobound")) => wrong(format!(
                "\"{word}\" is not known here: sockets of a stack have no such thing"
            )),
            Some(word) => wrong(format!(
                "\"{word}\" is no condition; one begins with src, dst, sport, dport, not or a \
                 parenthesis"
            )),
            None => wrong("a condition is missing at the end of the filter"),
        }
    }

    fn port(&mut self, side: Side) -> Result<Expression, SyntaxError> {
        let comparison = self.peek().and_then(comparison_of);
        self.at += usize::from(comparison.is_some());
        let comparison = comparison.unwrap_or(Comparison::Equal);
        let Some(word) = self.next() else {
            return wrong("a port is missing at the end of the filter");
        };
        let name = word.rsplit(':').next().unwrap_or(word);
        match self.port_named(name) {
            Some(port) => Ok(Expression::Port(side, comparison, port)),
            None => wrong(format!("\"{word}\" is no port")),
        }
    }

    fn port_named(&self, name: &str) -> Option<u16> {
        name.parse().ok().or_else(|| (self.port_of)(name))
    }

    fn host(&mut self, side: Side) -> Result<Expression, SyntaxError> {
        let is_not = self.take(&["!=", "ne", "neq"]);
        let _ = self.take(&["=", "==", "eq"]);
        let Some(word) = self.next() else {
            return wrong("an address is missing at the end of the filter");
        };
        let Some(expression) = self.host_of(side, word) else {
            return wrong(format!("\"{word}\" is no address"));
        };
        Ok(match is_not {
            true => Expression::Not(Box::new(expression)),
            false => expression,
        })
    }

    /// `ADDRESS[/LEN][:PORT]`, `[ADDRESS]:PORT`, `*:PORT`, `:PORT`.
    fn host_of(&self, side: Side, word: &str) -> Option<Expression> {
        let word = word.strip_prefix("inet:").unwrap_or(word);
        let word = word.strip_prefix("inet6:").unwrap_or(word);
        let (address, port) = split(word)?;
        let port = match port {
            None | Some("*") => None,
            Some(port) => Some(self.port_named(port)?),
        };
        let mut all = Vec::new();
        if !["", "*", "any", "all"].contains(&address) {
            all.push(Expression::Network(side, network(address)?));
        }
        if let Some(port) = port {
            all.push(Expression::Port(side, Comparison::Equal, port));
        }
        Some(match all.len() {
            1 => all.remove(0),
            _ => Expression::All(all),
        })
    }
}

fn comparison_of(word: &str) -> Option<Comparison> {
    Some(match word {
        "=" | "==" | "eq" | "is" => Comparison::Equal,
        "!=" | "ne" | "neq" => Comparison::NotEqual,
        "<" | "lt" => Comparison::Less,
        "<=" | "le" | "leq" => Comparison::LessOrEqual,
        ">" | "gt" => Comparison::Greater,
        ">=" | "ge" | "geq" => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

/// An address and a port, if there is one.
fn split(word: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = word.strip_prefix('[') {
        let (address, rest) = rest.split_once(']')?;
        return match rest {
            "" => Some((address, None)),
            rest if rest.starts_with('/') => Some((word.trim_matches(['[', ']']), None)),
            rest => Some((address, Some(rest.strip_prefix(':')?))),
        };
    }
    match word.matches(':').count() {
        0 => Some((word, None)),
        1 => word
            .split_once(':')
            .map(|(address, port)| (address, Some(port))),
        _ => Some((word, None)),
    }
}

fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, len) = match text.split_once('/') {
        Some((address, len)) => (address, Some(len.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let address = match address.parse::<Ipv4Addr>() {
        Ok(v4) => IpAddr::V4(v4),
        Err(_) => IpAddr::V6(address.parse::<Ipv6Addr>().ok()?),
    };
    let len_max = if address.is_ipv4() { 32 } else { 128 };
    let len = len.unwrap_or(len_max);
    (len <= len_max).then_some((address, len))
}

/// A state's name, or that of several.
fn state_set(name: &str) -> Option<u16> {
    let synchronized = Filter::STATES_ALL
        & !(SocketState::Listen.bit() | SocketState::Closed.bit() | SocketState::SynSent.bit());
    let bucket = SocketState::SynReceived.bit() | SocketState::TimeWait.bit();
    Some(match name {
        "all" => Filter::STATES_ALL,
        "connected" => {
            Filter::STATES_ALL & !(SocketState::Listen.bit() | SocketState::Closed.bit())
        }
        "synchronized" => synchronized,
        "bucket" => bucket,
        "big" => Filter::STATES_ALL & !bucket,
        "established" | "estab" => SocketState::Established.bit(),
        "syn-sent" => SocketState::SynSent.bit(),
        "syn-recv" => SocketState::SynReceived.bit(),
        "fin-wait-1" => SocketState::FinWait1.bit(),
        "fin-wait-2" => SocketState::FinWait2.bit(),
        "time-wait" => SocketState::TimeWait.bit(),
        "closed" | "unconnected" | "close" => SocketState::Closed.bit(),
        "close-wait" => SocketState::CloseWait.bit(),
        "last-ack" => SocketState::LastAck.bit(),
        "listening" | "listen" => SocketState::Listen.bit(),
        "closing" => SocketState::Closing.bit(),
        _ => return None,
    })
}
