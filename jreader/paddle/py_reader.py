"""`PyReader`: Paddle's older class for the result of `DataLoader.from_generator`."""

from __future__ import annotations

from typing import Any

from jreader import errors
from jreader.feeds import FeedList
from jreader.loaders.loader import DataLoader
from jreader.loaders.source import Options
from jreader.readers import Reader


class PyReader(DataLoader):
    """A loader like that of `DataLoader.from_generator`, with Paddle's older method names.

    Its `decorate_*_generator` are the `set_*_generator` of `DataLoader`.

    >>> loader = PyReader(feed_list=None, capacity=2)
    >>> loader.decorate_sample_generator(lambda: range(4), batch_size=2)
    >>> [feed.tolist() for feed in loader()]
    [[0, 1], [2, 3]]
    """

    def __init__(
        self,
        feed_list: FeedList | None = None,
        capacity: int = 2,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
    ) -> None:
        """Take the arguments of `from_generator`."""
        capacity = errors.check_number("PyReader(feed_list, capacity)", capacity)
        options = Options(feed_list, capacity, bool(use_double_buffer), bool(return_list))
        self._begin(options, iterable=bool(iterable))

    def decorate_sample_generator(
        self,
        sample_generator: Reader[Any],
        batch_size: int,
        drop_last: bool = True,
        places: Any = None,
    ) -> None:
        """Set a reader of samples as the source, like `set_sample_generator`."""
        self.set_sample_generator(sample_generator, batch_size, drop_last, places)

    def decorate_sample_list_generator(self, reader: Reader[Any], places: Any = None) -> None:
        """Set a reader of lists of samples, like `set_sample_list_generator`."""
        self.set_sample_list_generator(reader, places)

    def decorate_batch_generator(self, reader: Reader[Any], places: Any = None) -> None:
        """Set a reader of batches of arrays, like `set_batch_generator`."""
        self.set_batch_generator(reader, places)
