//! Settings of a script, made before its sockets exist.

use std::net::IpAddr;
use std::time::Duration;

use slipstack_stack::{Congestion, EcnMode, FastOpenConfig, MtuProbing, SynCookies, TcpConfig};

use super::failure::Failure;
use crate::script::Script;
use crate::world::WorldConfig;

/// The sysctls that scripts' commands set, below `net.ipv4.`.
const SYSCTLS: [&str; 20] = [
    "tcp_base_mss",
    "tcp_challenge_ack_limit",
    "tcp_congestion_control",
    "tcp_ecn",
    "tcp_fastopen",
    "tcp_fin_timeout",
    "tcp_keepalive_intvl",
    "tcp_keepalive_probes",
    "tcp_keepalive_time",
    "tcp_max_orphans",
    "tcp_mtu_probing",
    "tcp_orphan_retries",
    "tcp_probe_interval",
    "tcp_retries2",
    "tcp_sack",
    "tcp_syn_retries",
    "tcp_synack_retries",
    "tcp_syncookies",
    "tcp_timestamps",
    "tcp_window_scaling",
];

/// packetdrill's own tolerance; the world's clock is exact, but scripts count on Linux's ticks.
const TOLERANCE_US: u64 = 4_000;

/// The IP version of a script's sockets and packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersion {
    V4,
    V6,
    /// Sockets of AF_INET6 with IPv4 on the wire.
    Mapped,
}

#[derive(Clone, Debug)]
pub struct RunSettings {
    pub version: IpVersion,
    pub world: WorldConfig,
    pub tolerance_us: u64,
    /// Tolerance of timestamps, in their own ticks.
    pub timestamp_tolerance: u32,
    /// As packetdrill does: packets after the script's last line are ignored.
    pub ignores_rest: bool,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            version: IpVersion::V4,
            world: WorldConfig::default(),
            tolerance_us: TOLERANCE_US,
            timestamp_tolerance: (TOLERANCE_US / 1000) as u32,
            ignores_rest: false,
        }
    }
}

impl RunSettings {
    /// The stack's address on the wire.
    pub fn local(&self) -> IpAddr {
        match self.version {
            IpVersion::V6 => self.world.local_v6.into(),
            IpVersion::V4 | IpVersion::Mapped => self.world.local_v4.into(),
        }
    }

    /// Reads the options at the head of the script, and the commands before its first call.
    pub fn of(script: &Script) -> Result<Self, Failure> {
        let mut settings = Self::default();
        for (name, value) in &script.options {
            settings
                .option(name, value)
                .map_err(|reason| Failure { line: 1, reason })?;
        }
        settings.timestamp_tolerance = (settings.tolerance_us / 1000) as u32;
        for event in &script.events {
            if let crate::script::Action::Command(text) = &event.action {
                settings.command(text).map_err(|reason| Failure {
                    line: event.line,
                    reason,
                })?;
            }
        }
        Ok(settings)
    }

