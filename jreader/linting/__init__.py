"""The linter: what a plan has that its user most likely did not mean, each with a name and a fix.

Rules look at three moments, and none of them reads what was not asked for:

- `plan_rules.py`: at the plan alone, whenever a loader is built. Nothing is read.
- `field_rules.py`: at fields, once the first feed of a loop is there, or where `lint` is called.
- `timed_rules.py`: at the functions of a plan, whose calls are timed: `lint(plan, measure=True)`.

`findings.py` says what a finding is, and warns of it; `plan_parts.py` looks into plans for all;
`linter.py` is `lint` itself. A mistake that is certain is no finding: it is an error, where it is
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
