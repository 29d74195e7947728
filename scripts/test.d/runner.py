"""Runs tests as processes: several at once, each with a time limit, its output kept until it is known to matter."""

import contextlib
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from dataclasses import dataclass

import waiting

# What share of the tests that run at once may be of a crate, where it is not all. The lab loads what it measures.
LANES = {"fordway-lab": 0.5}
# A binary that runs whole has threads of its own and thousands of cases.
WHOLE_WEIGHT, WHOLE_LIMIT = 2, 5
# Seconds for what a test has left running to tidy up and end.
PATIENCE = 15
# Seconds between two lines of progress where nobody looks at a terminal.
PROGRESS = 15
CI = os.environ.get("CI") == "true"


@dataclass
class Result:
    """What became of a test. `counts`: passed, failed and skipped, more than one for a binary that runs whole."""
    test: object
    seconds: float
    counts: tuple
    skipped: str
    output: str


class Runner:
    def __init__(self, jobs, limit, beside, fail_fast):
        self.jobs, self.limit, self.beside, self.fail_fast = jobs, limit, beside, fail_fast
        self.changed = threading.Condition()
        self.waiting, self.running, self.results = deque(), {}, []
        self.folder, self.stopping = None, False
        self.told = 0.0

    def run(self, tests):
        """Runs all; gives the results, and whether the run was interrupted."""
        self.waiting, self.total = deque(tests), len(tests)
        self.folder = tempfile.mkdtemp(prefix="fordway-tests-")
        loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(self.beside)]
        threads = [threading.Thread(target=self.work, daemon=True) for _ in range(self.jobs)]
        interrupted = False
        try:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                self.progress()
                time.sleep(0.2)
        except KeyboardInterrupt:
            interrupted = True
            self.interrupt()
        finally:
            for thread in threads:
                thread.join()
            for loop in loops:
                loop.kill()
                loop.wait()
            shutil.rmtree(self.folder, ignore_errors=True)
        return self.results, interrupted

    def interrupt(self):
        """Starts nothing more, and has what runs end."""
        with self.changed:
            self.stopping = True
            self.waiting.clear()
            running = list(self.running.values())
            self.changed.notify_all()
        sweep(child for child, _ in running)

    def work(self):
        while True:
            with self.changed:
                test = self.take()
                while test is None and self.waiting:
                    self.changed.wait()
                    test = self.take()
                if test is None:
                    return
                self.running[test] = self.start(test)
            result = self.finish(test)
            with self.changed:
                del self.running[test]
                counts = not self.stopping
                if counts:
                    self.results.append(result)
                self.changed.notify_all()
            if counts and result.counts[1]:
                print(f"FAILED {test.label}", flush=True)
                if self.fail_fast:
                    self.interrupt()

    def take(self):
        """The first test that there is room for now."""
        weight = sum(WHOLE_WEIGHT if test.binary.is_whole else 1 for test in self.running)
        if weight >= self.jobs:
            return None
        for number, test in enumerate(self.waiting):
            lane = max(1, int(LANES.get(test.binary.package, 1) * self.jobs))
            if test not in self.running and sum(it.binary.package == test.binary.package for it in self.running) < lane:
                del self.waiting[number]
                return test
        return None

    def start(self, test):
        number = self.total - len(self.waiting)
        folder = os.path.join(self.folder, str(number))
        os.mkdir(folder)
        log = os.path.join(self.folder, f"{number}.log")
        environment = os.environ | test.binary.environment() | {"TMPDIR": folder}
        with open(log, "wb") as output:
            child = subprocess.Popen(test.command(), cwd=test.binary.folder, stdin=subprocess.DEVNULL, stdout=output,
                                     stderr=subprocess.STDOUT, env=environment, start_new_session=True)
        child.log, child.folder, child.begun = log, folder, time.monotonic()
        return child, test

    def finish(self, test):
        child, _ = self.running[test]
        limit = self.limit * (WHOLE_LIMIT if test.binary.is_whole else 1)
        stuck = ""
        try:
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            stuck = f"Not done within {limit:.0f} s. What it was waiting for:\n{waiting.describe(child.pid)}\n"
            status = None
        seconds = time.monotonic() - child.begun
        sweep([child])
        with open(child.log, encoding="utf-8", errors="replace") as file:
            output = file.read() + stuck
        os.unlink(child.log)
        shutil.rmtree(child.folder, ignore_errors=True)
        return judge(test, seconds, status, output)

    def progress(self):
        now = time.monotonic()
        is_terminal = sys.stdout.isatty()
        if now - self.told < (0.5 if is_terminal else PROGRESS):
            return
        self.told = now
        with self.changed:
            longest = sorted(self.running.values(), key=lambda it: it[0].begun)[:3]
            failed = sum(result.counts[1] for result in self.results)
            names = ", ".join(f"{test.label} ({now - child.begun:.0f} s)" for child, test in longest)
            line = f"{len(self.results)} of {self.total} done, {failed} failed; {names}"
        if is_terminal:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r{line[:width]:<{width}}", end="\r", flush=True)
        else:
            print(line, flush=True)


def signal_all(child, how):
    """Signals a test and the processes that it has started, whose session is its own. Says whether there were any."""
    try:
        os.killpg(child.pid, how)
        return True
    except ProcessLookupError:
        return False


def sweep(children):
    """Ends what tests have left running, and removes what their guards did not come to remove."""
    running = list(children)
    for child in running:
        signal_all(child, signal.SIGTERM)
    # A daemon takes down what it has set up, and so does the lab.
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and any(child.poll() is None or signal_all(child, 0) for child in running):
        time.sleep(0.02)
    for child in running:
        signal_all(child, signal.SIGKILL)
        child.wait()
        remove_namespaces(f"-{child.pid}-")


def remove_namespaces(part):
    """Removes network namespaces with this in their names, with the processes in them and what the gateway has pinned for them."""
    for path in glob.glob(f"/run/netns/*{glob.escape(part)}*"):
        name, inode = os.path.basename(path), os.stat(path).st_ino
        inside = subprocess.run(["ip", "netns", "pids", name], check=False, capture_output=True, text=True).stdout
        for pid in inside.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
        for pins in glob.glob(f"/sys/fs/bpf/fordway/{inode}-*"):
            shutil.rmtree(pins, ignore_errors=True)


def judge(test, seconds, status, output):
    skips = re.findall(r"^.*SKIPPED: (.*)$", output, re.MULTILINE)
    skipped = "; ".join(sorted(set(skips)))
    if test.binary.is_whole:
        closed = re.findall(r"^test result: \S+ (\d+) passed; (\d+) failed; (\d+) ignored", output, re.MULTILINE)
        passed, failed, ignored = (sum(int(line[at]) for line in closed) for at in range(3))
        failed += status != 0 and not failed
        if not passed and not failed:
            # A whole binary that ran nothing has not passed.
            failed, ignored = (0, 1) if skips and not CI else (1, 0)
        return Result(test, seconds, (passed, failed, ignored), skipped, output)
    # A name that the binary does not run is no test that has passed.
    has_run = re.search(r"^test result: ok\. 1 passed", output, re.MULTILINE)
    if status != 0 or not has_run or (skips and CI):
        return Result(test, seconds, (0, 1, 0), skipped, output)
    return Result(test, seconds, (0, 0, 1) if skips else (1, 0, 0), skipped, output)
