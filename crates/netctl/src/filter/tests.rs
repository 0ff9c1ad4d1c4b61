use super::change::FilterFault;
use super::*;

fn rule(number: u32, action: FilterAction) -> FilterRule {
    FilterRule::new(number, action)
}

fn numbers(state: &FilterState) -> Vec<(u32, u64)> {
    let rules = state.rules.iter();
    rules.map(|rule| (rule.number, rule.id)).collect()
}

fn change(state: &FilterState, changes: &[FilterChange]) -> Result<FilterState, FilterError> {
    change_filter(state, changes, 20, &mut Vec::new())
}

fn add(number: u32) -> FilterChange {
    FilterChange::Add(rule(number, FilterAction::Deny))
}

fn prefix(text: &str) -> (IpAddr, u8) {
    let (ip, len) = text.split_once('/').unwrap();
    (ip.parse().unwrap(), len.parse().unwrap())
}

#[test]
fn filter_rules_are_ordered_and_each_change_is_atomic() {
    let mut given = Vec::new();
    let changes = [add(200), add(0), add(100), add(200)];
    let state = change_filter(&FilterState::default(), &changes, 7, &mut given).unwrap();
    assert_eq!(numbers(&state), [(100, 9), (200, 7), (200, 10), (300, 8)]);
    assert_eq!(given, [200, 300, 100, 200]);
    let text = serde_json::to_string(&state).unwrap();
    assert_eq!(serde_json::from_str::<FilterState>(&text).unwrap(), state);
    let left = change(&state, &[FilterChange::Delete(200), add(250)]).unwrap();
    assert_eq!(numbers(&left), [(100, 9), (250, 20), (300, 8)]);
    assert_eq!(change(&state, &[FilterChange::Flush]).unwrap().rules, []);
    let back = FilterChange::Add(rule(500, FilterAction::SkipTo(500)));
    let wrong = [
        (FilterChange::Delete(150), FilterFault::NotFound),
        (add(65_535), FilterFault::Number),
        (back, FilterFault::Backwards),
        (FilterChange::DeleteSet(4), FilterFault::NotFound),
    ];
    for (wrong, fault) in wrong {
        let error = change(&state, &[add(400), wrong]).unwrap_err();
        assert_eq!((error.at, error.fault), (1, fault));
    }
}

#[test]
fn sets_are_disabled_moved_and_swapped() {
    let of = |number, set| {
        FilterChange::Add(FilterRule {
            set,
            ..rule(number, FilterAction::Deny)
        })
    };
    let sets =
        |state: &FilterState| -> Vec<u8> { state.rules.iter().map(|rule| rule.set).collect() };
    let begin = [of(100, 1), of(200, 2), of(300, 31)];
    let state = change(&FilterState::default(), &begin).unwrap();
    let swapped = change(&state, &[FilterChange::SwapSets(1, 2)]).unwrap();
    assert_eq!(sets(&swapped), [2, 1, 31]);
    let moved = change(&state, &[FilterChange::MoveSet { from: 1, to: 2 }]).unwrap();
    assert_eq!(sets(&moved), [2, 2, 31]);
    let one = FilterChange::MoveRule { number: 200, to: 7 };
    assert_eq!(sets(&change(&state, &[one]).unwrap()), [1, 7, 31]);
    let off = FilterChange::Enable {
        enabled: 0,
        disabled: 1 << 2,
    };
    let off = change(&state, &[off]).unwrap();
    let enabled: Vec<bool> = off.rules.iter().map(|it| off.is_enabled(it)).collect();
    assert_eq!(enabled, [true, false, true]);
    assert_eq!(
        numbers(&change(&state, &[FilterChange::Flush]).unwrap())[0].0,
        300
    );
    let last = FilterChange::Enable {
        enabled: 0,
        disabled: 1 << 31,
    };
    assert_eq!(
        change(&state, &[last]).unwrap_err().fault,
        FilterFault::LastSet
    );
    assert_eq!(
        change(&state, &[of(400, 32)]).unwrap_err().fault,
        FilterFault::Set
    );
}

