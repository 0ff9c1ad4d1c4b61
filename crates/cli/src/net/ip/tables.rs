//! Names of routing tables, from the files in which iproute2 has them.

use std::path::Path;
use std::sync::OnceLock;

use slipstack_channel::control::net::MAIN_TABLE;

/// The first file that exists has the names; those of the folder are added.
const FILES: [&str; 2] = ["/etc/iproute2/rt_tables", "/usr/share/iproute2/rt_tables"];
const FOLDER: &str = "/etc/iproute2/rt_tables.d";
const BUILT_IN: [(&str, u32); 3] = [("default", 253), ("main", MAIN_TABLE), ("local", 255)];

/// Returns the table of this name or number.
pub fn find(text: &str) -> Option<u32> {
    let is_it = |(name, _): &&(String, u32)| name == text;
    let named = names().iter().find(is_it).map(|(_, table)| *table);
    named.or_else(|| number(text))
}

/// Returns the table's name, or its number if it has none.
pub fn name_of(table: u32) -> String {
    let found = names().iter().find(|(_, number)| *number == table);
    found.map_or_else(|| table.to_string(), |(name, _)| name.clone())
}

/// Read once: a list of routes asks for the name of each one's table.
fn names() -> &'static [(String, u32)] {
    static NAMES: OnceLock<Vec<(String, u32)>> = OnceLock::new();
    NAMES.get_or_init(|| {
        let built_in = BUILT_IN.map(|(name, table)| (name.to_owned(), table));
        let main = FILES.into_iter().map(Path::new).find_map(text_of);
        let texts = main.into_iter().chain(further());
        let of_files = texts.flat_map(|text| parse(&text));
        built_in.into_iter().chain(of_files).collect()
    })
}

fn text_of(file: &Path) -> Option<String> {
    std::fs::read_to_string(file).ok()
}

/// The texts of the folder's files, in the order of their names.
fn further() -> Vec<String> {
    let entries = std::fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "conf"));
    files.sort();
    files.iter().filter_map(|file| text_of(file)).collect()
}

/// A number and a name in each line; others are passed over, as by iproute2.
fn parse(text: &str) -> Vec<(String, u32)> {
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or(""));
    let named = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        let (table, name) = (number(words.next()?)?, words.next()?);
        Some((name.to_owned(), table))
    });
    // 0 stands for no table.
    named.filter(|(_, table)| *table != 0).collect()
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_number_and_a_name_are_read() {
        let text = "# reserved\n0\tunspec\n 10 wan # the first\n#1 inr.ruhep\n0x14\tlan\nx y\n7\n";
        let wanted = [("wan", 10), ("lan", 20)].map(|(name, table)| (name.to_owned(), table));
        assert_eq!(parse(text), wanted);
    }

    #[test]
    fn built_in_names_and_numbers_are_known_without_a_file() {
        assert_eq!(find("main"), Some(MAIN_TABLE));
        assert_eq!(
            (find("0x20"), find("77"), find("")),
            (Some(32), Some(77), None)
        );
        assert_eq!(name_of(255), "local");
    }
}
