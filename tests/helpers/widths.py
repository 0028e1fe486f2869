"""How many examples a law has whose examples are costly."""

from hypothesis import settings

USUAL = 500  # of every other law, in CI


def examples(usual: int) -> settings:
    """So many where the other laws have the usual number, and fewer where they have fewer."""
    width = settings.default.max_examples
    return settings(max_examples=min(usual, max(usual * width // USUAL, 10)))
