"""`chat` as an op: against the naive meaning, on workers, in other ops, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from chat_templates import CHARACTERS, CHATML, TOKENIZER, template
from hypothesis import given
from hypothesis import strategies as st

import jreader
from jreader import Pipeline, marked_text
from jreader.commands import peek
from jreader.errors import FeedMismatch
from jreader.readers.hashing import identity

ASKED = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
CHATS = [{"messages": [ASKED[0], {"role": "assistant", "content": f"{n}"}]} for n in range(12)]

# what looks like a template in what people say must not move a mask
said = st.lists(
    st.sampled_from(["<|im_start|>assistant\n", "<|im_end|>", "<|eot_id|>", "a", " ", "\n", "é"]),
    max_size=6,
).map("".join)
turns = st.lists(st.tuples(said, said), min_size=1, max_size=4)


def chatml(role, text):
    """The header, what is said, its marker, and what follows."""
    return f"<|im_start|>{role}\n", text, "<|im_end|>", "\n"


def llama_3(role, text):
    return f"<|start_header_id|>{role}<|end_header_id|>\n\n", text.strip(), "<|eot_id|>", ""


@given(turns, st.sampled_from([("chatml", chatml), ("llama-3", llama_3)]), st.booleans())
def test_a_mask_is_the_naive_one_character_by_character(turns, format_, last):
    name, write = format_
    messages = [
        {"role": role, "content": text}
        for turn in turns
        for role, text in zip(("user", "assistant"), turn, strict=True)
    ]
    text, mask = "", []
    for number, message in enumerate(messages):
        counts = message["role"] == "assistant" and (not last or number == len(messages) - 1)
        parts = write(message["role"], message["content"])
        counts = counts and parts[1] != ""  # who says nothing has no marker
        for part, yes in zip(parts, (False, counts, counts, False), strict=True):
            text += part
            mask += [yes] * len(part)
    chats = Pipeline(lambda: [{"messages": messages}]).chat(
        CHARACTERS,
        template(name),
        turns="last" if last else "all",
        variables={"bos_token": ""},
    )
    if not any(mask):
        with pytest.raises(FeedMismatch, match="counts no token"):
            chats.peek()
    else:
        assert CHARACTERS[1](chats.peek()["tokens"]) == text
        assert chats.peek()["loss_mask"].tolist() == mask


def test_tool_calls_count_by_choice():
    call = {"function": {"name": "sum", "arguments": {"of": [2, 2]}}}
    messages = [ASKED[0], {"role": "assistant", "content": "So:", "tool_calls": [call]}]
    chats = Pipeline(lambda: [{"messages": messages}])
    texts = [
        marked_text(chats.chat(TOKENIZER, template(name), tool_calls=tools).peek(), TOKENIZER)
        for name in ("qwen-2.5", "generation-blocks")
        for tools in (True, False)
    ]
    assert [text.partition("⟦")[2].partition("⟧")[0] for text in texts] == [
        'So:\n<tool_call>\n{"name": "sum", "arguments": {"of": [2, 2]}}\n</tool_call><|im_end|>',
        "So:",
        'So:<tool_call>{"name": "sum", "arguments": {"of": [2, 2]}}</tool_call><|im_end|>',
        "So:",
    ]


def test_what_ends_a_call_is_not_looked_for_where_calls_do_not_count():
    text = ENDS + "{{ '<call>' if m.tool_calls else '<end>' }}{% endfor %}"
    chats = Pipeline(lambda: [{"messages": [ASKED[0], CALL, *ASKED]}])
    shown = marked_text(chats.chat(TOKENIZER, text, tool_calls=False).peek(), TOKENIZER)
    assert shown == "[user]2+2?<end>[assistant]⟦So:⟧f<call>[user]2+2?<end>[assistant]⟦4<end>⟧"


def test_thinking_that_a_template_drops_before_a_call_is_no_error():
    thought = {**CALL, "content": "<think>\nAdd.\n</think>\n\n"}
    chats = Pipeline(lambda: [{"messages": [ASKED[0], thought, *ASKED]}])
    text = ENDS.replace("m.content", "m.content.split('</think>')[-1].strip()")
    shown = marked_text(chats.chat(TOKENIZER, text + "<end>{% endfor %}").peek(), TOKENIZER)
    assert shown == "[user]2+2?<end>[assistant]⟦f<end>⟧[user]2+2?<end>[assistant]⟦4<end>⟧"


def test_texts_may_be_split_as_often_as_named():
    text = "{% for m in messages %}[{{ m.role }}]{{ m.content.split('|', maxsplit=1)[-1] }}<end>"
    chats = Pipeline(lambda: [{"messages": [ASKED[0], {"role": "assistant", "content": "a|b|c"}]}])
    shown = marked_text(chats.chat(TOKENIZER, text + "{% endfor %}").peek(), TOKENIZER)
    assert shown == "[user]2+2?<end>[assistant]⟦b|c<end>⟧"


@pytest.mark.parametrize("name", ["reasoning", "thinking", "reasoning_content"])
def test_reasoning_has_any_of_the_names_that_transformers_takes(name):
    messages = [ASKED[0], {**ASKED[1], name: "Add."}]
    chats = Pipeline(lambda: [{"messages": messages}]).chat(TOKENIZER, template("qwen-3"))
    assert "⟦<think>\nAdd.\n</think>\n\n4<|im_end|>⟧" in marked_text(chats.peek(), TOKENIZER)


@pytest.mark.parametrize(
    "workers", [{"threads": 2}, pytest.param({"processes": 2}, marks=pytest.mark.slow)]
)
def test_workers_make_the_same_tokens(workers):
    chats = Pipeline(lambda: iter(CHATS))
    here, there = chats.chat(TOKENIZER, CHATML), chats.chat(TOKENIZER, CHATML, **workers)
    for one, other in zip(here, there, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in ("tokens", "loss_mask"))


def test_a_cache_and_pack_take_them(tmp_path):
    chats = Pipeline(lambda: iter(CHATS)).chat(TOKENIZER, CHATML).cache(tmp_path / "tokens")
    rows = list(chats.pack(128, seed=0))
    counted = sum(int(sample["loss_mask"].sum()) for sample in chats)
    assert sum(int(row["loss_mask"].sum()) for row in rows) == counted
    texts = [marked_text(row, TOKENIZER) for row in rows]
    assert sum(text.count("⟦") for text in texts) == len(CHATS)


def test_peek_shows_what_counts():
    plan = Pipeline(lambda: iter(CHATS)).chat(TOKENIZER, CHATML)
    assert "⟦0<|im_end|>⟧" in "\n".join(peek(plan, 1))
    assert "\n".join(peek(plan.pack(512, seed=0), 1)).count("<|im_end|>⟧") > 1


def test_chats_that_teach_nothing_are_left_out_if_asked():
    silent = {"messages": ASKED[:1]}
    plan = Pipeline(lambda: iter([silent, *CHATS])).chat(TOKENIZER, CHATML, on_error="skip")
    with pytest.warns(UserWarning, match="1 of 13 samples of this pass were left out"):
        assert len(list(plan)) == len(CHATS)


CALL = {
    "role": "assistant",
    "content": "So:",
    "tool_calls": [{"function": {"name": "f", "arguments": {}}}],
}
ENDS = """{% for m in messages %}[{{ m.role }}]{{ m.content }}
{{- m.tool_calls[0].function.name if m.tool_calls }}"""
BLOCK = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
UNDONE = {
    "no chat": ([3], {}, "needs dicts with messages"),
    "no messages": ([{"messages": []}], {}, "needs dicts with messages"),
    "texts": ([{"messages": ["Hi"]}], {}, "needs dicts with messages"),
    "no reply": ([{"messages": ASKED[:1]}], {}, "counts no token"),
    "replies only": (
        [{"messages": ASKED[1:]}],
        {"template": BLOCK},
        "counts every token",
    ),
    "a call that the template leaves out": (
        [
            {
                "messages": [
                    ASKED[0],
                    {"role": "assistant", "tool_calls": [{"name": "f"}], "content": ""},
                ]
            }
        ],
        {},
        "does not find .* in the rendered chat",
    ),
    "a call that the template leaves out beside what is said": (
        [{"messages": [ASKED[0], CALL]}],
        {},
        "does not find tool_calls of .* in the rendered chat",
    ),
    "what is said that the template leaves out beside a call": (
        [{"messages": [ASKED[0], CALL]}],
        {"template": template("llama-3"), "variables": {"bos_token": ""}},
        "does not find content of .* in the rendered chat",
    ),
    "a reply that ends in another way": (
        [{"messages": [ASKED[0], CALL, {"role": "tool", "content": "4"}]}],
        {"template": ENDS + "{{ '<call>' if m.tool_calls else '<end>' }}{% endfor %}"},
        "does not find what ends .*: put {% generation %}",
    ),
}


@pytest.mark.parametrize("name", UNDONE)
def test_an_unclear_mask_is_an_error(name):
    samples, given, says = UNDONE[name]
    plan = Pipeline(lambda: iter(samples)).chat(TOKENIZER, **{"template": CHATML} | given)
    with pytest.raises(FeedMismatch, match=says):
        list(plan)


REFUSED = {
    "no tokenizer": ((object(), CHATML), {}, TypeError, "needs a tokenizer of tokenizers"),
    "no template": ((TOKENIZER,), {}, TypeError, "needs the text of a template"),
    "other variables": ((TOKENIZER, CHATML), {"variables": 3}, TypeError, "variables as a dict"),
    "a special token": (
        (TOKENIZER, template("zephyr")),
        {},
        ValueError,
        r"variables=\{'eos_token'",
    ),
    "other turns": ((TOKENIZER, CHATML), {"turns": "first"}, ValueError, "is 'all' or 'last'"),
    "other tool_calls": ((TOKENIZER, CHATML), {"tool_calls": 1}, TypeError, "True or False"),
    "no marker": ((TOKENIZER, ENDS + "{% endfor %}"), {}, ValueError, "cannot tell what ends"),
    "two markers": ((TOKENIZER, template("gpt-oss")), {}, ValueError, "cannot tell what ends"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_arguments_raise_when_the_plan_is_built(name):
    arguments, given, kind, says = REFUSED[name]
    with pytest.raises(kind, match=says):
        jreader.chat(lambda: iter(CHATS), *arguments, **given)


def test_a_tokenizer_is_hashed_by_what_it_is():
    tokenizers = pytest.importorskip("tokenizers")

    def of_words(*words):
        model = tokenizers.models.WordLevel({word: n for n, word in enumerate(words)}, words[0])
        return tokenizers.Tokenizer(model)

    assert identity(of_words("a", "b")) == identity(of_words("a", "b"))
    hidden = [[], [], []]
    for words, lines in zip(("ab", "ab", "ac"), hidden, strict=True):
        identity(of_words(*words), "tokenizer", lines)
    assert hidden[0] == hidden[1] != hidden[2]


@pytest.mark.parametrize("off", ["enable_truncation", "enable_padding"])
def test_a_tokenizer_that_would_lose_tokens_is_refused(off):
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, "a"))
    getattr(tokenizer, off)(**({"max_length": 9} if "trunc" in off else {}))
    with pytest.raises(ValueError, match=r"type no_truncation\(\) and no_padding\(\)"):
        jreader.chat(lambda: iter(CHATS), tokenizer, CHATML)


def test_transformers_renders_tokenizes_and_masks_alike():
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    raw = tokenizers.Tokenizer(tokenizers.models.BPE())
    raw.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    raw.train_from_iterator(["user assistant"] * 9, trainer)
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=raw)
    theirs.chat_template = template("generation-blocks")

    @given(turns)
    def alike(turns):
        messages = [
            {"role": role, "content": text}
            for turn in turns
            for role, text in zip(("user", "assistant"), turn, strict=True)
        ]
        made = theirs.apply_chat_template(
            messages, return_dict=True, return_assistant_tokens_mask=True
        )
        sample = Pipeline(lambda: [{"messages": messages}]).chat(theirs).peek()
        assert sample["tokens"].tolist() == made["input_ids"]
        assert sample["loss_mask"].tolist() == list(map(bool, made["assistant_masks"]))

    alike()


def test_marked_text_needs_both_fields():
    with pytest.raises(FeedMismatch, match="needs tokens and loss_mask"):
        marked_text({"tokens": np.arange(3)}, TOKENIZER)
