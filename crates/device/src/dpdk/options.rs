//! The text after `dpdk:`: arguments of EAL and, behind `--`, our own.

use serde::{Deserialize, Serialize};

use crate::error::DeviceError;

/// Default of the longest sleep between two polls of a port that has no interrupts.
const SLEEP_US: u32 = 500;
const SLEEP_US_MAX: u32 = 1_000_000;
/// RFC 8200 5, and the capacity of a frame.
const MTU_RANGE: std::ops::RangeInclusive<u16> = 1280..=65_000;
/// Descriptors that packet sockets, memif and most cards take.
const DESCRIPTORS: u16 = 1024;
/// Queues in each direction at most: slots ring a bell of each.
pub const QUEUES_MAX: u16 = 16;

/// A port and how it is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// For `rte_eal_init`, without the program's name.
    pub eal: Vec<String>,
    /// Name or number; `None`: the bond if there is one, else the only port.
    pub port: Option<String>,
    /// Longest sleep between two polls of a port without interrupts; 0 = polls without a pause.
    pub sleep_us: u32,
    pub has_checksum: bool,
    pub has_tso: bool,
    pub is_promiscuous: bool,
    /// `None`: as the port has it.
    pub mtu: Option<u16>,
    /// Descriptors of each queue, as far as the port takes them.
    pub descriptors: u16,
    /// Queues in each direction, as far as the port has them; each has a thread.
    pub queues: u16,
    /// The two directions of a flow come to one queue.
    pub is_symmetric: bool,
    /// The port takes tags out of received frames, if it can.
    pub has_tag_stripping: bool,
}

impl Options {
    /// # Errors
    /// One sentence.
    pub fn parse(argument: Option<&str>) -> Result<Options, DeviceError> {
        let Some(argument) = argument else {
            return Err(DeviceError::Unsuitable(
                "a device of kind \"dpdk\" needs the arguments of DPDK's EAL, such as: \
                 dpdk:--no-huge -m 256 --vdev=net_tap0"
                    .to_owned(),
            ));
        };
        let mut words = argument.split_whitespace();
        let eal: Vec<String> = words
            .by_ref()
            .take_while(|word| *word != "--")
            .map(str::to_owned)
            .collect();
        check_eal(&eal)?;
        let mut options = Options {
            eal,
            port: None,
            sleep_us: SLEEP_US,
            has_checksum: true,
            has_tso: true,
            is_promiscuous: false,
            mtu: None,
            descriptors: DESCRIPTORS,
            queues: 1,
            is_symmetric: false,
            has_tag_stripping: false,
        };
        for word in words {
            options.set(word)?;
        }
        Ok(options)
    }

    fn set(&mut self, word: &str) -> Result<(), DeviceError> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        match (name, value) {
            ("--port", Some(port)) if !port.is_empty() => self.port = Some(port.to_owned()),
            ("--sleep-us", Some(text)) => {
                self.sleep_us = number(name, text, 0..=SLEEP_US_MAX)?;
            }
            ("--mtu", Some(text)) => self.mtu = Some(number(name, text, MTU_RANGE)?),
            ("--descriptors", Some(text)) => {
                self.descriptors = number(name, text, 64..=8192)?;
            }
            ("--queues", Some(text)) => self.queues = number(name, text, 1..=QUEUES_MAX)?,
            ("--symmetric-rss", None) => self.is_symmetric = true,
            ("--vlan-strip", None) => self.has_tag_stripping = true,
            ("--no-checksum", None) => self.has_checksum = false,
            ("--no-tso", None) => self.has_tso = false,
            ("--promiscuous", None) => self.is_promiscuous = true,
            _ => return Err(unknown(word)),
        }
        Ok(())
    }

    /// Returns whether the words of the environment layer say this; with a value or without.
    pub fn has_eal(&self, name: &str) -> bool {
        let is_it = |word: &String| word.split('=').next() == Some(name);
        self.eal.iter().any(is_it)
    }
}

fn check_eal(words: &[String]) -> Result<(), DeviceError> {
    // DPDK takes any text, and reads it as 0.
    for pair in words
        .windows(2)
        .filter(|pair| pair[0] == "-m" || pair[0] == "-n")
    {
        number(&pair[0], &pair[1], 1..=u32::MAX)?;
    }
    let is_second = |pair: &[String]| pair[0] == "--proc-type" && pair[1] != "primary";
    let is_named = |word: &String| {
        let kind = word.strip_prefix("--proc-type=");
        kind.is_some_and(|kind| kind != "primary")
    };
    if words.windows(2).any(is_second) || words.iter().any(is_named) {
        return Err(DeviceError::Unsuitable(
            "DPDK's process of a device is always a primary one: leave --proc-type out".to_owned(),
        ));
    }
    Ok(())
}

fn number<T: TryFrom<u32> + Copy + std::fmt::Display + PartialOrd>(
    name: &str,
    text: &str,
    range: std::ops::RangeInclusive<T>,
) -> Result<T, DeviceError> {
    let number = text.parse::<u32>().ok().and_then(|it| T::try_from(it).ok());
    let number = number.filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let (first, last) = (range.start(), range.end());
        DeviceError::Unsuitable(format!(
            "{name} of a DPDK device is a number from {first} to {last}, not \"{text}\""
        ))
    })
}

fn unknown(word: &str) -> DeviceError {
    DeviceError::Unsuitable(format!(
        "\"{word}\" is no option of a DPDK device; behind \"--\" there are --port=NAME, \
         --queues=N, --sleep-us=N, --no-checksum, --no-tso, --promiscuous, --symmetric-rss, \
         --vlan-strip, --mtu=N and --descriptors=N"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_before_the_two_dashes_are_dpdks_and_the_rest_is_ours() {
        let text =
            "--no-huge -m 64 --vdev=net_tap0 -- --sleep-us=0 --no-tso --mtu=9000 --port=net_tap0";
        let options = Options::parse(Some(text)).unwrap();
        assert_eq!(options.eal, ["--no-huge", "-m", "64", "--vdev=net_tap0"]);
        assert!(options.has_eal("--vdev") && options.has_eal("-m") && !options.has_eal("--no"));
        assert_eq!((options.sleep_us, options.mtu), (0, Some(9000)));
        assert_eq!(options.port.as_deref(), Some("net_tap0"));
        assert!(options.has_checksum && !options.has_tso && !options.is_promiscuous);
    }

    #[test]
    fn invalid_options_are_refused_with_a_sentence() {
        for (text, part) in [
            (None, "needs the arguments"),
            (Some("--no-huge -- --sleep-us=x"), "from 0 to 1000000"),
            (Some("--no-huge -- --mtu=9"), "from 1280"),
            (Some("--no-huge -- --queues=17"), "from 1 to 16"),
            (Some("--no-huge -m lots"), "-m of a DPDK device is a number"),
            (Some("--no-huge -- --fast"), "no option of a DPDK device"),
            (Some("--proc-type=secondary"), "always a primary"),
            (Some("--proc-type secondary"), "always a primary"),
        ] {
            let error = Options::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
