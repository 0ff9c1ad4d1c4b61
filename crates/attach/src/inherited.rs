//! Kernel sockets that a starter such as systemd or inetd passes to the program.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use slipstack_mem::Descriptor;

/// Open descriptors that are sockets of IPv4 or IPv6 on more than the loopback network, each with
/// its own address.
pub fn inherited_sockets() -> Vec<(i32, SocketAddr)> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    let mut numbers: Vec<i32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    let found = numbers.into_iter().filter_map(|number| {
        let fd = Descriptor::new(number)?;
        let flags = rustix::io::fcntl_getfd(fd.as_fd()).ok()?;
        let name = rustix::net::getsockname(fd.as_fd()).ok()?;
        let addr = SocketAddr::try_from(name).ok()?;
        let is_left_open = !flags.contains(rustix::io::FdFlags::CLOEXEC);
        (is_left_open && !is_kernels(addr.ip())).then_some((number, addr))
    });
    found.collect()
}

/// Returns whether sockets there are the kernel's anyway.
fn is_kernels(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.to_canonical() == IpAddr::V4(Ipv4Addr::LOCALHOST)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::AsRawFd;

    use rustix::io::{FdFlags, fcntl_setfd};

    use super::inherited_sockets;

    #[test]
    fn only_sockets_that_stay_open_and_leave_the_machine_count() {
        let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
        let closed_at_exec = UdpSocket::bind("0.0.0.0:0").unwrap();
        let loopback = TcpListener::bind("127.0.0.1:0").unwrap();
        fcntl_setfd(&everywhere, FdFlags::empty()).unwrap();
        fcntl_setfd(&loopback, FdFlags::empty()).unwrap();
        let found = inherited_sockets();
        let has = |number| found.iter().any(|(fd, _)| *fd == number);
        assert!(found.contains(&(everywhere.as_raw_fd(), everywhere.local_addr().unwrap())));
        assert!(!has(closed_at_exec.as_raw_fd()) && !has(loopback.as_raw_fd()));
    }
}
