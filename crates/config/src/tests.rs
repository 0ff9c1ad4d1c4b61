use std::path::Path;

use crate::*;

fn layers(variables: &[(&str, &str)]) -> Result<Layers, ConfigError> {
    let lookup = |name: &str| {
        variables
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, text)| (*text).to_owned())
    };
    Layers::read_with_file(Path::new("/dev/null"), None, lookup)
}

fn settings(variables: &[(&str, &str)]) -> Result<Settings, ConfigError> {
    Settings::from_layers(&layers(variables)?)
}

#[test]
fn every_default_passes_its_own_check() {
    for option in OPTIONS {
        if !option.default.is_empty() {
            assert_eq!(option.kind.check(option.default), Ok(()), "{}", option.name);
        }
    }
    settings(&[]).expect("defaults alone are valid");
}

#[test]
fn the_defaults_are_those_of_a_stack_and_of_the_types() {
    let found = settings(&[]).unwrap();
    let default = slipstack_stack::StackConfig::default();
    let mut tuned = default.clone();
    found.tune(&mut tuned);
    for tunable in slipstack_stack::Tunable::ALL {
        let (now, by_default) = (tuned.tunable(*tunable), default.tunable(*tunable));
        assert_eq!(now, by_default, "{}", tunable.name());
    }
    assert_eq!((found.log, found.spin), Default::default());
    assert_eq!((found.xdp_mode, found.spread), Default::default());
    assert_eq!(found.slots, None);
    assert_eq!(OPTION.slots.default, SLOTS_DEFAULT.to_string());
    assert_eq!(OPTION.spread.default, SpreadRule::default().name());
    assert_eq!(found.kni_action, Default::default());
}

#[test]
fn names_and_variables_are_unique_and_follow_the_pattern() {
    for (index, option) in OPTIONS.iter().enumerate() {
        assert!(
            OPTIONS[..index]
                .iter()
                .all(|other| other.name != option.name)
        );
        let expected = format!("SLIPSTACK_{}", option.name.replace('-', "_").to_uppercase());
        assert_eq!(option.env, expected);
    }
}

#[test]
fn the_environment_beats_the_file_and_the_command_line_beats_both() {
    let mut layers = Layers::default();
    layers
        .read_toml(
            "spin-us = 5\nslots = 8\nlog = \"info\"",
            Path::new("f.toml"),
        )
        .unwrap();
    layers
        .set("slots", "9".into(), Source::Environment("SLIPSTACK_SLOTS"))
        .unwrap();
    layers
        .set("log", "debug".into(), Source::CommandLine)
        .unwrap();
    let settings = Settings::from_layers(&layers).unwrap();
    assert_eq!((settings.spin, settings.gather_us), (Spin::FixedUs(5), 125));
    assert_eq!(settings.slots, Some(9));
    assert_eq!(settings.log, LogLevel::Debug);
    assert_eq!(
        layers.source("slots"),
        Source::Environment("SLIPSTACK_SLOTS")
    );
}

#[test]
fn an_interface_needs_an_address() {
    let error = settings(&[("SLIPSTACK_IF", "eth1")]).unwrap_err();
    assert!(error.to_string().contains("--ip"), "{error}");
}

#[test]
fn a_gateway_must_be_in_the_network_of_the_address() {
    let ip = ("SLIPSTACK_IP", "10.0.0.5/24");
    assert!(settings(&[ip, ("SLIPSTACK_GW", "10.0.0.1")]).is_ok());
    assert!(settings(&[ip, ("SLIPSTACK_GW", "10.0.1.1")]).is_err());
    assert!(settings(&[ip, ("SLIPSTACK_GW", "10.0.0.5")]).is_err());
    assert!(settings(&[("SLIPSTACK_GW", "10.0.0.1")]).is_err());
}

