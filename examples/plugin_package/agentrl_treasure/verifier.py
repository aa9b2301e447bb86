"""Judges where the walk ended."""

from __future__ import annotations

from agentrl.api import Rollout, Verdict, Verifier


class Found(Verifier):
    """Score 1.0 when the first hole is where the treasure lies: digging everywhere earns nothing."""

    name = "treasure_found"
    correctness = True

    def verify(self, rollout: Rollout) -> Verdict:
        dug = (rollout.evidence or {}).get("dug") or []
        found = bool(dug) and dug[0] == rollout.task.data["place"]
        reason = "passed" if found else "wrong_answer" if dug else "no_answer"
        return Verdict(verifier=self.name, score=float(found), passed=found, reason=reason)
