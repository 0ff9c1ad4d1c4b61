use std::net::Ipv4Addr;
use std::path::Path;

use slipstack_terms::{Listed, ShareAction};

use super::fields::*;
use super::keys::{SECTIONS, Use};
use super::reader::{Entry, read};
use super::*;
use crate::{Layers, LogLevel, RuleTarget, Settings};

struct TwoPorts;

impl Interfaces for TwoPorts {
    fn ethernet(&self) -> Vec<String> {
        vec!["eth0".to_owned(), "eth1".to_owned()]
    }

    fn by_pci(&self, address: &str) -> Option<String> {
        (address == "02:00.1").then(|| "eth1".to_owned())
    }
}

const BASE: &str = "[dpdk]\nlcore_mask=f00\nport_list=0\n[port0]\naddr=10.0.0.5\n\
    netmask=255.255.255.0\nbroadcast=10.0.0.255\ngateway=10.0.0.1\n";

fn parse(text: &str) -> Result<FstackFile, ConfigError> {
    FstackFile::parse(text, Path::new("config.ini"), &TwoPorts, false)
}

fn parse_for_dpdk(text: &str) -> Result<FstackFile, ConfigError> {
    FstackFile::parse(text, Path::new("config.ini"), &TwoPorts, true)
}

fn settings(text: &str, process: u32) -> Settings {
    let mut layers = Layers::default();
    layers
        .take_fstack(&parse(text).unwrap(), Some(process))
        .unwrap();
    Settings::from_layers(&layers).unwrap()
}

#[test]
fn one_port_becomes_an_interface_with_address_gateway_and_core() {
    let found = settings(BASE, 1);
    assert_eq!(found.interface.as_deref(), Some("eth0"));
    assert_eq!(found.addresses[0].to_string(), "10.0.0.5/24");
    assert_eq!(found.gateways[0].to_string(), "10.0.0.1");
    assert_eq!(found.cores, [9]);
    assert_eq!(parse(BASE).unwrap().processes(), 4);
    let mut layers = Layers::default();
    let error = layers
        .take_fstack(&parse(BASE).unwrap(), Some(4))
        .unwrap_err();
    assert!(error.to_string().contains("4 bits"), "{error}");
}

#[test]
fn virtual_addresses_ipv6_vlan_and_rules_are_taken() {
    let text = "[dpdk]\nport_list=0\nallow=02:00.1\nvlan_filter=10\n[vlan10]\naddr=10.0.0.5\n\
        netmask=255.255.255.0\ngateway=10.0.0.1\nvip_addr=10.1.0.1;10.1.0.2\naddr6=fd00::5\n\
        gateway6=fd00::1\nvip_addr6=fd01::1;fd01::2\nvip_prefix_len=128\n\
        ipfw_pr=10.2.0.0 255.255.0.0\n";
    let found = settings(text, 0);
    assert_eq!(
        (found.interface.as_deref(), found.own_vlan()),
        (Some("eth1"), 10)
    );
    let addresses: Vec<String> = found.addresses.iter().map(ToString::to_string).collect();
    let expected = [
        "10.0.0.5/24",
        "10.1.0.1/32",
        "10.1.0.2/32",
        "fd00::5/64",
        "fd01::1/128",
        "fd01::2/128",
    ];
    assert_eq!(addresses, expected);
    assert_eq!(found.gateways.len(), 2);
    assert_eq!(found.rules[0].target, RuleTarget::Table(254));
}