#[test]
fn both_families_are_configured_side_by_side() {
    let ip = ("SLIPSTACK_IP", "10.0.0.5/24,fd00::5/64");
    let with = |gateways| settings(&[ip, ("SLIPSTACK_GW", gateways)]);
    let both = with("10.0.0.1,fe80::1").expect("a link-local router is of every network");
    assert_eq!((both.addresses.len(), both.gateways.len()), (2, 2));
    assert_eq!(both.addresses[1].to_string(), "fd00::5/64");
    assert!(with("fd00::1").is_ok());
    for wrong in ["fd01::1", "fd00::5", "10.0.0.1,10.0.0.2", "::1", "ff02::1"] {
        assert!(with(wrong).is_err(), "{wrong}");
    }
    assert!(settings(&[("SLIPSTACK_IP", "10.0.0.5/24"), ("SLIPSTACK_GW", "fd00::1")]).is_err());
    for wrong in [
        // RFC 4291 2.6.1: every router's.
        "fd00::/64",
        "fd00::5",
        "fd00::5/129",
        "::1/128",
        "::ffff:10.0.0.5/120",
        "10.0.0.5/24,",
    ] {
        assert!(settings(&[("SLIPSTACK_IP", wrong)]).is_err(), "{wrong}");
    }
}

#[test]
fn bad_values_are_named_with_their_source() {
    for (variable, text) in [
        ("SLIPSTACK_IP", "10.0.0.5"),
        ("SLIPSTACK_IP", "10.0.0.0/24"),
        ("SLIPSTACK_IP", "10.0.0.255/24"),
        ("SLIPSTACK_IP", "127.0.0.1/8"),
        ("SLIPSTACK_IP", "10.0.0.5/33"),
        ("SLIPSTACK_IP", "10.0.0.5/+24"),
        ("SLIPSTACK_IP", "a.b.c.d/24"),
        ("SLIPSTACK_IF", "a/b"),
        ("SLIPSTACK_IF", "sixteen-letters-"),
        ("SLIPSTACK_SLOTS", "1"),
        ("SLIPSTACK_SLOTS", "-3"),
        ("SLIPSTACK_SPIN_US", "fast"),
        ("SLIPSTACK_STRICT", "maybe"),
        ("SLIPSTACK_CORES", "3-1"),
        ("SLIPSTACK_LOG", "loud"),
        ("SLIPSTACK_INSTANCE", "../x"),
    ] {
        let error = settings(&[(variable, text)]).expect_err(text).to_string();
        assert!(
            error.starts_with(&format!("{variable} is '{text}' but must be ")),
            "{error}"
        );
    }
}

#[test]
fn an_empty_variable_counts_as_unset() {
    assert_eq!(settings(&[("SLIPSTACK_IP", "")]), settings(&[]));
}

#[test]
fn files_with_unknown_keys_or_wrong_syntax_are_refused() {
    let mut layers = Layers::default();
    let file = Path::new("f.toml");
    let unknown = layers.read_toml("colour = 3", file).unwrap_err();
    assert!(
        unknown
            .to_string()
            .starts_with("f.toml line 1: there is no option 'colour'; the nearest is '")
    );
    let mut refused = |text: &str| layers.read_toml(text, file).unwrap_err().to_string();
    let gateway = refused("if = \"eth1\"\n\ngw2 = \"10.0.0.1\"\n");
    assert_eq!(
        gateway,
        "f.toml line 3: there is no option 'gw2'; the nearest is 'gw'"
    );
    let value = refused("# slots = 2\nif = \"eth1\"\nslots = 1000\n");
    assert!(
        value.starts_with("f.toml line 3: 'slots' is '1000'"),
        "{value}"
    );
    let syntax = refused("if = \"eth1\"\nslots == 3\n");
    assert!(
        syntax.starts_with("f.toml line 2 is not valid TOML"),
        "{syntax}"
    );
    assert!(layers.read_toml("control-fd = 3", file).is_err());
    assert!(layers.read_toml("slots = [1]", file).is_err());
    assert!(matches!(
        layers.read_toml("slots = ", file),
        Err(ConfigError::Syntax { .. })
    ));
    assert!(matches!(
        layers.read_file(Path::new("/no/such")),
        Err(ConfigError::Unreadable { .. })
    ));
}

#[test]
fn the_sample_file_is_a_valid_file() {
    let text: String = sample_file()
        .lines()
        .map(|line| format!("{}\n", uncommented(line)))
        .collect();
    Layers::default()
        .read_toml(&text, Path::new("sample.toml"))
        .unwrap();
}

