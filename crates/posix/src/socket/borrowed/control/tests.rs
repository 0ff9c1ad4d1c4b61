//! Tests of a child's end of the control socket.

use rustix::net::SendFlags;
use slipstack_channel::Envelope;

use super::*;
use crate::lending::pump::ROOM;
use crate::socket::borrowed::child_message::{
    Heard, answer, control_pair, give, give_connection, hear, leave,
};

#[test]
fn a_message_arrives_unchanged() {
    let (ours, theirs) = control_pair().unwrap();
    let control = Arc::new(Control::new(theirs));
    let said = Message {
        kind: MessageKind::Shut,
        id: 7,
        token: u64::MAX - 1,
        amount: 2,
    };
    control.say(said, None).unwrap();
    let (told, _end) = control_pair().unwrap();
    control.say(said, Some(told.as_fd())).unwrap();
    assert!(matches!(hear(&ours, &mut []), Heard::Message(it, 0, None) if it == said));
    assert!(matches!(hear(&ours, &mut []), Heard::Message(it, 0, Some(_)) if it == said));
    assert!(matches!(hear(&ours, &mut []), Heard::Nothing));
    rustix::net::send(&control.end, b"what?", SendFlags::empty()).unwrap();
    assert!(matches!(hear(&ours, &mut []), Heard::Noise));
    drop(control);
    assert!(matches!(hear(&ours, &mut []), Heard::End));
}

#[test]
fn datagrams_that_come_before_a_question_are_kept() {
    let (ours, theirs) = control_pair().unwrap();
    let control = Arc::new(Control::new(theirs));
    let from = Some("10.0.0.1:53".parse().unwrap());
    for (id, len) in [(1, 3), (2, 65_000), (1, 0)] {
        let envelope = Envelope {
            peer: from,
            ..Envelope::default()
        };
        assert!(leave(
            &ours,
            id,
            &Left::new(envelope, vec![7; len]).unwrap()
        ));
        answer(&ours);
    }
    control.keep_left(&mut Vec::new());
    assert!(matches!(
        rustix::net::recv(&control.end, &mut [0; 1], RecvFlags::DONTWAIT),
        Err(rustix::io::Errno::AGAIN)
    ));
    let lens = |id| {
        control
            .take_left(id)
            .iter()
            .map(|it| it.bytes.len())
            .collect()
    };
    let (first, second): (Vec<usize>, Vec<usize>) = (lens(1), lens(2));
    assert_eq!((first, second), (vec![3, 0], vec![65_000]));
}

#[test]
fn a_call_waits_for_its_own_result() {
    let (ours, theirs) = control_pair().unwrap();
    let control = Arc::new(Control::new(theirs));
    let message = Message {
        kind: MessageKind::Call,
        id: 1,
        token: 9,
        amount: 0,
    };
    answer(&ours);
    assert!(give(&ours, 8, [&b"late"[..], b""]));
    assert!(give(&ours, 9, [&b"in"[..], b"time"]));
    let result = control.call(message, &[IoSlice::new(b"please")], 100);
    assert_eq!(result, Some(b"intime".to_vec()));
    let mut room = [0; 10];
    assert!(matches!(hear(&ours, &mut room), Heard::Message(it, 6, None) if it == message));
    assert_eq!(&room[..6], b"please");
    drop(ours);
    assert_eq!(control.call(message, &[], 100), None);
}

#[test]
fn many_connections_are_given_back_with_few_messages() {
    let (ours, theirs) = control_pair().unwrap();
    let control = Arc::new(Control::new(theirs));
    let ids: Vec<u64> = (0..IDS_MAX as u64 + 1).map(|id| id << 40 | id).collect();
    control.give_back(&ids);
    let mut room = vec![0; ROOM];
    let mut came = Vec::new();
    for count in [IDS_MAX, 1] {
        let Heard::Message(message, len, None) = hear(&ours, &mut room) else {
            panic!("{} ids have come", came.len());
        };
        assert_eq!((message.kind, len), (MessageKind::GiveAllBack, count * 8));
        came.extend_from_slice(&room[..len]);
    }
    let all: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    assert!(came == all);
    assert!(matches!(hear(&ours, &mut room), Heard::Nothing));
}