#[test]
fn several_vlans_have_tables_by_their_place_in_the_filter() {
    let vlan = |id: u32| {
        format!(
            "[vlan{id}]\nportid=0\naddr=10.10.{id}.5\nnetmask=255.255.255.0\n\
             gateway=10.10.{id}.1\nvip_addr=110.{id}.0.1;110.{id}.0.2\naddr6=fd00:{id}::5\n\
             gateway6=fd00:{id}::1\nvip_addr6=fd01:{id}::1\nvip_prefix_len=128\n\
             ipfw_pr=10.10.{id}.0 255.255.255.0;110.{id}.0.0 255.255.255.0\n"
        )
    };
    let filter = "[dpdk]\nvlan_filter=30,10,20\n";
    let found = settings(
        &format!("{BASE}{filter}{}{}{}", vlan(20), vlan(10), vlan(30)),
        0,
    );
    assert!(found.addresses.is_empty() && found.own_vlan() == 0);
    let texts: Vec<String> = found.sub_vlans().map(ToString::to_string).collect();
    let text = |id: u32, table: u32| {
        format!(
            "{id},ip=10.10.{id}.5/24,ip=110.{id}.0.1/32,ip=110.{id}.0.2/32,ip=fd00:{id}::5/64,\
             ip=fd01:{id}::1/128,gw=10.10.{id}.1,gw=fd00:{id}::1,table={table}"
        )
    };
    assert_eq!(texts, [text(10, 254), text(20, 1), text(30, 2)]);
    let targets: Vec<RuleTarget> = found.rules.iter().map(|rule| rule.target).collect();
    assert_eq!(targets, [254, 254, 1, 1, 2, 2].map(RuleTarget::Table));
}

#[test]
fn ports_are_shared_with_the_kernel() {
    let kni = "[kni]\nenable=1\nmethod=Reject\ntcp_port=80,443\nudp_port=53-54\n\
         kni_action=alltokni\ngeneral_packets_ratelimit=1000\nkernel_packets_ratelimit=0\n";
    let found = settings(&format!("{BASE}{kni}"), 0);
    assert_eq!(found.kni, Some(Listed::Stack));
    let tcp: Vec<String> = found.kni_tcp.iter().map(ToString::to_string).collect();
    assert_eq!(
        (tcp.join(" "), found.kni_udp[0].last),
        ("80 443".into(), 54)
    );
    assert_eq!(found.kni_action, ShareAction::AllToKernel);
    assert_eq!((found.kni_general_rate, found.kni_kernel_rate), (1000, 0));
    let off = kni.replace("enable=1", "enable=0");
    assert_eq!(settings(&format!("{BASE}{off}"), 0).kni, None);
    let error = parse(&format!("{BASE}[kni]\nenable=1\n")).unwrap_err();
    assert!(error.to_string().contains("method=reject"), "{error}");
}

#[test]
fn freebsds_settings_become_sysctls_of_the_stack() {
    let text = format!(
        "{BASE}[freebsd.boot]\nhz=100\nkern.features.inet6=1\n[freebsd.sysctl]\n\
         kern.ipc.somaxconn=32768\nnet.inet.tcp.cc.algorithm=cubic\n\
         net.inet.tcp.functions_default=bbr\nnet.inet.tcp.msl=2000\nnet.inet.ip.forwarding=1\n\
         net.inet6.ip6.accept_rtadv=2\nnet.inet.tcp.recvspace=100\n"
    );
    let found = settings(&text, 0);
    let mut config = slipstack_stack::StackConfig::default();
    found.tune(&mut config);
    assert_eq!(config.tcp.time_wait.as_millis(), 4000);
    assert_eq!(config.tcp.congestion, slipstack_stack::Congestion::Bbr);
    assert_eq!(
        (config.tcp.backlog_max, config.tcp.rcvbuf_initial),
        (32768, 4096)
    );
    assert!(found.is_forwarding && found.is_autoconfigured);
}

#[test]
fn every_known_key_sets_something_or_is_noted() {
    let base = parse(BASE).unwrap();
    for (kind, keys) in SECTIONS {
        for (key, what) in *keys {
            let (section, value) = (section_named(kind), value_of(key));
            let text = format!("{BASE}[{section}]\n{key}={value}\n{}", companions(key));
            let found = match parse(&text) {
                Ok(found) => found,
                Err(_) if ["nb_vdev", "addr"].contains(key) => continue,
                Err(error) => panic!("[{section}] {key}: {error}"),
            };
            let is_noted = found
                .notes
                .iter()
                .any(|it| it.key == format!("[{section}] {key}"));
            match what {
                Use::Moot(_) | Use::Dpdk(_) => assert!(is_noted, "[{section}] {key}"),
                Use::Read if *kind == "vdev" || *kind == "vlan" => {}
                Use::Read => {
                    assert!(
                        is_noted || found != base,
                        "[{section}] {key} = {value} is not felt"
                    );
                }
            }
        }
    }
}

