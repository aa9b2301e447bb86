"""Answers made to hang, crash or fill a grader: judged or too complex, soon, and the next one is judged."""

from __future__ import annotations

import random

import pytest
from agentrl_verifiers.choice import Choice
from agentrl_verifiers.exact import ExactText
from agentrl_verifiers.math_answer import MathAnswer
from agentrl_verifiers.numeric import Numeric

from agentrl.api import Verdict
from tests.support_answers import judge_all

BOXED = {
    "tower": "9^{9^{9^9}}",
    "tall tower": "2^{" * 30 + "2" + "}" * 30,
    "negative tower": "9^{-9^{9^9}}",
    "tower of variables": "x^{y^{9^{9^{9}}}}",
    "quotient of towers": r"\frac{9^{9^{9^9}}}{9^{9^{9^8}}}",
    "tower in a root": r"\sqrt{9^{9^{9^9}}}",
    "tower in a modulus": r"9^{9^{9^9}} \bmod 7",
    "tower in a set": r"\{1, 9^{9^{9^9}}\}",
    "tower as an endpoint": r"(0, 9^{9^{9^9}})",
    "tower in an equation": r"x = 9^{9^{9^9}}",
    "tower in a sum": r"\sum_{k=1}^{5} 9^{9^{9^k}}",
    "factorial": "99999999999!",
    "factorials of factorials": "((((9!)!)!)!)!",
    "many factorials": "9" + "!" * 400,
    "binomial": r"\binom{10^{18}}{10^{17}}",
    "middling binomial": r"\binom{999999}{499999}",
    "braces": "{" * 10_000 + "1" + "}" * 10_000,
    "open braces": "{" * 10_000,
    "brackets": "(" * 900 + "1" + ")" * 900,
    "unlike brackets": "([" * 400 + "1" + "])" * 400,
    "fractions": r"\frac{1}{1+" * 150 + "1" + "}" * 150,
    "roots": r"\sqrt{" * 250 + "2" + "}" * 250,
    "absolute values": "|" * 1500,
    "signs": "-" * 1900 + "1",
    "functions": r"\sin " * 350 + "1",
    "sets in sets": r"\{" * 400 + r"\}" * 400,
    "digits": "7" * 1_000_000,
    "decimals": "0." + "3" * 1_000_000,
    "exponent notation": "1e9999",
    "longest exponent notation": "1e" + "9" * 1000,
    "repeating": r"0.\overline{" + "1" * 1500 + "}",
    "words": "\\text{" + "a " * 500_000 + "}",
    "letters": "x" * 1900,
    "long product": "*".join(["(x+1)"] * 300),
    "long sum": "+".join(["x"] * 900),
    "long list": ",".join(["x+1"] * 400),
    "long union": r"\cup".join(["(1,2)"] * 130),
    "giant sum": r"\sum_{k=1}^{10^{12}} \frac{1}{k^3}",
    "nested sums": r"\sum_{a=1}^{999}\sum_{b=1}^{999}\sum_{c=1}^{999} \frac{a}{bc+1}",
    "giant product": r"\prod_{k=1}^{10^9} k",
    "hard integral": r"\int_0^1 \int_0^1 x^{y^{x}} \sin(e^{xy}) dx dy",
    "hard limit": r"\lim_{n\to\infty} \frac{n^{n^{n}}}{(n!)^{n!}}",
    "expansion": "(a+b+c+d+e+f)^{500}",
    "matrix": r"\begin{pmatrix}" + r"\\".join(["1&2&3&4&5"] * 150) + r"\end{pmatrix}",
    "power of a matrix": r"\begin{pmatrix}1&1\\1&0\end{pmatrix}^{10^{10}}",
    "unclosed environment": r"\begin{pmatrix}" * 100,
    "cancellation": r"\sqrt{10^{300}+1}-10^{150}",
    "trigonometry": r"\sin(10^{1000})",
    "large floor": r"\lfloor e^{10^{9}} \rfloor",
    "soup": "٣۴५১௧๓༣፫½⅓Ⅷ①㊿🄋" * 20,
    "controls": "".join(map(chr, range(1, 160))),
    "surrogates": "\ud800\udfff" * 100,
    "combining": "1" + "\u0301" * 1900,
    "marks of ours": "\x02\x03\x04" * 300,
}
RAW = {
    "labels": "answer: " * 30_000,
    "labels without text": "the answer is " * 20_000,
    "boxes": r"\boxed{1} , " * 20_000,
    "nested boxes": r"\boxed{" * 20_000 + "1" + "}" * 20_000,
    "open boxes": r"\boxed{" * 20_000,
    "tags": "<answer>" * 20_000 + "</answer>" * 20_000,
    "reasoning": "<think>" * 20_000,
    "closed reasoning": "<think>\n</think>\n" * 20_000,
    "hashes": "####\n" * 50_000,
    "dollars": "$" * 100_000,
    "delimiters": r"\[" * 50_000,
    "spaces": " " * 1_000_000 + "1",
    "dots": "." * 200_000,
    "digits in prose": "1" * 1_000_000,
    "commas": "1,234" * 100_000,
    "equals": "= " * 100_000,
    "asterisks": "*" * 200_000,
    "clauses": "The answer is 5" + ", so it is" * 20_000,
    "new lines": "\n" * 500_000,
    "quotes": '"' * 100_000,
    "carets": "^" * 100_000,
}
CASES = {name: f"\\boxed{{{text}}}" for name, text in BOXED.items()} | RAW
GOLDS = ("10", r"\sqrt{2}", "x+1", r"\{1,2\}", "x>3", "east")


