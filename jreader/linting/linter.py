"""`lint`: apply all rules to a plan, or to a loader."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any

from jreader.errors import check_flag
from jreader.linting import field_rules, plan_rules, timed_rules
from jreader.linting.findings import Finding, warn_of
from jreader.linting.plan_parts import Fed
from jreader.readers import Reader
from jreader.readers.growing import without_writing

RULES = {
    "small-window": "a loader is built",
    "shuffle-after-batch": "a loader is built",
    "map-below-shuffle": "a loader is built",
    "map-on-every-process": "a loader is built",
    "generator-object": "a loader is built",
    "same-left-out": "an epoch ends",
    "host-float32": "the first feed is there",
    "narrowed": "the first feed is there",
    "unordered": "",
    "large-cache": "",
    "many-shapes": "",
    "ragged-last-batch": "",
    "scalar-map": "",
    "held-lock": "",
}
"""The names of all findings, and when each is a warning; "" for those that only `lint` reports."""

_ANY_ERROR = suppress(Exception)  # stateless, so all rules share it
_AT_BUILD = (
    plan_rules.small_window,
    plan_rules.shuffle_after_batch,
    plan_rules.map_below_shuffle,
    plan_rules.map_on_every_process,
    plan_rules.generator_object,
)
_UNREAD = (*_AT_BUILD, plan_rules.left_out, plan_rules.unordered)
_READ = (
    field_rules.fields,
    field_rules.caches,
    field_rules.shapes,
)
_TIMED = (timed_rules.scalar_map, timed_rules.held_lock)


def lint(subject: Any, *, measure: bool = False, ignore: Collection[str] = ()) -> list[Finding]:
    """Find probable mistakes in a plan or a loader, and what to type instead.

    It reads the first sample, and the lengths of all samples if batches depend on them. Open passes
    keep their positions.

    >>> import numpy as np
    >>> from jreader import Pipeline, arrays
    >>> rows = Pipeline(arrays(x=np.arange(10_000)))
    >>> for finding in lint(rows.shuffle(50, seed=0).batch(32)):
    ...     print(finding.name, "-", finding.fix)
    small-window - Leave buf_size out: the plan is indexed, and shuffle(seed=0) shuffles all of it.
    >>> lint(rows.shuffle(seed=0).batch(32))
    []

    Args:
        subject: A reader, a pipeline or a loader.
        measure: Whether to time functions too: those of `map` are called for 64 samples, and for a
            twentieth of a second.
        ignore: The names of findings to leave out.

    Returns:
        A list of `Finding(name, sentence, fix, made_at)`, each of which prints as one line.

    Raises:
        TypeError: The subject is not one of these, or `ignore` is a str.
        ValueError: A name to ignore is not the name of a rule.
    """
    _check_rule_names(ignore)
    rules = _READ + _TIMED * check_flag("measure of lint", measure)
    with without_writing():
        fed = fed_of(subject)
        found = [each for rule in _UNREAD for each in rule(fed)]
        if not any(each.name == "generator-object" for each in found):  # reading would use it up
            found += [each for rule in rules for each in rule(fed)]
    return [each for each in dict.fromkeys(found) if each.name not in ignore]


def _check_rule_names(ignore: Collection[str]) -> None:
    if isinstance(ignore, str):
        raise TypeError(f"ignore of lint(...) needs a list of names, as in [{ignore!r}].")
    if unknown := sorted(set(ignore) - set(RULES)):
        raise ValueError(f"lint has no rule {unknown[0]!r}: its rules are {', '.join(RULES)}.")


def fed_of(subject: Any) -> Fed:
    """Return what the rules inspect: a plan, and how a loader feeds it.

    Raises:
        TypeError: The subject is neither a reader nor a loader.
    """
    if callable(plan_of := getattr(type(subject), "_fed", None)):
        made: Fed = plan_of(subject)
        return made
    if not callable(subject) or isinstance(subject, type):
        raise TypeError(
            f"lint(...) needs a reader, a pipeline or a loader, not {subject!r}: a reader is a "
            f"function without arguments, f and not f()."
        )
    return Fed(subject)


def warn_of_plan(plan: Reader[Any], *, shared: bool = False) -> None:
    """Warn of mistakes that a plan shows without reading, when it is passed to a loader.

    Args:
        plan: The reader of the samples or batches.
        shared: Whether several processes feed parts of each batch.
    """
    fed = Fed(plan, shared=shared)
    found: list[Finding] = []
    with without_writing():
        for rule in _AT_BUILD:
            with _ANY_ERROR:  # for an op of the user: the rule is skipped
                found += rule(fed)
    for finding in found:
        warn_of(finding)
