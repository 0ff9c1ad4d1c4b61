"""A configuration of vsftpd for anonymous users."""

import os


def vsftpd_conf(world, **options):
    """Its file: port 2121, and a folder `in` that all may write to. `options`: further ones."""
    root = world.folder / "ftp"
    (root / "in").mkdir(parents=True)
    (root / "in").chmod(0o777)
    empty = "/var/run/vsftpd/empty"
    os.makedirs(empty, exist_ok=True)
    conf = world.folder / "vsftpd.conf"
    conf.write_text(
        f"listen=YES\nlisten_address={world.address}\nlisten_port=2121\nanonymous_enable=YES\n"
        f"anon_root={root}\nwrite_enable=YES\nanon_upload_enable=YES\nno_anon_password=YES\n"
        f"background=NO\nanon_umask=022\nsecure_chroot_dir={empty}\n"
        "allow_writeable_chroot=YES\nseccomp_sandbox=NO\n"
        + "".join(f"{name}={value}\n" for name, value in options.items())
    )
    return conf
