use slipstack_stack::StackConfig;

use super::*;

fn set(config: &mut StackConfig, setting: &str) {
    for setting in parse_settings(setting).unwrap() {
        setting.apply(config);
    }
}

fn shown(config: &StackConfig, name: &str) -> String {
    read(find(name).unwrap(), |tunable| config.tunable(tunable)).unwrap()
}

#[test]
fn linux_and_freebsd_names_set_the_same_values_each_in_its_unit() {
    let mut config = StackConfig::default();
    set(
        &mut config,
        "net.ipv4.tcp_fin_timeout=30;net/inet/tcp/msl=2000",
    );
    assert_eq!(shown(&config, "net.inet.tcp.finwait2_timeout"), "30000");
    assert_eq!(config.tcp.time_wait.as_millis(), 4000);
    set(&mut config, "net.ipv4.tcp_rmem=4096 8192 16777216");
    assert_eq!(shown(&config, "net.inet.tcp.recvspace"), "8192");
    assert_eq!(shown(&config, "net.inet.tcp.recvbuf_max"), "16777216");
    set(&mut config, "net.inet.tcp.cc.algorithm=newreno");
    assert_eq!(shown(&config, "net.ipv4.tcp_congestion_control"), "reno");
    set(&mut config, "net.inet.tcp.delayed_ack=0");
    assert!(config.tcp.delayed_ack.is_zero());
    set(&mut config, "net.inet.tcp.delayed_ack=1");
    assert_eq!(
        config.tcp.delayed_ack,
        StackConfig::default().tcp.delayed_ack
    );
}

#[test]
fn every_value_that_is_shown_can_be_set_again() {
    let config = StackConfig::default();
    for row in SYSCTLS {
        match read(row, |tunable| config.tunable(tunable)) {
            Ok(value) => {
                let mut changed = config.clone();
                for (tunable, number) in write(row, &value).unwrap() {
                    changed.tune(tunable, number);
                }
                for tunable in Tunable::ALL {
                    let (was, is) = (config.tunable(*tunable), changed.tunable(*tunable));
                    assert_eq!(was, is, "{} by {}", tunable.name(), row.name);
                }
            }
            Err(error) => assert!(matches!(error, SysctlError::Moot { .. }), "{error}"),
        }
    }
}

#[test]
fn names_are_unique_and_an_unknown_one_gets_the_nearest() {
    for (index, row) in SYSCTLS.iter().enumerate() {
        assert!(
            SYSCTLS[..index].iter().all(|other| other.name != row.name),
            "{}",
            row.name
        );
    }
    let error = find("net.ipv4.tcp_fin_timout").unwrap_err().to_string();
    assert!(error.contains("'net.ipv4.tcp_fin_timeout'"), "{error}");
}

#[test]
fn unsupported_sysctls_are_refused_with_a_reason() {
    let refused = |text: &str| {
        let (name, value) = text.split_once('=').unwrap();
        write(find(name).unwrap(), value).unwrap_err().to_string()
    };
    assert!(refused("net.ipv4.tcp_ecn=7").contains("0 to 2"));
    assert!(refused("net.ipv4.tcp_ecn=on").contains("but must be a number"));
    assert!(refused("net.ipv4.tcp_rmem=1 2 3").contains("three sizes"));
    assert!(refused("net.ipv4.tcp_rmem=4096 9000 5000").contains("ascending"));
    assert!(refused("net.ipv4.ip_local_port_range=9 5").contains("two numbers"));
    assert!(refused("net.inet.tcp.recvbuf_auto=0").contains("cannot be changed: receive"));
    assert!(refused("hz=1000").contains("no meaning here: timers"));
    assert!(refused("net.ipv4.tcp_congestion_control=vegas").contains("one of cubic"));
    assert!(
        write(find("net.inet.tcp.recvbuf_auto").unwrap(), "1")
            .unwrap()
            .is_empty()
    );
}
