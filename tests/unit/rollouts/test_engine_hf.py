"""What the engine says it sampled is what the trainer finds: same ids, same log-probabilities, any batch."""

from __future__ import annotations

import asyncio
import dataclasses
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from agentrl.api import Completion, Segment
from agentrl.learning.models import Policy
from agentrl.learning.outputs import token_outputs
from agentrl.rollouts.engines.base import SampleRequest
from agentrl.rollouts.engines.hf import HFEngine
from tests.support import make_policy


def request(prompt: tuple[int, ...], seed: int, **changes: object) -> SampleRequest:
    base = SampleRequest(prompt=prompt, seed=seed, max_new_tokens=20, temperature=1.0, stop_ids=(1,))
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def make_engine(policy: Policy, rows: int = 4) -> HFEngine:
    return HFEngine(
        policy.model,
        pad_id=policy.pad_id,
        context=policy.context,
        batch_rows=rows,
        autocast=None,
        compute=COMPUTE,
        decode=policy.tokenizer.decode,
    )


def sample(policy: Policy, requests: list[SampleRequest], rows: int = 64) -> list[Completion]:
    return asyncio.run(make_engine(policy, rows).generate(requests))


def trainer_logprobs(policy: Policy, prompt: tuple[int, ...], completion: Completion, temperature: float) -> np.ndarray:
    ids = np.array([*prompt, *completion.token_ids], dtype=np.int32)
    mask = np.arange(len(ids)) >= len(prompt)
    zeros = np.zeros(len(ids))
    segment = Segment(ids=ids, sampled=mask, logprobs=zeros.astype(np.float32), turn=zeros.astype(np.int16))
    with torch.no_grad():
        outputs = token_outputs(policy.model, [(segment,)], width=int(mask.sum()), temperature=temperature)
    return outputs.logprob[0].numpy()


def test_a_stop_string_ends_the_turn_with_the_token_that_completes_it(policy: Policy) -> None:
    def text(completion: Completion) -> str:
        return str(policy.tokenizer.decode(list(completion.token_ids)))

    free = [request(p, seed, stop_ids=()) for seed, p in enumerate(PROMPTS)]
    whole = [text(c) for c in sample(policy, free)]
    strings = (whole[0][5:8], whole[3][-2:])
    found = sample(policy, [dataclasses.replace(r, stop_strings=strings) for r in free])
    for completion, before in zip(found, whole, strict=True):
        said = text(completion)
        assert before.startswith(said)
        if completion.stop_string is None:
            assert (completion.finish, said) == ("length", before)
            continue
        assert completion.finish == "stop"
        assert completion.stop_token is None
        assert completion.stop_string in said
        shorter = policy.tokenizer.decode(list(completion.token_ids[:-1]))
        assert not any(string in shorter for string in strings)
    assert found[0].stop_string == strings[0]


COMPUTE = ThreadPoolExecutor(1)
PROMPTS = [(5, 9, 4), (8,), (5, 9, 4), tuple(range(10, 40)), (7, 7)]


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
def test_engine_and_trainer_agree(policy: Policy, temperature: float) -> None:
    requests = [request(p, seed, temperature=temperature) for seed, p in enumerate(PROMPTS)]
    for r, completion in zip(requests, sample(policy, requests), strict=True):
        found = trainer_logprobs(policy, r.prompt, completion, temperature)
        assert np.abs(found - np.array(completion.logprobs)).max() < 1e-4


def test_a_rollout_samples_the_same_in_any_batch_and_order(policy: Policy) -> None:
    requests = [request(p, seed) for seed, p in enumerate(PROMPTS)]
    together = [c.token_ids for c in sample(policy, requests)]
    alone = [sample(policy, [r])[0].token_ids for r in requests]
    backwards = [c.token_ids for c in sample(policy, requests[::-1], rows=2)][::-1]
    assert together == alone == backwards
    assert len(set(together)) > 1


def test_members_with_one_prompt_differ_by_their_seed(policy: Policy) -> None:
    completions = sample(policy, [request((5, 9, 4), seed) for seed in range(16)])
    assert len({c.token_ids for c in completions}) > 8


