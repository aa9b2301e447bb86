"""Fails when a test was skipped for a reason that is not allowed: python .ci/skips.py JUNIT.xml [REASON ...]"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree


def main() -> None:
    report, *allowed = sys.argv[1:]
    skipped = [
        (f"{case.get('classname')}::{case.get('name')}", skip.get("message") or "")
        for case in ElementTree.parse(report).iter("testcase")
        for skip in case.iter("skipped")
    ]
    bad = [(name, reason) for name, reason in skipped if not any(reason.startswith(text) for text in allowed)]
    for name, reason in bad:
        print(f"skipped in CI: {name}: {reason}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
