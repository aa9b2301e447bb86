"""Runs programs that this package wrote itself: references and their flawed variants.

Never give it a policy's program: it runs in this process, without isolation or limits. The programs of `words.py` end
after a few steps whatever single change a flaw makes, as they hold no `while` and no recursion. The results have the
form that the sandbox gives, so that a demonstration shows what the environment would have shown.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from agentrl.api import JSON, CallResult, CallsExecution, Execution

_FILE = "program.py"


def _last_line(error: BaseException) -> str:
    """The error in one line, with the line of the program it came from: `NameError: ... (line 3)`."""
    text = traceback.format_exception_only(error)[-1].strip()
    if isinstance(error, SyntaxError):
        line = error.lineno
    else:
        frames = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == _FILE]
        line = frames[-1] if frames else None
    return f"{text} (line {line})" if line else text


def run_own(program: str, function: str, arguments: Sequence[Sequence[JSON]]) -> CallsExecution:
    """Load `program` and call `function` once with each of `arguments`. Errors become results, none is raised."""
    printed: list[str] = []
    scope: dict[str, object] = {"print": lambda *values: printed.append(" ".join(map(str, values)) + "\n")}
    try:
        exec(compile(program, _FILE, "exec"), scope)
    except SyntaxError as error:
        return CallsExecution(load=Execution(exit_code=1, reason="syntax_error", detail=_last_line(error)))
    results = []
    for values in arguments:
        printed.clear()
        try:
            value = scope[function](*values)  # type: ignore[operator]
        except Exception as error:  # whatever a flaw raises is the outcome that is shown
            results.append(CallResult(reason="runtime_error", error=_last_line(error), stdout="".join(printed)))
        else:
            results.append(CallResult(value=value, stdout="".join(printed)))
    return CallsExecution(load=Execution(exit_code=0), results=tuple(results))
