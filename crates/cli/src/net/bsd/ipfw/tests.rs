use slipstack_channel::control::net::{Interface, NetworkState};

use super::grammar;
use super::list::ctime;
use super::text::Writer;
use crate::net::words::Words;

fn state() -> NetworkState {
    let interface = |name: &str, link| Interface {
        name: name.to_owned(),
        link,
        ..Interface::default()
    };
    NetworkState {
        interfaces: vec![interface("eth1", 0), interface("eth1.7", 7)],
        ..NetworkState::default()
    }
}

fn written(text: &str, is_compact: bool) -> Result<String, String> {
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let mut words = Words::new("ipfw", &words);
    let state = state();
    let rule = grammar::rule(&mut words, &state, 100).map_err(|e| e.to_string())?;
    let writer = Writer {
        state: &state,
        has_names: false,
        is_compact,
        is_brief: false,
    };
    Ok(writer.text(&rule))
}

fn read(text: &str) -> Result<String, String> {
    written(text, false)
}

#[test]
fn rules_are_written_as_they_are_read() {
    for text in [
        "deny ip from any to any",
        "allow tcp from me,10.0.0.0/8,192.0.2.1 to me 80,443,8000-8099 setup in",
        "reset tcp from not fd00::/8 to any not 22",
        "unreach filter-prohib udp from any 53 to any out",
        "count icmp6 from any to any",
        "skipto 500 ip4 from any to not me",
        "deny ip from table(bad) to me6",
        "allow ip from any to not table(7,3)",
        "allow tcp from any to me 22 setup keep-state :default",
        "allow tcp from any to me 80 limit src-addr dst-port 10 :default",
        "check-state :default",
        "deny log logamount 5 ip from any to any",
        "allow { tcp or udp } from any to any 53",
        "deny ip from { 10.0.0.0/8 or not 10.1.0.0/16 } to any",
        "deny tcp from any to any tcpflags syn,!ack",
        "allow icmp from any to any icmptypes 0,3,8",
        "allow icmp6 from any to any icmp6types 128,129",
        "deny ip from any to any frag",
        "deny ip from any to any ipttl 1-5,64 iplen 0-100",
        "deny ip from any to any not via eth1.7",
        "deny ip from any to any { in or via eth1.7 }",
        "count gre from any to any via eth1.7",
        "deny ip from any to any // what is left",
    ] {
        assert_eq!(read(text).as_deref(), Ok(text));
    }
}

#[test]
fn alternative_spellings_of_rules_parse_alike() {
    for (text, same) in [
        (
            "reject tcp from any to any established",
            "unreach host tcp from any to any established",
        ),
        ("deny 47 from any to any", "deny gre from any to any"),
        (
            "deny tcp from any to any ssh",
            "deny tcp from any to any 22",
        ),
        (
            "set 5 deny ip from 10.1.2.3:255.255.0.0 to any",
            "deny ip from 10.1.2.3/16 to any",
        ),
        (
            "allow src-ip 10.0.0.0/8 dst-port 80",
            "allow ip from any to any src-ip 10.0.0.0/8 dst-port 80",
        ),
        (
            "allow ip from { 10.0.0.0/8 or table(1) or me } to any",
            "allow ip from me,10.0.0.0/8,table(1) to any",
        ),
        (
            "deny log ip from any to any",
            "deny log logamount 100 ip from any to any",
        ),
    ] {
        assert_eq!(read(text).as_deref(), Ok(same));
    }
    assert_eq!(
        written("deny ip from any to any in", true).unwrap(),
        "deny in"
    );
}

#[test]
fn errors_name_the_faulty_word() {
    for (text, why) in [
        ("deny tpc from any to any", "what is \"tpc\"?"),
        ("deny ip from 10.0.0.0/33 to any", "from cannot be"),
        (
            "deny ip from any 80 to any",
            "ports 80 are for rules of tcp or udp",
        ),
        (
            "deny tcp from any 90-80 to any",
            "ports cannot be \"90-80\"",
        ),
        (
            "deny udp from any to any setup",
            "setup is for rules of tcp",
        ),
        ("allow tcp from any to any limit 5", "limit cannot be \"5\""),
        (
            "allow tcp from any to any limit src-addr",
            "limit wants a value",
        ),
        (
            "allow ip from any to any uid root",
            "whose owners it does not know",
        ),
        ("allow ip from any to any mac any any", "not at frames"),
        ("divert 80 ip from any to any", "divert is not supported"),
        ("pipe 1 ip from any to any", "there is no traffic shaper"),
        (
            "allow tcp from any to any keep-state :web",
            "states named \":web\"",
        ),
        ("deny ip from not any to any", "from cannot be \"not any\""),
        (
            "deny ip from { 10.0.0.1 or 10.0.0.2 to any",
            "what is \"to\"?",
        ),
        ("deny ip from 10.0.0.0/24{1,2} to any", "lists of hosts"),
        (
            "deny tcp from any to any tcpflags bogus",
            "tcpflags cannot be \"bogus\"",
        ),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn times_are_those_of_ctime() {
    assert_eq!(ctime(0), "Thu Jan  1 00:00:00 1970");
    assert_eq!(ctime(951_782_400), "Tue Feb 29 00:00:00 2000");
    assert_eq!(ctime(1_795_647_910), "Wed Nov 25 23:05:10 2026");
}
