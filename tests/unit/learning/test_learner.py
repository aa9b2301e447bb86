"""The learner's numbers do not depend on how the work is cut; bad numbers are skipped and counted."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agentrl.api import Group, PluginError, Segment
from agentrl.config import AlgorithmConfig, Config, TrainConfig
from agentrl.learning.advantages import gae, whiten
from agentrl.learning.algorithms import PRESETS, Algorithm, check, resolve
from agentrl.learning.batch import Batch, build_batch
from agentrl.learning.learner import Learner, LearnerSettings
from agentrl.learning.models import Policy
from agentrl.learning.outputs import token_outputs
from agentrl.learning.world import World
from tests.support import make_policy
from tests.unit.learning.test_batch import group, member

POTENTIAL = {"name": "steps", "verifier": "v", "kind": "process", "reduce": "potential"}
PLAIN = dataclasses.replace(PRESETS["grpo"], kl_coefficient=0.0)


def sampled_segment(policy: Policy, seed: int, length: int, drift: float = 0.0) -> Segment:
    """A segment whose log-probabilities are the policy's own, moved by up to `drift` nats."""
    random = np.random.default_rng(seed)
    sampled = np.arange(length) >= 3
    sampled[5:7] = False  # an observation in the middle
    ids = random.integers(6, 270, length).astype(np.int32)
    blank = Segment(ids=ids, sampled=sampled, logprobs=np.zeros(length, np.float32), turn=np.zeros(length, np.int16))
    with torch.no_grad():
        own = token_outputs(policy.model, [[blank]], width=int(sampled.sum()), temperature=1.0).logprob[0].numpy()
    logprobs = np.zeros(length, dtype=np.float32)
    logprobs[sampled] = own + drift * random.uniform(-1, 1, len(own))
    return dataclasses.replace(blank, logprobs=logprobs)


def groups(policy: Policy, drift: float = 0.0) -> list[Group]:
    rewards = [[1.0, 0.0, 0.5, 0.0], [0.0, 0.0, 1.0, 1.0]]
    return [
        group(*(member(i, r, sampled_segment(policy, 10 * g + i, 8 + 5 * i + 3 * g, drift)) for i, r in enumerate(row)))
        for g, row in enumerate(rewards)
    ]


def learner(policy: Policy, algorithm: Algorithm = PLAIN, **train: Any) -> Learner:
    settings = LearnerSettings(
        algorithm=algorithm,
        train=TrainConfig(**{"learning_rate": 1e-2, "max_grad_norm": 1e9, **train}),
        importance_cap=2.0,
        temperature=1.0,
        max_tokens=50,
        seed=0,
        autocast=None,
    )
    return Learner(policy.model, settings, World())


def gradients(policy: Policy, batch: Batch, algorithm: Algorithm, **train: Any) -> list[torch.Tensor]:
    """The gradients of one update, caught before the optimiser clears them."""
    own = dataclasses.replace(policy, model=copy.deepcopy(policy.model))
    made = learner(own, algorithm, **train)
    caught: list[torch.Tensor] = []
    made.optimizer.step = lambda *a, **k: caught.extend(  # type: ignore[assignment,method-assign,misc]
        p.grad.clone() for p in own.model.parameters() if p.grad is not None
    )
    made.step(made.prepare(batch), 0)
    return caught


def built(policy: Policy, algorithm: Algorithm = PLAIN, drift: float = 0.0) -> Batch:
    batch, _ = build_batch(groups(policy, drift), algorithm)
    assert batch is not None
    return batch


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_micro_batches_and_row_order_do_not_change_the_gradient(policy: Policy, name: str) -> None:
    batch = built(policy, PRESETS[name], drift=0.05)
    whole = gradients(policy, batch, PRESETS[name], tokens_per_microbatch=100_000)
    assert max(float(g.abs().max()) for g in whole) > 1e-4
    single = gradients(policy, batch, PRESETS[name], tokens_per_microbatch=1)
    shuffled = gradients(policy, batch.select([5, 2, 7, 0, 1, 6, 3, 4]), PRESETS[name], tokens_per_microbatch=60)
    for a, b, c in zip(whole, single, shuffled, strict=True):
        assert torch.allclose(a, b, atol=1e-6)
        assert torch.allclose(a, c, atol=1e-6)


