//! Capabilities of the running kernel.

/// Returns whether virtio headers of TAP and AF_PACKET may say that a frame joins datagrams
/// (VIRTIO_NET_HDR_GSO_UDP_L4): from Linux 6.2 on.
pub(crate) fn cuts_datagrams() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .is_ok_and(|release| version(&release) >= Some((6, 2)))
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert_eq!(version("6.18.44-fc-v669\n"), Some((6, 18)));
        assert_eq!(version("5.4"), Some((5, 4)));
        assert_eq!(version("linux"), None);
        assert!(version("6.10.1") > Some((6, 2)));
    }
}
