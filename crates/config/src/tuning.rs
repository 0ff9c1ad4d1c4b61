//! Options and sysctls that set the tunable values of a stack.

use slipstack_stack::{StackConfig, Tunable};

use crate::sysctl::{NetworkSwitch, Values};
use crate::table::Settings;

impl Settings {
    /// The numbers of a stack that is started with these settings.
    #[must_use]
    pub fn sysctl_values(&self) -> Values {
        let mut config = StackConfig::default();
        self.tune(&mut config);
        let mut values = Values::of(config);
        values.is_forwarding = self.forwards();
        values.connects_all_tables = self.connects_all_tables();
        values
    }

    /// Whether packets for others are passed on, by `--forward` or by a sysctl, which goes before
    /// it.
    #[must_use]
    pub fn forwards(&self) -> bool {
        self.last(NetworkSwitch::Forwarding)
            .unwrap_or(self.is_forwarding)
    }

    /// Whether every table has the networks of the stack's own addresses, by a sysctl.
    #[must_use]
    pub fn connects_all_tables(&self) -> bool {
        self.last(NetworkSwitch::ConnectsAllTables)
            .unwrap_or_default()
    }

    /// The last value that a sysctl gives to a switch of the network.
    fn last(&self, switch: NetworkSwitch) -> Option<bool> {
        let given = self.sysctls.iter().filter_map(|it| it.network_switch());
        let mut given = given.filter(|(of, _)| *of == switch);
        given.next_back().map(|(_, is_on)| is_on)
    }

    /// Outgoing ports, where `system` has these.
    #[must_use]
    pub fn ports(&self, system: (u16, u16)) -> (u16, u16) {
        let mut config = StackConfig::default();
        (config.ports.first, config.ports.last) = system;
        self.tune(&mut config);
        (config.ports.first, config.ports.last)
    }

    /// Sets the numbers of a stack that is about to be made: by the options, then by `--sysctl`.
    pub fn tune(&self, config: &mut StackConfig) {
        let options = [
            (Tunable::CongestionControl, self.congestion as u32),
            (Tunable::Ecn, self.ecn as u32),
            (Tunable::Pacing, self.is_paced.into()),
            (Tunable::FastOpen, self.tcp_fastopen),
            (
                Tunable::UserTimeoutOption,
                self.has_user_timeout_option.into(),
            ),
            (Tunable::Syncookies, self.tcp_syncookies.into()),
            (Tunable::MtuProbe, self.tcp_mtu_probing.into()),
            (Tunable::BaseMss, self.tcp_base_mss.into()),
            (
                Tunable::ProbeInterval,
                self.tcp_probe_interval.saturating_mul(1000),
            ),
            (Tunable::FragmentsMax, self.ipfrag_high_thresh),
        ];
        for (tunable, number) in options {
            config.tune(tunable, number);
        }
        for setting in &self.sysctls {
            setting.apply(config);
        }
    }
}
