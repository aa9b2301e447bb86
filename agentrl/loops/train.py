"""Training: rollouts, verdicts, advantages, update; held-out evaluation before and after."""

from __future__ import annotations

import asyncio
import copy
import platform
import signal
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import torch

import agentrl
from agentrl.api import Group
from agentrl.api.background import run_loop
from agentrl.config import Config
from agentrl.learning.algorithms import resolve as resolve_algorithm
from agentrl.learning.batch import Batch, build_batch, count_rollouts, fresh_groups, live_groups, staleness
from agentrl.learning.learner import Learner, LearnerSettings
from agentrl.learning.models import Policy, autocast_dtype, trained_policy
from agentrl.learning.world import World
from agentrl.loops.checkpoint import Registry, load_checkpoint, load_weights, prune_checkpoints, save_checkpoint
from agentrl.loops.curriculum import make_cursor
from agentrl.loops.cursor import Cursor
from agentrl.loops.display import Display
from agentrl.loops.evaluate import Sampling, evaluate_split, make_sampling
from agentrl.loops.metrics import step_line, step_metrics
from agentrl.loops.resolve import Resolved, config_hash, model_folder
from agentrl.loops.wiring import Wired, wire
from agentrl.records.evaluation import evaluation, improvement
from agentrl.records.run import RunDirectory

Callback = Callable[[dict[str, Any], list[Group]], None]
"""Called after every step with its metrics and its groups."""


def train(
    resolved: Resolved,
    output: str,
    *,
    resume: bool = False,
    display: Display | None = None,
    callbacks: tuple[Callback, ...] = (),
    started: float | None = None,
) -> dict[str, Any]:
    """Run a whole training and return its summary. `started`: `time.monotonic()` at the command's start."""
    start = time.monotonic() if started is None else started
    return run_loop(_train(resolved, output, resume, display or Display(), callbacks, start))


async def _train(
    resolved: Resolved, output: str, resume: bool, display: Display, callbacks: tuple[Callback, ...], started: float
) -> dict[str, Any]:
    async with wire(resolved) as wired:
        if resolved.config.threads is not None:
            torch.set_num_threads(resolved.config.threads)
        config = resolved.config
        wired.tasks("test", 1)
        cursor = make_cursor(config, wired.tasks("train"))
        policy = trained_policy(config, model_folder(config.model))
        run = RunDirectory.open(output) if resume else RunDirectory.create(output)
        if not resume:
            run.write_config(config.model_dump(mode="json"), about())
        return await _Training(wired, policy, cursor, run, display, callbacks, started).run_all()


