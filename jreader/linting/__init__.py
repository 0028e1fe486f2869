"""The linter: find probable mistakes in plans, each with a name and a fix.

Rules run at three moments, and read only what the user has requested:

- `plan_rules.py`: on the plan alone, whenever a loader is built. Nothing is read.
- `field_rules.py`: on fields, once a loop has its first feed, or when `lint` is called.
- `timed_rules.py`: on a plan's functions, which are called and timed: `lint(plan, measure=True)`.

`findings.py` defines findings and their warnings; `plan_parts.py` inspects plans for all rules;
`linter.py` is `lint` itself. A certain mistake is not a finding: it raises an error where it is
made.
"""

from jreader.linting.field_rules import warn_of_fields
from jreader.linting.findings import Finding, warn_of
from jreader.linting.linter import RULES, lint, warn_of_plan
from jreader.linting.plan_parts import Fed
from jreader.linting.plan_rules import is_shuffled, same_left_out

__all__ = [
    "RULES",
    "Fed",
    "Finding",
    "is_shuffled",
    "lint",
    "same_left_out",
    "warn_of",
    "warn_of_fields",
    "warn_of_plan",
]