/// Sections and keys that F-Stack's parser knows and its sample file sets.
const FSTACK_KEYS: &str = include_str!("fstack_keys.txt");

#[test]
fn every_key_of_f_stacks_parser_and_sample_is_known() {
    let mut count = 0;
    for (kind, key) in FSTACK_KEYS.lines().filter_map(|line| line.split_once(' ')) {
        count += 1;
        if kind.starts_with("freebsd.") {
            let text = format!("{BASE}[{kind}]\n{key}=1\n");
            let notes = parse(&text).map(|found| found.notes).unwrap_or_default();
            let unknown = notes.iter().find(|it| it.kind == NoteKind::Unknown);
            assert_eq!(unknown, None, "[{kind}] {key}");
            continue;
        }
        let mut sections = SECTIONS.iter().filter(|(known, _)| *known == kind);
        let is_known = sections.any(|(_, keys)| keys.iter().any(|(known, _)| *known == key));
        assert!(is_known, "[{kind}] {key}");
    }
    assert_eq!(count, FSTACK_KEYS.lines().count());
}

fn section_named(kind: &str) -> String {
    match kind {
        "port" | "vlan" | "vdev" | "bond" => format!("{kind}0"),
        _ => kind.to_owned(),
    }
}

fn value_of(key: &str) -> &'static str {
    match key {
        "lcore_mask" => "3",
        "allow" | "pci_whitelist" => "02:00.1",
        "port_list" | "log_level" | "fstack_log_level" | "nb_bond" => "1",
        "addr" => "10.0.0.6",
        "netmask" => "255.255.0.0",
        "broadcast" => "10.0.0.127",
        "gateway" => "10.0.0.2",
        "if_name" => "eth1",
        "addr6" | "vip_addr6" => "fd00::5",
        "prefix_len" | "vip_prefix_len" => "80",
        "gateway6" => "fd00::1",
        "vip_addr" => "10.1.0.1",
        "ipfw_pr" => "10.0.0.0 255.0.0.0",
        "fstack_log_file_prefix" | "savepath" => "/tmp/x",
        "snaplen" => "200",
        "savelen" => "16777216",
        "vlan_filter" => "7",
        "tso" => "0",
        _ => "1",
    }
}

/// Keys that another key needs to have an effect.
fn companions(key: &str) -> &'static str {
    match key {
        "port_list" => "[port1]\naddr=10.0.0.7\nnetmask=255.255.255.0\n",
        "vlan_filter" => "[vlan7]\naddr=10.0.0.7\nnetmask=255.255.255.0\n[port0]\naddr=10.0.0.8\n",
        "fstack_log_file_prefix" => "fstack_log_level=1\n",
        "snaplen" | "savelen" | "savepath" => "enable=1\n",
        "enable" => "method=accept\n",
        "prefix_len" | "gateway6" => "addr6=fd00::9\n",
        "vip_prefix_len" => "vip_addr6=fd00::9\n",
        _ => "",
    }
}

