//! Settings built from the values in force, and the check for contradictory combinations.

use core::net::IpAddr;

use slipstack_device::DeviceKind;
use slipstack_terms::{ShareAction, SpreadRule, XdpMode};

use crate::error::ConfigError;
use crate::layers::Layers;
use crate::table::Settings;
use crate::vlan::VlanSpec;

/// Slots of a device that is opened without `--slots`.
pub const SLOTS_DEFAULT: u16 = 16;

impl Settings {
    /// Settings of a process from its environment and configuration file; `variable` looks one
    /// variable up.
    ///
    /// # Errors
    /// The first value or combination that cannot be used.
    pub fn from_variables(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Settings, ConfigError> {
        Settings::from_layers(&Layers::read(variable)?)
    }

    /// # Errors
    /// A combination of options that makes no sense.
    pub fn from_layers(layers: &Layers) -> Result<Settings, ConfigError> {
        let settings = Settings::naming(layers)?;
        settings.check_combinations()?;
        Ok(settings)
    }

    /// Settings of a command that names a stack and opens none.
    ///
    /// # Errors
    /// A value that cannot be used.
    pub fn naming(layers: &Layers) -> Result<Settings, ConfigError> {
        Settings::typed(
            |option| layers.set_text(option.name),
            |option| layers.text(option.name),
        )
    }

    fn check_combinations(&self) -> Result<(), ConfigError> {
        let wrong = |sentence: String| Err(ConfigError::Combination(sentence));
        if self.is_autoconfigured {
            self.check_autoconfiguration()?;
        } else if let (Some(interface), [], None) = (
            &self.interface,
            self.addresses.as_slice(),
            self.instances.first(),
        ) && !self.makes_interface()
            && self.sub_vlans().next().is_none()
        {
            return wrong(format!(
                "--if {interface} needs --ip ADDRESS/LENGTH: the address that the stack has on it"
            ));
        }
        if self.xdp_mode != XdpMode::Auto && !self.is_device("xdp") {
            return wrong("--xdp-mode needs --device xdp".to_owned());
        }
        if self.xdp_busy_poll != 0 && !self.is_device("xdp") {
            return wrong("--xdp-busy-poll needs --device xdp".to_owned());
        }
        if self.has_any_port && !self.is_device("xdp") {
            return wrong("--xdp-any-port needs --device xdp".to_owned());
        }
        let has = |rule: SpreadRule, is_given: bool| (self.spread == Some(rule)) == is_given;
        if !has(SpreadRule::Shares, !self.spread_shares.is_empty()) {
            return wrong("--spread shares and --spread-shares NUMBERS go together".to_owned());
        }
        if !has(SpreadRule::Table, !self.spread_table.is_empty()) {
            return wrong("--spread table and --spread-table ROWS go together".to_owned());
        }
        if !has(SpreadRule::Program, self.spread_program.is_some()) {
            return wrong("--spread program and --spread-program FILE go together".to_owned());
        }
        self.check_share()?;
        self.check_further()?;
        self.check_devices()?;
        let has_link = self.interface.is_some() || self.is_device("dpdk");
        if !self.vlans.is_empty() && !has_link {
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

    fn check_share(&self) -> Result<(), ConfigError> {
        let wrong = |sentence: &str| Err(ConfigError::Combination(sentence.to_owned()));
        let rates = [
            self.kni_console_rate,
            self.kni_general_rate,
            self.kni_kernel_rate,
        ];
        let has_lists = !self.kni_tcp.is_empty() || !self.kni_udp.is_empty();
        let has_lists = has_lists || rates.iter().any(|rate| *rate > 0);
        match self.kni {
            None if has_lists || self.kni_action != ShareAction::Default => wrong(
                "--kni-tcp, --kni-udp, --kni-action and rates need --kni reject or --kni accept",
            ),
            Some(_) if self.interface.is_none() || self.makes_interface() => {
                wrong("--kni needs --if INTERFACE: one on which the kernel has the addresses too")
            }
            Some(_) if self.forwards() => wrong(
                "--kni beside --forward (or net.ipv4.ip_forward=1): a stack that forwards has its \
                     addresses alone; give one of them",
            ),
            _ => Ok(()),
        }
    }

    /// Interfaces beside the first, and the VLANs that are of them.
    fn check_further(&self) -> Result<(), ConfigError> {
        let wrong = |sentence: String| Err(ConfigError::Combination(sentence));
        let names = || {
            self.interface
                .iter()
                .chain(self.further.iter().map(|it| &it.name))
        };
        for spec in &self.further {
            if self.interface.is_none() {
                return wrong(format!(
                    "--also-if {} needs --if INTERFACE: the first interface of the stack",
                    spec.name
                ));
            }
            if names().filter(|name| **name == spec.name).count() > 1 {
                return wrong(format!("--if {} is there twice", spec.name));
            }
            let mut vlans = self.vlans.iter();
            let has_vlans = vlans.any(|it| it.interface.as_ref() == Some(&spec.name));
            if spec.addresses.is_empty() && !has_vlans && self.instances.is_empty() {
                return wrong(format!(
                    "--if {} needs --ip ADDRESS/LENGTH: the address that the stack has on it",
                    spec.name
                ));
            }
        }
        if self.kni.is_some() && !self.further.is_empty() {
            return wrong(
                "--kni and several interfaces: a stack shares one with the kernel".to_owned(),
            );
        }
        if let Some(kind) = self
            .device_kind()
            .filter(|kind| !kind.capabilities.takes_interface())
            && !self.further.is_empty()
        {
            return wrong(format!(
                "--device {} has one interface; several --if need packet or xdp",
                kind.name
            ));
        }
        let of_vlans = self.vlans.iter().filter_map(|it| it.interface.as_ref());
        for name in of_vlans {
            if !names().any(|known| known == name) {
                return wrong(format!(
                    "--vlan with if={name} needs --if {name}: the interface that the VLAN is on"
                ));
            }
        }
        Ok(())
    }

    /// Interfaces that routes and rules name are there.
    fn check_devices(&self) -> Result<(), ConfigError> {
        let Some(own) = &self.interface else {
            // The device gives its name; the keeper looks.
            return Ok(());
        };
        let is_there = |name: &str| {
            let ports = [own]
                .into_iter()
                .chain(self.further.iter().map(|it| &it.name));
            let is_port = ports.into_iter().any(|port| port == name);
            is_port
                || self.sub_vlans().any(|vlan| {
                    let port = vlan.interface.as_ref().unwrap_or(own);
                    let outer = vlan.within.map(|id| format!("{port}.{id}"));
                    let inner = format!("{}.{}", outer.as_ref().unwrap_or(port), vlan.id);
                    inner == name || outer.is_some_and(|outer| outer == name)
                })
        };
        let routes = self.routes.iter();
        let routes = routes.filter_map(|it| Some(("route", "dev", it.device.as_deref()?)));
        let rules = self.rules.iter().flat_map(|rule| rule.devices());
        let rules = rules.map(|(word, name)| ("rule", word, name));
        let missing = routes.chain(rules).find(|(_, _, name)| !is_there(name));
        match missing {
            None => Ok(()),
            Some((option, word, name)) => Err(ConfigError::Combination(format!(
                "--{option} with {word}={name} needs --if {name}, or the VLAN of that name"
            ))),
        }
    }

    /// The port that an interface is, from 0 on; of none the first.
    pub fn port_of(&self, interface: Option<&str>) -> u16 {
        let at = self
            .further
            .iter()
            .position(|it| Some(it.name.as_str()) == interface);
        at.map_or(0, |at| at as u16 + 1)
    }

    /// The VLAN that the device's own link is in; 0 = none.
    pub fn own_vlan(&self) -> u16 {
        let mut own = self.vlans.iter().filter(|vlan| vlan.is_own_link());
        own.next().map_or(0, |vlan| vlan.id)
    }

    /// VLANs beside the device's own link.
    pub fn sub_vlans(&self) -> impl Iterator<Item = &VlanSpec> {
        self.vlans.iter().filter(|vlan| !vlan.is_own_link())
    }

    /// A TAP is made for the stack, with addresses if none are named.
    pub fn makes_interface(&self) -> bool {
        match self.device_kind() {
            Some(kind) => kind.capabilities.makes_interface,
            None => self.interface.is_none(),
        }
    }

    /// Returns the kind of the device with its argument; `None`: automatic.
    pub fn device_asked(&self) -> Option<&str> {
        self.device.as_deref().filter(|kind| *kind != "auto")
    }

    /// Returns the kind of device with its requested mode.
    pub fn device_with_mode(&self) -> Option<String> {
        match self.device_asked()? {
            "xdp" => {
                let busy = match self.xdp_busy_poll {
                    0 => String::new(),
                    frames => format!(",busy={frames}"),
                };
                let ports = if self.has_any_port { ",any-port" } else { "" };
                Some(format!("xdp:{}{busy}{ports}", self.xdp_mode.name()))
            }
            other => Some(other.to_owned()),
        }
    }

    /// Returns the kind of the device; `None`: automatic.
    pub fn device_kind(&self) -> Option<&'static DeviceKind> {
        let (backend, _) = slipstack_device::find(self.device_asked()?).ok()?;
        Some(backend.kind())
    }

    fn is_device(&self, name: &str) -> bool {
        self.device_kind().is_some_and(|kind| kind.name == name)
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
