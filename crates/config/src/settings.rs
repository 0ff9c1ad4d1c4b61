//! The typed view of the values in force.

use core::net::IpAddr;
use std::path::PathBuf;

use crate::kind::{self, Cidr, CoreList, Spin};
use crate::layers::{ConfigError, Layers};
use crate::routing::{self, RouteSpec, RuleSpec};

/// How much is written to standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Log {
    Off,
    Error,
    #[default]
    Warn,
    Info,
    Debug,
}

/// Congestion control of connections that do not choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Congestion {
    #[default]
    Cubic,
    Reno,
    Dctcp,
    Bbr,
}

/// Explicit congestion notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ecn {
    Off,
    #[default]
    Passive,
    On,
}

/// What `run`, `instance`, `keeper` and the preload library act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// None: a TAP of our own.
    pub interface: Option<String>,
    /// None only without `interface`: a private pair is chosen.
    /// Own addresses; empty: a private pair on a TAP of our own.
    pub addresses: Vec<Cidr>,
    /// At most one of each family.
    pub gateways: Vec<IpAddr>,
    /// Instance to attach to; None: in-process.
    pub instance: Option<String>,
    /// Name of the instance to be (command `instance` only).
    pub name: Option<String>,
    pub spin: Spin,
    /// Without spinning: how long frames may gather under load.
    pub gather_us: u32,
    pub is_strict: bool,
    pub slots: u16,
    /// Empty: wherever the scheduler puts us.
    pub cores: CoreList,
    pub congestion: Congestion,
    pub ecn: Ecn,
    pub is_paced: bool,
    pub pcap: Option<PathBuf>,
    /// Bits of `net.ipv4.tcp_fastopen`.
    pub tcp_fastopen: u32,
    pub has_user_timeout_option: bool,
    /// 0 never, 1 when the table is full, 2 always.
    pub tcp_syncookies: u8,
    /// 0 never, 1 in a black hole, 2 always.
    pub tcp_mtu_probing: u8,
    pub tcp_base_mss: u16,
    /// Seconds.
    pub tcp_probe_interval: u32,
    /// Bytes for fragments of each family.
    pub ipfrag_high_thresh: u32,
    pub log: Log,
    pub routes: Vec<RouteSpec>,
    pub rules: Vec<RuleSpec>,
    pub is_forwarding: bool,
    /// IPv6 addresses come from the link.
    pub is_autoconfigured: bool,
    /// 802.1Q; 0 = none.
    pub vlan: u16,
    pub is_persistent: bool,
    /// None: `/run/slipstack` for root, `$XDG_RUNTIME_DIR/slipstack` for others.
    pub run_dir: Option<PathBuf>,
    pub lib: Option<PathBuf>,
    pub bin: Option<PathBuf>,
    pub control_fd: Option<i32>,
}

impl Settings {
    /// Settings of this process from its environment and configuration file.
    ///
    /// # Errors
    /// The first value or combination that cannot be used.
    pub fn from_environment() -> Result<Settings, ConfigError> {
        let variable = |name: &str| std::env::var_os(name).and_then(|text| text.into_string().ok());
        Settings::from_layers(&Layers::read(variable)?)
    }

    /// # Errors
    /// A combination of options that makes no sense.
    pub fn from_layers(layers: &Layers) -> Result<Settings, ConfigError> {
        let text = |name: &str| layers.text(name);
        let path = |name: &str| layers.text(name).map(PathBuf::from);
        let settings = Settings {
            interface: text("if").map(str::to_owned),
            addresses: parsed(text("ip"), kind::parse_cidrs)?.unwrap_or_default(),
            gateways: parsed(text("gw"), kind::parse_addresses)?.unwrap_or_default(),
            instance: text("instance").map(str::to_owned),
            name: text("name").map(str::to_owned),
            spin: parsed(text("spin-us"), kind::parse_spin)?.unwrap_or_default(),
            gather_us: count(text("gather-us"))?.unwrap_or(125),
            is_strict: parsed(text("strict"), kind::parse_flag)?.unwrap_or(false),
            slots: count(text("slots"))?.unwrap_or(16),
            cores: parsed(text("cores"), kind::parse_cores)?.unwrap_or_default(),
            congestion: text("tcp-congestion").map_or(Congestion::Cubic, congestion),
            ecn: text("tcp-ecn").map_or(Ecn::Passive, ecn),
            is_paced: parsed(text("tcp-pacing"), kind::parse_flag)?.unwrap_or(false),
            pcap: path("pcap"),
            tcp_fastopen: count(text("tcp-fastopen"))?.unwrap_or(1),
            has_user_timeout_option: parsed(text("tcp-user-timeout-option"), kind::parse_flag)?
                .unwrap_or(false),
            tcp_syncookies: count(text("tcp-syncookies"))?.unwrap_or(1),
            tcp_mtu_probing: count(text("tcp-mtu-probing"))?.unwrap_or(0),
            tcp_base_mss: count(text("tcp-base-mss"))?.unwrap_or(1024),
            tcp_probe_interval: count(text("tcp-probe-interval"))?.unwrap_or(600),
            ipfrag_high_thresh: count(text("ipfrag-high-thresh"))?.unwrap_or(4 << 20),
            log: text("log").map_or(Log::Warn, log_level),
            routes: parsed(text("route"), routing::parse_routes)?.unwrap_or_default(),
            rules: parsed(text("rule"), routing::parse_rules)?.unwrap_or_default(),
            is_forwarding: parsed(text("forward"), kind::parse_flag)?.unwrap_or(false),
            is_autoconfigured: parsed(text("slaac"), kind::parse_flag)?.unwrap_or(false),
            vlan: count(text("vlan"))?.unwrap_or(0),
            is_persistent: parsed(text("persist"), kind::parse_flag)?.unwrap_or(false),
            run_dir: path("run-dir"),
            lib: path("lib"),
            bin: path("bin"),
            control_fd: count(text("control-fd"))?,
        };
        settings.check_combinations()?;
        Ok(settings)
    }