def test_the_first_update_is_reinforce(policy: Policy) -> None:
    """Ratio 1 everywhere: the gradient is that of -A logp with the preset's denominators."""
    batch = built(policy)
    found = gradients(policy, batch, PLAIN)
    policy.model.train()
    loss = torch.zeros(())
    for row in range(len(batch)):
        out = token_outputs(policy.model, [batch.segments[row]], width=batch.mask.shape[1], temperature=1.0).logprob[0]
        loss = loss - (batch.advantages[row] * out)[batch.mask[row]].mean() / len(batch)
    loss.backward()
    for a, p in zip(found, policy.model.parameters(), strict=True):
        assert p.grad is not None
        assert torch.allclose(a, p.grad, atol=1e-6)


def test_stats_before_anything_has_moved(policy: Policy) -> None:
    made = learner(policy, PRESETS["grpo"])
    stats = made.step(made.prepare(built(policy)), 0)
    assert stats["ratio_mean"] == pytest.approx(1.0, abs=1e-6)
    assert stats["kl_reference"] == pytest.approx(0.0, abs=1e-6)
    assert stats["logprob_gap_max"] < 1e-4
    assert stats["clip_low"] == stats["clip_high"] == 0
    assert stats["updates"] == 1


def test_later_updates_see_a_ratio_and_a_divergence(policy: Policy) -> None:
    made = learner(policy, PRESETS["grpo"], epochs=3, minibatches=2)
    stats = made.step(made.prepare(built(policy)), 0)
    assert stats["updates"] == 6
    assert stats["ratio_max"] > 1.01
    assert stats["kl_reference"] > 0


def test_the_importance_weight_corrects_a_sampler_that_differs(policy: Policy) -> None:
    exact, drifted = gradients(policy, built(policy), PLAIN), gradients(policy, built(policy, drift=0.3), PLAIN)
    assert not all(torch.allclose(a, b, atol=1e-5) for a, b in zip(exact, drifted, strict=True))
    stats = learner(policy).step(learner(policy).prepare(built(policy, drift=0.3)), 0)
    assert 0.05 < stats["logprob_gap"] < 0.3


def test_what_the_importance_weights_leave_is_measured(policy: Policy) -> None:
    def stats(**options: Any) -> dict[str, float]:
        made = learner(policy)
        made.settings = dataclasses.replace(made.settings, **options)
        made.optimizer.step = lambda *a, **k: None  # type: ignore[assignment,method-assign,misc]
        return made.step(made.prepare(built(policy, drift=0.5)), 0)

    same = learner(policy)
    same.optimizer.step = lambda *a, **k: None  # type: ignore[assignment,method-assign,misc]
    assert same.step(same.prepare(built(policy)), 0)["importance_ess"] == pytest.approx(1, abs=1e-6)
    token, sequence = stats(), stats(importance_level="sequence")
    assert sequence["importance_ess"] < token["importance_ess"] < 0.99
    assert token["importance_masked"] == 0
    assert 0 < stats(importance_cap=1.2, importance_above="zero")["importance_masked"] < 1


def test_a_non_finite_gradient_is_skipped_and_counted(policy: Policy) -> None:
    batch = built(policy)
    batch.advantages[0, 0] = float("nan")
    made = learner(policy)
    before = copy.deepcopy(policy.model.state_dict())
    stats = made.step(made.prepare(batch), 0)
    assert (stats["updates"], stats["skipped_updates"]) == (0, 1)
    assert all(torch.equal(before[name], value) for name, value in policy.model.state_dict().items())