def test_draws_follow_the_distribution(policy: Policy) -> None:
    completions = sample(policy, [request((5,), seed, max_new_tokens=1) for seed in range(4000)], rows=4000)
    with torch.no_grad():
        probabilities = policy.model(input_ids=torch.tensor([[5]])).logits[0, -1].softmax(-1).numpy()
    counts = np.bincount([c.token_ids[0] for c in completions], minlength=len(probabilities))
    likely = probabilities > 0.005
    error = counts[likely] - 4000 * probabilities[likely]
    assert likely.sum() > 5
    assert (np.abs(error) < 5 * np.sqrt(4000 * probabilities[likely])).all()


def test_rows_stop_at_their_own_limits(policy: Policy) -> None:
    requests = [request((5, 9), s, max_new_tokens=3 + s, stop_ids=tuple(range(0, 300, 7))) for s in range(12)]
    for r, completion in zip(requests, sample(policy, requests), strict=True):
        *inner, last = completion.token_ids
        assert not set(inner) & set(r.stop_ids)
        if completion.finish == "stop":
            assert completion.stop_token == last
            assert last in r.stop_ids
        else:
            assert completion.finish == "length"
            assert len(completion.token_ids) == r.max_new_tokens
    assert {c.finish for c in sample(policy, requests)} == {"stop", "length"}


def test_greedy_takes_the_likeliest(policy: Policy) -> None:
    (completion,) = sample(policy, [request((5, 9, 4), 3, temperature=0.0)])
    ids = [5, 9, 4]
    for token in completion.token_ids:
        with torch.no_grad():
            assert int(policy.model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()) == token
        ids.append(token)
    assert completion.logprobs == (0.0,) * len(completion.token_ids)


def test_the_generation_config_of_the_folder_changes_nothing() -> None:
    plain, tuned = make_policy(), make_policy()
    assert tuned.model.generation_config is not None
    for key, value in {"top_k": 1, "top_p": 0.1, "repetition_penalty": 5.0, "do_sample": False}.items():
        setattr(tuned.model.generation_config, key, value)
    requests = [request(p, s) for s, p in enumerate(PROMPTS)]
    assert sample(plain, requests) == sample(tuned, requests)


def test_a_model_with_sliding_windows_uses_the_library_s_cache() -> None:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        use_sliding_window=True,
        sliding_window=8,
        max_window_layers=1,
        eos_token_id=1,
        pad_token_id=0,
    )
    base = make_policy()
    windowed = dataclasses.replace(base, model=Qwen2ForCausalLM(config))
    requests = [request(p, s) for s, p in enumerate(PROMPTS)]
    for r, completion in zip(requests, sample(windowed, requests), strict=True):
        found = trainer_logprobs(windowed, r.prompt, completion, 1.0)
        assert np.abs(found - np.array(completion.logprobs)).max() < 1e-4


def test_abort_ends_rows_at_the_next_token(policy: Policy) -> None:
    engine = make_engine(policy)

    async def scenario() -> list[Completion]:
        running = asyncio.ensure_future(engine.generate([request((5, 9), 0, max_new_tokens=200, stop_ids=())]))
        await asyncio.sleep(0.05)
        await engine.abort()
        return await running

    (completion,) = asyncio.run(scenario())
    assert completion.finish in ("abort", "length")


def test_completions_name_the_version_of_the_weights(policy: Policy) -> None:
    engine = make_engine(policy)

    async def scenario() -> Completion:
        await engine.update(None, 7)  # type: ignore[arg-type]
        return (await engine.generate([request((5,), 0)]))[0]

    assert asyncio.run(scenario()).versions == ((0, 7),)


def test_a_row_past_its_deadline_is_dropped_and_the_others_go_on(policy: Policy) -> None:
    late, fine = sample(policy, [request((5, 9), 0, deadline=0.0, stop_ids=()), request((5, 9), 1, stop_ids=())])
    assert (late.finish, len(late.token_ids)) == ("abort", 1)
    assert (fine.finish, len(fine.token_ids)) == ("length", 20)
