//! Tables for people, and how they are printed.

use std::io::{self, Write};

use crate::failure::Failure;

/// Prints a command's output. A reader that has seen enough (`| head`) is no failure.
pub fn print(text: &str) -> Result<(), Failure> {
    is_printed(text).map(drop)
}

/// Prints a part of a command's output; returns `false` if the reader has seen enough.
pub fn is_printed(text: &str) -> Result<bool, Failure> {
    let mut out = io::stdout();
    let text = harmless(text);
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(format!(
            "the answer cannot be written: {error}"
        ))),
    }
}

/// Says a line beside it; where standard error takes none, it is lost.
pub fn say(line: &str) {
    let line = harmless(line);
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Programs name themselves, and a terminal obeys control characters in their names. Tabs are part
/// of FreeBSD's and Linux's formats.
pub fn harmless(text: &str) -> String {
    let is_obeyed = |c: char| c.is_control() && !['\n', '\t'].contains(&c);
    text.replace(is_obeyed, "\u{fffd}")
}

fn harmless_line(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// Aligns columns by the widest cell; the last column is not padded.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let clean = |row: &Vec<String>| row.iter().map(|cell| harmless_line(cell)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(clean).collect();
    let widest = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count());
        cells.chain([head[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(widest).collect();
    let head: Vec<String> = head.iter().map(|cell| cell.to_uppercase()).collect();
    let mut text = String::new();
    for row in std::iter::once(&head).chain(&rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_programs_does_not_control_the_terminal() {
        let text = "a\u{1b}[2J\u{9b}1mb\nc\td\r";
        assert_eq!(harmless(text), "a\u{fffd}[2J\u{fffd}1mb\nc\td\u{fffd}");
    }

    #[test]
    fn a_line_feed_in_a_name_begins_no_new_row() {
        let rows = vec![vec!["a\n9".into(), "b".into()]];
        assert_eq!(
            table(&["name", "pid"], &rows),
            "NAME  PID\na\u{fffd}9   b\n"
        );
    }

    #[test]
    fn columns_line_up() {
        let rows = vec![
            vec!["1".into(), "nginx".into()],
            vec!["4711".into(), "x".into()],
        ];
        assert_eq!(
            table(&["pid", "name"], &rows),
            "PID   NAME\n1     nginx\n4711  x\n"
        );
    }
}