#[test]
fn several_ports_are_interfaces_of_one_stack() {
    let given = |text: &str| {
        let found = parse(text).unwrap();
        let texts = found.given.iter();
        let network = texts.filter(|it| ["if", "ip", "gw", "vlan", "also-if"].contains(&it.option));
        let told: Vec<String> = network
            .map(|it| format!("{} {}", it.option, it.text))
            .collect();
        told
    };
    let ports = "\
            [dpdk]\nlcore_mask=1\nport_list=0-1\n\
            [port0]\naddr=10.0.0.5\nnetmask=255.255.255.0\ngateway=10.0.0.1\n\
            [port1]\naddr=10.2.0.5\nnetmask=255.255.255.0\ngateway=10.2.0.1\nvip_addr=10.2.9.1\n";
    assert_eq!(
        given(ports),
        [
            "if eth0",
            "ip 10.0.0.5/24",
            "gw 10.0.0.1",
            "also-if eth1,ip=10.2.0.5/24,ip=10.2.9.1/32,gw=10.2.0.1,table=1",
        ]
    );
    let vlans = "[dpdk]\nlcore_mask=1\nport_list=0-1\nvlan_filter=7,8\n\
                 [vlan7]\nportid=0\naddr=10.0.0.5\nnetmask=255.255.255.0\n\
                 [vlan8]\nportid=1\naddr=10.2.0.5\nnetmask=255.255.255.0\n";
    assert_eq!(
        given(vlans),
        [
            "if eth0",
            "vlan 7,ip=10.0.0.5/24,table=254;8,ip=10.2.0.5/24,table=1,if=eth1",
            "also-if eth1",
        ]
    );
}

#[test]
fn unknown_and_wrong_entries_are_named_with_their_line() {
    let notes = |extra: &str| parse(&format!("{BASE}{extra}")).unwrap().notes;
    let key = &notes("[dpdk]\nlcore_maks=1\n")[0];
    assert_eq!(
        key.to_string(),
        "line 10: [dpdk] lcore_maks: there is no such key; the nearest is 'lcore_mask'"
    );
    assert!(notes("[dpkd]\nx=1\n")[0].sentence.contains("[dpdk]"));
    assert!(
        notes("[freebsd.sysctl]\nnet.inet.tcp.mls=1\n")[0]
            .sentence
            .contains("tcp.msl")
    );
    let wrong = |extra: &str| parse(&format!("{BASE}{extra}")).unwrap_err().to_string();
    assert_eq!(
        wrong("[port0]\nnetmask=255.0.255.0\n"),
        "config.ini line 10: [port0] netmask is '255.0.255.0' but must be a netmask such as \
         255.255.255.0"
    );
    assert!(wrong("[dpdk]\nlcore_mask=zz\n").contains("line 10"));
    assert!(wrong("[dpdk]\nport_list=7\n").contains("no 7-th network interface"));
    assert!(wrong("[dpdk]\nnb_vdev=1\n").contains("[vdev0] has no path"));
    assert!(wrong("[freebsd.sysctl]\nnet.inet.tcp.cc.algorithm=htcp\n").contains("newreno"));
    assert!(
        parse("[dpdk]\nlcore_mask=1\n")
            .unwrap_err()
            .to_string()
            .contains("port_list")
    );
}

#[test]
fn an_f_stack_file_is_recognised_by_its_name_or_a_section() {
    assert!(is_fstack(Path::new("config.ini"), ""));
    assert!(is_fstack(Path::new("/etc/f-stack.conf"), "x\n[dpdk]\n"));
    assert!(!is_fstack(Path::new("slipstack.toml"), "spin-us = 0\n"));
}

#[test]
fn unknown_keys_are_named_and_keys_without_effect_counted() {
    let text = format!("{BASE}[dpdk]\nchannel=4\nnuma_on=1\nlcore_maks=1\n");
    let found = parse(&text).unwrap();
    assert!(found.sentences(LogLevel::Error).is_empty());
    let said = found.sentences(LogLevel::Warn);
    assert_eq!(said.len(), 2);
    assert!(
        said[0].contains("lcore_maks") && said[1].contains("2 keys"),
        "{said:?}"
    );
    assert_eq!(found.sentences(LogLevel::Info).len(), 3);
}

