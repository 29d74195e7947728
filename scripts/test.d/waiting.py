"""What a process and its children are waiting for, as the kernel tells it."""

import os
import platform

# System calls of x86-64 whose first argument is a descriptor: what a thread may wait for at one.
AT_DESCRIPTOR = {0: "read", 1: "write", 16: "ioctl", 42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg",
                 47: "recvmsg", 72: "fcntl", 73: "flock", 232: "epoll_wait", 281: "epoll_pwait", 288: "accept4"}


def describe(pid, depth=0):
    """A line for each thread of the process and of its children: its name, its command, where it sleeps."""
    lines = []
    command = read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
    lines.append(f"{'  ' * depth}{pid} {command[:160]}")
    for task in listed(f"/proc/{pid}/task"):
        base = f"/proc/{pid}/task/{task}"
        name, place = read(f"{base}/comm").strip(), read(f"{base}/wchan").strip()
        call = read(f"{base}/syscall").split()
        state = "runs" if call[:1] == ["running"] else f"sleeps in {place or '?'}{at_descriptor(pid, call)}"
        lines.append(f"{'  ' * depth}  thread {name}: {state}")
        for child in read(f"{base}/children").split():
            lines.append(describe(int(child), depth + 2))
    return "\n".join(lines)


def at_descriptor(pid, call):
    """The name of a system call, and what its descriptor is of."""
    if platform.machine() != "x86_64" or len(call) < 2 or not call[0].isdigit() or int(call[0]) not in AT_DESCRIPTOR:
        return ""
    return f" ({AT_DESCRIPTOR[int(call[0])]} at {link(f'/proc/{pid}/fd/{int(call[1], 16)}')})"


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def listed(path):
    try:
        return os.listdir(path)
    except OSError:
        return []


def link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""
