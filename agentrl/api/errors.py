"""Errors that a person is meant to read.

Every error that leaves agentrl on purpose derives from `AgentRLError`. The command line prints its text as one
sentence and exits with `exit_code`; anything else is a bug of ours and shows its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AgentRLError(Exception):
    """A mistake or a missing piece that the user can mend; the text says how."""

    exit_code = 2


class ConfigError(AgentRLError):
    """A configuration key or value that cannot be honoured."""


class PluginError(AgentRLError):
    """An environment, verifier or preset that is unknown, doubled, or does not load."""


class DataError(AgentRLError):
    """A task, a data file or a run directory that cannot be read as what it should be."""


class ModelError(AgentRLError):
    """A model folder or id that cannot be loaded."""


class SandboxUnavailable(AgentRLError):
    """No sandbox backend can run here; the text says how to get one."""


class CallTimeout(AgentRLError):
    """A call in a worker process used more time than it was given; the worker was killed."""


class CallCrashed(AgentRLError):
    """A worker process ended during a call: out of memory, a crash of the interpreter, killed by somebody."""


class CallFailed(AgentRLError):
    """The function that a worker process called raised an exception; the text is its traceback."""


class WorkersUnavailable(AgentRLError):
    """No worker process could be started, or it could not import what it was to call; the text says why."""


class JudgeUnavailable(AgentRLError):
    """The model that judges gave no reply that can be used, tries and all; the text says what came instead."""


class TooManyFailures(AgentRLError):
    """More rollouts failed through the author's code than the configuration allows; carries the first traceback."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `"; did you mean 'x'?"` for the closest of `known`, or the empty string.

    >>> nearest("code_exce", ["code_exec", "math_answer"])
    "; did you mean 'code_exec'?"
    """
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""
