"""Conversations to imitate, as hurried people leave them: an attempt may carry a flaw, the first one or a repair."""

from __future__ import annotations

import random
from collections.abc import Iterator

from agentrl.api import JSON, Demonstration, Message, extract_program
from agentrl_envs.code_exec.basic import draw_exercises, held_out_functions, request_text
from agentrl_envs.code_exec.evaluate import run_own
from agentrl_envs.code_exec.exercises import behaviour, draw_examples
from agentrl_envs.code_exec.feedback import examples_passed, observe
from agentrl_envs.code_exec.flaws import draw_flaw


def fenced(program: str) -> Message:
    """The attempt as the policy writes it."""
    return Message(role="assistant", content=f"```python\n{program}\n```")


def demonstrate(
    request: str, program: str, examples: list[JSON], random_: random.Random, *, flaw_rate: float, attempts: int
) -> Demonstration:
    """One conversation: attempts until the visible examples pass or `attempts` are used up."""
    messages = [Message(role="user", content=request)]
    for attempt in range(attempts):
        action = fenced(draw_flaw(program, random_) if random_.random() < flaw_rate else program)
        messages.append(action)
        # extracted as the environment does, so that the text about an error is the same to the letter
        execution = run_own(extract_program(action.content) or "", "f", [example["args"] for example in examples])
        if examples_passed(examples, execution) == len(examples) or attempt == attempts - 1:
            break
        messages.append(Message(role="user", content=observe("f", examples, execution)))
    return Demonstration(messages=tuple(messages))


def demonstrations(*, count: int, flaw_rate: float, attempts: int) -> Iterator[Demonstration]:
    """`count` conversations about fresh functions of the train templates, none of which validation or test holds."""
    held_out = held_out_functions()
    made = 0
    for _, exercise, random_ in draw_exercises("demonstrations", seen=True):
        if made == count:
            return
        if behaviour(exercise) in held_out:
            continue
        examples = draw_examples(exercise, random_)
        if examples is not None:
            made += 1
            yield demonstrate(
                request_text(exercise, examples),
                exercise.program,
                examples,
                random_,
                flaw_rate=flaw_rate,
                attempts=attempts,
            )
