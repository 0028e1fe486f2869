"""Findings of the linter: a name, a sentence, and what to type instead."""

from __future__ import annotations

from dataclasses import dataclass

from jreader.errors import LintWarning, warn


@dataclass(frozen=True)
class Finding:
    """A probable mistake in a plan.

    >>> print(Finding("small-window", "It mixes 10 samples at a time.", "Leave buf_size out."))
    small-window: It mixes 10 samples at a time. Leave buf_size out.

    Attributes:
        name: The name of the rule, for `ignore`.
        sentence: What was found, and its consequence.
        fix: What to type instead.
        made_at: The file and line that made the op; "" if there is no op.
    """

    name: str
    sentence: str
    fix: str
    made_at: str = ""

    def __str__(self) -> str:
        """Return the text of a warning, which begins with the name."""
        return f"{self.name}: {self.sentence} {self.fix}"


def warn_of(finding: Finding) -> None:
    """Warn of a finding at the line that made the op; Python shows each once."""
    warn(str(finding), finding.made_at, LintWarning)