def test_all_equal_rewards_leave_the_policy_alone(policy: Policy) -> None:
    batch, _ = build_batch([group(*(member(i, 1.0, sampled_segment(policy, i, 12)) for i in range(4)))], PLAIN)
    assert batch is not None
    before = copy.deepcopy(policy.model.state_dict())
    made = learner(policy, weight_decay=0.5)
    stats = made.step(made.prepare(batch), 0)
    assert stats["updates"] == 0
    assert all(torch.equal(before[name], value) for name, value in policy.model.state_dict().items())


def test_an_entropy_bonus_has_the_gradient_of_the_entropy(policy: Policy) -> None:
    """Of equal rewards nothing is left but the bonus; its weights are those of the loss."""
    batch, _ = build_batch([group(*(member(i, 1.0, sampled_segment(policy, i, 12)) for i in range(4)))], PLAIN)
    assert batch is not None
    found = gradients(policy, batch, dataclasses.replace(PLAIN, entropy_coefficient=0.1))
    outputs = token_outputs(
        policy.model, batch.segments, want=frozenset({"entropy"}), width=batch.mask.shape[1], temperature=1.0
    )
    assert outputs.entropy is not None
    bonus = (outputs.entropy.sum(1) / batch.mask.sum(1)).mean()
    expected = torch.autograd.grad(-0.1 * bonus, list(policy.model.parameters()), allow_unused=True)
    for one, other in zip(found, [e for e in expected if e is not None], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", ["grpo", "ppo"])
def test_gradient_checkpointing_changes_no_gradient(name: str) -> None:
    plain, checkpointed = make_policy(), make_policy()
    batch = built(plain, PRESETS[name])
    ran: list[int] = []
    checkpointed.model.model.layers[0].register_forward_pre_hook(lambda *_: ran.append(1))
    expected = gradients(plain, batch, PRESETS[name])
    once = gradients(checkpointed, batch, PRESETS[name])
    passes = len(ran)
    found = gradients(checkpointed, batch, PRESETS[name], gradient_checkpointing=True)
    assert len(ran) - passes > passes, "the backward pass runs the layers again"
    for a, b, c in zip(expected, once, found, strict=True):
        torch.testing.assert_close(a, b)
        torch.testing.assert_close(a, c)


def test_ppo_takes_advantages_from_its_critic_and_a_penalised_reward(policy: Policy) -> None:
    """Before anything moved: KL 0, so advantages are whitened GAE of the rewards against the critic's values."""
    made = learner(policy, PRESETS["ppo"])
    prepared = made.prepare(built(policy, PRESETS["ppo"]))
    assert prepared.values is not None
    mask = prepared.batch.mask
    expected, returns = gae(prepared.batch.rewards, prepared.values, mask, gamma=1.0, lam=1.0)
    assert torch.equal(prepared.returns, returns)
    assert torch.allclose(prepared.batch.advantages, whiten(expected, mask), atol=1e-5)
    assert prepared.measures["kl_reference"] == pytest.approx(0, abs=1e-5)
    assert prepared.measures["kl_coefficient"] == 0.01


def test_the_penalty_pulls_back_and_its_coefficient_follows_the_target(policy: Policy) -> None:
    made = learner(policy, dataclasses.replace(PRESETS["reinforce_pp"], kl_target=1.0, scale="none"))
    batch = built(policy, PRESETS["reinforce_pp"])
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.05)
    prepared = made.prepare(batch)
    old, reference = made._frozen(made.model, batch), made._frozen(made.reference, batch)  # type: ignore[arg-type]
    penalty = 0.01 * (old - reference) * batch.mask
    expected, _ = gae(batch.rewards - penalty, torch.zeros_like(penalty), batch.mask, gamma=1.0, lam=1.0)
    assert torch.allclose(prepared.batch.advantages, expected, atol=1e-5)
    first, second = prepared.measures["kl_coefficient"], made.prepare(batch).measures["kl_coefficient"]
    above = prepared.measures["kl_per_rollout"] > 1.0
    assert first == 0.01
    assert (second > first) == above
    assert second != first


