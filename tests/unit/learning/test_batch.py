"""One row per rollout over sampled tokens; weights that carry the aggregation; advantages by turn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from agentrl.api import Completion, Group, Message, Reward, RewardPart, Rollout, Scored, Segment, Step, Stop, Turn
from agentrl.learning.algorithms import PRESETS
from agentrl.learning.batch import (
    build_batch,
    count_rollouts,
    fresh_groups,
    live_groups,
    loss_weights,
    staleness,
    whitened,
)
from agentrl.learning.world import World
from tests.support import guess_task

GRPO, DR_GRPO = PRESETS["grpo"], PRESETS["dr_grpo"]


def segment(pattern: str, turn: str | None = None, first: int = 10) -> Segment:
    """`..ss` is two given tokens, then two sampled ones; `turn` has a digit per token."""
    n = len(pattern)
    sampled = np.array([c == "s" for c in pattern])
    return Segment(
        ids=np.arange(first, first + n, dtype=np.int32),
        sampled=sampled,
        logprobs=np.where(sampled, -0.1 * np.arange(n), 0).astype(np.float32),
        turn=np.array([int(c) for c in turn or "0" * n], dtype=np.int16),
    )


def member(
    index: int, total: float | None, *segments: Segment, steps: tuple[float, ...] = (), turns: int = 1
) -> Scored:
    """A scored rollout whose process part gives `steps` by turn and whose outcome part gives the rest of `total`."""
    parts = [RewardPart(name="o", kind="outcome", raw=total, weight=1.0, value=total)]
    if steps and total is not None:
        values = tuple(Step(turn=i, score=s) for i, s in enumerate(steps))
        parts = [
            RewardPart(name="o", kind="outcome", raw=0.0, weight=1.0, value=total - sum(steps)),
            RewardPart(name="p", kind="process", raw=sum(steps), weight=1.0, value=sum(steps), step_values=values),
        ]
    action = Message(role="assistant", content="")
    made = tuple(Turn(segment=0, span=(0, 0), completion=None, action=action) for _ in range(turns))
    rollout = Rollout(task=guess_task(), index=index, seed=0, turns=made, segments=segments, stop=Stop.FINISHED)
    return Scored(rollout=rollout, verdicts=(), reward=Reward(parts=tuple(parts), success=bool(total)))


def group(*members: Scored) -> Group:
    return Group(task=guess_task(), members=members)


def test_rows_hold_sampled_tokens_only_over_all_segments() -> None:
    groups = [group(member(0, 1.0, segment("..ss.s"), segment("...s", first=50)), member(1, 0.0, segment(".s")))]
    batch, counts = build_batch(groups, GRPO)
    assert batch is not None
    assert batch.mask.tolist() == [[True] * 4, [True, False, False, False]]
    assert batch.ids.tolist() == [[12, 13, 15, 53], [11, 0, 0, 0]]
    assert batch.sampler_logprobs[0].tolist() == pytest.approx([-0.2, -0.3, -0.5, -0.3])
    assert (counts.rows, counts.excluded, counts.zero_variance_groups) == (2, 0, 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_log_probability_that_is_no_number_takes_its_rollout_out_of_the_batch(bad: float) -> None:
    broken = segment(".ss")
    logprobs = broken.logprobs.copy()
    logprobs[1] = bad
    members = [member(0, 1.0, segment(".s")), member(1, 0.0, segment(".s"))]
    whole = group(*members, member(2, 1.0, replace(broken, logprobs=logprobs)))
    batch, counts = build_batch([whole], DR_GRPO)
    assert batch is not None
    assert (len(batch), counts.excluded) == (2, 1)
    assert batch.advantages[:, 0].tolist() == [0.5, -0.5]


def test_an_unjudged_member_is_no_row_and_no_part_of_the_baseline() -> None:
    s = segment(".s")
    groups = [group(member(0, 1.0, s), member(1, None, s), member(2, 0.0, s), member(3, 0.0, s))]
    batch, counts = build_batch(groups, DR_GRPO)
    assert batch is not None
    assert batch.advantages[:, 0].tolist() == pytest.approx([2 / 3, -1 / 3, -1 / 3])
    assert counts.excluded == 1


def test_equal_rewards_give_exactly_nothing_and_are_counted() -> None:
    groups = [group(*(member(i, 0.7, segment(".s")) for i in range(4))), group(member(0, 1.0, segment(".s")))]
    batch, counts = build_batch(groups, GRPO)
    assert batch is not None
    assert not batch.advantages.any()
    assert counts.zero_variance_groups == 2


def test_nothing_to_train_on() -> None:
    assert build_batch([group(member(0, None, segment(".s")))], GRPO)[0] is None
    assert build_batch([group(member(0, 1.0))], GRPO)[0] is None


def test_grpo_equals_the_paper_s_formula() -> None:
    rewards = [1.0, 0.0, 0.5, 0.0]
    batch, _ = build_batch([group(*(member(i, r, segment(".ss")) for i, r in enumerate(rewards)))], GRPO)
    assert batch is not None
    expected = [1.305309749, -0.783185850, 0.261061950, -0.783185850]  # golden: ddof 1, eps 1e-4
    for column in (0, 1):
        assert batch.advantages[:, column].tolist() == pytest.approx(expected, abs=1e-6)


def test_process_values_reach_their_turn_and_the_turns_before() -> None:
    """Golden `turn_leave_one_out`: [[0], [0, 1], [0, 1]] gives [-1], [.5, 0], [.5, 0]."""
    groups = [
        group(
            member(0, 0.0, segment(".s"), steps=(0.0,), turns=1),
            member(1, 1.0, segment(".s.s", "0011"), steps=(0.0, 1.0), turns=2),
            member(2, 1.0, segment(".s.s", "0011"), steps=(0.0, 1.0), turns=2),
        )
    ]
    batch, _ = build_batch(groups, DR_GRPO)
    assert batch is not None
    assert batch.advantages.tolist() == [[-1.0, 0.0], [0.5, 0.0], [0.5, 0.0]]


def test_pooled_steps_are_deepseekmath_s_form_and_the_outcome_adds_its_own() -> None:
    """Golden `grpo_process`, with an outcome that only the first member has; in one turn each, steps end inside it."""
    scores, ends = [[0.2, 0.8, 1.0], [0.5, -0.5], [0.9]], [[2, 5, 7], [3, 6], [4]]
    lengths, outcomes = [8, 7, 5], [1.0, 0.0, 0.0]
    members = []
    for i, (own, places) in enumerate(zip(scores, ends, strict=True)):
        plain = member(i, outcomes[i] + sum(own), segment("." + "s" * lengths[i]), steps=tuple(own))
        steps = tuple(Step(turn=0, end=end + 1, score=score) for score, end in zip(own, places, strict=True))
        parts = (plain.reward.parts[0], replace(plain.reward.parts[1], step_values=steps))
        members.append(replace(plain, reward=replace(plain.reward, parts=parts)))
    batch, _ = build_batch([group(*members)], replace(GRPO, process="pooled"))
    assert batch is not None
    by_step = [[0.975834338, 1.478536875, 0.916692863], [-1.715102775, -1.744673513], [0.739268438]]
    spread = 1 / 3**0.5 + 1e-4
    for row, (places, values) in enumerate(zip(ends, by_step, strict=True)):
        expected = [values[sum(end < t for end in places)] for t in range(lengths[row])]
        added = (outcomes[row] - 1 / 3) / spread
        assert batch.advantages[row][batch.mask[row]].tolist() == pytest.approx([e + added for e in expected], abs=1e-5)


@pytest.mark.parametrize("aggregate", ["token_mean", "sequence_mean", "constant"])
def test_loss_weights_are_the_published_denominators(aggregate: str) -> None:
    mask = torch.tensor([[True, True, True, False], [True, False, False, False]])
    losses = torch.tensor([[1.0, 2.0, 3.0, 99.0], [4.0, 99.0, 99.0, 99.0]])
    weights = loss_weights(mask, aggregate, constant=5, world=World())
    # golden `loss_types_two_microbatches`
    expected = {"token_mean": 2.5, "sequence_mean": 3.0, "constant": 1.0}[aggregate]
    assert float((weights * losses).sum()) == pytest.approx(expected)
    wider = torch.nn.functional.pad(mask, (0, 7))
    assert torch.equal(loss_weights(wider, aggregate, constant=5, world=World())[:, :4], weights)


def test_rewards_of_tokens_stand_where_they_were_earned_and_sum_to_the_total() -> None:
    two_turns = segment("..sss.ss", turn="00000011")
    plain = member(0, 1.5, two_turns, steps=(0.25, 0.25), turns=2)
    inside = (Step(turn=0, end=1, score=0.5), Step(turn=0, end=3, score=0.25), Step(turn=1, score=-0.5))
    within = _with_steps(member(1, 1.0, two_turns, turns=2), inside)
    batch, _ = build_batch([group(plain, within)], PRESETS["reinforce_pp"])
    assert batch is not None
    assert batch.rewards.tolist() == [[0.0, 0.0, 0.25, 0.0, 1.25], [0.5, 0.0, 0.25, 0.0, 0.25]]
    assert not batch.advantages.any(), "they come from the learner, which knows values and penalties"


def _with_steps(scored: Scored, steps: tuple[Step, ...]) -> Scored:
    own = sum(step.score for step in steps)
    process = RewardPart(name="p", kind="process", raw=own, weight=1.0, value=own, step_values=steps)
    outcome = replace(scored.reward.parts[0], value=1.0 - own)
    return replace(scored, reward=replace(scored.reward, parts=(outcome, process)))


def test_whitened_advantages_have_spread_one_over_all_tokens_of_the_batch() -> None:
    members = [member(i, r, segment("." + "s" * (i + 1))) for i, r in enumerate([1.0, 0.0, 0.0])]
    batch, _ = build_batch([group(*members)], replace(GRPO, scale="whiten"))
    assert batch is not None
    tokens = whitened(batch.advantages, batch.mask, World())[batch.mask]
    assert float(tokens.mean()) == pytest.approx(0, abs=1e-6)
    assert float(tokens.std()) == pytest.approx(1, abs=1e-4)


def test_groups_that_teach_something_differ_in_success_not_only_in_a_penalty() -> None:
    mixed = group(member(0, 1.0, segment(".s")), member(1, 0.0, segment(".s")))
    flat = group(member(0, 1.0, segment(".s")), member(1, 1.0, segment(".s")))
    penalised = group(member(0, 1.0, segment(".s")), member(1, 0.8, segment(".s")))
    unjudged = group(member(0, 1.0, segment(".s")), member(1, None, segment(".s")))
    assert live_groups([flat, mixed, penalised, unjudged]) == [mixed]
    blind = Group(
        task=penalised.task,
        members=tuple(replace(m, reward=replace(m.reward, success=None)) for m in penalised.members),
    )
    assert live_groups([blind]) == [blind], "without a predicate the totals decide"
    assert count_rollouts([flat, mixed, unjudged]).zero_variance_groups == 2
    assert count_rollouts([flat, mixed, unjudged]).excluded == 1


def test_a_rollout_is_as_old_as_its_oldest_token() -> None:
    def sampled_by(index: int, *versions: tuple[tuple[int, int], ...]) -> Scored:
        scored = member(index, float(index), segment(".s"))
        turns = tuple(
            replace(
                scored.rollout.turns[0],
                completion=Completion(token_ids=(5,), logprobs=(-1.0,), finish="stop", versions=version),
            )
            for version in versions
        )
        return replace(scored, rollout=replace(scored.rollout, turns=turns))

    old, mixed, new = sampled_by(0, ((0, 3),)), sampled_by(1, ((0, 6), (4, 5)), ((0, 6),)), sampled_by(2, ((0, 6),))
    assert [staleness(m.rollout, 6) for m in (old, mixed, new)] == [3, 1, 0]
    assert staleness(member(0, 1.0, segment(".s")).rollout, 6) == 0, "a rollout without sampled turns has no age"
    (kept,) = fresh_groups([group(old, mixed, new)], 6, 1)
    assert kept.members == (mixed, new)
    (kept,) = fresh_groups([group(old, mixed, new)], 6, 0)
    assert kept.members == (new,)
