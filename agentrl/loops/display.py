"""What a person sees while it runs: a bar on a terminal, plain lines elsewhere. Results go to stdout, progress to
stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

PLAIN_INTERVAL = 10.0
"""Seconds between plain progress lines."""


class Display:
    """Prints lines and progress. `quiet` leaves stdout to the caller (for `--json`)."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.results = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        self.progress_console = Console(stderr=True, highlight=False)

    def line(self, text: str = "") -> None:
        """One line of results."""
        if not self.quiet:
            self.results.print(text, markup=False)

    @contextmanager
    def bar(self, label: str, total: int) -> Iterator[Callable[[], None]]:
        """Progress over `total` pieces; call what it yields once for each finished piece."""
        if self.progress_console.is_terminal:
            with self._rich() as progress:
                task = progress.add_task(label, total=total)
                yield lambda: progress.advance(task)
        else:
            plain = _Plain(label, total)
            yield plain.advance

    def _rich(self) -> Progress:
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            _Rate(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.progress_console,
            transient=True,
        )


class _Rate(ProgressColumn):
    """Pieces per second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f}/s" if task.speed else "")


class _Plain:
    """A line every now and then, with rate and remaining time."""

    def __init__(self, label: str, total: int) -> None:
        self.label, self.total, self.done = label, total, 0
        self.start = self.last = time.monotonic()

    def advance(self) -> None:
        self.done += 1
        now = time.monotonic()
        if now - self.last < PLAIN_INTERVAL:
            return
        self.last = now
        rate = self.done / (now - self.start)
        left = (self.total - self.done) / rate
        print(f"{self.label}: {self.done}/{self.total} ({rate:.1f}/s, {left:.0f} s left)", file=sys.stderr, flush=True)