def test_a_critic_learns_the_value_and_warms_up_alone(policy: Policy) -> None:
    algorithm = dataclasses.replace(PRESETS["ppo"], critic_warmup=30, critic_learning_rate=3e-3)
    made = learner(policy, algorithm, epochs=2)
    batch, before = built(policy, algorithm), copy.deepcopy(policy.model.state_dict())
    stats = [made.step(made.prepare(batch), number) for number in range(30)]
    assert stats[-1]["explained_variance"] > 0.9 > stats[0]["explained_variance"]
    assert stats[-1]["value_loss"] < 0.2 * stats[0]["value_loss"]
    assert all(torch.equal(before[name], value) for name, value in policy.model.state_dict().items())
    assert made.step(made.prepare(batch), 30)["updates"] == 2
    assert any(not torch.equal(before[name], value) for name, value in policy.model.state_dict().items())


def test_values_do_not_see_the_token_they_are_a_baseline_for(policy: Policy) -> None:
    made = learner(policy, PRESETS["ppo"])
    assert made.critic is not None
    batch = built(policy, PRESETS["ppo"])
    values = made.critic.values(batch)
    (one,) = batch.segments[0]
    ids = one.ids.copy()
    last = np.flatnonzero(one.sampled)[-1]
    ids[last] += 1
    changed = dataclasses.replace(batch, segments=((dataclasses.replace(one, ids=ids),), *batch.segments[1:]))
    assert torch.equal(values, made.critic.values(changed))
    ids[np.flatnonzero(one.sampled)[0]] += 1
    assert not torch.equal(values, made.critic.values(changed))


def test_cispo_keeps_the_gradient_of_a_token_that_a_clip_would_drop(policy: Policy) -> None:
    """The sampler was far less sure of the tokens: the surrogate's gradient is cut, the capped weight's is not."""
    batch = built(policy)
    batch = dataclasses.replace(batch, advantages=batch.mask.float())
    for name, moved in (("dapo", 0.0), ("cispo", 1.0)):
        made = learner(policy, PRESETS[name])
        prepared = dataclasses.replace(made.prepare(batch), old=made._frozen(made.model, batch) - 1.0)
        caught = []
        made.optimizer.step = lambda *a, caught=caught: caught.extend(  # type: ignore[method-assign,misc]
            float(p.grad.abs().sum()) for p in policy.model.parameters() if p.grad is not None
        )
        made.step(prepared, 0)
        assert (sum(caught) > 0.01) == bool(moved), name


