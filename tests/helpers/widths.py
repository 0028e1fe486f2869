"""How many examples a law has whose examples are costly."""

from hypothesis import settings

USUAL = 500  # of every other law, in CI


def examples(usual: int, least: int = 5) -> settings:
    """So many where the other laws have the usual number, and fewer where they have fewer.

    `least` is how many there are at any width: 3 where each compiles, or starts processes.
    """
    width = settings.default.max_examples
    return settings(max_examples=min(usual, max(usual * width // USUAL, least)))
