//! The details of a socket in `ss`, beside its addresses.

use slipstack_channel::control::net::Figures;

use super::Socket;

/// Bits per second.
fn rate(bytes_per_second: u64) -> String {
    format!("{}bps", bytes_per_second.saturating_mul(8))
}

fn ms(us: u32) -> String {
    let text = format!("{:.3}", f64::from(us) / 1000.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `-i`, in the words and the order of iproute2.
pub fn internal(it: &Figures) -> String {
    let mut words = beginning(it);
    let counts = [
        ("bytes_sent", it.bytes_sent),
        ("bytes_retrans", it.bytes_retrans),
        ("bytes_acked", it.bytes_acked),
        ("bytes_received", it.bytes_received),
        ("segs_out", it.segs_out.into()),
        ("segs_in", it.segs_in.into()),
        ("data_segs_out", it.data_segs_out.into()),
        ("data_segs_in", it.data_segs_in.into()),
    ];
    add_counts(&mut words, &counts);
    add_rates(&mut words, it);
    add_counts(&mut words, &[("unacked", it.unacked.into())]);
    if it.retrans > 0 || it.retrans_total > 0 {
        words.push(format!("retrans:{}/{}", it.retrans, it.retrans_total));
    }
    let counts = [
        ("lost", it.lost.into()),
        ("sacked", it.sacked.into()),
        ("dsack_dups", it.dsack_dups.into()),
        ("reord_seen", it.reord_seen.into()),
        ("rcv_ooopack", it.rcv_ooopack.into()),
        ("rcv_space", it.rcv_space.into()),
        ("notsent", it.notsent.into()),
    ];
    add_counts(&mut words, &counts);
    if it.min_rtt_us > 0 && it.min_rtt_us < u32::MAX {
        words.push(format!("minrtt:{}", ms(it.min_rtt_us)));
    }
    let windows = [
        ("snd_wnd", it.snd_wnd.into()),
        ("rcv_wnd", it.rcv_wnd.into()),
    ];
    add_counts(&mut words, &windows);
    words.join(" ")
}

/// Returns the agreed options, times and windows.
fn beginning(it: &Figures) -> Vec<String> {
    let flags = [
        (it.has_timestamps, "ts"),
        (it.has_sack, "sack"),
        (it.has_ecn, "ecn"),
    ];
    let flags = flags.iter().filter(|(is_set, _)| *is_set);
    let mut words: Vec<String> = flags.map(|(_, word)| (*word).to_owned()).collect();
    words.push(it.congestion.clone());
    if let Some((send, receive)) = it.scales {
        words.push(format!("wscale:{send},{receive}"));
    }
    words.push(format!("rto:{}", ms(it.rto_us)));
    if it.backoff > 0 {
        words.push(format!("backoff:{}", it.backoff));
    }
    if it.rtt_us > 0 {
        words.push(format!("rtt:{}/{}", ms(it.rtt_us), ms(it.rttvar_us)));
    }
    words.push(format!("ato:{}", ms(it.ato_us)));
    for (name, size) in [
        ("mss", it.mss),
        ("pmtu", it.pmtu),
        ("rcvmss", it.rcv_mss),
        ("advmss", it.advmss),
        ("cwnd", it.cwnd),
    ] {
        words.push(format!("{name}:{size}"));
    }
    if let Some(ssthresh) = it.ssthresh {
        words.push(format!("ssthresh:{ssthresh}"));
    }
    words
}

fn add_rates(words: &mut Vec<String>, it: &Figures) {
    if it.rtt_us > 0 {
        let window = u64::from(it.cwnd) * u64::from(it.mss);
        let per_second = window * 1_000_000 / u64::from(it.rtt_us);
        words.push(format!("send {}", rate(per_second)));
    }
    let times = [
        ("lastsnd", it.last_snd_ms.into()),
        ("lastrcv", it.last_rcv_ms.into()),
        ("lastack", it.last_ack_ms.into()),
    ];
    add_counts(words, &times);
    if it.pacing_rate > 0 && it.pacing_rate < u64::MAX / 8 {
        words.push(format!("pacing_rate {}", rate(it.pacing_rate)));
    }
    if it.delivery_rate > 0 {
        words.push(format!("delivery_rate {}", rate(it.delivery_rate)));
    }
    add_counts(words, &[("delivered", it.delivered.into())]);
    if it.is_app_limited {
        words.push("app_limited".to_owned());
    }
    for (name, us) in [
        ("busy", it.busy_us),
        ("rwnd_limited", it.rwnd_limited_us),
        ("sndbuf_limited", it.sndbuf_limited_us),
    ] {
        if us > 0 {
            words.push(format!("{name}:{}ms", us / 1000));
        }
    }
}

fn add_counts(words: &mut Vec<String>, counts: &[(&str, u64)]) {
    let some = counts.iter().filter(|(_, count)| *count > 0);
    words.extend(some.map(|(name, count)| format!("{name}:{count}")));
}

/// `-e`.
pub fn extended(socket: &Socket) -> String {
    let mut words = Vec::new();
    if !socket.interface.is_empty() {
        words.push(format!("dev:{} engine:{}", socket.interface, socket.engine));
    }
    if let Some(idle) = socket.row.idle_ms {
        words.push(format!("idle:{}", seconds(idle)));
    }
    if let Some(left) = socket.row.left_ms {
        words.push(format!("timer:(timewait,{},0)", seconds(left)));
    }
    words.join(" ")
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03}sec", ms / 1000, ms % 1000)
}

/// `-m`: the bytes that wait, and the sizes of the buffers.
pub fn memory(socket: &Socket) -> String {
    let row = &socket.row;
    format!(
        "skmem:(r{},rb{},t{},tb{})",
        row.recv_q,
        row.rcvbuf.unwrap_or(0),
        row.send_q,
        row.sndbuf.unwrap_or(0)
    )
}
