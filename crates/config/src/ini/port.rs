//! Conversion of a file's keys into values of options.

use std::path::Path;

use slipstack_terms::{Listed, ShareAction};

use super::file::{FstackFile, NoteKind};
use super::import::FileImport;
use super::keys::{Use, keys_of, section_of};
use super::machine::Interfaces;
use super::reader::Entry;
use super::{dpdk, fields, freebsd, network};
use crate::error::ConfigError;
use crate::nearest::nearest;
use crate::table::OPTION;

/// F-Stack's prefix of log files.
const LOG_PREFIX: &str = "./f-stack-";

/// Reads all keys of a file. `is_dpdk`: its ports are to be DPDK's.
pub(crate) fn port(
    entries: Vec<Entry>,
    file: &Path,
    interfaces: &dyn Interfaces,
    is_dpdk: bool,
) -> Result<FstackFile, ConfigError> {
    let mut import = FileImport::new(entries, file, interfaces, is_dpdk);
    import.is_dpdk |= dpdk::is_needed(&import)?;
    import.note_without_meaning();
    import.cores_and_log()?;
    import.capture()?;
    network::network(&mut import)?;
    freebsd::freebsd(&mut import)?;
    import.kernel_path()?;
    import.out.notes.sort_by_key(|note| note.line);
    Ok(import.out)
}