fn uncommented(line: &str) -> &str {
    line.strip_prefix('#')
        .filter(|rest| !rest.starts_with(' '))
        .unwrap_or("")
}

#[test]
fn adapter_variables_select_an_instance_and_cores() {
    let found = settings(&[
        ("FF_NB_FSTACK_INSTANCE", "4"),
        ("FF_PROC_ID", "2"),
        ("FF_INITIAL_LCORE_ID", "0x5"),
    ]);
    let found = found.unwrap();
    assert_eq!(found.instances, ["2", "3", "0", "1"]);
    assert_eq!(found.cores, [0, 2]);
    let one = settings(&[("FF_PROC_ID", "2")]).unwrap();
    assert_eq!(one.instances, ["2"]);
    // As in F-Stack, numbers begin again at 0.
    let beyond = settings(&[("FF_NB_FSTACK_INSTANCE", "2"), ("FF_PROC_ID", "3")]);
    assert_eq!(beyond.unwrap().instances, ["1", "0"]);
    let own = settings(&[("FF_PROC_ID", "2"), ("SLIPSTACK_INSTANCE", "a")]).unwrap();
    assert_eq!(own.instances, ["a"]);
    let all = settings(&[("FF_NB_FSTACK_INSTANCE", "3")]).unwrap();
    assert_eq!(all.instances, ["0", "1", "2"]);
    assert!(settings(&[("SLIPSTACK_INSTANCE", "a,b,a")]).is_err());
}

#[test]
fn a_core_named_twice_is_listed_once() {
    let text = "0-1023,".repeat(100_000) + "3";
    let found = settings(&[("SLIPSTACK_CORES", text.as_str())]).unwrap();
    assert_eq!(found.cores, (0..1024).collect::<Vec<_>>());
    assert!(settings(&[("SLIPSTACK_CORES", "3-1024")]).is_err());
}

#[test]
fn instances_have_ports_of_their_own_where_adapter_variables_choose_them() {
    let is_adapter =
        |set: &str, text: &str| crate::is_adapter(|name| (name == set).then(|| text.to_owned()));
    assert!(is_adapter("FF_PROC_ID", "0") && is_adapter("FF_NB_FSTACK_INSTANCE", "2"));
    assert!(!is_adapter("SLIPSTACK_INSTANCE", "0,1") && !is_adapter("FF_PROC_ID", ""));
}

#[test]
fn adapter_variables_are_checked() {
    assert!(settings(&[("FF_PROC_ID", "one")]).is_err());
    assert!(settings(&[("FF_NB_FSTACK_INSTANCE", "0")]).is_err());
    assert!(settings(&[("FF_INITIAL_LCORE_ID", "0")]).is_err());
    assert!(settings(&[("FF_INITIAL_LCORE_ID", "zz")]).is_err());
}

#[test]
fn the_environment_for_a_program_reproduces_the_settings() {
    let first = layers(&[("SLIPSTACK_IP", "10.0.0.5/24"), ("FF_PROC_ID", "1")]).unwrap();
    let handed: Vec<(&str, String)> = first.environment();
    assert!(handed.contains(&("SLIPSTACK_CONFIG", "/dev/null".to_owned())));
    let handed: Vec<(&str, &str)> = handed
        .iter()
        .map(|(name, text)| (*name, text.as_str()))
        .collect();
    let mut received = settings(&handed).unwrap();
    // No file is read again.
    received.config = None;
    assert_eq!(Ok(received), Settings::from_layers(&first));
}

#[test]
fn a_network_contains_its_addresses_only() {
    let network = Cidr {
        address: "10.1.2.3".parse().unwrap(),
        prefix_len: 24,
    };
    assert!(network.contains("10.1.2.254".parse().unwrap()));
    assert!(!network.contains("10.1.3.3".parse().unwrap()));
    let host = Cidr {
        address: "10.1.2.3".parse().unwrap(),
        prefix_len: 32,
    };
    assert!(host.contains(host.address) && !host.contains("10.1.2.2".parse().unwrap()));
}
