//! Options of the table that code names a second time.
//!
//! The variable of an option, and a name of several words, stand in a string of their own only
//! where somebody repeats the table: `OPTION` has both. Names of one word (`ip`, `log`) are words
//! of other grammars too, so they are not looked for.

use slipstack_config::OPTIONS;

const TABLE: &str = "crates/config/src/table.rs";

pub fn check(name: &str, text: &str, findings: &mut Vec<String>) {
    let is_test = name.contains("/tests/") || name.ends_with("/tests.rs");
    if !name.starts_with("crates/") || name == TABLE || is_test {
        return;
    }
    let code = text.split("#[cfg(test)]").next().unwrap_or(text);
    for (number, line) in code.lines().enumerate() {
        for word in OPTIONS.iter().flat_map(words) {
            if line.contains(&format!("\"{word}\"")) {
                findings.push(format!(
                    "{name}:{}: \"{word}\" repeats the table of options: OPTION of \
                     slipstack-config has it",
                    number + 1
                ));
            }
        }
    }
}

fn words(option: &slipstack_config::OptionSpec) -> impl Iterator<Item = &'static str> + use<> {
    let name = Some(option.name).filter(|name| name.contains('-'));
    [Some(option.env), name].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(name: &str, text: &str) -> usize {
        let mut findings = Vec::new();
        check(name, text, &mut findings);
        findings.len()
    }

    #[test]
    fn a_variable_or_a_name_of_several_words_is_found_outside_of_the_table_and_tests() {
        let text = "variable(\"SLIPSTACK_BIN\")\ngive(\"pcap-snaplen\", 5)\n";
        assert_eq!(count("crates/cli/src/run.rs", text), 2);
        assert_eq!(count(TABLE, text), 0);
        assert_eq!(count("crates/config/src/tests.rs", text), 0);
        let tested = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{\n{text}}}\n");
        assert_eq!(count("crates/cli/src/run.rs", &tested), 0);
    }

    #[test]
    fn messages_may_name_options() {
        let text = "\"--kni-tcp needs --kni\" \"SLIPSTACK_* variables\" \"ip\"";
        assert_eq!(count("crates/config/src/settings.rs", text), 0);
    }
}
