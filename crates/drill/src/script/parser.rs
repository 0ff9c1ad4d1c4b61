//! Options, times and events.

use super::lexer::{Cursor, Statement, statements};
use super::{Action, Event, Script, ScriptError, Stamp, Time, call, packet};

/// Reads a script.
///
/// # Errors
/// The first line that is not understood.
pub fn parse(text: &str) -> Result<Script, ScriptError> {
    let mut script = Script {
        options: Vec::new(),
        events: Vec::new(),
    };
    for statement in statements(text)? {
        match statement.text.strip_prefix("--") {
            Some(option) if script.events.is_empty() => {
                let (name, value) = option.split_once('=').unwrap_or((option, ""));
                script
                    .options
                    .push((name.trim().to_owned(), value.trim().to_owned()));
            }
            _ => script.events.push(event(&statement)?),
        }
    }
    Ok(script)
}

fn event(statement: &Statement) -> Result<Event, ScriptError> {
    let mut cursor = Cursor::new(&statement.text, statement.line);
    let (time, end) = match cursor.rest().starts_with('`') {
        // A command without a time runs when its turn comes.
        true => (Time::At(Stamp::Relative(0)), None),
        false => times(&mut cursor)?,
    };
    let action = action(&mut cursor)?;
    if !cursor.is_at_end() {
        return cursor.fail(format!("`{}` was not expected", cursor.rest()));
    }
    if end.is_some() && !matches!(action, Action::Call(_)) {
        return cursor.fail("only a call has an end");
    }
    Ok(Event {
        line: statement.line,
        time,
        end,
        action,
    })
}

fn action(cursor: &mut Cursor<'_>) -> Result<Action, ScriptError> {
    if cursor.take("<") {
        return Ok(Action::Arrives(packet::parse(cursor)?));
    }
    if cursor.take(">") {
        return Ok(Action::Leaves(packet::parse(cursor)?));
    }
    for (open, close) in [("%{", "}%"), ("`", "`")] {
        if let Some(inside) = cursor.rest().strip_prefix(open) {
            let Some(len) = inside.find(close) else {
                return cursor.fail(format!("`{open}` without `{close}`"));
            };
            let text = inside[..len].trim().to_owned();
            cursor.skip(open.len() + len + close.len());
            return Ok(match open {
                "`" => Action::Command(text),
                _ => Action::Code(text),
            });
        }
    }
    Ok(Action::Call(call::parse(cursor)?))
}

/// `0.1`, `+0.1`, `*`, `0.1~0.2`, `+0.1~+0.2`, `0.1...0.2`
fn times(cursor: &mut Cursor<'_>) -> Result<(Time, Option<Stamp>), ScriptError> {
    if cursor.take("*") {
        return Ok((Time::Any, None));
    }
    let from = stamp(cursor)?;
    if cursor.take("~") {
        let until = stamp(cursor)?;
        return Ok((Time::Between(from, until), None));
    }
    let end = match cursor.take("...") {
        true => Some(stamp(cursor)?),
        false => None,
    };
    Ok((Time::At(from), end))
}

fn stamp(cursor: &mut Cursor<'_>) -> Result<Stamp, ScriptError> {
    let is_relative = cursor.take("+");
    let rest = cursor.rest();
    // Not `take_while`: `0.1...0.2` has dots that are not of the number.
    let mut len = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    if rest[len..].starts_with('.') && !rest[len..].starts_with("...") {
        let fraction = &rest[len + 1..];
        len += 1 + fraction
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(fraction.len());
    }
    let Some(us) = microseconds(&rest[..len]) else {
        return cursor.fail(format!("`{rest}` does not begin with a time"));
    };
    cursor.skip(len);
    Ok(match is_relative {
        true => Stamp::Relative(us),
        false => Stamp::Absolute(us),
    })
}

fn microseconds(word: &str) -> Option<u64> {
    let (whole, fraction) = word.split_once('.').unwrap_or((word, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let seconds: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let digits: String = fraction.chars().chain("000000".chars()).take(6).collect();
    Some(seconds.checked_mul(1_000_000)? + digits.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> (Time, Option<Stamp>) {
        times(&mut Cursor::new(text, 1)).unwrap()
    }

    #[test]
    fn times_of_scripts_parse() {
        use Stamp::{Absolute, Relative};
        assert_eq!(time("0.100 x"), (Time::At(Absolute(100_000)), None));
        assert_eq!(time("+.01 x"), (Time::At(Relative(10_000)), None));
        assert_eq!(time("* x"), (Time::Any, None));
        assert_eq!(
            time("+0~+.25 x"),
            (Time::Between(Relative(0), Relative(250_000)), None)
        );
        assert_eq!(
            time("0.1...1.5 x"),
            (Time::At(Absolute(100_000)), Some(Absolute(1_500_000)))
        );
    }

    #[test]
    fn errors_name_their_line() {
        let script = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n+0 < S 0:0(0) win 1 nonsense\n";
        assert_eq!(parse(script).unwrap_err().line, 2);
    }
}
