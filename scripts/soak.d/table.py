"""The summary of a soak: what, what was seen, what had to be, and whether it is so."""


class Table:
    """Lines of the summary."""

    def __init__(self):
        self.rows = []

    def add(self, what, seen, wanted, good):
        self.rows.append((what, str(seen), str(wanted), bool(good)))

    def equal(self, what, seen, wanted):
        self.add(what, seen, wanted, seen == wanted)

    def print(self):
        widths = [max(len(row[i]) for row in self.rows) for i in range(3)]
        print(f"\n{'what':<{widths[0]}}  {'seen':>{widths[1]}}  {'wanted':>{widths[2]}}")
        for what, seen, wanted, good in self.rows:
            print(f"{what:<{widths[0]}}  {seen:>{widths[1]}}  {wanted:>{widths[2]}}  {'ok' if good else 'FAIL'}")
        failed = sum(not row[3] for row in self.rows)
        print(f"\n{'FAIL: ' + str(failed) + ' of' if failed else 'PASS: all'} {len(self.rows)} checks")

    def good(self):
        return all(row[3] for row in self.rows)
