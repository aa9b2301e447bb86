"""The rules of `math_answer`, one pair after the other: (response, gold, whether it passes)."""

from __future__ import annotations

import pytest
from agentrl_verifiers.math_answer import MathAnswer

from agentrl.api import DataError, Services, Task
from tests.support_answers import judge_all


def B(text: str) -> str:
    """The text in a box."""
    return f"\\boxed{{{text}}}"


PAIRS: list[tuple[str, str, int]] = [
    # response, gold, right
    ("Final answer: 41. (Some would say the answer is 42.)", "42", 0),
    ("Final answer: 41. (Some would say the answer is 42.)", "41", 1),
    ("The correct answer is **C**.", "C", 1),
    ("So the answer is (d)", "D", 0),
    ("I think the answer is 12 or 13", "13", 0),
    ("The answer is 12 or 13", "12", 0),
    ("The answer is not 12 but 13", "12", 0),
    ("I cannot say if the answer is 12.", "12", 0),
    ("#### 1,000", "1000", 1),
    ("#### -3.50", "-3.5", 1),
    ("#### 7 apples", "7", 1),
    ("so we get $x^2 = 9$, hence $x = \\pm 3$.", "\\pm 3", 1),
    ("Thus $x=3$.", "3", 1),
    ("Thus, the number of ways is $\\binom{5}{2} = 10$.", "10", 1),
    (B("\\frac{3}{4}\\text{ hours}"), "45\\text{ minutes}", 1),
    (B("1.5\\text{ km}"), "1500\\text{ m}", 1),
    (B("5\\text{ kg}"), "5\\text{ g}", 0),
    (B("60 \\text{ mph}"), "60", 1),
    (B("60 \\text{ km/h}"), "60\\text{ mph}", 0),
    (B("3\\text{ m}^2"), "3\\text{ m}", 0),
    (B("3\\text{ m}"), "3\\text{ m}^2", 0),
    (B("20 \\text{ percent}"), "20\\%", 1),
    (B("2\\%"), "0.02", 1),
    (B("2\\%"), "2", 1),
    (B("0.25\\%"), "0.25", 0),
    (B("100\\%"), "1", 1),
    (B("1"), "100\\%", 1),
    (B("100"), "1", 0),
    (B("77_9"), "77_8", 0),
    (B("1A_{16}"), "26", 1),
    (B("1A_{16}"), "1A_{16}", 1),
    (B("1010_2"), "10", 1),
    (B("1010"), "1010_2", 1),
    (B("1010_2"), "1010", 0),
    (B("1010_{2}"), "1010_2", 1),
    (B("1010_{\\text{two}}"), "1010_2", 1),
    (B("5\\times 10^{-7}"), "5\\times 10^{-8}", 0),
    (B("5e-7"), "5\\times 10^{-7}", 1),
    (B("0.0000005"), "5\\times 10^{-7}", 1),
    (B("2^{-60}"), "2^{-61}", 0),
    (B("10^{-40}"), "0", 0),
    (B("(1/3)^{50}"), "(1/3)^{51}", 0),
    (B("\\frac{1}{2003!}"), "\\frac{1}{2004!}", 0),
    (B("1-\\frac{1}{e^2}"), "1+\\frac{1}{e^2}", 0),
    (B("7^{7^9} \\bmod 10"), "3", 1),
    (B("7^{7^9} \\bmod 10"), "10", 0),
    (B("3\\sqrt(5)"), "3", 0),
    (B("3\\sqrt{5}"), "\\sqrt{45}", 1),
    (B("\\sqrt 5"), "\\sqrt{5}", 1),
    (B("sqrt(5)"), "\\sqrt{5}", 1),
    (B("5^(1/2)"), "\\sqrt{5}", 1),
    (B("3:45"), "3:45", 1),
    (B("15:45"), "3:45 \\text{ PM}", 1),
    (B("3:45 p.m."), "3:45\\text{ PM}", 1),
    (B("3:45 am"), "3:45\\text{ PM}", 0),
    (B("4:60"), "2:30", 0),
    (B("2:30"), "5:00", 0),
    (B("2:3"), "4:6", 1),
    (B("2/3"), "2:3", 1),
    (B("1:2:3"), "2:4:6", 1),
    (B("(2 3 1)"), "(1 2 3)", 1),
    (B("(1\\,2\\,3)"), "(1\\,3\\,2)", 0),
    (B("3 \\times 4"), "4 \\times 3", 0),
    (B("4x3"), "4 \\times 3", 1),
    (B("4 by 3"), "4 \\times 3", 1),
    (B("12"), "4 \\times 3", 0),
    (B("4 \\cdot 3"), "12", 1),
    (B("4 x 3"), "12", 0),
    (B("i"), "\\sqrt{-1}", 1),
    (B("2i"), "(1+i)^2", 1),
    (B("-1"), "i^2", 1),
    (B("e^{\\pi i}"), "-1", 1),
    (B("3-2i"), "3+2i", 0),
    (B("\\cos\\frac{\\pi}{3}+i\\sin\\frac{\\pi}{3}"), "\\frac{1}{2}+\\frac{\\sqrt3}{2}i", 1),
    (B("2½"), "2.5", 1),
    (B("½"), "0.5", 1),
    (B("2 1/2"), "2.5", 1),
    (B("x³"), "x^3", 1),
    (B("3×10⁸"), "3 \\times 10^8", 1),
    (B("−７"), "-7", 1),
    (B("٣"), "3", 1),
    (B("1 000 000"), "1000000", 1),
    (B("1{,}000"), "1000", 1),
    (B("12,345.67"), "12345.67", 1),
    (B("0.\\overline{142857}"), "1/7", 1),
    (B("0.\\overline{09}"), "\\frac{1}{11}", 1),
    (B("0.1\\bar{6}"), "1/6", 1),
    (B("0.9\\overline{9}"), "1", 1),
    (B("2, 3"), "3, 2", 1),
    (B("\\{2,3\\}"), "2,3", 1),
    (B("2"), "2,3", 0),
    (B("2,3,4"), "2,3", 0),
    (B("(2,3)"), "(3,2)", 0),
    (B("x=2, y=3"), "(2,3)", 1),
    (B("x=3,y=2"), "(2,3)", 0),
    (B("x=2,y=3"), "y=3, x=2", 1),
    (B("2 \\text{ and } 3"), "2,3", 1),
    (B("x=2 \\text{ or } x=3"), "\\{2,3\\}", 1),
    (B("\\pm\\sqrt{3}"), "\\sqrt3,-\\sqrt3", 1),
    (B("1331"), "1331 and 1728", 0),
    (B("1728, 1331"), "1331 and 1728", 1),
    (B("[1,2]"), "1 \\le x \\le 2", 1),
    (B("(1,2]"), "1 < x < 2", 0),
    (B("x>2"), "(2,\\infty)", 1),
    (B("2<x"), "x>2", 1),
    (B("x\\geq 2"), "x>2", 0),
    (B("(-\\infty,1)\\cup(2,\\infty)"), "x<1 \\text{ or } x>2", 1),
    (B("[1,\\infty)"), "[1,\\infty]", 1),
    (B("x \\ne 0"), "(-\\infty,0)\\cup(0,\\infty)", 1),
    (B("y>2"), "x>2", 0),
    (B("3x>6"), "x>2", 0),
    (B("x>2"), "3x>6", 1),
    (B("-2<x<2"), "|x|<2", 0),
    (B("y=2x+3"), "2x-y+3=0", 1),
    (B("2x-y+3=0"), "y=2x+3", 1),
    (B("y=2x+3"), "y=2x-3", 0),
    (B("x+y=5"), "x-y=5", 0),
    (B("x^2+y^2=4"), "x^2+y^2=2", 0),
    (B("x^2+y^2-4=0"), "x^2+y^2=4", 1),
    (B("2x=10"), "x=5", 0),
    (B("5=x"), "5", 1),
    (B("2+2=5"), "5", 0),
    (B("2+3=5"), "5", 1),
    (B("\\begin{pmatrix}1\\\\2\\end{pmatrix}"), "\\begin{bmatrix}1\\\\2\\end{bmatrix}", 1),
    (B("\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}"), "\\begin{pmatrix}1&3\\\\2&4\\end{pmatrix}", 0),
    (B("\\begin{pmatrix}1 & x \\\\ y & 2\\end{pmatrix}"), "\\begin{bmatrix}1 & x \\\\[2pt] y & 2\\end{bmatrix}", 1),
    (B("x^2-2x+1"), "(x-1)^2", 1),
    (B("(x-1)^3"), "(x-1)^2", 0),
    (B("\\frac{x+1}{2}"), "\\frac12 x+\\frac12", 1),
    (B("\\sin 2x"), "2\\sin x\\cos x", 1),
    (B("2\\ln x"), "\\ln x^2", 1),
    (B("\\ln 6"), "\\ln 2+\\ln 3", 1),
    (B("-x"), "|x|", 0),
    (B("n!"), "n(n-1)!", 1),
    (B("a_{1}"), "a_1", 1),
    (B("a_{12}"), "a_{21}", 0),
    (B("\\log_3 27"), "3", 1),
    (B("2^{n+1}"), "2\\cdot 2^n", 1),
    (B("\\tan 45^\\circ"), "1", 1),
    (B("60^\\circ"), "\\frac{\\pi}{3}", 1),
    (B("60^\\circ"), "60", 1),
    (B("\\angle A = 60^\\circ"), "60", 1),
    (B("\\text{Tuesday}"), "Tuesday", 1),
    (B("tuesday"), "Tuesday", 1),
    (B("\\text{Yes}"), "No", 0),
    (B("No, it is not"), "No", 0),
    (B("Yes, because 2<3"), "Yes", 1),
    (B("\\text{(B)}"), "B", 1),
    (B("\\textbf{(B)}\\ 42"), "B", 1),
    (B("B"), "C", 0),
    (B("A, C"), "AC", 1),
    (B("C, A"), "AC", 1),
    (B("A"), "AC", 0),
    ("B", "B", 1),
    ("The answer is B) 12", "B", 1),
    (B("June 5"), "5 June", 1),
    (B("5th of June"), "June 5", 1),
    (B("\\text{undefined}"), "\\text{undefined}", 1),
    (B("twenty-five"), "25", 1),
    (B("0b101"), "5", 1),
    (B("XIV"), "14", 1),
    (B("1.5 \\text{ million}"), "1500000", 1),
    (B("2 million dollars"), "2000000", 1),
    (B("\\$5"), "€5", 0),
    (B("50 cents"), "\\$0.50", 1),
    (B("5 dollars"), "\\$5", 1),
    (B("5 apples"), "5 pears", 0),
    (B("5 apple"), "5 apples", 1),
    (B("3 \\pmod{5}"), "3 \\pmod 5", 1),
    (B("8 \\pmod{5}"), "3 \\pmod 5", 1),
    (B("x \\equiv 3 \\pmod 5"), "3 \\pmod 5", 1),
    (B("2x+C"), "2x+C", 1),
    (B("2x+D"), "2x+C", 1),
    (B("2x"), "2x+C", 0),
    (B("10 cm"), "10", 1),
    (B("10cm"), "10", 1),
    ("The area is $25\\pi$ square units.", "25\\pi", 1),
    (B("25\\pi \\text{ cm}^2"), "25\\pi", 1),
    (B("25\\pi"), "25", 0),
    (B("\\approx 3.14"), "3.14", 1),
    (B("\\frac{355}{113}"), "\\pi", 0),
    (B("3.14159265358979"), "\\pi", 0),
    (B("\\infty"), "\\infty", 1),
    (B("+\\infty"), "\\infty", 1),
    (B("\\sum_{k=1}^{10} k"), "55", 1),
    (B("\\int_0^1 2x\\,dx"), "1", 1),
    (B("\\sum_{k=1}^{10} k"), "56", 0),
    (B("\\lim_{x\\to0}\\frac{\\sin x}{x}"), "1", 1),
    ("<think>\\boxed{3}</think>\n\\boxed{4}", "4", 1),
    ("Sure <think>\\boxed{9}", "9", 0),
    ("<answer>5</answer>", "5", 1),
    ("<answer>5", "5", 0),
    ("\\boxed{5", "5", 0),
    ("\\boxed{4}\n\n\\boxed{5}", "5", 1),
    ("\\boxed{4} or \\boxed{5}", "5", 0),
    ("\\boxed{4} and \\boxed{5}", "4,5", 1),
    ("\\boxed{1}, \\boxed{2} and \\boxed{3}", "3", 0),
    ("Is it 5?", "5", 0),
    ("I got 5, but I am not sure.", "5", 0),
    ("There are 12 eggs left.", "12", 1),
    ("She has 3 dogs and 4 cats.", "4", 0),
    ("$$x = 7$$", "7", 1),
    ("Therefore\n\\[ x = \\frac{7}{2}. \\]", "3.5", 1),
    ("**Answer**: 7", "7", 1),
    ("Answer: $\\frac{7}{2}$ cups", "3.5", 1),
    ("The final answer is: $\\boxed{12}$", "12", 1),
    ("**12**", "12", 1),
    ("`12`", "12", 1),
    ("答案是 12", "12", 1),
    ("The answer is approximately 3.14.", "3.14", 1),
    ("The answer is 5 (since 2+3=5).", "5", 1),
    ("The answer is 5, because 2+3=5.", "5", 1),
    ("The answer is 5, not 6.", "6", 0),
    ("The answer is 5!", "5", 1),
    (B("5!"), "120", 1),
    (B("5!"), "5", 0),
    ("The total cost is $\\$45$.", "45", 1),
    ("The total cost is $45.", "45", 1),
    ("It costs \\$45.50 in total.", "45.5", 1),
    ("She needs 4 more.", "4", 1),
]


