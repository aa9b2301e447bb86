"""Evaluation: the same rollouts, verifiers and statistics as in training, without the update."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from agentrl.api import Group, Task
from agentrl.config import Config
from agentrl.learning.models import Policy, autocast_dtype
from agentrl.loops.display import Display
from agentrl.loops.wiring import Wired
from agentrl.records.evaluation import evaluation
from agentrl.rollouts.chat import ChatFormat
from agentrl.rollouts.collect import collect, plan, refuse_failures, refuse_full_contexts
from agentrl.rollouts.engines.base import Engine
from agentrl.rollouts.engines.hf import HFEngine
from agentrl.rollouts.players import Settings, TokenPlayers
from agentrl.rollouts.sampling import SCHEDULES


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """An engine with the chat format of its policy: what rollouts are sampled with."""

    config: Config
    engine: Engine
    chat: ChatFormat
    compute: Executor

    def settings(self, temperature: float) -> Settings:
        """What the rollouts of one collection share."""
        return Settings(
            chat=self.chat,
            limits=self.config.rollout,
            max_new_tokens=self.config.engine.max_new_tokens,
            temperature=temperature,
            context=self.engine.capabilities.context,
        )

    async def groups(
        self,
        wired: Wired,
        tasks: Sequence[Task],
        samples: int,
        *,
        phase: tuple[int | str, ...],
        temperature: float,
        display: Display,
        label: str,
    ) -> list[Group]:
        """`samples` scored rollouts of each task; too many failures stop the run."""
        attempts = plan(tasks, samples, seed=self.config.seed, phase=phase)
        with display.bar(label, len(attempts)) as advance:
            groups = await collect(
                attempts,
                make_env=wired.make_env,
                players=TokenPlayers(SCHEDULES[self.config.rollout.schedule](self.engine), self.settings(temperature)),
                limits=self.config.rollout,
                scorer=wired.scorer,
                progress=lambda scored: advance(),
                history=wired.resolved.history,
            )
        refuse_failures(groups, self.config.rollout.max_failed_share)
        refuse_full_contexts(groups, self.engine.capabilities.context)
        return groups


def make_sampling(config: Config, policy: Policy) -> Sampling:
    """The engine that the configuration asks for, on `policy`.

    All torch work of a process runs in one thread: every further one would bring its own pool of compute threads and
    its own memory arenas (4.6 GB instead of 1.5 GB in a run of the embedded policy).
    """
    compute = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torch")
    chat = ChatFormat(policy.tokenizer, policy.stop_ids, config.chat)
    engine = HFEngine(
        policy.model,
        pad_id=policy.pad_id,
        context=policy.context,
        batch_rows=config.engine.batch_rows,
        autocast=autocast_dtype(config.model),
        compute=compute,
        decode=chat.decode,
    )
    return Sampling(config=config, engine=engine, chat=chat, compute=compute)


async def evaluate_split(
    sampling: Sampling, wired: Wired, split: str, *, label: str, display: Display
) -> tuple[dict[str, Any], list[Group]]:
    """Evaluate a split with `eval.samples` rollouts per task. Returns the evaluation object and the rollouts."""
    config = sampling.config
    start = time.monotonic()
    groups = await sampling.groups(
        wired,
        wired.tasks(split, config.eval.limit),
        config.eval.samples,
        phase=("eval", split),
        temperature=config.eval.temperature,
        display=display,
        label=label,
    )
    result = evaluation(groups, k=config.eval.k, seconds=time.monotonic() - start, seed=config.seed)
    return {"split": split, "temperature": config.eval.temperature, **result}, groups
