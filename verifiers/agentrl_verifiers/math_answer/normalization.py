"""One spelling for what is written in many: Unicode, LaTeX cosmetics, Markdown. Text in, text out, linear time."""

from __future__ import annotations

import re
import unicodedata

OPEN_TEXT, CLOSE_TEXT = "\x02", "\x03"
"""Marks around words that stood in `\\text{...}`: they are never a product of symbols."""
DOLLAR = "\x04"
"""A dollar sign that means money and does not delimit mathematics."""

_INVISIBLE = re.compile(
    "[\u00ad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufe00-\ufe0f\ufeff\x00-\x08]"
)
_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱ", "0123456789+-=()ni", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₙ", "0123456789+-=()n", strict=True))
_CHARACTERS = {
    **dict.fromkeys("−–—‐‑‒―﹣－", "-"),
    **dict.fromkeys("×✕✖⨯", r"\times "),
    **dict.fromkeys("·⋅∙•", r"\cdot "),
    **dict.fromkeys("÷∕⁄", "/"),
    **dict.fromkeys("、，", ","),
    **dict.fromkeys("≤≦⩽", r"\le "),
    **dict.fromkeys("≥≧⩾", r"\ge "),
    **dict.fromkeys("≈≃≅", r"\approx "),
    **dict.fromkeys("∅⌀", r"\emptyset "),
    **dict.fromkeys("“”„", '"'),
    **dict.fromkeys("‘’‚′", "'"),
    "≠": r"\ne ", "≡": r"\equiv ", "∞": r"\infty ", "π": r"\pi ", "√": "√", "∛": r"\sqrt[3]", "∜": r"\sqrt[4]",
    "±": r"\pm ", "∓": r"\mp ", "∈": r"\in ", "∪": r"\cup ", "∩": r"\cap ", "∖": r"\setminus ", "ℝ": r"\mathbb{R}",
    "°": r"^\circ ", "º": r"^\circ ", "˚": r"^\circ ", "℃": r"^\circ C", "℉": r"^\circ F", "…": r"\ldots ",
    "⋯": r"\ldots ", "⟨": r"\langle ", "⟩": r"\rangle ", "〈": r"\langle ", "〉": r"\rangle ", "。": ".", "∗": "*",
    "：": ":", "∶": ":", "θ": r"\theta ", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ",
}  # fmt: skip
_TEXT = r"(?:text(?:bf|it|rm|sf|tt|normal|sc|up)?|math(?:rm|bf|sf|it|tt)|operatorname\*?|[mh]box|emph|bm|boldsymbol)"
_TEXT_COMMAND = re.compile(rf"\\{_TEXT}\s*\{{([^{{}}]*)\}}")
_DROPPED = re.compile(
    r"\\(?:left|right|bigl|bigr|Bigl|Bigr|biggl|biggr|Biggl|Biggr|big|Big|bigg|Bigg|displaystyle|textstyle|limits|nolimits|"
    r"middle)(?![A-Za-z])\.?"
)
_SPACES = re.compile(
    r"(?<!\\)\\[,;:> ]|\\(?:quad|qquad|thinspace|enspace|space|hfill)(?![A-Za-z])|~|\\phantom\{[^{}]*\}"
)
_GROUPED = re.compile(r"(?<=\d)(?:\{,\}|\\,\\!|,\\!|,\s*\\!)\s*(?=\d)")
_RENAMED = (
    (re.compile(r"\\[dtc]frac(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"\\[dt]binom(?![A-Za-z])"), r"\\binom"),
    (re.compile(r"\\(?:geqslant|geq|ge)(?![A-Za-z])"), r"\\ge "),
    (re.compile(r"\\(?:leqslant|leq|le)(?![A-Za-z])"), r"\\le "),
    (re.compile(r"\\(?:neq|ne)(?![A-Za-z])"), r"\\ne "),
    (re.compile(r"\\(?:dots|cdots|ldots|dotsc|dotsb|hdots)(?![A-Za-z])"), r"\\ldots "),
    (re.compile(r"\\(?:varnothing|emptyset)(?![A-Za-z])"), r"\\emptyset "),
    (re.compile(r"\\(?:setminus|smallsetminus|backslash)(?![A-Za-z])"), r"\\setminus "),
    (re.compile(r"\\(?:lbrace|\{)"), r"\\{"),
    (re.compile(r"\\(?:rbrace|\})"), r"\\}"),
    (re.compile(r"\\lbrack(?![A-Za-z])"), "["),
    (re.compile(r"\\rbrack(?![A-Za-z])"), "]"),
    (re.compile(r"\\(?:lvert|rvert|vert|mid)(?![A-Za-z])"), "|"),
    (re.compile(r"\\(?:ast|star)(?![A-Za-z])"), "*"),
    (re.compile(r"\\div(?![A-Za-z])"), "/"),
    (re.compile(r"\\(?:angle|triangle|overline(?=\s*\{[A-Z]{2}\})|overrightarrow|vec)(?![A-Za-z])"), ""),
    (re.compile(r"\^\s*\{\s*\\(?:circ|degree)\s*\}|\^\s*\\circ(?![A-Za-z])|\\degree(?![A-Za-z])"), r"\\degree "),
    (re.compile(r"\\(?:mathbb|Bbb)\s*\{?\s*R\s*\}?"), r"\\reals "),
    (re.compile(r"\\(?:var)(epsilon|phi|theta|rho)(?![A-Za-z])"), r"\\\1"),
)
_ROW_END = re.compile(r"\\\\(?:\[[^\]]*\])?|\\cr(?![A-Za-z])|\\newline(?![A-Za-z])")
_ALIGNED = re.compile(r"\\begin\{(?:align|aligned|eqnarray|gather|gathered|equation|split|displaymath|multline)\*?\}")
_ALIGNED_END = re.compile(r"\\end\{(?:align|aligned|eqnarray|gather|gathered|equation|split|displaymath|multline)\*?\}")
_LONE_DOLLAR = re.compile(r"(?<!\\)\$")


def plain_characters(text: str) -> str:
    """Digits of every script, signs, fractions, superscripts and full-width forms in their plain spelling.

    >>> plain_characters("１２"), plain_characters("x²"), plain_characters("2½")
    ('12', 'x^{2}', '2 1/2')
    """
    text = _INVISIBLE.sub("", text)
    if text.isascii():
        return text
    out: list[str] = []
    script = ""
    for character in text:
        raised = _SUPERSCRIPTS.get(character), _SUBSCRIPTS.get(character)
        mark = "^" if raised[0] else "_" if raised[1] else ""
        if script and mark != script:
            out.append("}")
        if mark:
            out.append(raised[0] or raised[1] or "") if mark == script else out.append(
                f"{mark}{{{raised[0] or raised[1]}"
            )
        else:
            out.append(_plain(character))
        script = mark
    if script:
        out.append("}")
    return "".join(out)


def _plain(character: str) -> str:
    if character.isascii():
        return character
    if character in _CHARACTERS:
        return _CHARACTERS[character]
    if (digit := unicodedata.digit(character, None)) is not None:
        return str(digit)
    folded = unicodedata.normalize("NFKC", character)
    if "⁄" in folded:
        return f" {folded.replace('⁄', '/')}"
    if folded.isspace():
        return " " if folded not in "\n\r" else folded
    return folded


def normalize(text: str) -> str:
    """The normal spelling of an answer: the text between the delimiters of mathematics, without cosmetics.

    >>> normalize(r"$\\dfrac{1}{2}\\,$."), normalize(r"11,\\! 111")
    ('\\\\frac{1}{2}', '11,111')
    """
    text = _money_and_delimiters(plain_characters(text).strip())
    text = _ALIGNED.sub(" ", text)
    if _ALIGNED_END.search(text):
        text = _lines_of_an_alignment(_ALIGNED_END.sub(" ", text))
    text = text.replace(r"\%", "%").replace(r"\#", "#").replace(r"\_", "_").replace(r"\&", "&")
    text = _GROUPED.sub(",", text)
    text = text.replace("\\!", "")
    text = _SPACES.sub(" ", _DROPPED.sub("", text))
    for pattern, spelling in _RENAMED:
        text = pattern.sub(spelling, text)
    text = _mark_words(text)
    text = re.sub(r"\*\*|__|`", "", text) if "**" in text or "__" in text or "`" in text else text
    text = re.sub(r"\s+", " ", text).strip()
    return _without_end(text)


def _money_and_delimiters(text: str) -> str:
    """Drop `$`, `$$`, `\\(`, `\\[` and their partners; keep dollars as a mark."""
    text = text.replace(r"\$", DOLLAR)
    for delimiter in (r"\(", r"\)", r"\[", r"\]"):
        # `\\[2pt]` ends a row; only a single backslash delimits.
        if delimiter in text:
            text = re.sub(rf"(?<!\\){re.escape(delimiter)}", " ", text)
    marks = len(_LONE_DOLLAR.findall(text))
    if marks % 2 and "$$" not in text:
        return re.sub(r"\$(?=\s*[\d.,-])", DOLLAR, text).replace("$", " ")
    return text.replace("$", " ")


def _lines_of_an_alignment(text: str) -> str:
    """Rows become one chain when they go on with a relation sign, else a list."""
    rows = [row.replace("&", " ").strip() for row in _ROW_END.split(text)]
    out = ""
    for row in filter(None, rows):
        goes_on = re.match(r"=|<|>|\\(?:le|ge|leq|geq|approx|equiv|iff|Rightarrow|implies)(?![A-Za-z])", row)
        out += (" " if goes_on or not out else " , ") + row
    return out


def _mark_words(text: str) -> str:
    """`\\text{...}` around words becomes a marked word; around symbols, numbers and names it just goes."""

    def replace(match: re.Match[str]) -> str:
        content = match[1].strip()
        if re.fullmatch(
            r"[A-Za-z]|[^A-Za-z]*|\\[A-Za-z]+|sin|cos|tan|cot|sec|csc|ln|log|exp|arc\w+|gcd|lcm|mod", content
        ):
            return f" {content} "
        return f" {OPEN_TEXT}{content}{CLOSE_TEXT} "

    for _ in range(3):
        text, found = _TEXT_COMMAND.subn(replace, text)
        if not found:
            break
    return text


def _without_end(text: str) -> str:
    """Without the full stop, comma or quotation marks that prose puts around an answer."""
    while text:
        shorter = re.sub(r"(?:(?<!\.)\.|[,;:])$", "", text.rstrip()) if not text.endswith("...") else text
        if len(shorter) > 1 and shorter[0] == shorter[-1] and shorter[0] in "\"'*_":
            shorter = shorter[1:-1]
        if shorter.strip() == text:
            break
        text = shorter.strip()
    return text
