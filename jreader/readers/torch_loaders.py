"""Loaders of torch and torchdata, and other loaders with a state, as streams of batches."""

from __future__ import annotations

import sys
from ast import literal_eval
from collections.abc import Callable, Iterator
from importlib import import_module
from operator import length_hint
from typing import Any

import numpy as np

from jreader.errors import NotResumable
from jreader.readers.messages import Refusal, described
from jreader.readers.passes import counted
from jreader.readers.trees import Columns, branches, copied, joined, map_tree

_LOADERS = {"DataLoader": "torch", "Loader": "torchdata"}  # other libraries subclass them
_SHUFFLED = (
    "{} shuffles by a generator of torch, which deals another order each time, so that no place in "
    "this one can be found again: to resume within an epoch, make it a StatefulDataLoader of "
    "torchdata, which takes the same arguments"
)


def is_torch_loader(data: object) -> bool:
    """Return whether data are a loader of torch or torchdata, or of a subclass.

    It is known by the names of its classes: asking for a class of torch would import torch.

    >>> is_torch_loader([1, 2])
    False
    """
    kinds = type(data).__mro__
    return any(_LOADERS.get(kind.__name__) == kind.__module__.partition(".")[0] for kind in kinds)


def of_loader(
    loader: Any, epoch: int | None, state: str
) -> tuple[Iterator[Any], Callable[[], str] | None]:
    """Return a pass over a loader, and its state getter; None if its position counts batches.

    Batches of a torch loader are batches here. For other loaders that is unknown, so each item is a
    tree of arrays.

    Args:
        loader: The loader; any other iterable is returned as it is.
        epoch: The epoch for its sampler and data set; None to leave theirs.
        state: The state from an earlier pass, to resume at; "" for the beginning.
    """
    if not is_torch_loader(loader):
        return loader, None
    batches = getattr(loader, "batch_sampler", None)
    sampler = getattr(loader if batches is None else batches, "sampler", None)
    done, place = state_in(state) if state else (0, None)
    set_epoch_of(epoch, sampler, batches, getattr(loader, "dataset", None), loader)
    over = bool(state) and length_hint(batches, -1) == done
    # a torchdata loader would wait for its workers for ever, or give all batches again
    source = iter(()) if over else _begun_at(loader, place)
    teller = source if hasattr(source, "state_dict") else loader
    items, count = counted(source, done)
    made = _until_closed(loader, source, _trees_of(loader, items))
    if hasattr(loader, "load_state_dict"):
        return made, lambda: state_text((count(), teller.state_dict()))
    if hasattr(sampler, "generator"):
        return made, lambda: Refusal(_SHUFFLED.format(described(loader)))
    return made, None


def set_epoch_of(epoch: int | None, *parts: Any) -> None:
    """Call `set_epoch` on the parts that have it, if there is an epoch."""
    for part in parts:
        if epoch is not None and callable(getattr(part, "set_epoch", None)):
            part.set_epoch(epoch)


def _begun_at(loader: Any, place: Any) -> Any:
    if place is not None:
        loader.load_state_dict(place)
    if hasattr(loader, "restart_on_stop_iteration"):  # torchdata.nodes: it may have none left
        loader.restart_on_stop_iteration = False
    return iter(loader)


def _trees_of(loader: Any, items: Iterator[Any]) -> Iterator[Any]:
    """Return a loader's items as arrays that are not written to again."""
    trees, batched = map(arrays_in, items), getattr(loader, "batch_sampler", None) is not None
    collates = getattr(getattr(loader, "collate_fn", None), "__module__", "")
    if not batched or not (getattr(loader, "num_workers", 0) or collates.startswith("torch.")):
        trees = map(copied, trees)
    return map(Columns, trees) if batched else trees


def _until_closed(loader: Any, source: Any, made: Iterator[Any]) -> Iterator[Any]:
    """Yield the results for its batches; its workers end when the pass is closed."""
    try:
        yield from made
    finally:
        end = getattr(source, "_shutdown_workers", None)  # torch has no public name for it
        if end is not None and not getattr(loader, "persistent_workers", False):
            end()


def arrays_in(tree: Any) -> Any:
    """Return a tree of tensors as arrays. A list is a tuple of fields, or one column of texts.

    >>> arrays_in([np.arange(2), ["a", "b"]])
    (array([0, 1]), array(['a', 'b'], dtype=object))
    """
    parts = branches(tree)
    if parts is None:
        return array_of(tree)
    if type(tree) in (list, tuple) and tree and {str, bytes}.issuperset(map(type, tree)):
        return np.array(tree, object)
    made = {key: arrays_in(part) for key, part in parts.items()}
    return tuple(made.values()) if isinstance(tree, list) else joined(tree, made)


def array_of(value: Any) -> Any:
    """Return a tensor's array, over the same memory if on the CPU; other values unchanged.

    >>> array_of(memoryview(b"ab")).nbytes
    2

    Raises:
        TypeError: It is on another device, or not dense; torch says what to call.
        RuntimeError: It requires a gradient.
    """
    kind = str(getattr(value, "dtype", ""))
    if not kind.startswith(("torch.bfloat16", "torch.float8")):
        return np.asarray(value) if hasattr(value, "__array__") else value
    import_module("ml_dtypes")  # registers its dtypes with NumPy
    bits = getattr(sys.modules["torch"], f"int{8 * value.itemsize}")
    return value.view(bits).numpy().view(kind.removeprefix("torch."))


def state_text(state: Any) -> str:
    """Return a state as the text of a literal, since cursors are not unpickled.

    >>> state_in(state_text({0: (1, b"a", None), "generator": np.arange(2)}))
    {0: (1, b'a', None), 'generator': array([0, 1])}

    Raises:
        NotResumable: It holds something other than numbers, texts, bytes and arrays.
    """
    return repr(map_tree(_written, state))


def state_in(text: str) -> Any:
    """Return the state in a text from `state_text`."""
    return map_tree(_leaf_in, literal_eval(text))


def _written(leaf: Any) -> Any:
    """Return a leaf as a literal. Arrays and floats (inf has no literal) become sets."""
    if type(leaf) in (bool, int, str, bytes):
        return leaf
    if type(leaf) is float:
        return {repr(leaf)}
    array, ours = np.asarray(array_of(leaf)), isinstance(leaf, (np.ndarray, np.generic))
    if array.dtype.kind not in "biufc":
        raise NotResumable(
            f"the state of a loader holds {described(leaf)}, which no cursor does: its state_dict()"
            " needs numbers, texts, bytes and arrays, in dicts, lists and tuples."
        )
    return {(ours, array.dtype.str, array.shape, array.tobytes().hex())}


def _leaf_in(leaf: Any) -> Any:
    if not isinstance(leaf, set):
        return leaf
    (kept,) = leaf
    if isinstance(kept, str):
        return float(kept)
    ours, dtype, shape, data = kept
    array = np.frombuffer(bytes.fromhex(data), dtype).reshape(shape).copy()
    return array if ours else sys.modules["torch"].from_numpy(array)
