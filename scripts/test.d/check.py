"""Checks the runner itself on made-up test binaries: what fails must be counted as failed."""

import contextlib
import glob
import io
import os
import stat
import sys
import tempfile
import threading
import time
import unittest

sys.dont_write_bytecode = True
import build
import report
import runner
import waiting

OK = "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.00s"


class Runs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        was = runner.CI
        runner.CI = False
        self.addCleanup(setattr, runner, "CI", was)

    def binary(self, lines, is_whole=False):
        """A test binary that runs these lines of shell for whatever test."""
        path = os.path.join(self.folder.name, f"binary{len(os.listdir(self.folder.name))}")
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + lines + "\n")
        os.chmod(path, stat.S_IRWXU)
        return build.Binary("crate/all", path, "crate", self.folder.name, is_whole)

    def run_all(self, *tests, limit=20, fail_fast=False, jobs=4):
        with contextlib.redirect_stdout(io.StringIO()):
            results, interrupted = runner.Runner(jobs, limit, 0, fail_fast).run(list(tests))
        self.assertFalse(interrupted)
        return results

    def verdict(self, lines, name="a::test", is_whole=False, limit=20):
        """Passed, failed and skipped, and what was said."""
        [result] = self.run_all(build.Test(self.binary(lines, is_whole), "" if is_whole else name), limit=limit)
        return result.counts, result.output

    def test_what_passes_and_what_fails(self):
        self.assertEqual(self.verdict(f"echo '{OK}'")[0], (1, 0, 0))
        self.assertEqual(self.verdict("echo 'thread panicked'; exit 101")[0], (0, 1, 0))
        self.assertEqual(self.verdict("kill -ABRT $$")[0], (0, 1, 0), "a process that dies")
        self.assertEqual(self.verdict(f"echo '{OK}'; kill -SEGV $$")[0], (0, 1, 0), "one that dies at its end")
        self.assertEqual(self.verdict("echo 'test result: ok. 0 passed; 0 failed'")[0], (0, 1, 0), "a name that is none")

    def test_a_skip_is_counted_and_fails_under_ci(self):
        skip = f"echo 'SKIPPED: no TUN device' >&2; echo '{OK}'"
        self.assertEqual(self.verdict(skip)[0], (0, 0, 1))
        runner.CI = True
        self.assertEqual(self.verdict(skip)[0], (0, 1, 0))

    def test_a_whole_binary_counts_its_cases(self):
        closing = "echo 'test result: ok. 20 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out'"
        self.assertEqual(self.verdict(closing, is_whole=True)[0], (20, 0, 2))
        bad = "echo 'test result: FAILED. 18 passed; 2 failed; 0 ignored; 0 measured'; exit 101"
        self.assertEqual(self.verdict(bad, is_whole=True)[0], (18, 2, 0))
        self.assertEqual(self.verdict(closing + "; exit 1", is_whole=True)[0], (20, 1, 2), "its end counts as well")
        self.assertEqual(self.verdict("true", is_whole=True)[0], (0, 1, 0), "one that ran nothing")
        self.assertEqual(self.verdict("echo 'SKIPPED: no root'", is_whole=True)[0], (0, 0, 1))

    def test_a_test_that_hangs_is_ended_and_says_what_it_waited_for(self):
        begun = time.monotonic()
        counts, said = self.verdict("sleep 1000 & wait", limit=0.5)
        self.assertEqual(counts, (0, 1, 0))
        self.assertIn("Not done within 0 s", said)
        self.assertRegex(said, "sleep 1000")
        self.assertRegex(said, "thread sleep: sleeps in .*nanosleep")
        self.assertLess(time.monotonic() - begun, 60)

    def test_what_a_test_leaves_running_is_ended(self):
        pid = os.path.join(self.folder.name, "pid")
        self.assertEqual(self.verdict(f"sleep 1000 & echo $! > {pid}; echo '{OK}'")[0], (1, 0, 0))
        with open(pid, encoding="utf-8") as file:
            left = int(file.read())
        deadline = time.monotonic() + 20
        while waiting.read(f"/proc/{left}/stat").split()[2:3] not in ([], ["Z"]):
            self.assertLess(time.monotonic(), deadline, "the process goes on")
            time.sleep(0.01)

    def test_what_a_test_leaves_running_may_tidy_up(self):
        mark = os.path.join(self.folder.name, "tidied")
        tidy = f"sh -c 'trap \"touch {mark}; exit\" TERM; while :; do sleep 0.05; done' & sleep 0.5; exit 101"
        self.assertEqual(self.verdict(tidy)[0], (0, 1, 0))
        self.assertTrue(os.path.exists(mark))

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_namespaces_of_tests_go_with_them(self):
        """However the test ends: its guards do not run when a signal ends it."""
        add = "ip netns add fwt-check-$$-0; ip netns exec fwt-check-$$-0 setsid sleep 1000 & "
        found = lambda: glob.glob("/run/netns/fwt-check-*")
        for lines, limit in [(add + "sleep 0.3; kill -KILL $$", 20), (add + "sleep 1000", 0.5)]:
            self.assertEqual(self.verdict(lines, limit=limit)[0], (0, 1, 0))
            self.assertEqual(found(), [])
        run = runner.Runner(4, 20, 0, False)
        wanted = threading.Thread(target=lambda: (self.until(found), run.interrupt()))
        wanted.start()
        with contextlib.redirect_stdout(io.StringIO()):
            run.run([build.Test(self.binary(add + "sleep 1000"), "a::test")])
        wanted.join()
        self.assertEqual(found(), [])

    def until(self, holds):
        deadline = time.monotonic() + 20
        while not holds():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_each_run_of_a_repeated_test_counts_and_no_two_run_at_once(self):
        mark = os.path.join(self.folder.name, "mark")
        alone = f"mkdir {mark} || exit 1; sleep 0.02; rmdir {mark}; echo '{OK}'"
        results = self.run_all(*[build.Test(self.binary(alone), "a::test")] * 8)
        self.assertEqual([result.counts for result in results], [(1, 0, 0)] * 8)

    def test_after_a_failure_nothing_starts_where_that_is_asked(self):
        bad, good = build.Test(self.binary("exit 1"), "bad"), build.Test(self.binary(f"echo '{OK}'"), "good")
        self.assertEqual(len(self.run_all(bad, good, jobs=1, fail_fast=True)), 1)
        self.assertEqual(len(self.run_all(bad, good, jobs=1)), 2)

    def test_after_a_failure_what_runs_ends_where_that_is_asked(self):
        bad, long = build.Test(self.binary("exit 1"), "bad"), build.Test(self.binary("sleep 60"), "long")
        results = self.run_all(long, bad, jobs=2, fail_fast=True)
        self.assertEqual([result.test for result in results], [bad])


