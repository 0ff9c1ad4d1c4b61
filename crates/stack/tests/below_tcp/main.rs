//! The stack below TCP, frame by frame: ARP, IPv4 and IPv6, ICMP and UDP.

mod apart;
mod arp;
mod bare;
mod default_routers;
mod discovery;
mod forward;
mod fragments;
mod fragments_out;
mod groups;
mod groups6;
mod icmp;
mod ipv4;
mod ipv6;
mod ports;
mod routers;
mod routes;
mod support;
mod udp;
mod vlans;
