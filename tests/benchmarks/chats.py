"""What rendering, tokenizing and masking a chat costs, beside transformers in one run.

    python -m tests.benchmarks.chats [rounds]

Rounds are interleaved, and figures are medians of CPU time: what is to be compared is the ratio of
two of one table. It needs `python -m pip install tokenizers transformers`.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import numpy as np
import tokenizers
import transformers

from jreader import Pipeline

TEMPLATES = Path(__file__).parents[1] / "chats" / "templates"


def chats(many: int, turns: int, words: int):
    """Chats of random words, with as many questions and answers."""
    rng = np.random.default_rng(0)
    known = ["".join(rng.choice(list("abcdefghij"), rng.integers(2, 9))) for _ in range(2000)]
    for _ in range(many):
        yield {
            "messages": [
                {"role": role, "content": " ".join(rng.choice(known, words))}
                for _ in range(turns)
                for role in ("user", "assistant")
            ]
        }


def tokenizer(texts):
    """A small one of transformers, trained on the texts."""
    raw = tokenizers.Tokenizer(tokenizers.models.BPE())
    raw.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=4000,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator(texts, trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=raw)


def main(rounds: int) -> None:
    samples = list(chats(100, turns=5, words=60))
    theirs = tokenizer(each["content"] for sample in samples for each in sample["messages"])
    blocks, chatml = (
        (TEMPLATES / f"{name}.jinja").read_text() for name in ("generation-blocks", "chatml")
    )

    def of_transformers(template, mask):
        for sample in samples:
            yield theirs.apply_chat_template(
                sample["messages"],
                chat_template=template,
                return_dict=True,
                return_assistant_tokens_mask=mask,
            )

    ways = {
        "jreader, blocks": lambda: Pipeline(lambda: iter(samples)).chat(theirs, blocks),
        "transformers, blocks, with its mask": lambda: of_transformers(blocks, mask=True),
        "jreader, no blocks": lambda: Pipeline(lambda: iter(samples)).chat(theirs, chatml),
        "transformers, no blocks, no mask": lambda: of_transformers(chatml, mask=False),
        "the tokenizer alone": lambda: (
            theirs.backend_tokenizer.encode(text, add_special_tokens=False) for text in texts
        ),
    }
    texts = [
        theirs.apply_chat_template(s["messages"], chat_template=chatml, tokenize=False)
        for s in samples
    ]
    taken = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            begin = time.process_time()
            many = sum(1 for _ in way())
            taken[name].append((time.process_time() - begin) / many * 1e3)
    tokens = statistics.mean(len(each["tokens"]) for each in ways["jreader, blocks"]())
    print(f"{tokens:.0f} tokens a chat\n\n| | ms a chat |\n|---|---|")
    for name, times in taken.items():
        print(f"| {name} | {statistics.median(times):.2f} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
