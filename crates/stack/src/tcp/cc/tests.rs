//! Rules that all algorithms share, as tables.

use super::*;

const MSS: u32 = 1_000;

fn ack(bytes: u32) -> Ack {
    Ack {
        now: Instant(1_000_000_000),
        bytes,
        rtt_ns: 0,
        srtt_ns: 10_000_000,
        una: 1,
        delivered: 1,
        nxt: 1,
        burst: 0,
        is_after_timeout: false,
    }
}

fn control(kind: Congestion) -> Control {
    let mut control = Control::new(kind, MSS, false);
    control.begin(MSS, 10);
    control.is_limited = true;
    control
}

#[test]
fn the_state_of_an_algorithm_is_small() {
    assert!(size_of::<Control>() <= 64, "{}", size_of::<Control>());
}

#[test]
fn the_initial_window_is_that_of_rfc_6928() {
    // RFC 6928 2.
    for (mss, cwnd) in [
        (536, 5_360),
        (1_460, 14_600),
        (2_000, 14_600),
        (8_960, 17_920),
    ] {
        assert_eq!(initial_window(mss, 10), cwnd, "mss {mss}");
    }
}

#[test]
fn slow_start_grows_by_bytes_up_to_l_segments_an_ack() {
    // RFC 3465 2.2 and 2.3, RFC 9406 4.3, RFC 8257 3.4.
    // (algorithm, bytes acknowledged at once, after a timeout, super-frame) → growth.
    let table = [
        (Congestion::NewReno, 100, false, 0, 100),
        (Congestion::NewReno, 1_000, false, 0, 1_000),
        (Congestion::NewReno, 9_000, false, 0, 2_000),
        (Congestion::NewReno, 9_000, false, 8_000, 8_000),
        (Congestion::NewReno, 9_000, true, 8_000, 1_000),
        (Congestion::Dctcp, 9_000, false, 0, 2_000),
        (Congestion::Cubic, 9_000, false, 0, 8_000),
        (Congestion::Cubic, 9_000, true, 0, 1_000),
    ];
    for (kind, bytes, is_after_timeout, burst, growth) in table {
        let mut control = control(kind);
        control.on_ack(&Ack {
            burst,
            is_after_timeout,
            ..ack(bytes)
        });
        assert_eq!(control.window.cwnd, 10_000 + growth, "{kind:?} {bytes}");
    }
}

#[test]
fn a_window_that_the_application_does_not_fill_does_not_grow() {
    // RFC 7661 4.4.
    for kind in [Congestion::Cubic, Congestion::NewReno, Congestion::Dctcp] {
        let mut control = control(kind);
        control.is_limited = false;
        control.on_ack(&ack(1_000));
        assert_eq!(control.window.cwnd, 10_000);
    }
}

#[test]
fn an_ack_alone_does_not_grow_bbrs_window() {
    for is_after_timeout in [false, true] {
        let mut control = control(Congestion::Bbr);
        control.on_ack(&Ack {
            is_after_timeout,
            ..ack(4_000)
        });
        assert_eq!(control.window.cwnd, 10_000);
    }
}

#[test]
fn the_window_of_a_moved_connection_grows_further() {
    for kind in [Congestion::Cubic, Congestion::NewReno, Congestion::Dctcp] {
        let mut control = Control::new(kind, MSS, false);
        control.resume(20_000, 20_000);
        assert_eq!(control.kind(), kind);
        control.is_limited = true;
        for n in 1..=400 {
            control.on_ack(&Ack {
                now: Instant(n * 10_000_000),
                ..ack(MSS)
            });
        }
        assert!(control.window.cwnd > 21_000, "{kind:?}");
    }
}

#[test]
fn a_spurious_reduction_is_undone_completely() {
    // RFC 9438 4.9, RFC 4015 3.2.
    for kind in [Congestion::Cubic, Congestion::NewReno, Congestion::Dctcp] {
        let mut control = control(kind);
        let saved = control.save();
        let before = (control.window.cwnd, control.window.ssthresh);
        control.on_loss(10_000);
        control.on_timeout();
        assert_eq!(control.window.cwnd, MSS);
        control.undo(saved);
        assert_eq!((control.window.cwnd, control.window.ssthresh), before);
        assert_eq!(control.kind(), kind);
    }
}

#[test]
fn undo_does_not_restore_a_replaced_algorithm() {
    let mut control = control(Congestion::Cubic);
    let saved = control.save();
    control.on_loss(10_000);
    control.set_kind(Congestion::Dctcp, false);
    control.undo(saved);
    assert_eq!(control.kind(), Congestion::Dctcp);
    assert!(control.wants_samples);
}

#[test]
fn a_restart_after_idle_begins_with_the_initial_window() {
    // RFC 5681 4.1, RFC 2861 3.
    let mut control = control(Congestion::Cubic);
    control.window.cwnd = 80_000;
    control.window.ssthresh = 20_000;
    control.on_idle(Instant(0), 10);
    assert_eq!(
        (control.window.cwnd, control.window.ssthresh),
        (10_000, 60_000)
    );
}

#[test]
fn losses_and_marks_reduce_the_window_by_their_factors() {
    // RFC 9293 3.8.2, RFC 9438 4.6, RFC 8257 3.5.
    let table = [
        (Congestion::Cubic, 70_000, 70_000),
        (Congestion::NewReno, 50_000, 50_000),
        // alpha is one at the beginning.
        (Congestion::Dctcp, 50_000, 50_000),
    ];
    for (kind, loss, mark) in table {
        for (is_mark, ssthresh) in [(false, loss), (true, mark)] {
            let mut control = control(kind);
            control.window.cwnd = 100_000;
            if is_mark {
                control.on_mark(100_000);
            } else {
                control.on_loss(100_000);
            }
            assert_eq!(control.window.ssthresh, ssthresh, "{kind:?}");
        }
    }
}

#[test]
fn pacing_rates_are_linux_s_ratios() {
    let mut control = control(Congestion::Cubic);
    control.window.cwnd = 100_000;
    assert_eq!(control.pacing_rate(10_000_000), 20_000_000);
    control.window.ssthresh = 150_000;
    assert_eq!(control.pacing_rate(10_000_000), 12_000_000);
    assert_eq!(control.pacing_rate(0), 0);
}
