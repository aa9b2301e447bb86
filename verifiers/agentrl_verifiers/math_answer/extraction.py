"""Which part of a response is its answer. Text in, candidates out; linear time; nothing is evaluated.

The rules, in order:

1. Reasoning (`<think>` and its kin) is cut; reasoning that was never closed leaves no answer.
2. A marked answer: `\\boxed{...}` (`\\fbox`), `<answer>...</answer>`, a line `#### ...`, `Answer: ...`, or "the final
   (correct, real, ...) answer is ...". The last mark in the text counts, whatever its kind; of labels and what rule 3
   names, the last too. A last box or tag that was
   never closed, or that is empty, is no answer: nothing falls back to an earlier one. Boxes that stand in one
   list (`\\boxed{1}, \\boxed{2}` or joined by "and", "or") are one answer of several values.
3. Else a named answer: the last "the answer (result, solution, ...) is ..." that its sentence does not deny.
4. Else the whole response, when it is a single line.
5. Else what the last sentence states: what follows its last `=`, ":", "is", "are", "get" and the like, or its only
   number. A question, a denial or a doubt states nothing.

What prose adds after an answer (", so ...", " because ...", "(since ...)") is cut, unless it offers another answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agentrl.api import strip_reasoning

_OPEN_REASONING = re.compile(r"<(?:think|thinking|reasoning|thought|scratchpad)>|\[THINK\]", re.IGNORECASE)
_CLOSE_REASONING = re.compile(r"</(?:think|thinking|reasoning|thought|scratchpad)>|\[/THINK\]", re.IGNORECASE)
_BOX = re.compile(r"\\(?:boxed|fbox|framebox)(?![A-Za-z])[ \t\n]*(?P<brace>\{)?")
_BETWEEN_BOXES = re.compile(r"[\s$]*(?:,\s*(?:and|or)?|;|and|or|\\text\{\s*(?:and|or)\s*\})[\s$]*", re.IGNORECASE)
_TAG = re.compile(r"<(?P<close>/)?answer>", re.IGNORECASE)
_HASHES = re.compile(r"^[ \t>*]*####[ \t]*(?P<text>.*)$", re.MULTILINE)
_SURE = r"(?:final|correct|real|actual|right|true)"
_END_OF_LABEL = r"(?:\*\*|__)?\s*(?::|：|is:)\s*(?:\*\*|__)?"
_LABEL = re.compile(
    rf"(?<![A-Za-z])(?:{_SURE}\s+)?(?:answer|ans)(?![A-Za-z]){_END_OF_LABEL}"
    rf"|(?<![A-Za-z]){_SURE}\s+(?:answer|option|choice|result)\s+(?:is|was|would be|equals|=)(?![A-Za-z])\s*:?"
    r"|(?:最终)?答案(?:是|为)?\s*[:：]?",
    re.IGNORECASE,
)
_NAMED = re.compile(
    r"(?<![A-Za-z])(?:answer|ans|result|solution|solutions|answers|option|choice)\s+"
    r"(?:is|are|was|be|equals|would be|must be|should be|will be)(?![A-Za-z])\s*:?",
    re.IGNORECASE,
)
_DENIAL = re.compile(
    r"(?<![A-Za-z])(?:not|never|cannot|no|wrong|incorrect|mistaken|unsure|unknown|maybe|perhaps|possibly|might|guess|"
    r"unless|if|common|tempting|naive|some|others|would|could|should)(?![A-Za-z])|n't(?![A-Za-z])|n’t(?![A-Za-z])",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[^.\s\d])[.!](?=[\s*_\")\]]|$)|(?<=\d)[.!](?=[\s*_\")\]]|$)|\n|。")
_STATES = re.compile(
    r"=|:(?=\s)|(?<![A-Za-z])(?:is|are|was|were|be|equals?|gets?|got|gives?|makes?|earns?|has|have|spends?|needs?|"
    r"obtains?|yields?)(?![A-Za-z])|\\approx|≈",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<![\w.])[-+−]?[$€£¥]?\s?\d+(?:[,.]\d+)*(?:/\d+)?%?(?![\w])")
_CLAUSE = re.compile(
    r",\s+(?=[A-Za-z]{2})|\s\(?(?=(?:because|since|as|so|which|when|where|for|if|therefore|thus|hence|but|i\.e\.)(?![A-Za-z]))"
    r"|\s\((?=[A-Za-z]{2})|;\s",
    re.IGNORECASE,
)
_OTHER = re.compile(r"[,;(\s]*(?:or|and|maybe|but|perhaps|possibly|not|alternatively)(?![A-Za-z])", re.IGNORECASE)
_MATH = re.compile(r"\$\$[^$]+\$\$|\\\[.*?\\\]|\\\(.*?\\\)|(?<!\\)\$[^$\n]+?(?<!\\)\$", re.DOTALL)
_UNKNOWN = re.compile(r"(?<![A-Za-z])\d*[a-z]\s*[-+*/^]|[-+*/^]\s*\d*[a-z](?![A-Za-z])|\d[a-z](?![A-Za-z])")
_LONGEST_NEST = 20_000  # characters: taking boxes off one by one is quadratic
_WHOLE = 400
"""Characters up to which a response of one line may be an answer as a whole."""


@dataclass(frozen=True, slots=True)
class Extracted:
    """Where an answer was found. texts: what may be read as it, the most complete first.

    prose: the text stood in a sentence, so a final exclamation mark is no factorial.
    Example: `Extracted(rule="box", texts=("42",))`.
    """

    rule: str
    texts: tuple[str, ...]
    prose: bool = False


def extract(response: str) -> Extracted | None:
    """The answer of a response, or None when it gives none.

    >>> extract("I first got \\\\boxed{5}, but rechecking gives \\\\boxed{7}.").texts
    ('7',)
    """
    text = _after_reasoning(response)
    if text is None or not text.strip():
        return None
    mark = _last_mark(text)
    if mark is not None:
        return mark if mark.texts else None
    found = _named(text)
    if found is not None:
        return found
    whole, stated = _whole(text), _last_sentence(text)
    if whole is None or stated is None or not re.search(r"[A-Za-z]{2}", _without_math(text)):
        return whole or stated
    return Extracted("whole", (*whole.texts, *stated.texts), prose=True)


def _after_reasoning(response: str) -> str | None:
    text = strip_reasoning(response)
    if text is None:
        return None
    text = _CLOSE_REASONING.split(text)[-1]
    return None if _OPEN_REASONING.search(text) else text


def _last_mark(text: str) -> Extracted | None:
    """The last marked answer; without texts when it states nothing."""
    found = [mark for mark in (_last_box(text), _last_tag(text), _last_hashes(text)) if mark]
    # An earlier label would lose against these marks, and the search for labels is what costs most here.
    label = _last_label(text, max((place for place, _ in found), default=0))
    if label is not None:
        found.append(label)
    if not found:
        return None
    start, mark = max(found, key=lambda pair: pair[0])
    if mark.rule == "label" and (later := _named(text, start)) is not None:
        mark = later
    if mark.rule not in ("box", "named") and "\\" in text[start:]:
        # A label or a tag around a box is the box's.
        inner = _last_box(text[start:])
        if inner is not None:
            return inner[1]
    return mark


def _last_box(text: str) -> tuple[int, Extracted] | None:
    boxes: list[tuple[int, int, str | None]] = []
    for match in _BOX.finditer(text):
        if boxes and boxes[-1][2] is not None and match.start() < boxes[-1][1]:
            continue
        if match["brace"] is None:
            # `\boxed 5`, as TeX reads it: one sign, or one number.
            bare = re.compile(r"-?\d+(?:\.\d+)?|[A-Za-z]").match(text, match.end())
            if bare:
                boxes.append((match.start(), bare.end(), bare[0]))
            continue
        end = closing_brace(text, match.end() - 1)
        if end is None:
            boxes.append((match.start(), len(text), None))
            break
        boxes.append((match.start(), end + 1, text[match.end() : end]))
    if not boxes:
        return None
    start, _, content = boxes[-1]
    contents = [content]
    for place in range(len(boxes) - 2, -1, -1):
        if not _BETWEEN_BOXES.fullmatch(text, boxes[place][1], boxes[place + 1][0]):
            break
        contents.insert(0, boxes[place][2])
    if content is None or not content.strip():
        return start, Extracted("box", ())
    whole = content if len(contents) == 1 else " , ".join(part or "" for part in contents)
    return start, Extracted("box", (unbox(whole),))


def unbox(text: str) -> str:
    """The content of boxes inside a text: `\\boxed{\\boxed{1}}` says 1."""
    while len(text) <= _LONGEST_NEST and (match := _BOX.match(text.strip())) and match["brace"]:
        text = text.strip()
        end = closing_brace(text, match.end() - 1)
        if end != len(text) - 1:
            break
        text = text[match.end() : end]
    return text


def closing_brace(text: str, opening: int) -> int | None:
    """Place of the brace that closes the one at `opening`, or None; escaped braces do not count."""
    depth, place = 0, opening
    for match in re.compile(r"\\.|[{}]", re.DOTALL).finditer(text, opening):
        place = match.start()
        if match[0] == "{":
            depth += 1
        elif match[0] == "}":
            depth -= 1
            if depth == 0:
                return place
    return None


def _last_tag(text: str) -> tuple[int, Extracted] | None:
    tags = list(_TAG.finditer(text))
    if not tags:
        return None
    if not tags[-1]["close"]:
        return tags[-1].start(), Extracted("tag", ())
    opening = next((tag for tag in reversed(tags) if not tag["close"]), None)
    if opening is None:
        return None
    content = text[opening.end() : tags[-1].start()].strip()
    return opening.start(), Extracted("tag", (content,) if content else ())


def _last_hashes(text: str) -> tuple[int, Extracted] | None:
    for match in reversed(list(_HASHES.finditer(text))):
        last = not text[match.end() :].strip()
        content = match["text"].strip()
        # Elsewhere than in the last line four hashes may head a section.
        if last or re.match(r"[-+−$€£\\(]*\d", content):
            return match.start(), Extracted("hashes", _prose(content))
    return None


def _last_label(text: str, after: int) -> tuple[int, Extracted] | None:
    for match in reversed(list(_LABEL.finditer(text, after))):
        if not _denied(text, match.start()):
            stated = _sentence_after(text, match.end())
            return match.start(), Extracted("label", _prose(stated), prose=True)
    return None


def _named(text: str, after: int = 0) -> Extracted | None:
    for match in reversed(list(_NAMED.finditer(text, after + 1 if after else 0))):
        stated = _sentence_after(text, match.end())
        if stated and not _denied(text, match.start()):
            return Extracted("named", _prose(stated), prose=True)
    return None


def _denied(text: str, place: int) -> bool:
    """Whether the sentence up to `place` denies or doubts what follows."""
    window = text[max(0, place - 200) : place]
    ends = list(re.finditer(rf"{_SENTENCE_END.pattern}|;", window))
    if window[ends[-1].end() if ends else 0 :].lstrip().startswith("("):
        # An aside.
        return True
    return _DENIAL.search(window, ends[-1].end() if ends else 0) is not None


def _sentence_after(text: str, place: int) -> str:
    """From `place` to the end of the sentence; a display on the following lines belongs to it."""
    rest = text[place : place + 2000].lstrip()
    if rest.startswith(("\\[", "$$", "\\begin")):
        closing = {"\\[": "\\]", "$$": "$$"}.get(rest[:2], "\\end")
        end = rest.find(closing, 2)
        return rest[: end + len(closing)] if end >= 0 else rest
    end_match = _SENTENCE_END.search(rest)
    return rest[: end_match.start()] if end_match else rest


def _whole(text: str) -> Extracted | None:
    stripped = text.strip()
    in_environment = re.fullmatch(r"(?:\$\$|\\\[)?\s*\\begin\{.*\\end\{\w+\*?\}\s*(?:\$\$|\\\])?", stripped, re.DOTALL)
    if len(stripped) > _WHOLE or ("\n" in stripped and not in_environment):
        return None
    if _SENTENCE_END.search(stripped.rstrip(".!")) or len(re.findall(r"[A-Za-z]{2,}", stripped)) > 6:
        return None
    # A line that says "is" or "get" states an answer instead of being one.
    said = _STATES.search(re.sub(r"=|:", " ", stripped))
    return None if said else Extracted("whole", _prose(stripped), prose=True)


def _without_math(text: str) -> str:
    """The text with its delimited mathematics blanked out, every place kept."""
    if len(re.findall(r"(?<!\\)\$", text)) % 2:
        return text
    return _MATH.sub(lambda match: " " * len(match[0]), text)


def _last_sentence(text: str) -> Extracted | None:
    stripped = text.rstrip().rstrip(".!* ")
    stripped = stripped[-4000:]
    ends = list(_SENTENCE_END.finditer(_without_math(stripped)))
    sentence = stripped[ends[-1].end() if ends else 0 :]
    display = re.search(r"(?:\\\[(?:(?!\\\[).)*\\\]|\$\$[^$]+\$\$)$", stripped, re.DOTALL)
    if display is not None:
        sentence = display[0]
    if len(sentence) > _WHOLE or "?" in sentence or _DENIAL.search(sentence):
        return None
    prose = _without_math(sentence)
    so = list(re.finditer(r"(?<![A-Za-z])(?:hence|thus|therefore|so|then|giving)(?![A-Za-z])", prose, re.IGNORECASE))
    if so and re.search(r"[\d$\\]", sentence[so[-1].end() :]):
        sentence, prose = sentence[so[-1].end() :], prose[so[-1].end() :]
    said = list(_STATES.finditer(prose))
    if said and re.search(r"[\d$\\]", sentence[said[-1].end() :]):
        # What is equated with an unknown expression is no answer: 2x + 1 = 5.
        equation = said[-1][0] == "=" and _UNKNOWN.search(prose[: said[-1].start()])
        return None if equation else Extracted("sentence", _prose(sentence[said[-1].end() :]), prose=True)
    segments = list(_MATH.finditer(sentence)) if prose != sentence else []
    if segments and not re.search(r"\d", sentence[segments[-1].end() :]):
        return Extracted("sentence", (segments[-1][0],), prose=True)
    if said and sentence[said[-1].end() :].strip():
        return Extracted("sentence", _prose(sentence[said[-1].end() :]), prose=True)
    numbers = _NUMBER.findall(prose)
    return Extracted("sentence", (numbers[0],), prose=True) if len(numbers) == 1 else None


def _prose(text: str) -> tuple[str, ...]:
    """A statement, then without what a clause after it adds, shorter and shorter."""
    text = text.strip()
    if not text:
        return ()
    texts = [text]
    for match in reversed(list(_CLAUSE.finditer(text))[:8]):
        if match.start() and not _OTHER.match(text, match.start()):
            texts.append(text[: match.start()])
    if any(_OTHER.match(text, match.start()) for match in _CLAUSE.finditer(text)):
        # It offers another answer: none of its parts stands for the whole.
        return (text,)
    return tuple(texts)