    fn check_combinations(&self) -> Result<(), ConfigError> {
        let wrong = |sentence: String| Err(ConfigError::Combination(sentence));
        if self.is_autoconfigured {
            self.check_autoconfiguration()?;
        } else if let (Some(interface), [], None) =
            (&self.interface, self.addresses.as_slice(), &self.instance)
        {
            return wrong(format!(
                "--if {interface} needs --ip ADDRESS/LENGTH: the address that the stack has on it"
            ));
        }
        if self.vlan != 0 && self.interface.is_none() {
            return wrong("--vlan needs --if INTERFACE: the one that the VLAN is on".to_owned());
        }
        for gateway in &self.gateways {
            let mut family = self
                .addresses
                .iter()
                .filter(|ip| ip.address.is_ipv4() == gateway.is_ipv4())
                .peekable();
            let Some(first) = family.peek().copied() else {
                return wrong(format!(
                    "--gw {gateway} needs --ip ADDRESS/LENGTH of its family"
                ));
            };
            let mut own = self.addresses.iter();
            if own.any(|ip| ip.address == *gateway) {
                return wrong(format!("--gw {gateway} is the stack's own address"));
            }
            if !is_link_local(*gateway) && !family.any(|ip| ip.contains(*gateway)) {
                return wrong(format!(
                    "--gw {gateway} is not in the network of --ip {first}"
                ));
            }
        }
        Ok(())
    }

    fn check_autoconfiguration(&self) -> Result<(), ConfigError> {
        let wrong = |sentence: String| Err(ConfigError::Combination(sentence));
        if self.interface.is_none() {
            return wrong("--slaac needs --if INTERFACE: a link with routers".to_owned());
        }
        if let Some(ip) = self.addresses.iter().find(|ip| ip.address.is_ipv6()) {
            return wrong(format!(
                "--ip {ip} and --slaac: the stack has IPv6 addresses of the one kind or the other"
            ));
        }
        Ok(())
    }
}

/// Routers are named by their link-local addresses, which belong to every network (RFC 4861 6.1.2).
fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

fn parsed<T>(
    text: Option<&str>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, ConfigError> {
    text.map(|text| parse(text).map_err(|must| combination(text, &must)))
        .transpose()
}

fn count<T: TryFrom<u32>>(text: Option<&str>) -> Result<Option<T>, ConfigError> {
    let number = parsed(text, |text| kind::parse_count(text, 0, u32::MAX))?;
    let narrow = |number: u32| T::try_from(number).map_err(|_| combination("number", "smaller"));
    number.map(narrow).transpose()
}

/// Only reachable when a default of the table does not pass its own check (a test forbids that).
fn combination(text: &str, must: &str) -> ConfigError {
    ConfigError::Combination(format!("'{text}' must be {must}"))
}

fn congestion(text: &str) -> Congestion {
    match text {
        "reno" => Congestion::Reno,
        "dctcp" => Congestion::Dctcp,
        "bbr" => Congestion::Bbr,
        _ => Congestion::Cubic,
    }
}

fn ecn(text: &str) -> Ecn {
    match text {
        "off" => Ecn::Off,
        "on" => Ecn::On,
        _ => Ecn::Passive,
    }
}

fn log_level(text: &str) -> Log {
    match text {
        "off" => Log::Off,
        "error" => Log::Error,
        "info" => Log::Info,
        "debug" => Log::Debug,
        _ => Log::Warn,
    }
}