class Ends(unittest.TestCase):
    def summary(self, *counts, shows=False):
        test = build.Test(build.Binary("crate/all", "/none", "crate", "/", False), "a::test")
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            good = report.summary([runner.Result(test, 1.0, it, "", f"running 1 test\nwhat it said\n{OK}") for it in counts], 1.0, 2.0, shows)
        return good, said.getvalue()

    def test_the_last_line_adds_up_and_one_failure_is_enough(self):
        good, said = self.summary((1, 0, 0), (2, 0, 1))
        self.assertTrue(good)
        self.assertEqual(said.splitlines()[-1], "3 passed, 0 failed, 1 skipped")
        good, said = self.summary((1, 0, 0), (0, 1, 0))
        self.assertFalse(good)
        self.assertEqual(said.splitlines()[-1], "1 passed, 1 failed, 0 skipped")
        self.assertIn("what it said", said)

    def test_why_a_test_failed_is_shown_before_a_long_log(self):
        test = build.Test(build.Binary("crate/all", "/none", "crate", "/", False), "a::test")
        output = "\n".join(["before", "thread 'a::test' panicked at a.rs:1:2:", "why", *(f"log {line}" for line in range(100))])
        shown = report.telling(runner.Result(test, 1.0, (0, 1, 0), "", output))
        self.assertEqual(shown[:2], ["thread 'a::test' panicked at a.rs:1:2:", "why"])
        self.assertEqual((shown[report.CAUSE], shown[-1], len(shown)), ("...", "log 99", report.CAUSE + 1 + report.SHOWN))

    def test_what_a_measurement_says_is_shown(self):
        self.assertNotIn("what it said", self.summary((1, 0, 0))[1])
        said = self.summary((1, 0, 0), shows=True)[1]
        self.assertIn("\ncrate/all a::test\n    what it said\n", said)
        self.assertNotIn("test result", said)

    def test_nothing_is_not_good(self):
        self.assertFalse(self.summary()[0])
        self.assertFalse(self.summary((0, 0, 1))[0])


class Affects(unittest.TestCase):
    def test_those_who_depend_on_a_changed_crate_are_tested(self):
        users = {"wire": {("xlat", None)}, "xlat": {("engine", None), ("kit", None)}, "kit": {("bpf", "dev")}, "bpf": {("gateway", None)}}
        self.assertEqual(build.broken_by({"wire"}, users), {"wire", "xlat", "engine", "kit", "bpf"})
        self.assertEqual(build.broken_by({"engine"}, users), {"engine"})


if __name__ == "__main__":
    unittest.main()