def test_pairs() -> None:
    verdicts = judge_all(MathAnswer, [(response, gold) for response, gold, _ in PAIRS])
    wrong = [pair for pair, verdict in zip(PAIRS, verdicts, strict=True) if verdict.passed is not bool(pair[2])]
    assert wrong == []


@pytest.mark.parametrize(
    "gold", ["", " ", "...", r"\frac{1}{", "3 + + * 4", True, None, ["1"], float("nan"), "7" * 3000]
)
def test_a_gold_that_says_nothing_is_an_error(gold: object) -> None:
    with pytest.raises(DataError):
        MathAnswer(MathAnswer.Options(), Services()).check_task(Task(id="t", messages=(), data={"answer": gold}))


FLOOR_PROMPT = "Ann has 3 apples and buys 4 more. How many apples does she have? Put your answer in \\boxed{}."


@pytest.mark.parametrize(
    "response", ["", " ", FLOOR_PROMPT, B(""), "0", B("0"), "####", "The answer is", "I do not know."]
)
def test_the_floor_scores_nothing(response: str) -> None:
    (verdict,) = judge_all(MathAnswer, [(response, "7")])
    assert verdict.score == 0.0


@pytest.mark.parametrize("response", ["None", "#### None", "no solution", B("\\emptyset"), B("\\mathbb{R}")])
def test_a_set_beside_a_number_is_wrong_and_judged(response: str) -> None:
    (verdict,) = judge_all(MathAnswer, [(response, "55")])
    assert (verdict.score, verdict.reason) == (0.0, "wrong_answer")