#[test]
fn tables_are_filled_emptied_and_looked_up() {
    let table = |change| FilterChange::Table {
        name: "bad".to_owned(),
        change,
    };
    let entries = |all: &[(&str, u32)]| TableChange::Add {
        entries: all
            .iter()
            .map(|(net, value)| (prefix(net), *value))
            .collect(),
        may_replace: false,
    };
    let fill = entries(&[("10.1.2.3/8", 1), ("10.1.0.0/16", 2), ("2001:db8::/32", 3)]);
    let state = change(&FilterState::default(), &[table(fill)]).unwrap();
    let bad = state.find_table("bad").unwrap();
    let found = |ip: &str| bad.lookup(ip.parse().unwrap());
    assert_eq!(found("10.1.9.9"), Some((prefix("10.1.0.0/16"), 2)));
    assert_eq!(found("10.2.9.9"), Some((prefix("10.0.0.0/8"), 1)));
    assert_eq!(found("2001:db8::9"), Some((prefix("2001:db8::/32"), 3)));
    assert_eq!(found("11.0.0.1"), None);
    let mut bytes = Vec::new();
    write_prefixes(&bad.entries, &mut bytes);
    assert_eq!(read_prefixes(&mut &bytes[..], 3), Some(bad.entries.clone()));
    assert_eq!(read_prefixes(&mut &bytes[1..], 3), None);
    let uses = FilterChange::Add(FilterRule {
        from: FilterEnd {
            tables: vec![("bad".to_owned(), None)],
            ..FilterEnd::default()
        },
        ..rule(100, FilterAction::Deny)
    });
    let used = change(&state, &[uses, table(TableChange::Destroy)]);
    assert_eq!(used.unwrap_err().fault, FilterFault::TableInUse);
    let again = change(&state, &[table(entries(&[("10.0.0.0/8", 5)]))]).unwrap_err();
    assert_eq!(again.to_string(), "the table has 10.0.0.0/8 already");
    let gone = TableChange::Delete {
        prefixes: vec![prefix("10.0.0.0/8")],
        may_miss: false,
    };
    let left = change(&state, &[table(gone)]).unwrap();
    assert_eq!(left.tables[0].entries.len(), 2);
    assert_ne!(left.tables[0].revision, state.tables[0].revision);
    assert!(
        change(&left, &[table(TableChange::Destroy)])
            .unwrap()
            .tables
            .is_empty()
    );
}

#[test]
fn a_filter_is_replaced_and_unchanged_parts_are_recognised() {
    let table = |value| FilterTable {
        name: "bad".to_owned(),
        revision: 0,
        entries: vec![(prefix("10.0.0.0/8"), value)],
    };
    let wanted = |numbers: &[u32], value| FilterWanted {
        rules: numbers
            .iter()
            .map(|number| rule(*number, FilterAction::Deny))
            .collect(),
        disabled_sets: 1 << 3,
        tables: vec![table(value)],
    };
    let replace = |state: &FilterState, numbers: &[u32], value, id| {
        let change = FilterChange::Replace(wanted(numbers, value));
        change_filter(state, &[change], id, &mut Vec::new()).unwrap()
    };
    let first = replace(&FilterState::default(), &[100, 200, 200], 1, 10);
    assert_eq!(numbers(&first), [(100, 10), (200, 11), (200, 12)]);
    let same = replace(&first, &[100, 200, 200], 1, 50);
    assert_eq!(same, first);
    assert!(same.is_like(&first));
    let other = replace(&first, &[50, 200], 2, 50);
    assert_eq!(numbers(&other), [(50, 50), (200, 11)]);
    assert!(!other.is_like(&first));
    assert_ne!(other.tables[0].revision, first.tables[0].revision);
    let none = replace(&other, &[], 2, 90);
    assert_eq!(none.tables, other.tables);
}
