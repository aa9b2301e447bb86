"""Finding the program in a reply: rules first, then properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.api import extract_program, strip_reasoning

CODE = "x = 1\nprint(x)\n"


@pytest.mark.parametrize(
    ("reply", "program"),
    [
        (f"```python\n{CODE}```", CODE),
        (f"```\n{CODE}```", CODE),
        (f"Text.\n\n```Python3\n{CODE}```\nMore.", CODE),
        (f'```python title="a.py"\n{CODE}```', CODE),
        (f"```{{.python}}\n{CODE}```", CODE),
        (f"~~~py\n{CODE}~~~", CODE),
        (f"````python\n```\n{CODE}````", "```\n" + CODE),
        (f"```python\n{CODE}", CODE + "\n"),
        (f"```python\r\n{CODE}```\r\n", CODE),
        ("1. Do:\n   ```python\n   def f():\n       return 1\n   ```", "def f():\n    return 1\n"),
        ("```python\ndef f():\n\treturn 1\n```", "def f():\n\treturn 1\n"),
        ('```python\ns = \'```\'\n"""\n    ```\n"""\n```', 's = \'```\'\n"""\n    ```\n"""\n'),
        (f"```python\nold = 0\n```\n```python\n{CODE}```", CODE),
        (f"```python\n{CODE}```\n```bash\npython a.py\n```\n```\noutput\n```", CODE),
        (f"```json\n{{}}\n```\n```\n{CODE}```", CODE),
        ("```bash\nls\n```", None),
        ("```python\n\n```", None),
        (f"```python\n{CODE}```\n```python\n```", None),
        ("print(1)", "print(1)"),
        ("import os\nprint(os)", "import os\nprint(os)"),
        ("n, m = 1, 2", "n, m = 1, 2"),
        ("It is hard to say, I give up.", None),
        ("", None),
        (f"<think>\n```python\n{CODE}```\n</think>\nNo.", None),
        (f"<think>a</think>\n```python\n{CODE}```", CODE),
        (f"<think>a\n```python\n{CODE}```", None),
        (f"inner thoughts\n```python\nwrong\n```\n</think>\n```python\n{CODE}```", CODE),
        ("```python\ns = '<think>'\n```", "s = '<think>'\n"),
    ],
)
def test_the_rules(reply: str, program: str | None) -> None:
    assert extract_program(reply) == program


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("plain", "plain"),
        ("<think>a</think>b", "b"),
        ("<THINK>a</THINK>b<thinking>", "b<thinking>"),
        ("a\n<reasoning>b</reasoning>c", "a\nc"),
        ("  <think>a</think>b\n<think>c</think>d", "b\nd"),
        ("a</think>b</think>c", "c"),
        ("<think>a", None),
        ("<think>a</think>b\n<think>c", None),
    ],
)
def test_reasoning(reply: str, answer: str | None) -> None:
    result = strip_reasoning(reply)
    assert (result.strip() if result is not None else None) == (answer.strip() if answer is not None else None)


@given(st.text(st.characters(codec=None)))
def test_any_text_is_read_without_error(text: str) -> None:
    program = extract_program(text)
    assert program is None or program.strip()


@given(st.text(st.sampled_from("ab \n\t'\"()=:#")).filter(lambda text: text.strip()))
def test_a_fenced_program_comes_back_as_it_was(program: str) -> None:
    assert extract_program(f"Here:\n```python\n{program}\n```\nDone.") == program + "\n"


@given(st.text())
def test_nothing_inside_reasoning_counts(text: str) -> None:
    thought = text.replace("<", "").replace("`", "")
    assert extract_program(f"<think>{thought}\n```python\nprint(1)\n```\n") is None
    assert extract_program(f"<think>{thought}\n```python\nprint(1)\n```\n</think> .") is None