impl FileImport<'_> {
    fn note_without_meaning(&mut self) {
        let entries: Vec<Entry> = self.entries().cloned().collect();
        for entry in entries {
            let Some((kind, _)) = section_of(&entry.section) else {
                let known = super::keys::SECTIONS.iter().map(|(name, _)| *name);
                let like = nearest(&entry.section, known).unwrap_or_default();
                let sentence = format!("there is no such section; the nearest is [{like}]");
                self.note(&entry, NoteKind::Unknown, sentence);
                continue;
            };
            if kind.starts_with("freebsd") {
                continue;
            }
            match keys_of(kind).iter().find(|(key, _)| *key == entry.key) {
                Some((_, Use::Read)) => {}
                Some((_, Use::Dpdk(_))) if self.is_dpdk => {}
                Some((_, Use::Moot(why) | Use::Dpdk(why))) => {
                    self.note(&entry, NoteKind::Moot, *why);
                }
                None => {
                    let known = keys_of(kind).iter().map(|(key, _)| *key);
                    let like = nearest(&entry.key, known).unwrap_or_default();
                    let sentence = format!("there is no such key; the nearest is '{like}'");
                    self.note(&entry, NoteKind::Unknown, sentence);
                }
            }
        }
    }

    fn cores_and_log(&mut self) -> Result<(), ConfigError> {
        self.out.cores = self
            .parsed("dpdk", "lcore_mask", fields::mask)?
            .unwrap_or_default();
        let level = |text: &str| fields::number(text, 0, 8);
        let own = self.parsed("dpdk", "fstack_log_level", level)?.unwrap_or(0);
        let of_dpdk = self.parsed("dpdk", "log_level", level)?.unwrap_or(0);
        let (level, key) = match own {
            0 => (of_dpdk, "log_level"),
            own => (own, "fstack_log_level"),
        };
        let name = match level {
            0 => return Ok(()),
            1..=4 => "error",
            5 => "warn",
            6..=7 => "info",
            _ => "debug",
        };
        self.give(OPTION.log.name, name.to_owned(), self.line("dpdk", key));
        if own > 0 {
            let prefix = self.entry("dpdk", "fstack_log_file_prefix");
            let prefix = prefix.map_or(LOG_PREFIX.to_owned(), |entry| entry.value.clone());
            self.out.log_prefix = Some(prefix);
        }
        Ok(())
    }

    fn capture(&mut self) -> Result<(), ConfigError> {
        const SNAPLEN_MIN: u32 = 94;
        const SAVELEN_MIN: u32 = 8 << 20;
        let is_on = self
            .parsed("pcap", "enable", fields::switch)?
            .unwrap_or(false);
        let any = |text: &str| fields::number(text, 0, u32::MAX);
        let snaplen = self
            .parsed("pcap", "snaplen", any)?
            .unwrap_or(0)
            .max(SNAPLEN_MIN);
        let savelen = self
            .parsed("pcap", "savelen", any)?
            .unwrap_or(0)
            .max(SAVELEN_MIN);
        if !is_on {
            return Ok(());
        }
        let folder = self
            .entry("pcap", "savepath")
            .map_or(".", |entry| entry.value.as_str());
        let path = format!("{}/f-stack.pcap", folder.trim_end_matches('/'));
        self.give(OPTION.pcap.name, path, self.line("pcap", "enable"));
        self.give(
            OPTION.pcap_snaplen.name,
            snaplen.to_string(),
            self.line("pcap", "snaplen"),
        );
        self.give(
            OPTION.pcap_file_size.name,
            savelen.to_string(),
            self.line("pcap", "savelen"),
        );
        Ok(())
    }

    /// Section [kni]: the kernel keeps the interface always, and ports of the stack's addresses if
    /// it is on.
    fn kernel_path(&mut self) -> Result<(), ConfigError> {
        let is_on = self
            .entry("kni", "enable")
            .is_some_and(|entry| entry.value != "0");
        let entries: Vec<Entry> = self.entries_of("kni").cloned().collect();
        let known = |entry: &&Entry| keys_of("kni").iter().any(|(key, _)| *key == entry.key);
        for entry in entries.iter().filter(known) {
            if !is_on {
                let sentence = "the kernel keeps the interface and its own addresses";
                self.note(entry, NoteKind::Moot, sentence);
            }
        }
        if !is_on {
            return Ok(());
        }
        let one_of = |choices: &'static [&'static str]| {
            move |text: &str| {
                let mut known = choices.iter();
                let found = known.find(|choice| choice.eq_ignore_ascii_case(text));
                let found = found.map(|choice| (*choice).to_owned());
                found.ok_or_else(|| format!("one of {}", choices.join(", ")))
            }
        };
        let method = self.parsed("kni", "method", one_of(Listed::NAMES))?;
        let line = self.line("kni", "enable");
        let method = method.ok_or_else(|| {
            self.refusal(
                line,
                "[kni] needs method=reject or method=accept".to_owned(),
            )
        })?;
        self.give(OPTION.kni.name, method, self.line("kni", "method"));
        for (key, option) in [
            ("tcp_port", OPTION.kni_tcp.name),
            ("udp_port", OPTION.kni_udp.name),
        ] {
            if let Some(ports) = self.parsed("kni", key, ports)? {
                self.give(option, ports, self.line("kni", key));
            }
        }
        for (key, option) in [
            ("console_packets_ratelimit", OPTION.kni_console_rate.name),
            ("general_packets_ratelimit", OPTION.kni_general_rate.name),
            ("kernel_packets_ratelimit", OPTION.kni_kernel_rate.name),
        ] {
            let rate = |text: &str| text.parse::<u32>().map_err(|_| "a number".to_owned());
            if let Some(rate) = self.parsed("kni", key, rate)?.filter(|rate| *rate > 0) {
                self.give(option, rate.to_string(), self.line("kni", key));
            }
        }
        let actions = one_of(ShareAction::NAMES);
        if let Some(action) = self.parsed("kni", "kni_action", actions)? {
            self.give(
                OPTION.kni_action.name,
                action,
                self.line("kni", "kni_action"),
            );
        }
        Ok(())
    }
}

/// A list of ports, in the text of our own options.
fn ports(text: &str) -> Result<String, String> {
    let ranges = crate::kind::parse_ports(text)?;
    let texts: Vec<String> = ranges.iter().map(ToString::to_string).collect();
    Ok(texts.join(","))
}
