"""The end of a test run: failures with what they said, skips with their reasons, what took longest, one line of sums."""

import re
from collections import Counter, defaultdict

# Lines of a failed test's output that are shown, from its end.
SHOWN = 40
# Lines of why it failed, where a long output follows.
CAUSE = 10
HARNESS = re.compile(r"running \d+ tests?$|test result: |test \S+ \.\.\. *(ok)?$|test \S+ has been running for")


def summary(results, built, ran, shows=False):
    """Prints it; whether everything passed and something ran. `shows`: tests are measurements, whose output is what matters."""
    for result in results:
        if shows and result.counts[0]:
            print(f"\n{result.test.label}")
            print("\n".join("    " + line for line in result.output.splitlines() if line.strip() and not HARNESS.match(line)))
    failures, repeats = Counter(), Counter(result.test.label for result in results)
    for result in results:
        if result.counts[1]:
            failures[result.test.label] += 1
            if failures[result.test.label] <= 3:
                print(f"\nFAILED {result.test.label} after {result.seconds:.1f} s")
                print("\n".join("    " + line[:300] for line in telling(result)))
    reasons = Counter(result.skipped for result in results if result.counts[2])
    for reason, count in sorted(reasons.items()):
        print(f"\nSKIPPED {count}: {reason}")
    binaries = defaultdict(lambda: [0, 0.0])
    for result in results:
        binaries[result.test.binary.name][0] += sum(result.counts)
        binaries[result.test.binary.name][1] += result.seconds
    slowest("Slowest binaries (tests, seconds of all of them together):",
            [(seconds, f"{name} ({count})") for name, (count, seconds) in binaries.items()])
    slowest("Slowest tests:", [(result.seconds, result.test.label) for result in results])
    for label, count in failures.most_common():
        print(f"\nFAILED {label}" + (f" {count} times of {repeats[label]}" if repeats[label] > 1 else ""), end="")
    passed, failed, skipped = (sum(result.counts[at] for result in results) for at in range(3))
    print(f"\nBuilt in {built:.0f} s, ran in {ran:.0f} s.\n{passed} passed, {failed} failed, {skipped} skipped")
    return passed > 0 and failed == 0


def telling(result):
    """What a failed test said, without the harness's own lines."""
    lines = [line for line in result.output.splitlines() if line.strip()]
    if result.test.binary.is_whole:
        # Its cases say what failed below this heading.
        start = next((at for at, line in enumerate(lines) if line == "failures:"), max(0, len(lines) - SHOWN))
        return [line for line in lines[start:start + 3 * SHOWN] if not re.match(r"test .* \.\.\. ok$", line)]
    cause = next((at for at, line in enumerate(lines[:-SHOWN]) if " panicked at " in line), None)
    return ([] if cause is None else lines[cause:cause + CAUSE] + ["..."]) + lines[-SHOWN:]


def slowest(title, rows):
    print(f"\n{title}")
    for seconds, what in sorted(rows, reverse=True)[:10]:
        print(f"  {seconds:8.1f}  {what}")
