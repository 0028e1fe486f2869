"""Words that people search for, and the page that the site shows first for each.

The search of Sphinx ranks index entries above titles and text, so `conf.py` adds these as entries.
"""

from __future__ import annotations

PAGES = {
    "coming_from/equinox": "equinox",
    "coming_from/flax": "flax",
    "coming_from/keras": "keras",
    "coming_from/optax": "optax",
    "coming_from/pytorch": "torch, pytorch, collate_fn",
    "datasets": "collate, sampler",
    "ends": "drop_last, last batch",
    "far": "s3, gcs",
    "faq": "faq, recompile, pin_memory, num_workers, prefetch_factor",
    "how_to/augment_on_the_device": "augment, augmentation",
    "how_to/evaluate_exactly": "evaluate, evaluation",
    "how_to/evaluate_while_training": "early stopping, validation, mid-epoch",
    "how_to/feed_arrays": "memmap, mmap, pandas, polars, data frame, dataframe",
    "how_to/heavy_maps": "multiprocessing, gil",
    "how_to/many_devices": "pmap, multi-gpu, data parallel",
    "how_to/pack_documents": "packing",
    "how_to/read_a_database": "sql, sqlite, database, retry, retries, web api",
    "how_to/sample_with_weights": "imbalanced, oversampling, undersampling, weighted, weights",
    "how_to/several_hosts": "multi-host, distributed",
    "how_to/split_data": "train/test split, cross-validation, k-fold, stratify",
    "how_to/stop_and_resume": "checkpoint, resume",
    "how_to/why_is_it_slow": "slow, bottleneck",
    "seeds": "reproducible, deterministic, seed",
    "streams": "streaming",
    "text": "tokenize, bucket",
}


def with_entries(page: str, text: str) -> str:
    """`text` of a page, with the index entries of its words below its title."""
    if page not in PAGES:
        return text
    title, rest = text.split("\n", 1)
    entries = ", ".join(f"! {word}" for word in PAGES[page].split(", "))
    return f"{title}\n\n```{{index}} {entries}\n```\n{rest}"
