"""What the linter found: a name, a sentence, and what to type instead."""

from __future__ import annotations

from dataclasses import dataclass

from jreader.errors import LintWarning, warn


@dataclass(frozen=True)
class Finding:
    """Something in a plan that its user most likely did not mean.

    >>> print(Finding("small-window", "It mixes 10 samples at a time.", "Leave buf_size out."))
    small-window: It mixes 10 samples at a time. Leave buf_size out.

    Attributes:
        name: The name of the rule, by which it is silenced.
        sentence: What was seen, and what follows from it.
        fix: What to type instead.
        made_at: The file and line that made the op; "" where no op is meant.
    """

    name: str
    sentence: str
    fix: str
    made_at: str = ""

    def __str__(self) -> str:
        """The line of a warning, which begins with the name."""
        return f"{self.name}: {self.sentence} {self.fix}"


def warn_of(finding: Finding) -> None:
    """Warns of a finding at the line that made the op; Python shows each once."""
    warn(str(finding), finding.made_at, LintWarning)