def about() -> dict[str, Any]:
    """Versions of what decides a run's numbers."""
    packages = ("torch", "transformers", "numpy")
    return {
        "agentrl": agentrl.__version__,
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


class _Interrupted(Exception):
    """Ctrl-C: the run ends at the last whole step."""


class _Training:
    """One run in progress. The steps done, the best validation and the clock are its only own state."""

    def __init__(
        self,
        wired: Wired,
        policy: Policy,
        cursor: Cursor,
        run: RunDirectory,
        display: Display,
        callbacks: tuple[Callback, ...],
        started: float,
    ) -> None:
        self.wired, self.policy, self.cursor, self.run = wired, policy, cursor, run
        self.display, self.callbacks, self.started = display, callbacks, started
        self.config: Config = wired.resolved.config
        self.sampling: Sampling = make_sampling(self.config, policy)
        self.learner = Learner(policy.model, _learner_settings(self.config), World.current())
        self.validation = Validation()
        self.registry: Registry = {"learner": self.learner, "cursor": self.cursor, "validation": self.validation}
        self.done = 0
        self.interrupted = False
        self.collecting: asyncio.Task[list[Group]] | None = None
        self.train_seconds = 0.0

    async def run_all(self) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        in_main_thread = threading.current_thread() is threading.main_thread()  # only there signals can be handled
        if in_main_thread:
            loop.add_signal_handler(signal.SIGINT, self._interrupt)
        try:
            await self._continue()
            before = await self._evaluate_once("before")
            stop_reason = await self._steps()
            after = await self._evaluate_once("after")
        except _Interrupted:
            self._save()
            return self._summary("interrupted", self.run.read_evaluation("before"), None)
        finally:
            if in_main_thread:
                loop.remove_signal_handler(signal.SIGINT)
            await self.sampling.engine.close()
        return self._summary(stop_reason, before, after)

    def _interrupt(self) -> None:
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
        self.display.line("interrupted: saving and ending after what is running (again to end at once)")
        if self.collecting is not None:
            self.collecting.cancel()

    async def _continue(self) -> None:
        """Go back to the newest checkpoint of a resumed run."""
        steps = self.run.checkpoint_steps()
        if steps:
            load_checkpoint(self.run, steps[-1], self.registry)
            self.done = steps[-1]
            await self.sampling.engine.update(self.learner, self.done)
        self.run.cut_back(self.done)
        if self.done:
            self.train_seconds = sum(m["seconds"] for m in self.run.read_metrics())
            self.display.line(f"resumed after step {self.done}")

    async def _evaluate_once(self, name: str) -> dict[str, Any]:
        """The held-out evaluation `name`; a resumed run takes the one that was written."""
        written = self.run.read_evaluation(name)
        if written is not None:
            return written
        label = f"test, {name} training"
        result: dict[str, Any]
        result, groups = await self._cancellable(
            evaluate_split(self.sampling, self.wired, "test", label=label, display=self.display)
        )
        self.run.write_rollouts(name, [m for g in groups for m in g.members])
        self.run.write_evaluation(name, result)
        rate = result["pass_at_k"].get("1") or {"mean": float("nan")}
        self.display.line(f"{label}: pass@1 {rate['mean']:.3f}  ({result['seconds']:.0f} s)")
        return result

    async def _cancellable(self, work: Any) -> Any:
        self.collecting = asyncio.ensure_future(work)
        try:
            return await self.collecting
        except asyncio.CancelledError:
            if not self.interrupted:
                raise
            await self.sampling.engine.abort()
            raise _Interrupted from None
        finally:
            self.collecting = None

    async def _steps(self) -> str:
        """Train until a reason to stop, then leave the best policy in place."""
        train = self.config.train
        reason = "all steps done"
        while self.done < train.steps:
            if train.patience and self.validation.without_improvement >= train.patience:
                reason = f"no improvement in {train.patience} validations (train.patience)"
                break
            if train.max_seconds is not None and self.train_seconds >= train.max_seconds:
                reason = f"train.max_seconds = {train.max_seconds:g} reached"
                break
            start = time.monotonic()
            await self._step()
            await self._validate()
            if self.done % train.save_every == 0:
                self._save()
            self.train_seconds += time.monotonic() - start
        self._save()
        best = self.validation.best_step
        if best is not None and best != self.done:
            load_weights(self.run, best, self.policy)
            await self.sampling.engine.update(self.learner, best)
        return reason

    async def _step(self) -> None:
        config, step = self.config, self.done + 1
        clock = [time.monotonic()]
        drawn, kept = await self._draw(step)
        groups = [group for batch_of_tasks in drawn for group in batch_of_tasks]
        clock.append(time.monotonic())
        measures = self.cursor.measures()
        if self.learner.settings.algorithm.dynamic_sampling > 1:
            measures["groups_trained"] = len(kept)
        kept = self._fresh(kept, measures)
        batch, _ = build_batch(kept, self.learner.settings.algorithm)
        stats: dict[str, float] = {}
        if batch is not None or self.learner.world.size > 1:
            stats = await asyncio.get_running_loop().run_in_executor(self.sampling.compute, self._update, batch)
        await self.sampling.engine.update(self.learner, step)
        clock.append(time.monotonic())
        seconds = {"rollouts": clock[1] - clock[0], "update": clock[2] - clock[1]}
        metrics = step_metrics(step, groups, count_rollouts(groups), stats | measures, seconds)
        self.run.write_rollouts(f"step_{step:06d}", [m for g in groups for m in g.members], step=step)
        self.run.append_metrics(metrics)
        self.cursor.advance(drawn[-1])
        self.done = step
        self.display.line(step_line(metrics, config.train.steps))
        for callback in self.callbacks:
            callback(metrics, groups)
        if self.interrupted:
            raise _Interrupted

    def _fresh(self, groups: list[Group], measures: dict[str, float]) -> list[Group]:
        """Leave out the rollouts of policies that are too old, and measure how old they are."""
        ages = [staleness(member.rollout, self.done) for group in groups for member in group.members]
        measures["staleness_max"] = max(ages, default=0)
        bound = self.config.algorithm.max_staleness
        if bound is None:
            return groups
        measures["stale"] = sum(age > bound for age in ages)
        return fresh_groups(groups, self.done, bound)

    async def _draw(self, step: int) -> tuple[list[list[Group]], list[Group]]:
        """The step's rollouts by batch of tasks, and the groups to train on.

        With dynamic sampling further batches are drawn until enough groups hold members of different reward, at most
        `dynamic_sampling` batches in all. The cursor then stands at the last batch; an interrupted step puts it back.
        """
        train, most = self.config.train, self.learner.settings.algorithm.dynamic_sampling
        start = copy.deepcopy(self.cursor.state())
        drawn: list[list[Group]] = []
        try:
            while True:
                groups = await self._cancellable(
                    self.sampling.groups(
                        self.wired,
                        self.cursor.current(),
                        train.group_size,
                        phase=("train", step, len(drawn)) if drawn else ("train", step),
                        temperature=self.config.engine.temperature,
                        display=self.display,
                        label=f"step {step}",
                    )
                )
                drawn.append(groups)
                if most == 1:
                    return drawn, groups
                live = live_groups([group for batch in drawn for group in batch])
                if len(live) >= train.tasks_per_step or len(drawn) == most:
                    return drawn, live[: train.tasks_per_step]
                self.cursor.advance(groups)
        except _Interrupted:
            self.cursor.load_state(start)
            raise

    def _update(self, batch: Batch | None) -> dict[str, float]:
        return self.learner.step(self.learner.prepare(batch), self.done)

    async def _validate(self) -> None:
        every = self.config.train.validate_every
        if not every or (self.done % every and self.done != self.config.train.steps):
            return
        settings = self.config.eval
        start = time.monotonic()
        groups = await self._cancellable(
            self.sampling.groups(
                self.wired,
                self.wired.tasks("validation", settings.validation_limit),
                settings.validation_samples,
                phase=("eval", "validation"),
                temperature=settings.temperature,
                display=self.display,
                label="validation",
            )
        )
        result = evaluation(groups, k=[1], seconds=time.monotonic() - start, seed=self.config.seed)
        self.run.write_evaluation(f"validation_{self.done:06d}", result)
        rate = result["pass_at_k"]["1"]["mean"] if result["pass_at_k"]["1"] else 0.0
        better = self.validation.record(self.done, rate)
        if better:
            self._save()
        self.display.line(f"validation after step {self.done}: pass@1 {rate:.3f}{' (best so far)' if better else ''}")

    def _save(self) -> None:
        save_checkpoint(self.run, self.done, self.policy, self.registry, config_hash(self.config))
        prune_checkpoints(self.run, self.config.train.keep_checkpoints, self.validation.best_step)

    def _summary(self, stop_reason: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> dict[str, Any]:
        evaluations = [e for e in (before, after) if e is not None]
        summary = {
            "stop_reason": stop_reason,
            "steps": self.done,
            "best_step": self.validation.best_step,
            "before": before,
            "after": after,
            "improvement": improvement(before, after, self.config.seed) if before and after else None,
            "seconds": {
                "train": self.train_seconds,
                "evaluate": sum(e["seconds"] for e in evaluations),
                "total": time.monotonic() - self.started,
            },
            "sandbox": self.wired.services.sandbox.tier if "sandbox" in self.wired.services.available else None,
            "output": str(self.run.path),
        }
        self.run.write_summary(summary)
        return summary


class Validation:
    """The best validation so far, a state holder."""

    def __init__(self) -> None:
        self.best_step: int | None = None
        self.best_rate = -1.0
        self.without_improvement = 0

    def record(self, step: int, rate: float) -> bool:
        """Note a validation; True when it is the best so far."""
        if rate > self.best_rate:
            self.best_step, self.best_rate, self.without_improvement = step, rate, 0
            return True
        self.without_improvement += 1
        return False

    def state(self) -> dict[str, Any]:
        return {"best_step": self.best_step, "best_rate": self.best_rate, "without": self.without_improvement}

    def load_state(self, state: dict[str, Any]) -> None:
        self.best_step, self.best_rate = state["best_step"], state["best_rate"]
        self.without_improvement = state["without"]


def _learner_settings(config: Config) -> LearnerSettings:
    return LearnerSettings(
        algorithm=resolve_algorithm(config.algorithm),
        train=config.train,
        importance_cap=config.algorithm.importance_cap,
        importance_level=config.algorithm.importance_level,
        importance_above=config.algorithm.importance_above,
        temperature=config.engine.temperature,
        max_tokens=config.rollout.max_tokens,
        seed=config.seed,
        autocast=autocast_dtype(config.model),
    )
