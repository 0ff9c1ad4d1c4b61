//! New programs: they get our environment variables back, even if this one has cleared them (nginx
//! does before a binary upgrade).

pub mod abi;
mod fitness;
pub mod raw;
pub mod rights;
mod search;
mod spawn;
mod sys;

use std::ffi::CString;

use crate::process;

const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// The name of `variable` with its equals sign.
fn name_of(variable: &[u8]) -> &[u8] {
    let end = variable.iter().position(|&byte| byte == b'=');
    &variable[..end.map_or(variable.len(), |at| at + 1)]
}

/// Our library, as `LD_PRELOAD` names it.
fn library(ours: &[CString]) -> Option<&[u8]> {
    let value = ours
        .iter()
        .find_map(|v| v.as_bytes().strip_prefix(PRELOAD))?;
    value
        .split(|&byte| byte == b':' || byte == b' ')
        .find(|path| path.ends_with(b"libslipstack.so"))
}

/// The value of `LD_PRELOAD` that keeps the program's own libraries and adds ours.
fn preload_with(ours: &[CString], theirs: &[u8]) -> Option<CString> {
    let library = library(ours)?;
    let is_there = theirs
        .split(|&byte| byte == b':' || byte == b' ' || byte == b'=')
        .any(|path| path.ends_with(b"libslipstack.so"));
    if is_there {
        return None;
    }
    let theirs = &theirs[PRELOAD.len()..];
    let mut text = PRELOAD.to_vec();
    text.extend_from_slice(library);
    if !theirs.is_empty() {
        text.push(b':');
        text.extend_from_slice(theirs);
    }
    CString::new(text).ok()
}

/// Longest text of one variable: the kernel takes 32 pages (MAX_ARG_STRLEN), the name included.
const TEXT_LEN_MAX: usize = 120 << 10;

/// The variables for sockets that outlive the exec: the text is a list, of which each has a part.
fn inherit_variables(text: Option<String>) -> Vec<CString> {
    let text = text.unwrap_or_default();
    let (mut rest, mut variables) = (text.as_str(), Vec::new());
    while !rest.is_empty() {
        // An item has some hundred bytes at most.
        let most = rest.as_bytes().get(..TEXT_LEN_MAX);
        let comma = most.and_then(|most| most.iter().rposition(|byte| *byte == b','));
        let end = comma.unwrap_or(rest.len());
        let name = process::inherit_name(variables.len());
        variables.extend(CString::new(format!("{name}={}", &rest[..end])));
        rest = rest[end..].trim_start_matches(',');
    }
    variables
}

/// Whether the variable was meant for one program: this one.
fn is_for_one(variable: &[u8]) -> bool {
    variable.starts_with(process::INHERIT.as_bytes())
        || variable.starts_with(rights::USERS.as_bytes())
}

/// Returns the environment for a new program: `theirs` with our variables, and those that only it
/// gets. `None`: unchanged.
fn completed(ours: &[CString], theirs: &[&[u8]], only_its: Vec<CString>) -> Option<Additions> {
    let mut additions = Additions {
        dropped: Vec::new(),
        added: Vec::new(),
    };
    for (index, variable) in theirs.iter().enumerate() {
        if is_for_one(variable) {
            additions.dropped.push(index);
        } else if variable.starts_with(PRELOAD)
            && let Some(both) = preload_with(ours, variable)
        {
            additions.dropped.push(index);
            additions.added.push(both);
        }
    }
    for variable in ours {
        let name = name_of(variable.as_bytes());
        if !theirs.iter().any(|theirs| theirs.starts_with(name)) {
            additions.added.push(variable.clone());
        }
    }
    additions.added.extend(only_its);
    let is_changed = !additions.dropped.is_empty() || !additions.added.is_empty();
    is_changed.then_some(additions)
}

/// The difference between two environments.
#[derive(Debug, PartialEq, Eq)]
struct Additions {
    /// Indices of the program's variables that go.
    dropped: Vec<usize>,
    added: Vec<CString>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours() -> Vec<CString> {
        [c"LD_PRELOAD=/opt/libslipstack.so", c"SLIPSTACK_IF=eth1"]
            .map(CString::from)
            .to_vec()
    }

    #[test]
    fn a_cleared_environment_gets_the_librarys_variables_back() {
        let additions = completed(&ours(), &[b"TZ=UTC"], Vec::new()).unwrap();
        assert!(additions.dropped.is_empty());
        assert_eq!(additions.added, ours());
    }

    #[test]
    fn a_whole_environment_stays_as_it_is() {
        let theirs: [&[u8]; 2] = [b"SLIPSTACK_IF=eth2", b"LD_PRELOAD=/opt/libslipstack.so"];
        assert_eq!(completed(&ours(), &theirs, Vec::new()), None);
    }

    #[test]
    fn other_preloaded_libraries_are_kept() {
        let theirs: [&[u8]; 2] = [b"SLIPSTACK_IF=eth1", b"LD_PRELOAD=libfaketime.so"];
        let additions = completed(&ours(), &theirs, Vec::new()).unwrap();
        assert_eq!(additions.dropped, [1]);
        let both = c"LD_PRELOAD=/opt/libslipstack.so:libfaketime.so".to_owned();
        assert_eq!(additions.added, [both]);
    }

    #[test]
    fn what_is_for_one_program_is_not_passed_on() {
        let mut theirs: Vec<&[u8]> = vec![
            b"SLIPSTACK_INHERIT=old",
            b"SLIPSTACK_INHERIT_1=old",
            b"SLIPSTACK_USERS=0,1",
        ];
        let ours = ours();
        theirs.extend(ours.iter().map(|v| v.as_bytes()));
        let inherit = inherit_variables(Some("new".into()));
        let additions = completed(&ours, &theirs, inherit).unwrap();
        assert_eq!(additions.dropped, [0, 1, 2]);
        assert_eq!(additions.added, [c"SLIPSTACK_INHERIT=new".to_owned()]);
    }

    #[test]
    fn a_long_text_is_divided_between_its_items() {
        let items: Vec<String> = (0..30_000)
            .map(|item| format!("h{item}/10.0.0.1"))
            .collect();
        let variables = inherit_variables(Some(items.join(",")));
        assert!(variables.len() > 1);
        let mut came = Vec::new();
        for (index, variable) in variables.iter().enumerate() {
            assert!(variable.count_bytes() < 128 << 10);
            let (name, part) = variable.to_str().unwrap().split_once('=').unwrap();
            assert_eq!(name, process::inherit_name(index));
            came.extend(part.split(',').map(str::to_owned));
        }
        assert!(came == items);
        assert!(inherit_variables(None).is_empty());
    }
}
