//! The stack below TCP, frame by frame: ARP, IPv4, ICMP and UDP.

mod arp;
mod ipv4;
mod support;
mod udp;
