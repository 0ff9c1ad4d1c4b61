//! Tables for people.

/// Aligns columns by the widest cell; the last column is not padded.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
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
    for row in std::iter::once(&head).chain(rows) {
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