WORK: list[tuple[str, str, int]] = [
    ("37+48", "85", 0),
    ("#### 37 + 48", "85", 0),
    ("#### 170/2", "85", 0),
    (B("\\frac{170}{2}"), "85", 0),
    ("#### 5!", "120", 0),
    (B("\\sum_{k=1}^{10} k"), "55", 0),
    (B("\\int_0^1 110x \\, dx"), "55", 0),
    ("#### x = 37+48", "85", 0),
    ("#### 37 + 48 apples", "85", 0),
    ("85 = 37+48", "85", 0),
    ("37+48=85", "85", 1),
    ("37+48=85\n#### 85", "85", 1),
    ("#### 85 apples", "85", 1),
    ("#### -85", "-85", 1),
    ("The answer is 1,234.", "1234", 1),
    ("eighty-five", "85", 1),
    ("#### 86", "85", 0),
    (B("1/2"), "1/2", 1),  # the rule is for whole numbers
    (B("1-1/2"), "1/2", 1),
]


def test_arithmetic_that_is_left_to_do_can_be_refused() -> None:
    verdicts = judge_all(MathAnswer, [(response, gold) for response, gold, _ in WORK], worked_out=True)
    wrong = [pair for pair, verdict in zip(WORK, verdicts, strict=True) if verdict.passed is not bool(pair[2])]
    assert wrong == []
    assert judge_all(MathAnswer, [("37+48", "85")])[0].passed, "without the option an expression is its value"
