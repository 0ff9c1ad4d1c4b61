use super::*;

fn row(state: SocketState, local: &str, remote: Option<&str>) -> SocketRow {
    let remote = remote.map(|it| it.parse().unwrap());
    SocketRow {
        is_held: true,
        idle_ms: Some(500),
        ..SocketRow::between(state, local.parse().unwrap(), remote)
    }
}

fn read(text: &str) -> Result<(Option<u16>, Expression), SyntaxError> {
    parse_filter(text, &|name| (name == "http").then_some(80))
}

#[test]
fn conditions_hold_as_those_of_ss_do() {
    let it = row(
        SocketState::Established,
        "10.0.0.5:80",
        Some("10.1.2.3:40000"),
    );
    let table = [
        ("sport = :80", true),
        ("sport = :http", true),
        ("sport :80", true),
        ("sport != :80", false),
        ("sport lt 81", true),
        ("dport >= 40000 and dport<40001", true),
        ("dst 10.0.0.0/8", true),
        ("dst 10.1.2.3:40000", true),
        ("dst 10.1.2.3:40001", false),
        ("dst != 10.1.2.3", false),
        ("src [::1]:80", false),
        ("src *:80", true),
        ("src :81 or dst 10.1.2.3", true),
        ("not src 10.0.0.5", false),
        ("! ( sport = :80 and dport = :1 )", true),
        ("sport = :80 dport = :1", false),
        ("(sport=:80)&&!(dport=:1||dport=:2)", true),
        ("sport = :1 and dport = :1 or sport = :80", true),
    ];
    for (text, holds) in table {
        let (states, expression) = read(text).unwrap();
        assert_eq!(states, None, "{text}");
        assert_eq!(expression.matches(&it), holds, "{text}");
    }
}

#[test]
fn state_filters_combine_as_sets() {
    let both = SocketState::Established.bit() | SocketState::TimeWait.bit();
    let of = |text| read(text).unwrap().0.unwrap();
    assert_eq!(of("state established state time-wait"), both);
    assert_eq!(
        of("exclude listening"),
        Filter::STATES_ALL & !SocketState::Listen.bit()
    );
    assert_eq!(of("state all"), Filter::STATES_ALL);
    assert_eq!(read("").unwrap(), (None, Expression::EVERYTHING));
    let (states, expression) = read("state established sport = :80").unwrap();
    assert_eq!(states, Some(SocketState::Established.bit()));
    assert_eq!(
        expression,
        Expression::Port(Side::Local, Comparison::Equal, 80)
    );
}

#[test]
fn errors_name_the_faulty_word() {
    let table = [
        ("state open", "there is no state \"open\""),
        ("sport = :nothing", "\":nothing\" is no port"),
        ("dst 10.0.0.0/33", "\"10.0.0.0/33\" is no address"),
        ("( sport = :80", "a parenthesis is not closed"),
        ("sport = :80 )", "\")\" has no place in the filter there"),
        ("sport", "a port is missing at the end of the filter"),
        (
            "sport = :80 and",
            "a condition is missing at the end of the filter",
        ),
    ];
    for (text, why) in table {
        assert_eq!(read(text).unwrap_err().to_string(), why, "{text}");
    }
    assert!(read(&"( ".repeat(100_000)).is_err());
}

#[test]
fn a_filter_goes_by_protocol_family_state_and_idle_time() {
    let it = row(
        SocketState::Established,
        "[fd00::5]:80",
        Some("[fd00::9]:4"),
    );
    let of = |change: fn(&mut Filter)| {
        let mut filter = Filter::of_states(Filter::STATES_CONNECTED);
        change(&mut filter);
        filter.matches(&it)
    };
    assert!(of(|_| {}));
    assert!(!of(|it| it.has_tcp = false));
    assert!(!of(|it| it.has_v6 = false));
    assert!(!of(|it| it.states = SocketState::Listen.bit()));
    assert!(of(|it| it.expression = Expression::IdleMs(500)));
    assert!(!of(|it| it.expression = Expression::IdleMs(501)));
    let text = serde_json::to_string(&it).unwrap();
    assert_eq!(serde_json::from_str::<SocketRow>(&text).unwrap(), it);
}
