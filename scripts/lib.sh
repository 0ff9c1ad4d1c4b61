# Shared by the scripts beside it.

# A toolchain that rustup has put into the home directory counts as found.
case ":$PATH:" in
    *":$HOME/.cargo/bin:"*) ;;
    *) PATH="$PATH:$HOME/.cargo/bin" ;;
esac
case ":$PATH:" in
    *:/usr/sbin:*) ;;
    *) PATH="$PATH:/usr/sbin:/sbin" ;;
esac
export PATH

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
die() { say "$*"; exit 1; }
