"""Prints what each suite took against its budget, and fails when a test was skipped for a reason that is not allowed.

python .ci/suites.py JUNIT.xml [REASON ...]
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict

BUDGET_MINUTES = {"unit": 10, "contract": 2, "golden": 2, "hostile": 8, "e2e": 10, "real": 15, "gpu": 10}


def main() -> None:
    report, *allowed = sys.argv[1:]
    cases = list(ElementTree.parse(report).iter("testcase"))
    seconds: dict[str, float] = defaultdict(float)
    for case in cases:
        seconds[case.get("classname", "?.?").split(".")[1]] += float(case.get("time", 0))
    for suite, taken in sorted(seconds.items()):
        budget = BUDGET_MINUTES.get(suite)
        over = "" if budget is None or taken <= 60 * budget else "  OVER BUDGET"
        print(f"suite {suite}: {taken / 60:.1f} of {budget} minutes{over}")
    bad = [
        (f"{case.get('classname')}::{case.get('name')}", skip.get("message") or "")
        for case in cases
        for skip in case.iter("skipped")
        if not any((skip.get("message") or "").startswith(text) for text in allowed)
    ]
    for name, reason in bad:
        print(f"skipped in CI: {name}: {reason}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
