//! The arguments of `ff_init`: F-Stack's own, and the options of `slipstack run`.

use slipstack_config::{Kind, OPTION, OPTIONS, Scope, find_option};

/// Arguments of `ff_init`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// `--conf`, `-c`.
    pub conf: Option<String>,
    /// `--proc-type`, `-t`.
    pub kind: Option<String>,
    /// `--proc-id`, `-p`; `None`: this process is the only one.
    pub process: Option<u32>,
    /// Variables of options, with their texts.
    pub options: Vec<(&'static str, String)>,
}

impl Arguments {
    /// The text of an option; of one that may be given several times, all of its texts as one.
    pub fn option(&self, variable: &str) -> Option<String> {
        let found = self.options.iter().filter(|(name, _)| *name == variable);
        let texts: Vec<&str> = found.map(|(_, text)| text.as_str()).collect();
        let last = texts.last()?;
        let option = OPTIONS.iter().find(|option| option.env == variable);
        Some(match option.and_then(|option| option.kind.separator()) {
            Some(separator) => texts.join(separator),
            None => (*last).to_owned(),
        })
    }

    /// Parses the arguments after the program's name. Words that are not options are left to the
    /// program.
    ///
    /// # Errors
    /// One sentence about the first option that cannot be used.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Arguments, String> {
        let mut found = Arguments::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            if word == "--" {
                break;
            }
            if let Some(long) = word.strip_prefix("--") {
                let (name, value) = match long.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_owned())),
                    None => (long, None),
                };
                found.take(name, value, &mut words)?;
            } else if let Some(short) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) {
                let (letter, rest) = short.split_at(short.chars().next().map_or(0, char::len_utf8));
                let name = match letter {
                    "c" => "conf",
                    "t" => "proc-type",
                    "p" => "proc-id",
                    _ => return Err(format!("there is no option '-{letter}'")),
                };
                let value = (!rest.is_empty()).then(|| rest.to_owned());
                found.take(name, value, &mut words)?;
            }
        }
        found.options = by_interface(found.options);
        Ok(found)
    }

    fn take(
        &mut self,
        name: &str,
        value: Option<String>,
        words: &mut impl Iterator<Item = String>,
    ) -> Result<(), String> {
        let mut wanted = |value: Option<String>| {
            let value = value.or_else(|| words.next());
            value.ok_or_else(|| format!("--{name} needs a value"))
        };
        match name {
            "conf" => self.conf = Some(wanted(value)?),
            "proc-type" => {
                let kind = wanted(value)?;
                if !["primary", "secondary", "auto"].contains(&kind.as_str()) {
                    return Err(format!(
                        "--proc-type is '{kind}' but must be primary, secondary or auto"
                    ));
                }
                self.kind = Some(kind);
            }
            "proc-id" => {
                let text = wanted(value)?;
                let number = text.parse::<i32>().map_err(|_| {
                    format!("--proc-id is '{text}' but must be the number of a process")
                })?;
                // F-Stack's -1 means the only process.
                self.process = u32::try_from(number).ok();
            }
            _ => {
                let known = find_option(name).filter(|option| {
                    matches!(
                        option.scope,
                        Scope::RunAndInstance | Scope::Run | Scope::All
                    )
                });
                let option = known.ok_or_else(|| format!("there is no option '--{name}'"))?;
                let value = match option.kind {
                    Kind::Flag => value.unwrap_or_else(|| "true".to_owned()),
                    _ => wanted(value)?,
                };
                self.options.push((option.env, value));
            }
        }
        Ok(())
    }
}

/// Assigns the options after a second `--if`, and after each further one, to that interface.
fn by_interface(options: Vec<(&'static str, String)>) -> Vec<(&'static str, String)> {
    let mut all: Vec<(&'static str, String)> = Vec::new();
    let mut further: Vec<String> = Vec::new();
    for (variable, text) in options {
        let is_first = !all.iter().any(|(known, _)| *known == OPTION.interface.env);
        let of_interface = [OPTION.addresses, OPTION.gateways, OPTION.vlans];
        let option = of_interface.iter().find(|it| it.env == variable);
        let has_link = variable == OPTION.vlans.env && text.contains(',');
        match (option, further.last_mut()) {
            _ if variable == OPTION.interface.env && !is_first => further.push(text),
            // With addresses it is a link of its own, which names its interface.
            (Some(_), Some(spec)) if has_link => {
                let interface = spec.split(',').next().unwrap_or_default();
                all.push((variable, format!("{text},if={interface}")));
            }
            (Some(option), Some(spec)) => append(spec, option.name, &text),
            _ => all.push((variable, text)),
        }
    }
    all.extend(further.into_iter().map(|spec| (OPTION.further.env, spec)));
    all
}

fn append(spec: &mut String, word: &str, texts: &str) {
    for text in texts.split(',') {
        spec.push_str(&format!(",{word}={text}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Arguments, String> {
        Arguments::parse(words.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn arguments_of_f_stack_have_long_and_short_forms() {
        let wanted = |kind: &str| {
            Ok(Arguments {
                conf: Some("a.ini".to_owned()),
                kind: Some(kind.to_owned()),
                process: Some(2),
                options: Vec::new(),
            })
        };
        let long = parse(&["--conf", "a.ini", "--proc-type=primary", "-p", "2"]);
        assert_eq!(long, wanted("primary"));
        let short = parse(&["-ca.ini", "-t", "auto", "--proc-id=2"]);
        assert_eq!(short, wanted("auto"));
    }

    #[test]
    fn options_of_run_are_taken_and_others_refused() {
        let found = parse(&["--ip", "10.0.0.1/24", "page", "--strict"]).unwrap();
        assert_eq!(found.option("SLIPSTACK_IP").as_deref(), Some("10.0.0.1/24"));
        assert_eq!(found.option("SLIPSTACK_STRICT").as_deref(), Some("true"));
        let both = parse(&["--ip", "10.0.0.1/24", "--ip=fd00::1/64"]).unwrap();
        let joined = both.option("SLIPSTACK_IP");
        assert_eq!(joined.as_deref(), Some("10.0.0.1/24,fd00::1/64"));
        let several = "--if a --ip 10.1.0.2/24 --vlan 5 --if b --ip 10.2.0.2/24,fd00::2/64 \
                       --gw 10.2.0.1 --vlan 7,ip=10.7.0.2/24 --if c --vlan 9";
        let several = parse(&several.split_whitespace().collect::<Vec<_>>()).unwrap();
        let of = |variable| several.option(variable).unwrap();
        assert_eq!(
            (of("SLIPSTACK_IF"), of("SLIPSTACK_IP")),
            ("a".into(), "10.1.0.2/24".into())
        );
        assert_eq!(of("SLIPSTACK_VLAN"), "5;7,ip=10.7.0.2/24,if=b");
        let further = "b,ip=10.2.0.2/24,ip=fd00::2/64,gw=10.2.0.1;c,vlan=9";
        assert_eq!(of("SLIPSTACK_ALSO_IF"), further);
        assert_eq!(
            parse(&["--no-such"]),
            Err("there is no option '--no-such'".to_owned())
        );
        assert!(parse(&["-x"]).is_err());
        assert!(parse(&["--conf"]).is_err());
        assert!(parse(&["--proc-id", "two"]).is_err());
    }
}