#[test]
fn a_connection_image_of_any_length_arrives_with_its_socket() {
    let (ours, theirs) = control_pair().unwrap();
    let control = Arc::new(Control::new(theirs));
    let want = Message {
        kind: MessageKind::Want,
        id: 1,
        token: 9,
        amount: 0,
    };
    for len in [16, 3 << 20] {
        let connection = vec![7; len];
        assert!(give_connection(&ours, 9, &connection, ours.as_fd()));
        let (came, pair) = control.ask_for(want, &Unlisted).unwrap();
        assert!(came == connection && pair.is_some(), "{len}");
    }
}

#[test]
fn a_waiting_thread_continues_when_there_is_an_answer() {
    let (ours, theirs) = control_pair().unwrap();
    let control = Arc::new(Control::new(theirs));
    answer(&ours);
    answer(&ours);
    let message = Message {
        kind: MessageKind::ReadNow,
        id: 1,
        token: 1,
        amount: 1,
    };
    std::thread::scope(|scope| {
        let asker = scope.spawn(|| control.ask(message));
        loop {
            if let Heard::Message(..) = hear(&ours, &mut []) {
                break;
            }
            std::thread::yield_now();
        }
        answer(&ours);
        asker.join().unwrap();
    });
}

#[test]
fn calls_do_not_wait_for_a_silent_owner_and_reach_it_in_their_order() {
    let (ours, theirs) = control_pair().unwrap();
    let control = Arc::new(Control::new(theirs));
    let call = |token| Message {
        kind: MessageKind::Call,
        id: 1,
        token,
        amount: 0,
    };
    assert_eq!(control.call_briefly(call(1), &[], 100), None);
    assert!(control.is_silent());
    let begun = Instant::now();
    let set = |token: u64, name| {
        let (id, level) = (1, 0);
        let subject = Subject::Option { id, level, name };
        let value = token.to_le_bytes();
        assert_eq!(
            control.call_surely(call(token), &[IoSlice::new(&value)], subject, 100),
            None
        );
    };
    // More than the socket has room for.
    for token in 2..3000 {
        set(token, (token % 10) as i32);
    }
    assert_eq!(control.call_briefly(call(3000), &[], 100), None);
    assert!(begun.elapsed() < 10 * ANSWER_TIMEOUT);
    let mut came = Vec::new();
    while came.last() != Some(&2999) {
        if let Heard::Message(message, ..) = hear(&ours, &mut [0; 8]) {
            came.push(message.token);
            assert!(give(&ours, message.token, [&b""[..], b""]) || came.len() > 100);
        }
    }
    assert!(came.is_sorted() && came[0] == 1 && came.ends_with(&[2998, 2999]));
    let last: Vec<u64> = came.split_off(came.len() - 10);
    assert!(last.iter().copied().eq(2990..3000), "{last:?}");
    assert!(!control.is_silent());
}

#[test]
fn the_state_of_a_process_is_found_behind_any_name() {
    let found = behind_name(b"17 (a) b) R 1 17");
    assert_eq!(found.as_deref(), Some(" R 1 17"));
    assert_eq!(behind_name(b"17"), None);
    let own = std::fs::read("/proc/self/stat").unwrap();
    assert!(
        behind_name(&own)
            .unwrap()
            .trim_start()
            .starts_with(['R', 'S'])
    );
}

#[test]
fn a_call_that_is_not_answered_in_time_names_its_end() {
    let (ours, theirs) = control_pair().unwrap();
    let control = Control::new(theirs);
    let call = |token| Message {
        kind: MessageKind::Call,
        id: 1,
        token,
        amount: 0,
    };
    assert!(give(&ours, 1, [&b""[..], b"done"]));
    let called = control.call_in_time(|| 7, call(1), &[], 100);
    assert_eq!(called, Ok(b"done".to_vec()));
    assert!(matches!(hear(&ours, &mut []), Heard::Message(..)));
    let called = control.call_in_time(|| 7, call(2), &[], 100);
    assert_eq!(called, Err(Unheard::Silent));
    let Heard::Message(heard, ..) = hear(&ours, &mut []) else {
        panic!("no call");
    };
    assert_eq!(heard.amount, 7 + CALL_TIMEOUT.as_nanos() as u64);
    drop(ours);
    let called = control.call_in_time(|| 7, call(3), &[], 100);
    assert_eq!(called, Err(Unheard::Gone));
}
