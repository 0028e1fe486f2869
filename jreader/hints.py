"""What users of Paddle, PyTorch, Grain and tf.data type, and what to type here instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from difflib import get_close_matches
from functools import lru_cache, wraps
from typing import Any

_METHODS = {
    # tf.data
    "apply": ".pipe(op, ...)",
    "as_numpy_iterator": "`for sample in pipeline`: samples are NumPy already",
    "cardinality": "len(pipeline)",
    "choose_from_datasets": ".interleave(other, order=[0, 0, 1])",
    "concatenate": ".chain(other)",
    "enumerate": "Pipeline(compose(itertools.count, pipeline, check_alignment=False))",
    "from_generator": "Pipeline(generator_function)",
    "from_tensor_slices": "Pipeline(arrays(images, labels))",
    "group_by_window": ".group_by(fn), of consecutive samples",
    "get_single_element": ".peek()",
    "ignore_errors": '.map(fn, on_error="skip")',
    "list_files": "Pipeline(lambda: sorted(glob.glob(pattern)))",
    "bucket_by_sequence_length": ".bucket(bounds, batch_size=n), or tokens=n",
    "ragged_batch": ".padded_batch(n), with a mask",
    "reduce": "functools.reduce(fn, pipeline, first)",
    "repeat": ".epochs(n), each epoch shuffled anew, or .epochs() for no end",
    "sample_from_datasets": ".mix(other, weights=[7, 3])",
    "take": ".firstn(n)",
    "with_options": "leave it out: there are no options, and the order is always kept",
    "zip": ".compose(other)",
    "save": '.write(path, "parquet"), or another format',
    # Grain
    "map_with_index": ".compose(itertools.count, check_alignment=False).map(fn)",
    "batch_and_pack": ".pack(size).batch(n)",
    "mp_prefetch": ".map(fn, processes=n) before .batch(n)",
    "random_map": ".map(fn, rng=True, seed=0), which calls fn(sample, rng)",
    "seed": ".shuffle(seed=0) or .map(fn, rng=True, seed=0): seeds belong to the ops that draw",
    "slice": "pipeline[first:last]",
    "to_iter_dataset": "leave it out: a pipeline can be iterated, and .load() puts it on devices",
    # PyTorch, torchdata and Hugging Face
    "collate": ".batch(n).map_batches(fn, stacked=False)",
    "concat": ".chain(other)",
    "cycle": ".epochs()",
    "in_memory_cache": ".cache()",
    "save_to_disk": '.write(path, "parquet")',
    "select": "pipeline[[3, 1, 2]], or pipeline[first:last]",
    "set_epoch": "at_epoch(pipeline, epoch); .epochs(n) and loaders count them by themselves",
    "sharding_filter": ".shard(num_shards, index)",
    "train_test_split": ".split([0.8, 0.2], seed=0)",
    "random_split": ".split([0.8, 0.2], seed=0)",
    "to_parquet": '.write(path, "parquet")',
    # Paddle, and the functions of jreader
    "buffered": ".prefetch(n)",
    "map_readers": ".map(fn)",
    "map_samples": ".map(fn)",
    "xmap_readers": ".xmap(fn, process_num, buffer_size)",
    # what loaders do
    "device_put": ".load()",
    "steps": ".load().steps(n)",
    "to_device": ".load()",
}

_PARALLEL = ".map(fn, threads=n) or .map(fn, processes=n), where the slow work is done"
_AHEAD = ".prefetch(n) to read ahead, .load(capacity=n) to do so on devices"
_PADDED = ".batch(n).map_batches(fn, stacked=False)"

_ANYWHERE = {
    "batch_size": ".batch(n)",
    "buffer_size": _AHEAD,
    "capacity": _AHEAD,
    "collate_fn": _PADDED,
    "deterministic": "leave it out: the order is always kept",
    "executor": _PARALLEL,
    "name": "leave it out: errors name the line where an op was made",
    "num_parallel_calls": _PARALLEL,
    "num_threads": _PARALLEL,
    "num_workers": _PARALLEL,
    "prefetch": _AHEAD,
    "prefetch_factor": _AHEAD,
    "processes": _PARALLEL,
    "seed": ".shuffle(seed=0) or .map(fn, rng=True, seed=0): seeds belong to the ops that draw",
    "threads": _PARALLEL,
    "workers": _PARALLEL,
}
_KEYWORDS = {
    "batch": {
        "batch_fn": _PADDED,
        "drop_remainder": "drop_last=True",
        "n": "batch_size=n",
        "size": "batch_size=n",
    },
    "bucket": {
        "boundaries": "bounds=[...]",
        "bucket_batch_sizes": "batch_size=n, or tokens=n for as many as fit",
        "bucket_boundaries": "bounds=[...]",
        "max_tokens": "tokens=n",
    },
    "cache": {"filename": "leave it out: samples are kept in memory"},
    "epochs": {
        "count": "n=count",
        "num_epochs": "n=num_epochs",
        "reseed_each_epoch": (
            "leave it out where it is True: each epoch is shuffled anew; instead of False type "
            ".cache() before .epochs(n) for one order in all epochs"
        ),
    },
    "firstn": {"count": "n=count"},
    "interleave": {
        "block_length": "leave it out: each turn is one sample",
        "cycle_length": "leave it out: every reader has its turns",
        "map_func": ".flat_map(fn), whose iterables follow one another",
        "probabilities": "leave it out: readers take turns, one sample each",
    },
    "load": {
        "batch_size": ".batch(n) before .load()",
        "buffer_size": "capacity=n",
        "collate_fn": f"{_PADDED} before .load()",
        "device": "sharding=device",
        "devices": "sharding=mesh or pmap=devices",
        "drop_remainder": "drop_last=True",
        "num_workers": ".map(fn, processes=n) before .batch(n)",
        "pin_memory": "leave it out: feeds are staged for their devices",
        "places": "sharding=device or pmap=devices",
        "prefetch": "capacity=n",
        "prefetch_factor": "capacity=n",
        "seed": ".shuffle(seed=0) before .batch(n)",
        "shuffle": ".shuffle(seed=0) before .batch(n)",
    },
    "map": {
        "buffer_size": "window=n, the number of samples ahead",
        "num_parallel_calls": "threads=n or processes=n",
        "num_processes": "processes=n",
        "num_threads": "threads=n",
        "num_workers": "processes=n or threads=n",
        "prefetch": "window=n, the number of samples ahead",
        "prefetch_factor": "window=n, the number of samples ahead",
        "workers": "threads=n or processes=n",
    },
    "pack": {
        "length": "size=length",
        "length_struct": "size=length, and fields=[...]",
        "max_length": "size=max_length",
        "num_packing_bins": "leave it out: all documents are packed at once",
        "pad_id": "pad=pad_id",
        "padding_value": "pad=value",
        "seq_len": "size=seq_len",
    },
    "padded_batch": {
        "drop_remainder": "drop_last=True",
        "pad_to_multiple_of": "multiple_of=n",
        "padded_shapes": "to=[length], or to={field: length}",
        "padding_value": "pad=value",
        "padding_values": "pad=value, or pad={field: value}",
    },
    "mix": {
        "probabilities": "weights=probabilities",
        "proportions": "weights=proportions",
        "stop_on_empty_dataset": 'stop="first"',
        "stopping_strategy": 'stop="first" or "all"',
    },
    "prefetch": {"buffer_size": "size=n", "capacity": "size=n", "n": "size=n"},
    "rebatch": {"drop_remainder": "drop_last=True", "n": "batch_size=n", "size": "batch_size=n"},
    "shard": {"rank": "index=rank", "world_size": "num_shards=world_size"},
    "shuffle": {
        "buffer_size": "buf_size=n",
        "reshuffle_each_iteration": (
            "leave it out where it is True: each epoch is shuffled anew; instead of False type "
            ".shuffle(seed=0).cache() for one order in all epochs"
        ),
        "size": "buf_size=n",
        "window_size": "buf_size=n",
    },
    "skip": {"count": "n=count"},
    "window": {
        "drop_remainder": "drop_last=True",
        "n": "size=n",
        "shift": "stride=shift",
        "step": "stride=step",
    },
    "windows": {
        "block_size": "size=block_size + 1, stride=block_size, and split x and y in the step",
        "length": "size=length",
        "overlap": "stride=size - overlap",
        "seq_len": "size=seq_len",
        "shift": "stride=shift",
        "step": "stride=step",
    },
    "write": {
        "file_format": 'format="parquet", say',
        "maxcount": "samples_per_shard=n",
        "num_proc": "threads=n",
        "num_shards": "shards=n",
    },
}
_METHOD_OF = {"buffered": "prefetch", "map_samples": "map"}


def missing_method(kind: type, name: str) -> str:
    """What an error says of a method that a class does not have.

    >>> from jreader import Pipeline
    >>> missing_method(Pipeline, "take")
    "Pipeline has no 'take': type .firstn(n)."
    """
    if name in _METHODS:
        return f"{kind.__name__} has no {name!r}: {_to_type(_METHODS[name])}."
    return f"{kind.__name__!r} object has no attribute {name!r}"


def check_keywords(call: str, fn: Callable[..., Any], given: Collection[str]) -> None:
    """Raises TypeError if a function does not take a keyword, and says what to type instead.

    >>> check_keywords("Pipeline.shuffle", lambda buf_size, seed: None, ["buffer_size"])
    Traceback (most recent call last):
    TypeError: Pipeline.shuffle(...) takes no buffer_size=: type buf_size=n.

    Args:
        call: What the function is called, as its user types it.
        fn: The function.
        given: The keywords of a call.
    """
    takes = _keywords_of(fn)
    for name in given:
        if takes is not None and name not in takes:
            raise TypeError(f"{call}(...) takes no {name}=: {_accepted_keyword(call, takes, name)}")


def _accepted_keyword(call: str, takes: list[str], name: str) -> str:
    method = call.rpartition(".")[2]
    own = _KEYWORDS.get(_METHOD_OF.get(method, method), {})
    if known := own.get(name) or _ANYWHERE.get(name):
        return f"{_to_type(known)}."
    if close := get_close_matches(name, takes, 1):
        return f"did you mean {close[0]}=?"
    return f"it takes {', '.join(takes)}." if takes else "it takes no argument."


def tell_keywords(kind: type, called: str) -> None:
    """Has every public method of a class check its keywords by `check_keywords`.

    Args:
        kind: The class.
        called: The name that its user knows: that of a class that extends it.
    """
    for name, method in list(vars(kind).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(kind, name, _with_checked_keywords(f"{called}.{name}", method))


def _with_checked_keywords(call: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def checked(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            check_keywords(call, method, kwargs)
        return method(self, *args, **kwargs)

    checked.__name__, checked.__qualname__ = call.rpartition(".")[2], call
    return checked


def _to_type(instead: str) -> str:
    return instead if instead.startswith("leave") else f"type {instead}"


@lru_cache(256)  # each op that is made asks
def _keywords_of(fn: Callable[..., Any]) -> list[str] | None:
    """What may be given by name; None where anything may."""
    parameters = inspect.signature(fn).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return None
    named = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    return [each.name for each in parameters if each.kind in named and each.name != "self"]
