"""The methods of a pipeline for samples of many lengths: documents, sequences, point clouds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from jreader import batches, hints, transforms
from jreader.pipelines.wrapped import Wrapped
from jreader.readers import Columns, Node, op, origin

if TYPE_CHECKING:
    from jreader.pipelines.pipeline import Pipeline

T = TypeVar("T")


@op
class WithLengths(Wrapped[T]):
    """What `Pipeline` has for samples of many lengths; it is used through `Pipeline` alone."""

    def padded_batch(
        self,
        batch_size: int,
        drop_last: bool | None = None,
        to: Any = "longest",
        multiple_of: int | None = None,
        pad: Any = 0,
        fields: Any = None,
        longer: Literal["error", "truncate"] = "error",
    ) -> Pipeline[Sequence[T]]:
        """Batches of samples that differ in length, padded to one length, with their masks.

        A batch of dicts has their fields, and beside each one that is padded its mask,
        `<field>_mask`: bool, of shape [batch, length]. Bare documents become `tokens` and
        `tokens_mask`.

        >>> from jreader import Pipeline
        >>> documents = Pipeline(lambda: [[7, 8, 9], [4]])
        >>> documents.padded_batch(2, to=[4, 8]).peek().columns["tokens"].tolist()
        [[7, 8, 9, 0], [4, 0, 0, 0]]

        Args:
            batch_size: Samples per batch.
            drop_last: What becomes of a last batch with fewer samples, as in `batch`.
            to: The length of a batch: "longest" for that of its longest row, or a list of lengths
                that rise, of which it gets the first that is long enough. A list of one is a fixed
                length.
            multiple_of: The length of the longest row is rounded up to a multiple of this.
            pad: What fills rows up: a number, or a dict of numbers by field.
            fields: The names of the fields to pad. None for the ragged columns; where samples have
                to be read to know them, for the one field that is a list or an array.
            longer: What to do with rows longer than the last length of `to`: "error", or "truncate"
                to cut them.

        Raises:
            TypeError: `to` is neither "longest" nor a list of lengths, or there is nothing to pad.
            ValueError: The lengths do not rise, `to` and `multiple_of` are both given, it is not
                clear which fields to pad, or a row is too long (while iterating).
        """
        made = batches.padded_batch(
            self, batch_size, drop_last, to, multiple_of, pad, fields, longer
        )
        return self._after(made)

    def bucket(
        self,
        bounds: Any,
        batch_size: int | None = None,
        tokens: int | None = None,
        by: Any = None,
        fields: Any = None,
        pad: Any = 0,
        longer: Literal["error", "truncate", "drop"] = "error",
        divisible_by: int = 1,
        drop_last: bool | None = None,
        seed: Any = None,
        multiple_of: int | None = None,
    ) -> Pipeline[Columns[T]]:
        """Batches of samples of about one length, each padded to the bound of its bucket.

        If the lengths are known before a sample is read (ragged columns, not shuffled before),
        samples are shuffled inside their buckets, and the batches of all buckets are mixed, in each
        epoch anew. Otherwise batches come as they fill up.

        >>> from jreader import Pipeline
        >>> documents = Pipeline(lambda: [[1], [2, 3, 4], [5], [6, 7, 8, 9]])
        >>> [batch.columns["tokens"].tolist() for batch in documents.bucket([2, 4], batch_size=2)]
        [[[1, 0], [5, 0]], [[2, 3, 4, 0], [6, 7, 8, 9]]]

        Args:
            bounds: The lengths of the buckets, in rising order. A sample belongs to the first one
                that is not less than its length. Or, where lengths are known, how many buckets
                there are: then their bounds are those that pad least, which `repr` tells.
            batch_size: Samples per batch. Instead of `tokens`.
            tokens: Values per batch, padding included: a bucket of bound b has `tokens // b`
                samples per batch.
            by: The field whose length chooses the bucket; None for the longest of those that are
                padded.
            fields: The names of the fields to pad, as in `padded_batch`.
            pad: What fills rows up: a number, or a dict of numbers by field.
            longer: What to do with samples that are longer than the last bound: "error", or
                "truncate" to cut them, or "drop" to leave them out.
            divisible_by: The samples of every full batch are a multiple of this: the number of
                devices that share a batch.
            drop_last: Whether to leave out the short batches. None hands them over too, but `load`
                leaves them out then; with False, `load` pads them.
            seed: An int, or a jax key, fixes the order; `at_epoch` and `epochs` vary it. None draws
                anew for each pass, which can be resumed all the same. A stream keeps its order.
            multiple_of: What all bounds are multiples of, as 8 or 128 for matrix units.

        Raises:
            TypeError: `bounds` is neither a list of lengths nor a number, neither or both of
                `batch_size` and `tokens` are given, or no field differs in length.
            ValueError: The bounds do not rise, or are to be chosen and lengths are not known; or a
                batch has no room for a row of the last one; a sample is longer than that; or it is
                not clear which fields to pad.
        """
        made = batches.bucket(
            self,
            bounds,
            batch_size,
            tokens,
            by,
            fields,
            pad,
            longer,
            divisible_by,
            drop_last,
            seed,
            multiple_of,
        )
        return self._after(made)

    def pack(
        self,
        size: int,
        split: Literal["never", "always"] = "never",
        longer: Literal["error", "split", "truncate", "drop"] = "error",
        fields: Sequence[str] | None = None,
        pad: Any = 0,
        window: int | None = None,
        seed: Any = None,
    ) -> Pipeline[dict[str, Any]]:
        """Documents packed into rows of `size` tokens, with segment ids and positions.

        Samples are dicts of arrays of shape [size]: `tokens` (or the fields of documents that are
        dicts), `segment_ids` (1, 2, ... for the documents of a row, 0 for padding) and `positions`
        (0, 1, ... in each segment). If the lengths are known before a document is read (ragged
        columns, not shuffled before), all documents are packed at once, and `fill` tells how full
        rows are. Otherwise a window of documents is packed at a time. Rows come in random order,
        and who shares a row differs from epoch to epoch. `help(jreader.pack)` says more.

        >>> from jreader import Pipeline, ragged
        >>> documents = ragged([11, 12, 13, 21, 31, 32], [0, 3, 4, 6])
        >>> rows = Pipeline(documents).pack(4, seed=0)
        >>> rows.peek()["tokens"], len(rows), rows.fill
        (array([11, 12, 13, 21]), 2, 0.75)

        Args:
            size: Tokens of a row.
            split: "never" keeps documents whole: best-fit decreasing over the histogram of lengths.
                "always" lays documents end to end, and cuts them where rows end; a piece counts as
                a document of its own.
            longer: For split="never", what becomes of documents with more than `size` tokens: an
                "error", "split" them into pieces, "truncate" them to `size` tokens, or "drop" them.
            fields: Which fields are packed; the others are left out. None for all.
            pad: What stands behind the last document of a row: a number, or a dict of numbers by
                field.
            window: How many documents are packed together; None for all, or 4,096 where lengths are
                not known.
            seed: An int, or a jax key, fixes the order; `at_epoch` and `epochs` vary it. None draws
                anew for each pass, which can be resumed all the same.

        Raises:
            ValueError: `size` or `window` is below 1, or `split` or `longer` is not one of the
                words.
            FeedMismatch: A document is longer than a row, fields differ in length, samples are not
                documents, none has a token, or the padding does not fit (when rows are asked for).
        """
        return self._after(transforms.pack(self, size, split, longer, fields, pad, window, seed))

    @property
    def fill(self) -> float | None:
        """The share of tokens in the rows of `pack`; None where it is not known before a pass.

        >>> from jreader import Pipeline, ragged
        >>> Pipeline(ragged([11, 12, 13, 21, 31, 32], [0, 3, 4, 6])).pack(4).shuffle(seed=0).fill
        0.75
        """
        made = origin(self.reader, "all")
        return made.fill if isinstance(made, transforms.pack) else None

    def windows(self, size: int, stride: int | None = None, across: bool = True) -> Pipeline[Any]:
        """Samples of `size` tokens each, cut from the documents of the pipeline.

        They are cut from all documents as one stream, whose last tokens are left out if they fill
        no window; or, with `across=False`, from each document. `help(jreader.windows)` says more.

        >>> from jreader import Pipeline
        >>> documents = Pipeline(lambda: [[0, 1, 2, 3], [4, 5]])
        >>> [window.tolist() for window in documents.windows(3)]
        [[0, 1, 2], [3, 4, 5]]

        Args:
            size: How many tokens a window has.
            stride: How many tokens lie between the starts of two windows; None for `size`, so that
                each token is in one window.
            across: Whether windows go on from one document into the next.
        """
        return self._after(transforms.windows(self, size, stride, across))

    def _after(self, made: Node[Any]) -> Pipeline[Any]:
        """The pipeline of an op over this one."""
        from jreader.pipelines.pipeline import Pipeline  # noqa: PLC0415  # it extends this class

        return Pipeline(made)


hints.tell_keywords(WithLengths, "Pipeline")