#[test]
fn masks_and_lists_name_cores_and_ports() {
    assert_eq!(mask("f00").unwrap(), [8, 9, 10, 11]);
    assert_eq!(mask("0x5").unwrap(), [0, 2]);
    assert!(mask("0").is_err() && mask("g").is_err() && mask("").is_err());
    assert_eq!(list("4-6, 1,2", 4095).unwrap(), [1, 2, 4, 5, 6]);
    assert!(list("3-1", 9).is_err() && list("x", 9).is_err());
}

#[test]
fn networks_have_contiguous_masks() {
    assert_eq!(netmask("255.255.255.0").unwrap(), 24);
    assert!(netmask("255.0.255.0").is_err());
    assert_eq!(
        networks("10.0.0.0 255.0.0.0;10.1.0.0 255.255.0.0").unwrap(),
        [
            (Ipv4Addr::new(10, 0, 0, 0), 8),
            (Ipv4Addr::new(10, 1, 0, 0), 16)
        ]
    );
    assert!(networks("10.0.0.0/8").is_err());
}

fn pairs(text: &str) -> Vec<(usize, String, String)> {
    let shown = |it: Entry| (it.line, format!("{}.{}", it.section, it.key), it.value);
    read(text).unwrap().into_iter().map(shown).collect()
}

#[test]
fn keys_comments_and_continued_lines_are_read_as_f_stack_reads_them() {
    let text = "\u{feff}# c\n[dpdk]\nlcore_mask = 1 ; one core\n; c\nallow=02:00.0,a=b\n\
                [port0]\nvip_addr:10.0.0.1;10.0.0.2\n  10.0.0.3\n";
    let expected = [
        (3, "dpdk.lcore_mask", "1"),
        (5, "dpdk.allow", "02:00.0,a=b"),
        (7, "port0.vip_addr", "10.0.0.1;10.0.0.2"),
        (8, "port0.vip_addr", "10.0.0.3"),
    ];
    let expected = expected.map(|(line, key, value)| (line, key.to_owned(), value.to_owned()));
    assert_eq!(pairs(text), expected);
}

#[test]
fn a_line_that_is_no_key_is_named() {
    assert_eq!(read("[dpdk]\nword\n").unwrap_err().0, 2);
    assert_eq!(read("[dpdk\n").unwrap_err().0, 1);
    assert_eq!(read(&"x".repeat(3000)).unwrap_err().0, 1);
}

/// Returns the device of a file, without the common parts.
fn device_of(file: &FstackFile) -> &str {
    let given = file.given.iter().find(|given| given.option == "device");
    given.map_or("", |given| given.text.as_str())
}

#[test]
fn a_container_without_a_card_joins_a_switch_by_vhost_user() {
    let text = format!(
        "{BASE}[dpdk]\nnb_vdev=1\nno_huge=1\nmemory=128\n[vdev0]\npath=/run/vhost0\nqueues=1\n\
         queue_size=256\nmac=02:00:00:00:00:01\ncq=0\niface=x\n"
    );
    let file = parse(&text).unwrap();
    assert_eq!(
        device_of(&file),
        "dpdk:-m 128 --no-huge --no-pci --vdev=virtio_user0,path=/run/vhost0,queues=1,\
         queue_size=256,mac=02:00:00:00:00:01,cq=0 -- --port=0 --queues=4 --promiscuous --no-tso"
    );
    let found = settings(&text, 0);
    assert_eq!(found.interface.as_deref(), Some("f-stack-0"));
    assert_eq!(found.device_kind().map(|kind| kind.name), Some("dpdk"));
}

