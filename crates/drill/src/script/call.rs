//! Socket calls: `bind(3, ..., ...) = -1 EADDRINUSE (Address already in use)`.

use super::lexer::Cursor;
use super::{Call, Expr, ScriptError};

/// Brackets within brackets.
const DEPTH_MAX: usize = 16;

pub fn parse(cursor: &mut Cursor<'_>) -> Result<Call, ScriptError> {
    let Some(name) = cursor.name() else {
        return cursor.fail(format!("`{}` is no event", cursor.rest()));
    };
    cursor.expect("(")?;
    let args = list(cursor, ")", 0)?;
    cursor.expect("=")?;
    let result = match cursor.take("?") {
        true => None,
        false => Some(expr(cursor, 0)?),
    };
    let errno = match cursor.name() {
        Some(errno) => {
            if cursor.take("(") {
                cursor.take_while(|c| c != ')');
                cursor.expect(")")?;
            }
            Some(errno.to_owned())
        }
        None => None,
    };
    // `= 0x2 (flags O_RDWR)`: a remark.
    if cursor.take("(") {
        cursor.take_while(|c| c != ')');
        cursor.expect(")")?;
    }
    Ok(Call {
        name: name.to_owned(),
        args,
        result,
        errno,
    })
}

fn list(cursor: &mut Cursor<'_>, close: &str, depth: usize) -> Result<Vec<Expr>, ScriptError> {
    let mut items = Vec::new();
    while !cursor.take(close) {
        if !items.is_empty() {
            cursor.expect(",")?;
        }
        items.push(expr(cursor, depth)?);
    }
    Ok(items)
}

fn expr(cursor: &mut Cursor<'_>, depth: usize) -> Result<Expr, ScriptError> {
    if depth > DEPTH_MAX {
        return cursor.fail("too many brackets");
    }
    if cursor.take("...") {
        return Ok(Expr::Any);
    }
    if cursor.take("[") {
        return Ok(Expr::List(list(cursor, "]", depth + 1)?));
    }
    if cursor.take("{") {
        return fields(cursor, depth + 1);
    }
    if let Some(inside) = cursor.rest().strip_prefix('"') {
        let Some(len) = inside.find('"') else {
            return cursor.fail("a text is not closed");
        };
        let text = unescaped(&inside[..len]);
        cursor.skip(len + 2);
        return Ok(Expr::Text(text));
    }
    if let Some(first) = cursor.name() {
        let mut names = vec![first.to_owned()];
        while cursor.take("|") {
            match cursor.name() {
                Some(name) => names.push(name.to_owned()),
                None => return cursor.fail("expected a constant after `|`"),
            }
        }
        // `sa_family = AF_INET, sin_port = htons(8080)`: packetdrill's form of an address.
        if cursor.rest().starts_with('(') {
            return wrapped(cursor, &names, depth);
        }
        return Ok(Expr::Names(names));
    }
    let number = cursor.number()?;
    Ok(Expr::Number(number))
}

/// `htons(N)` and `inet_addr("A")` are replaced by their arguments.
fn wrapped(cursor: &mut Cursor<'_>, names: &[String], depth: usize) -> Result<Expr, ScriptError> {
    cursor.expect("(")?;
    let mut inside = list(cursor, ")", depth + 1)?;
    match (names, inside.len()) {
        ([name], 1) if ["htons", "htonl", "inet_addr"].contains(&name.as_str()) => {
            Ok(inside.remove(0))
        }
        _ => cursor.fail(format!("{} is not known here", names.join("|"))),
    }
}

fn fields(cursor: &mut Cursor<'_>, depth: usize) -> Result<Expr, ScriptError> {
    // `{..., 1000}`: a buffer and its length.
    if cursor.rest().starts_with("...") {
        return Ok(Expr::List(list(cursor, "}", depth)?));
    }
    let mut fields = Vec::new();
    while !cursor.take("}") {
        if !fields.is_empty() {
            cursor.expect(",")?;
        }
        let Some(name) = cursor.name() else {
            return cursor.fail(format!("expected a field before `{}`", cursor.rest()));
        };
        // `msg_iov(1)=`: a length that follows from the list itself.
        if cursor.take("(") {
            cursor.take_while(|c| c != ')');
            cursor.expect(")")?;
        }
        if !cursor.take("=") {
            cursor.expect(":")?;
        }
        fields.push((name.to_owned(), expr(cursor, depth)?));
    }
    Ok(Expr::Struct(fields))
}

fn unescaped(text: &str) -> String {
    text.replace("\\n", "\n").replace("\\0", "\0")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(text: &str) -> Call {
        parse(&mut Cursor::new(text, 1)).unwrap()
    }

    #[test]
    fn system_calls_of_scripts_parse() {
        let parsed = call("write(4, ..., 1000) = -1 EAGAIN (Resource temporarily unavailable)");
        assert_eq!(
            parsed.args,
            [Expr::Number(4), Expr::Any, Expr::Number(1000)]
        );
        assert_eq!(parsed.result, Some(Expr::Number(-1)));
        assert_eq!(parsed.errno.as_deref(), Some("EAGAIN"));
        let parsed = call("fcntl(3, F_GETFL) = 0x2 (flags O_RDWR)");
        assert_eq!(parsed.result, Some(Expr::Number(2)));
        let parsed = call("setsockopt(3, SOL_SOCKET, SO_LINGER, {onoff=1, linger=1}, 8) = 0");
        assert!(matches!(&parsed.args[3], Expr::Struct(fields) if fields.len() == 2));
        let parsed =
            call("recvmsg(3, {msg_name(...)=..., msg_iov(1)=[{..., 9}], msg_flags=0}, 0) = 9");
        let Expr::Struct(fields) = &parsed.args[1] else {
            panic!("no message");
        };
        let buffer = Expr::List(vec![Expr::Any, Expr::Number(9)]);
        assert_eq!(fields[1], ("msg_iov".to_owned(), Expr::List(vec![buffer])));
        let parsed = call("poll([{fd=4, events=POLLIN|POLLOUT, revents=POLLIN}], 1, 0) = 1");
        assert!(matches!(&parsed.args[0], Expr::List(items) if items.len() == 1));
    }
}
