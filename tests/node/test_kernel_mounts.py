"""Mounts over files of the kernel, as mountinfo shows them."""

from __future__ import annotations

from milabench_ng.node.kernel_mounts import covered

USUAL = """\
21 1 0:19 / /sys rw - sysfs sysfs rw
22 1 0:4 / /proc rw - proc proc rw
23 22 0:4 /sys /proc/sys ro - proc proc rw
24 21 0:23 / /sys/fs/cgroup ro - tmpfs tmpfs ro
25 24 0:24 / /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu
26 21 0:7 / /sys/kernel/debug rw - debugfs debugfs rw
27 1 8:1 / / rw - ext4 /dev/sda1 rw
"""


def test_the_kernels_own_file_systems_cover_nothing() -> None:
    assert covered(USUAL) == ()


def test_what_else_is_mounted_there_is_named_once() -> None:
    more = "30 22 0:30 / /proc/acpi ro - tmpfs tmpfs ro\n31 22 8:1 /tmp/x /proc/cpuinfo ro - ext4 /dev/sda1 rw\n" * 2
    assert covered(USUAL + more) == ("tmpfs on /proc/acpi", "ext4 on /proc/cpuinfo")


def test_lxcfs_names_the_file_that_it_shows_only_where_that_is_another() -> None:
    lxc = """\
40 22 0:52 /proc/cpuinfo /proc/cpuinfo rw,nosuid,nodev,relatime - fuse.lxcfs lxcfs rw,user_id=0,group_id=0,allow_other
41 22 0:52 /proc/meminfo /proc/meminfo rw,nosuid,nodev,relatime - fuse.lxcfs lxcfs rw,user_id=0,group_id=0,allow_other
42 21 0:52 /sys/devices/system/cpu /sys/devices/system/cpu rw - fuse.lxcfs lxcfs rw,user_id=0,group_id=0,allow_other
43 22 0:52 /x /proc/stat rw - fuse.lxcfs lxcfs rw
44 1 0:52 / /var/lib/lxcfs rw - fuse.lxcfs lxcfs rw
"""
    assert covered(USUAL + lxc) == (
        "fuse.lxcfs on /proc/cpuinfo",
        "fuse.lxcfs on /proc/meminfo",
        "fuse.lxcfs on /sys/devices/system/cpu",
        "fuse.lxcfs /x on /proc/stat",
    )


def test_so_is_a_file_of_the_kernel_over_another() -> None:
    assert covered("30 22 0:4 /uptime /proc/stat ro - proc proc rw\n") == ("proc /uptime on /proc/stat",)
