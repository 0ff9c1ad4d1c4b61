//! The back ends against a real kernel. Every test has network namespaces of its own and needs
//! root; without it, it says so and passes.

mod frames;
mod handover;
mod ingress;
mod memif;
mod net;
mod opening;
mod rules;
mod steering;
mod unlinked;
mod unprivileged;
mod xdp;