@pytest.mark.parametrize("name", ["grpo", "ppo"])
def test_a_restored_learner_goes_on_bit_for_bit(name: str) -> None:
    def steps(made: Learner, batch: Batch, numbers: range) -> None:
        for number in numbers:
            made.step(made.prepare(batch), number)

    first, second = make_policy(), make_policy()
    batch = built(first, PRESETS[name])
    through = learner(first, PRESETS[name], epochs=2, minibatches=2, steps=4, schedule="cosine")
    steps(through, batch, range(2))
    weights, state = copy.deepcopy(first.model.state_dict()), copy.deepcopy(through.state())
    steps(through, batch, range(2, 4))
    restored = learner(second, PRESETS[name], epochs=2, minibatches=2, steps=4, schedule="cosine")
    second.model.load_state_dict(weights)
    restored.load_state(state)
    steps(restored, batch, range(2, 4))
    for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"algorithm": {"preset": "grppo"}}, "did you mean 'grpo'"),
        ({"algorithm": {"preset": "gspo", "aggregate": "token_mean"}}, "use aggregate: sequence_mean"),
        ({"algorithm": {"clip_low": 1.5}}, "must be below 1"),
        ({"algorithm": {"clip_low": 1.5, "preset": "cispo"}}, r"must be 1 \(no lower bound"),
        ({"algorithm": {"lam": 0.9}}, "algorithm.lam = 0.9: needs algorithm.baseline: critic"),
        ({"algorithm": {"critic_warmup": 5, "preset": "reinforce_pp"}}, "needs algorithm.baseline: critic"),
        ({"algorithm": {"gamma": 0.9}}, "works on rewards of tokens"),
        ({"algorithm": {"kl": "reward"}}, "use kl: loss"),
        ({"algorithm": {"preset": "ppo", "kl": "loss"}}, "use kl: reward, or 0"),
        ({"algorithm": {"preset": "ppo", "scale": "std"}}, "goes with baseline: group"),
        ({"algorithm": {"preset": "rloo", "scale": "std"}}, "goes with baseline: group"),
        ({"algorithm": {"preset": "rloo", "scale": "whiten"}}, "keeps unbiased"),
        ({"algorithm": {"dual_clip": 0.5}}, "must be above 1"),
        ({"algorithm": {"preset": "cispo", "dual_clip": 3.0}}, "use clip_high"),
        ({"algorithm": {"preset": "cispo", "aggregate": "constant"}}, "is defined for"),
        ({"algorithm": {"preset": "ppo"}, "train": {"group_size": 1, "tasks_per_step": 1}}, "no spread to whiten by"),
        ({"algorithm": {"preset": "ppo", "dynamic_sampling": 2}, "train": {"group_size": 1}}, "group of one"),
        ({"algorithm": {"preset": "dr_grpo", "process": "pooled"}}, "is defined for baseline: group with scale: std"),
        ({"algorithm": {"process": "pooled", "turn_gamma": 0.9}}, "and turn_gamma: 1"),
        ({"algorithm": {"preset": "rloo"}, "reward": {"parts": [POTENTIAL | {"gamma": 0.9}]}}, "set both to the same"),
        ({"algorithm": {"turn_gamma": 0.9, "preset": "rloo"}, "reward": {"parts": [POTENTIAL]}}, "which is 0.9"),
        ({"algorithm": {"preset": "grpo"}, "reward": {"parts": [POTENTIAL]}}, "bends what it shapes"),
        ({"algorithm": {"preset": "ppo", "gamma": 0.9}, "reward": {"parts": [POTENTIAL]}}, "counts by turn"),
        ({"train": {"group_size": 1}}, "two rollouts or more"),
        ({"train": {"minibatches": 100, "tasks_per_step": 4, "group_size": 2}}, "above the 8 rollouts"),
        ({"train": {"patience": 2}}, "set train.validate_every"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_fix(settings: dict[str, Any], text: str) -> None:
    from agentrl.api import ConfigError

    with pytest.raises(ConfigError, match=text):
        check(Config.model_validate(settings))


def test_a_potential_goes_with_what_keeps_the_best_policy() -> None:
    for algorithm in ({"preset": "rloo"}, {"preset": "ppo"}, {"preset": "dr_grpo"}):
        check(Config.model_validate({"algorithm": algorithm, "reward": {"parts": [POTENTIAL]}}))


def test_a_preset_of_one_s_own_is_a_row_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import replace\n"
        "from agentrl.learning.algorithms import PRESETS\n"
        "MINE = replace(PRESETS['grpo'], clip_high=0.3)\n"
        "WRONG = replace(MINE, loss='clipp')\n"
        "OTHER = 3\n"
    )

    def settings(name: str, **changes: Any) -> AlgorithmConfig:
        return AlgorithmConfig(preset=f"{file}:{name}", **changes)

    assert resolve(settings("MINE", kl_coefficient=0.0)) == dataclasses.replace(PLAIN, clip_high=0.3)
    for name, text in {
        "WRONG": r"WRONG': loss = 'clipp': Input should be 'clip' or 'cispo'",
        "OTHER": "OTHER': is no agentrl.learning.algorithms.Algorithm",
        "MINA": "has no preset 'MINA'; did you mean 'MINE'",
    }.items():
        with pytest.raises(PluginError, match=text):
            resolve(settings(name))


def test_an_override_changes_one_choice_of_the_preset() -> None:
    config = Config.model_validate({"algorithm": {"preset": "dr_grpo", "clip_high": 0.3}}).algorithm
    assert resolve(config) == dataclasses.replace(PRESETS["dr_grpo"], clip_high=0.3)
