//! The sections of FreeBSD's settings.

use super::fields;
use super::file::NoteKind;
use super::import::FileImport;
use super::reader::Entry;
use crate::error::ConfigError;
use crate::sysctl::{self, Meaning, SysctlError};
use crate::table::OPTION;

/// Gives FreeBSD's settings to the options; most become `--sysctl`.
pub(crate) fn freebsd(import: &mut FileImport<'_>) -> Result<(), ConfigError> {
    let mut settings = Vec::new();
    let mut line = 0;
    for section in ["freebsd.boot", "freebsd.sysctl"] {
        let mut entries: Vec<Entry> = import.entries_of(section).cloned().collect();
        entries.sort_by_key(|entry| entry.line);
        for entry in entries {
            if let Some(setting) = setting(import, &entry)? {
                settings.push(setting);
                line = line.max(entry.line);
            }
        }
    }
    if !settings.is_empty() {
        import.give(OPTION.sysctls.name, settings.join(";"), line);
    }
    Ok(())
}

/// The sysctl that an entry sets, if it sets one.
fn setting(import: &mut FileImport<'_>, entry: &Entry) -> Result<Option<String>, ConfigError> {
    match entry.key.as_str() {
        // Read with the addresses.
        "kern.features.inet6" => return Ok(None),
        "net.inet.ip.forwarding" | "net.inet6.ip6.forwarding" => {
            if fields::switch(&entry.value).map_err(|must| import.wrong(entry, &must))? {
                import.give(OPTION.is_forwarding.name, "true".to_owned(), entry.line);
            }
            return Ok(None);
        }
        "net.inet6.ip6.accept_rtadv" => return accept_routers(import, entry),
        "net.inet.tcp.functions_default" if entry.value == "bbr" => {
            return Ok(Some("net.ipv4.tcp_congestion_control=bbr".to_owned()));
        }
        // RACK's loss detection is used by every connection.
        "net.inet.tcp.functions_default" if entry.value == "rack" => return Ok(None),
        _ => {}
    }
    let row = match sysctl::find(&entry.key) {
        Ok(row) => row,
        Err(error) => {
            import.note(entry, NoteKind::Unknown, error.to_string());
            return Ok(None);
        }
    };
    match sysctl::write(row, &entry.value) {
        Ok(_) => Ok(Some(format!("{}={}", row.name, entry.value))),
        Err(SysctlError::Moot { why, .. }) => {
            import.note(entry, NoteKind::Moot, why);
            Ok(None)
        }
        Err(SysctlError::Fixed { value, why, .. }) => {
            import.note(
                entry,
                NoteKind::Differs,
                format!("it is always {value}: {why}"),
            );
            Ok(None)
        }
        Err(SysctlError::Value { must, .. }) => match row.meaning {
            // A sample's value may be beyond a limit of ours.
            Meaning::Is(tunable, _) if entry.value.parse::<u64>().is_ok() => {
                let (min, max) = tunable.range();
                let value = entry.value.parse::<u64>().unwrap_or(u64::MAX);
                let inside = value.clamp(min.into(), max.into());
                let sentence = format!("the nearest value that the stack takes is {inside}");
                import.note(entry, NoteKind::Differs, sentence);
                Ok(Some(format!("{}={inside}", row.name)))
            }
            _ => Err(import.wrong(entry, &must)),
        },
        Err(error @ (SysctlError::Unknown { .. } | SysctlError::AtStart { .. })) => {
            Err(import.refusal(entry.line, error.to_string()))
        }
    }
}

/// Router advertisements are used where no IPv6 address is given.
fn accept_routers(
    import: &mut FileImport<'_>,
    entry: &Entry,
) -> Result<Option<String>, ConfigError> {
    let mode = fields::number(&entry.value, 0, 2).map_err(|must| import.wrong(entry, &must))?;
    let is_v6 = |address: &str| address.contains(':');
    let given = &import.out.given;
    let has_v6 = given
        .iter()
        .any(|it| it.option == OPTION.addresses.name && is_v6(&it.text));
    let off = import.parsed("freebsd.boot", "kern.features.inet6", fields::switch)?;
    match (mode, has_v6, off) {
        (0, ..) => {}
        (_, true, _) => {
            import.note(
                entry,
                NoteKind::Differs,
                "the IPv6 addresses are those of the file",
            );
        }
        (_, _, Some(false)) => import.note(entry, NoteKind::Moot, "IPv6 is off"),
        _ => import.give(OPTION.is_autoconfigured.name, "true".to_owned(), entry.line),
    }
    Ok(None)
}
