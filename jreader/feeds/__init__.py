"""Names, shapes and dtypes: what a batch has to look like before it may go to a device.

`data` declares a field, `Feeds` turns batches into named host arrays, `padded` fills short ones up.
A device would wrap an integer that does not fit, and take any shape that it is given. Here nothing
changes its value in silence: an integer stays what it was or is refused, a float is rounded to the
declared precision but never becomes infinite, and a refusal names the field, sample and value.

`shards.py` has batches of which a process reads some rows alone, and `shares.py`, which these are.

jax is not imported here. Which dtype stands for which on a device (int64 is int32 unless x64 is on)
depends on the thread that asks, so the loader asks on the user's thread and hands in a function.
"""

from jreader.feeds.casts import cast
from jreader.feeds.fields import data
from jreader.feeds.layouts import FeedList, Feeds, FeedsThere, padded, with_mask

__all__ = ["FeedList", "Feeds", "FeedsThere", "cast", "data", "padded", "with_mask"]
