//! Compiles the C part and finds DPDK's libraries; only with the feature `dpdk`.

fn main() {
    println!("cargo:rerun-if-changed=src/shim.c");
    println!("cargo:rerun-if-changed=src/shim.h");
    #[cfg(feature = "dpdk")]
    dpdk::build();
}

#[cfg(feature = "dpdk")]
mod dpdk {
    use std::process::Command;

    pub fn build() {
        let mut shim = cc::Build::new();
        for flag in ask("--cflags") {
            shim.flag(flag);
        }
        shim.file("src/shim.c")
            .warnings(true)
            .compile("slipstack_shim");
        for flag in ask("--libs") {
            if let Some(directory) = flag.strip_prefix("-L") {
                println!("cargo:rustc-link-search=native={directory}");
            }
        }
        // Libraries that the shim calls; DPDK itself loads the drivers.
        for library in [
            "rte_ethdev",
            "rte_mempool",
            "rte_mbuf",
            "rte_net",
            "rte_eal",
            "rte_kvargs",
        ] {
            println!("cargo:rustc-link-lib=dylib={library}");
        }
    }

    fn ask(what: &str) -> Vec<String> {
        let asked = Command::new("pkg-config").args([what, "libdpdk"]).output();
        match asked {
            Ok(output) if output.status.success() => {
                let text = String::from_utf8_lossy(&output.stdout);
                text.split_whitespace().map(str::to_owned).collect()
            }
            _ => {
                println!(
                    "cargo:warning=pkg-config does not know libdpdk; install it (Debian: \
                     libdpdk-dev)"
                );
                std::process::exit(1);
            }
        }
    }
}
