"""A pipeline as bytes: the function of `as_function`, compiled to StableHLO, which jax alone runs.

So a batch that a checkpoint has seen can be made again without jreader. Jax promises to read such
bytes for six months.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.export
import numpy as np

from jreader.errors import check_flag
from jreader.extras import extra
from jreader.feeds import FeedList
from jreader.loaders.device_programs.as_function import as_function
from jreader.loaders.device_programs.swept_weights import mixture_of
from jreader.loaders.remainders import Last
from jreader.readers import Reader, described

_CALL = "export(pipeline)"
_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")  # jax accepts any name, and compiles for it


def export(
    pipeline: Reader[Any],
    feed_list: FeedList | None = None,
    *,
    platforms: Sequence[str] | None = None,
    seed: bool = False,
    weights: bool = False,
    drop_last: bool | None = None,
    last: Last | None = None,
) -> bytes:
    """Export a pipeline as serialized StableHLO, which jax runs without jreader.

    Save the bytes beside the checkpoint. `jax.export.deserialize(...).call(data, epoch, step)`
    returns the loader's feed, also under `jit` and `lax.scan`. `data` is what
    `as_function(pipeline)` returns; the bytes do not contain it.

    >>> import jax.export
    >>> from jreader import Pipeline, arrays
    >>> pipeline = Pipeline(arrays(x=np.arange(6.0))).shuffle(seed=0).batch(2)
    >>> saved = export(pipeline, platforms=["cpu", "cuda"])
    >>> batch_at = jax.export.deserialize(bytearray(saved)).call
    >>> batch_at({"x": np.arange(6, dtype=np.float32)}, 0, 2)["x"].tolist()
    [5.0, 4.0]

    Args:
        pipeline: A batched pipeline, as `as_function` takes it.
        feed_list: The fields, as in `load`.
        platforms: The targets: "cpu", "cuda", "rocm", "tpu"; None for the current one.
        seed: Whether the function takes a seed after `step`: an int for every shuffle of the plan.
        weights: Whether it takes, last, the weights of the mixture of the plan: int32 numbers with
            a sum below 2**30, one for each source, as `batch_at.weights(...)` makes them.
        drop_last: Whether to drop a short last batch, as in `as_function`.
        last: What to do with a short last batch, as in `as_function`.

    Raises:
        TypeError: As in `as_function`; or samples are named tuples or objects, which jax does not
            serialize.
        ValueError: As in `as_function`; or there is no such platform.
        ModuleNotFoundError: flatbuffers is not installed, which serializing needs.
    """
    extra("flatbuffers", "export", f"{_CALL} needs flatbuffers")
    data, batch_at = as_function(pipeline, feed_list, drop_last=drop_last, last=last)
    shapes: dict[str, tuple[int, ...]] = {"epoch": (), "step": ()}
    if check_flag(f"seed of {_CALL}", seed):
        shapes["seed"] = ()
    if check_flag(f"weights of {_CALL}", weights):
        shapes["weights"] = (len(mixture_of(batch_at.reader).readers),)

    def feed(data: Any, *given: Any) -> Any:
        return batch_at(data, **dict(zip(shapes, given, strict=True)))

    numbers = [jax.ShapeDtypeStruct(shape, np.int32) for shape in shapes.values()]
    made = jax.export.export(jax.jit(feed), platforms=_several(platforms))(data, *numbers)
    try:
        return bytes(made.serialize())
    except ValueError as error:
        raise TypeError(
            f"{_CALL} keeps dicts, tuples and lists, and {described(pipeline)} gives feeds of "
            f"another structure: make dicts of them, as arrays(x=...) does."
        ) from error


def _several(platforms: Any) -> list[str] | None:
    if platforms is None:
        return None
    several = [] if isinstance(platforms, str) else [*platforms]
    if not several or not all(isinstance(each, str) for each in several):
        raise TypeError(
            f"{_CALL} needs a list of platforms, not {platforms!r}: type platforms=['cpu', 'cuda']."
        )
    if others := [each for each in several if each not in _PLATFORMS]:
        raise ValueError(
            f"{_CALL} knows the platforms {list(_PLATFORMS)}, and not {others}: type one of them."
        )
    return several