#[test]
fn dpdk_keys_become_eal_arguments_or_without_dpdk_are_each_reported() {
    let text = format!(
        "{BASE}[dpdk]\nallow=0000:02:00.0,mprq_en=1,rxqs_min_mprq=2,0000:03:00.0\nchannel=4\n\
         base_virtaddr=0x7f0000000000\nfile_prefix=a\npromiscuous=0\ntso=1\n\
         tx_csum_offoad_skip=1\nidle_sleep=20\nlog_level=7\nsymmetric_rss=1\nvlan_strip=1\n"
    );
    let file = parse_for_dpdk(&text).unwrap();
    assert_eq!(
        device_of(&file),
        "dpdk:-n 4 --base-virtaddr=0x7f0000000000 --file-prefix=container-a --log-level=7 \
         -a 0000:02:00.0,mprq_en=1,rxqs_min_mprq=2 -a 0000:03:00.0 -- --port=0 --queues=4 \
         --no-checksum --symmetric-rss --vlan-strip --sleep-us=20"
    );
    assert_eq!(file.notes, []);
    let without = text.replace(
        "0000:02:00.0,mprq_en=1,rxqs_min_mprq=2,0000:03:00.0",
        "02:00.1",
    );
    let file = parse(&without).unwrap();
    assert_eq!((device_of(&file), file.notes.len()), ("", 6));
    let own = |text: &str| {
        let it = settings(text, 0);
        (
            it.is_promiscuous,
            it.has_no_segmentation,
            it.has_no_checksum,
        )
    };
    assert_eq!(own(&without), (false, false, true));
    let other = without.replace("promiscuous=0\ntso=1", "promiscuous=1\ntso=0");
    assert_eq!(own(&other), (true, true, true));
    assert_eq!(own(BASE), (false, false, false));
    let several = text.replace("port_list=0", "port_list=0-1")
        + "[port1]\naddr=10.1.0.5\nnetmask=255.255.255.0\n";
    let error = parse_for_dpdk(&several).unwrap_err().to_string();
    assert!(
        error.contains("line 3: [dpdk] port_list names several"),
        "{error}"
    );
    let many = text.replace("lcore_mask=f00", "lcore_mask=3ffff");
    let file = parse_for_dpdk(&many).unwrap();
    assert!(device_of(&file).contains(" --queues=16 "), "{file:?}");
    assert!(file.notes[0].sentence.contains("at most 16 queues"));
    let one = text.replace("lcore_mask=f00", "lcore_mask=100");
    assert!(!device_of(&parse_for_dpdk(&one).unwrap()).contains("--queues"));
    let wrong = text.replace("allow=0000:02:00.0,", "allow=");
    assert!(
        parse_for_dpdk(&wrong)
            .unwrap_err()
            .to_string()
            .contains("PCI addresses")
    );
}

#[test]
fn bonds_are_dpdks_or_the_kernels() {
    let text = format!(
        "{BASE}[dpdk]\nnb_bond=1\n[bond0]\nmode=4\nslave=0000:0a:00.0,slave=0000:0a:00.1\n\
         xmit_policy=l34\nup_delay=10\n"
    );
    assert_eq!(
        device_of(&parse_for_dpdk(&text).unwrap()),
        "dpdk:--vdev=net_bonding0,mode=4,slave=0000:0a:00.0,slave=0000:0a:00.1,xmit_policy=l34,\
         up_delay=10 -- --queues=4 --promiscuous --no-tso"
    );
    let notes = parse(&text).unwrap().notes;
    assert!(notes.iter().any(|note| note.key == "[dpdk] nb_bond"));
    let missing = text.replace("slave=0000:0a:00.0,slave=0000:0a:00.1\n", "");
    assert!(
        parse_for_dpdk(&missing)
            .unwrap_err()
            .to_string()
            .contains("has no slave")
    );
}

#[test]
fn device_arguments_of_the_file_apply_if_none_are_given() {
    let mut layers = Layers::default();
    layers
        .take_fstack(&parse_for_dpdk(BASE).unwrap(), None)
        .unwrap();
    let set = |layers: &mut Layers, text: &str| {
        layers
            .set("device", text.to_owned(), crate::Source::CommandLine)
            .unwrap();
    };
    set(&mut layers, "dpdk");
    assert_eq!(
        layers.text("device"),
        Some("dpdk:-- --port=0 --queues=4 --promiscuous --no-tso")
    );
    set(&mut layers, "dpdk:--no-pci");
    assert_eq!(layers.text("device"), Some("dpdk:--no-pci"));
}
