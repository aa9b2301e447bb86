"""Properties of the verifiers of answers: nothing raises, numbers are themselves, their neighbours are not."""

from __future__ import annotations

import asyncio
from fractions import Fraction

import pytest
from agentrl_verifiers.choice import Choice
from agentrl_verifiers.exact import ExactText
from agentrl_verifiers.math_answer import MathAnswer
from agentrl_verifiers.math_answer.comparison import Exact
from agentrl_verifiers.math_answer.decision import decide_with
from agentrl_verifiers.math_answer.extraction import extract
from agentrl_verifiers.math_answer.nodes import Undecided
from agentrl_verifiers.numeric import Numeric
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.api import DataError, Services, Task, Verifier
from tests.support_answers import judge_all, rollout_of, verdict

PIECES = ["\\boxed{", "}", "{", "\\frac", "\\sqrt", "1", "2.5", "x", "^", "_", "(", ")", ",", "=", "<", "%", "$", " ",
          "\n", "\\text{", "#### ", "Answer: ", "and", "or", "\\pm", "\\cup", "|", "!", "/", "cm", "\\begin{pmatrix}",
          "&",
          "\\\\", "<think>", "</think>", "<answer>", "²", "½", "−", "...", "e", "i", "\\infty", "["]  # fmt: skip
TEXT = st.text(max_size=60) | st.lists(st.sampled_from(PIECES), max_size=25).map("".join)
NUMBERS = st.integers(-(10**30), 10**30) | st.integers(-50, 50)


@settings(deadline=None, max_examples=400)
@given(TEXT, st.sampled_from(["7", "x+1", "(1,2)", "east", "\\{1,2\\}", "x>3", "5\\text{ cm}", "50\\%", "3:4"]))
def test_no_text_makes_math_answer_raise(text: str, gold: str) -> None:
    found = extract(text)
    if found is not None:
        try:
            reason, _ = decide_with(gold, list(found.texts), found.prose, Exact())
        except Undecided:
            return
        assert reason in ("passed", "wrong_answer", "too_complex")


@settings(deadline=None, max_examples=300)
@given(TEXT)
def test_no_gold_raises_anything_but_a_data_error(text: str) -> None:
    try:
        MathAnswer(MathAnswer.Options(), Services()).check_task(Task(id="t", messages=(), data={"answer": text}))
    except DataError:
        return


@pytest.mark.parametrize(("plugin", "gold"), [(Numeric, "7"), (ExactText, "7"), (Choice, "B")])
def test_no_text_makes_the_others_raise(plugin: type[Verifier], gold: str) -> None:
    verifier = plugin(plugin.Options(), Services())

    @settings(deadline=None, max_examples=200)
    @given(TEXT)
    def check(text: str) -> None:
        assert asyncio.run(verdict(verifier, rollout_of(text, gold))).score in (0.0, 1.0)

    check()


def holds(gold: str, answer: str) -> bool:
    """Whether an answer in a box is the gold, by exact arithmetic alone."""
    found = extract(f"\\boxed{{{answer}}}")
    assert found is not None
    return decide_with(gold, list(found.texts), found.prose, Exact())[0] == "passed"


@settings(deadline=None)
@given(NUMBERS, st.integers(1, 60))
def test_a_number_is_itself_in_every_form_and_not_its_neighbour(number: int, under: int) -> None:
    gold = str(number)
    for form in (
        gold,
        f"{number:,}",
        f"{number}.0",
        f" {number} ",
        f"${number}$",
        f"{number}\\text{{ cm}}",
        f"x={number}",
    ):
        assert holds(gold, form)
        assert not holds(str(number + 1), form)
    part = Fraction(number, under)
    assert holds(str(part), f"\\frac{{{number}}}{{{under}}}")
    assert not holds(str(part + 1), f"{number}/{under}")


@settings(deadline=None)
@given(st.lists(st.integers(-99, 99), min_size=2, max_size=5, unique=True))
def test_tuples_have_an_order_and_sets_have_none(items: list[int]) -> None:
    joined, turned = ", ".join(map(str, items)), ", ".join(map(str, reversed(items)))
    assert holds(f"({joined})", f"({joined})")
    assert not holds(f"({joined})", f"({turned})")
    assert holds(f"\\{{{joined}\\}}", f"\\{{{turned}\\}}")
    assert not holds(f"\\{{{joined}\\}}", f"\\{{{joined}, 100\\}}")


@settings(deadline=None)
@given(st.decimals("0.01", 500, places=2))
def test_no_percent_sign_makes_bare_numbers_equal(value: object) -> None:
    bare = Fraction(str(value))
    assert not holds(str(value), str(bare * 100))
    assert not holds(str(value), str(bare / 100))
    assert holds(str(value), f"{float(bare * 100):.4f}\\%")


@pytest.mark.parametrize("gold", "ABCD")
def test_one_letter_of_a_choice_scores(gold: str) -> None:
    responses = ["A", "B", "C", "D", "A, B, C, D", "A or B", "ABCD", "", "Choose A, B, C or D."]
    scores = [found.score for found in judge_all(Choice, [(text, gold) for text in responses])]
    assert sum(score or 0.0 for score in scores) == 1.0
    assert scores["ABCD".index(gold)] == 1.0


def test_tolerances() -> None:
    near = [("\\boxed{3.1}", "3"), ("\\boxed{2.9}", "3"), ("\\boxed{3.2}", "3"), ("\\boxed{\\frac{31}{10}}", "3")]
    assert [found.passed for found in judge_all(Numeric, near, absolute=0.125)] == [True, True, False, True]
    assert [found.passed for found in judge_all(Numeric, near, relative=0.05)] == [True, True, False, True]
    assert [found.passed for found in judge_all(Numeric, near)] == [False] * 4
