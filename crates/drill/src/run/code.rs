//! Assertions: `assert tcpi_snd_cwnd == 10 and tcpi_unacked <= 3, 'message'`.

/// Names of the states that scripts compare with (linux/tcp.h).
const STATES: &[(&str, i64)] = &[
    ("TCP_ESTABLISHED", 1),
    ("TCP_SYN_SENT", 2),
    ("TCP_SYN_RECV", 3),
    ("TCP_FIN_WAIT1", 4),
    ("TCP_FIN_WAIT2", 5),
    ("TCP_TIME_WAIT", 6),
    ("TCP_CLOSE", 7),
    ("TCP_CLOSE_WAIT", 8),
    ("TCP_LAST_ACK", 9),
    ("TCP_LISTEN", 10),
    ("TCP_CLOSING", 11),
    ("TCP_CA_Open", 0),
    ("TCP_CA_Disorder", 1),
    ("TCP_CA_CWR", 2),
    ("TCP_CA_Recovery", 3),
    ("TCP_CA_Loss", 4),
];

const COMPARISONS: &[&str] = &["==", "!=", "<=", ">=", "<", ">"];

/// Checks every assertion of the text.
///
/// # Errors
/// The first that does not hold, or that is not understood.
pub fn check(text: &str, field: &dyn Fn(&str) -> Option<i64>) -> Result<(), String> {
    for line in text.lines().flat_map(|line| line.split(';')).map(str::trim) {
        if line.is_empty() || line.starts_with("print") || line.starts_with('#') {
            continue;
        }
        let Some(condition) = line.strip_prefix("assert ") else {
            return Err(format!("`{line}`: only assert is known here"));
        };
        let condition = condition.split(',').next().unwrap_or(condition).trim();
        for term in condition.split(" and ") {
            term_holds(term.trim(), field)?;
        }
    }
    Ok(())
}

fn term_holds(term: &str, field: &dyn Fn(&str) -> Option<i64>) -> Result<(), String> {
    let found = COMPARISONS.iter().find_map(|comparison| {
        term.split_once(comparison)
            .map(|(a, b)| (a, *comparison, b))
    });
    let Some((left, comparison, right)) = found else {
        return Err(format!("`{term}` is no comparison"));
    };
    let (left, right) = (value(left, field)?, value(right, field)?);
    let holds = match comparison {
        "==" => left == right,
        "!=" => left != right,
        "<=" => left <= right,
        ">=" => left >= right,
        "<" => left < right,
        _ => left > right,
    };
    match holds {
        true => Ok(()),
        false => Err(format!("assert {term}: {left} and {right}")),
    }
}

/// Sums, differences and products of numbers and fields, from left to right, products first.
fn value(text: &str, field: &dyn Fn(&str) -> Option<i64>) -> Result<i64, String> {
    let text = text
        .trim()
        .trim_start_matches('(')
        .trim_end_matches(')')
        .trim();
    for (sign, apply) in [
        ('+', i64::wrapping_add as fn(i64, i64) -> i64),
        ('-', i64::wrapping_sub),
        ('*', i64::wrapping_mul),
    ] {
        if let Some((left, right)) = text.rsplit_once(sign).filter(|(left, _)| !left.is_empty()) {
            return Ok(apply(value(left, field)?, value(right, field)?));
        }
    }
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let state = STATES
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, value)| *value);
    field(text)
        .or(state)
        .ok_or_else(|| format!("`{text}` is not known here"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(text: &str) -> bool {
        check(text, &|name| (name == "tcpi_snd_cwnd").then_some(10)).is_ok()
    }

    #[test]
    fn assertions_compare() {
        assert!(holds("assert tcpi_snd_cwnd == 10"));
        assert!(holds(
            "assert tcpi_snd_cwnd == 2 * 5 and tcpi_snd_cwnd > 9, 'why'"
        ));
        assert!(!holds("assert tcpi_snd_cwnd == 11"));
        assert!(!holds("assert tcpi_nonsense == 1"));
        assert!(!holds("import os"));
    }
}