    fn option(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "tolerance_usecs" => self.tolerance_us = number(value)?,
            "mtu" => self.world.stack.network_mut().own_mut().mtu = number(value)?,
            "local_ip" => match value.parse() {
                Ok(IpAddr::V4(local)) => self.world.local_v4 = local,
                Ok(IpAddr::V6(local)) => self.world.local_v6 = local,
                Err(_) => return Err(format!("{value} is no address")),
            },
            "ip_version" => self.version = version(value)?,
            "so_flags" => {
                for flag in value.split(',').filter(|flag| !flag.is_empty()) {
                    self.flag(flag)?;
                }
            }
            // Options of packetdrill's own runner, without a meaning here.
            "send_omit_free" | "non_fatal" | "verbose" | "dry_run" => {}
            _ => return Err(format!("--{name}={value} is not known here")),
        }
        Ok(())
    }

    /// `NAME=VALUE`: `tso=off`, or a sysctl without `net.ipv4.`.
    pub fn flag(&mut self, flag: &str) -> Result<(), String> {
        match flag.split_once('=') {
            Some(("tso", "off")) => self.world.stack.tso_max = 0,
            Some(("tso", "on")) => {}
            Some((name, value)) => self.sysctl(name, value)?,
            None => return Err(format!("{flag}: expected NAME=VALUE")),
        }
        Ok(())
    }

    /// Commands were obeyed when the script was read; this is their turn.
    pub fn command(&mut self, text: &str) -> Result<(), String> {
        for line in text.lines().flat_map(|line| line.split(';')).map(str::trim) {
            let Some(rest) = line.strip_prefix("sysctl ") else {
                // Linux's scripts begin with a shell file of defaults; ours are the same.
                if line.is_empty() || line.ends_with("defaults.sh") {
                    continue;
                }
                return Err(format!("`{line}`: only sysctl is known here"));
            };
            for word in rest
                .split_whitespace()
                .filter(|word| !word.starts_with('-'))
            {
                match word.split_once('=') {
                    Some((name, value)) => self.sysctl(name, value.trim_matches('"'))?,
                    None => return Err(format!("`{line}`: expected NAME=VALUE")),
                }
            }
        }
        Ok(())
    }

    /// Applies the sysctls of a system, as `read` returns them by name. Returns a sentence about
    /// each whose value this stack does not support.
    pub fn take_sysctls(&mut self, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
        let known = SYSCTLS.iter().filter_map(|name| Some((*name, read(name)?)));
        let taken = known.map(|(name, value)| self.sysctl(name, value.trim()));
        taken.filter_map(Result::err).collect()
    }

    fn sysctl(&mut self, name: &str, value: &str) -> Result<(), String> {
        let name = name.strip_prefix("net.ipv4.").unwrap_or(name);
        let tcp = &mut self.world.stack.tcp;
        match name {
            "tcp_timestamps" => tcp.timestamps = number::<u8>(value)? != 0,
            "tcp_sack" => tcp.sack = number::<u8>(value)? != 0,
            "tcp_window_scaling" => tcp.window_scaling = number::<u8>(value)? != 0,
            "tcp_ecn" => tcp.ecn = ecn(value)?,
            "tcp_syncookies" => tcp.syn_cookies = cookies(value)?,
            "tcp_fastopen" => tcp.fast_open = FastOpenConfig::from_bits(number(value)?),
            "tcp_user_timeout_option" => tcp.user_timeout_option = number::<u8>(value)? != 0,
            "tcp_fin_timeout" => tcp.fin_wait2 = Duration::from_secs(number(value)?),
            "tcp_syn_retries" => tcp.syn_retries = number(value)?,
            "tcp_synack_retries" => tcp.synack_retries = number(value)?,
            "tcp_retries2" => tcp.retries = number(value)?,
            "tcp_orphan_retries" => tcp.orphan_retries = number(value)?,
            "tcp_max_orphans" => tcp.orphans_max = number(value)?,
            "tcp_keepalive_time" => tcp.keep_alive.idle = Duration::from_secs(number(value)?),
            "tcp_keepalive_intvl" => tcp.keep_alive.interval = Duration::from_secs(number(value)?),
            "tcp_keepalive_probes" => tcp.keep_alive.probes = number(value)?,
            "tcp_challenge_ack_limit" => tcp.challenge_acks_per_second = number(value)?,
            "initcwnd" => tcp.initial_cwnd = number(value)?,
            "tcp_mtu_probing" => tcp.mtu_probing = probing(value)?,
            "tcp_base_mss" => tcp.mtu_base_mss = number(value)?,
            "tcp_probe_interval" => tcp.mtu_probe_interval = Duration::from_secs(number(value)?),
            "tcp_congestion_control" => congestion(tcp, value)?,
            _ => return Err(format!("{name} is no setting of this stack")),
        }
        Ok(())
    }
}

fn version(name: &str) -> Result<IpVersion, String> {
    Ok(match name {
        "ipv4" => IpVersion::V4,
        "ipv6" => IpVersion::V6,
        "ipv4-mapped-ipv6" => IpVersion::Mapped,
        _ => return Err(format!("{name} is no IP version")),
    })
}

fn congestion(tcp: &mut TcpConfig, name: &str) -> Result<(), String> {
    tcp.congestion = match name {
        "cubic" => Congestion::Cubic,
        "reno" => Congestion::NewReno,
        "bbr" => Congestion::Bbr,
        "dctcp" => Congestion::Dctcp,
        _ => return Err(format!("{name} is no congestion control of this stack")),
    };
    Ok(())
}

fn ecn(value: &str) -> Result<EcnMode, String> {
    Ok(match number::<u8>(value)? {
        0 => EcnMode::Off,
        1 => EcnMode::On,
        _ => EcnMode::Passive,
    })
}

fn cookies(value: &str) -> Result<SynCookies, String> {
    Ok(match number::<u8>(value)? {
        0 => SynCookies::Never,
        1 => SynCookies::WhenFull,
        _ => SynCookies::Always,
    })
}

fn probing(value: &str) -> Result<MtuProbing, String> {
    Ok(match number::<u8>(value)? {
        0 => MtuProbing::Off,
        1 => MtuProbing::BlackHole,
        _ => MtuProbing::Always,
    })
}

fn number<T: std::str::FromStr>(value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("{value} is not a number that fits here"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_system_sysctls_are_applied_and_unknown_ones_reported() {
        let read = |name: &str| match name {
            "tcp_timestamps" => Some("0\n".to_owned()),
            "tcp_congestion_control" => Some("vegas\n".to_owned()),
            _ => None,
        };
        let mut settings = RunSettings::default();
        let said = settings.take_sysctls(read);
        assert!(!settings.world.stack.tcp.timestamps);
        assert_eq!(said, ["vegas is no congestion control of this stack"]);
    }

    #[test]
    fn every_sysctl_of_the_list_is_one_of_the_settings() {
        for name in SYSCTLS {
            let refused = RunSettings::default().sysctl(name, "x").unwrap_err();
            assert!(!refused.contains("no setting"), "{name}: {refused}");
        }
    }
}
