"""Conversations to imitate, as hurried people leave them: some first attempts carry a flaw, and some repairs fail."""

from __future__ import annotations

import random
from collections.abc import Iterator

from agentrl.api import Demonstration, Message, Task, keyed_seed
from agentrl_envs.code_exec.basic import draw_tasks, held_out_functions
from agentrl_envs.code_exec.evaluate import run_own
from agentrl_envs.code_exec.feedback import examples_passed, observe
from agentrl_envs.code_exec.flaws import draw_flaw
from agentrl_envs.code_exec.templates import TEMPLATES


def fenced(program: str) -> Message:
    """The attempt as the policy writes it."""
    return Message(role="assistant", content=f"```python\n{program}\n```")


def demonstrate(task: Task, random_: random.Random, *, flaw_rate: float, attempts: int) -> Demonstration:
    """One conversation: attempts until the visible examples pass or `attempts` are used up, each with its own luck."""
    messages = list(task.messages)
    examples = task.data["examples"]
    for attempt in range(attempts):
        program = str(task.answer)
        if random_.random() < flaw_rate:
            program = draw_flaw(program, random_)
        messages.append(fenced(program))
        execution = run_own(program, "f", [example["args"] for example in examples])
        if examples_passed(examples, execution) == len(examples) or attempt == attempts - 1:
            break
        messages.append(Message(role="user", content=observe("f", examples, execution)))
    return Demonstration(messages=tuple(messages))


def demonstrations(*, count: int, flaw_rate: float, attempts: int) -> Iterator[Demonstration]:
    """`count` conversations about fresh functions of the train templates, none of which validation or test holds."""
    seen = [template for template in TEMPLATES if template.seen]
    held_out = held_out_functions()
    number = 0
    while number < count:
        for task in draw_tasks("demonstrations", seen, set(held_out)):
            random_ = random.Random(keyed_seed("basic", "demonstration", number, task.id))
            yield demonstrate(task, random_, flaw_rate=flaw_rate, attempts=attempts)
            number += 1
            if number == count:
                return