def check(verdict: Verdict) -> None:
    assert verdict.passed is False, verdict
    assert verdict.reason in ("too_complex", "wrong_answer", "no_answer"), verdict
    assert verdict.seconds < 5, verdict


@pytest.fixture(scope="module")
def verdicts() -> dict[tuple[str, str], Verdict]:
    """Every case through one worker process, each after the other, so that one can spoil the next."""
    keys = [(name, gold) for name in CASES for gold in (("10", r"\sqrt{2}") if name in BOXED else ("10",))]
    pairs = [(CASES[name], gold) for name, gold in keys]
    easy = [(r"\boxed{\sqrt{8}}", r"2\sqrt{2}")]
    done = judge_all(MathAnswer, [pair for case in pairs for pair in (case, *easy)], workers=1)
    assert all(verdict.passed for verdict in done[1::2])
    return dict(zip(keys, done[::2], strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_it_is_judged_soon_and_the_next_one_too(name: str, verdicts: dict[tuple[str, str], Verdict]) -> None:
    for (case, _), verdict in verdicts.items():
        if case == name:
            check(verdict)


@pytest.mark.parametrize("gold", GOLDS)
def test_a_tower_beside_every_type_of_gold(gold: str) -> None:
    for verdict in judge_all(MathAnswer, [(r"\boxed{9^{9^{9^9}}}", gold), (r"\boxed{x>9^{9^{9^9}}}", gold)], workers=1):
        check(verdict)


@pytest.mark.parametrize(("plugin", "gold"), [(Numeric, "10"), (ExactText, "10"), (Choice, "Q")])
def test_the_lighter_verifiers_stay_quick(plugin: type, gold: str) -> None:
    for name, response in CASES.items():
        (verdict,) = judge_all(plugin, [(response, gold)])
        assert verdict.passed is False, name
        assert verdict.seconds < 2, name


def test_a_tower_as_gold_is_met_by_itself_alone() -> None:
    gold = "9^{9^{9^9}}"
    same, other = judge_all(MathAnswer, [(f"\\boxed{{{gold}}}", gold), (r"\boxed{9^{9^{9^8}}}", gold)], workers=1)
    assert same.passed
    check(other)


PIECES = (
    *"0123456789+-*/^_=<>()[]{},.;:|!%$ xynπ∞√",
    r"\frac{", r"\sqrt{", r"\sin", r"\log_", r"\pi", r"\infty", r"\{", r"\}", r"\cup", r"\le", r"\begin{pmatrix}",
    r"\end{pmatrix}", r"\\", "&", r"\text{ cm}", r"\circ", r"\binom{", r"\sum_{k=1}^{3}", r"\int_0^1", r"\,dx",
    "i", "e", "}{",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_random_mathematics_is_judged(seed: int) -> None:
    """Whatever the pieces make together, in a worker or not: a verdict on the answer, never an error."""
    rng = random.Random(seed)
    golds = ("10", r"\frac{1}{\sqrt{2}}", "x^2+1", r"\{1,2\}", "(1,2]", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "x>3")
    pairs = [
        ("\\boxed{" + "".join(rng.choices(PIECES, k=rng.randint(1, 14))) + "}", golds[n % len(golds)])
        for n in range(120)
    ]
    for pair, verdict in zip(pairs, judge_all(MathAnswer, pairs), strict=True):
        assert verdict.score in (0.0, 1.0), (pair, verdict)
        assert verdict.seconds < 5, (pair, verdict)
