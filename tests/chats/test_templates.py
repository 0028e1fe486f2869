"""What the assistant says, in chats of templates as models publish them: masks by hand.

`templates/` has the templates, and next to them chats with what counts between ⟦ and ⟧.
"""

from __future__ import annotations

import pytest
from chat_templates import CHARACTERS, FOLDER, TOKENIZER, template

from jreader import Pipeline, marked_text

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
CHAT = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello! "},
    {"role": "user", "content": "2+2?"},
    {"role": "assistant", "content": "4"},
]
SYSTEM = [{"role": "system", "content": "Be brief."}, *CHAT]
CALL = {"type": "function", "function": {"name": "sum", "arguments": {"of": ["2", "é<"]}}}
TOOLS = [
    {"role": "user", "content": "2+2?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "4"},
    {"role": "assistant", "content": "4"},
]
THINKING = [
    CHAT[0],
    {"role": "assistant", "content": "<think>\nA greeting.\n</think>\n\nHello!"},
    CHAT[2],
    {"role": "assistant", "content": "<think>\nAdd.\n</think>\n\n4"},
]
CHATS = {
    "chatml": SYSTEM,
    "deepseek-r1": THINKING,
    "gemma": CHAT,
    "generation-blocks": CHAT,
    "llama-2": SYSTEM,
    "llama-3": CHAT,
    "llama-3-with-tools": TOOLS,
    "mistral": CHAT,
    "mistral-with-tools": TOOLS,
    "phi-3": CHAT,
    "phi-4-mini": CHAT,
    "qwen-2.5-with-tools": TOOLS,
    "qwen-3": THINKING,
    "qwen-3-without-thinking": CHAT[2:],
    "zephyr": SYSTEM,
}


def marked(name, messages, tokenizer=TOKENIZER, **options):
    tools = [{"type": "function", "function": {"name": "sum"}}] if messages is TOOLS else None
    chats = Pipeline(lambda: [{"messages": messages, "tools": tools}])
    (sample,) = chats.chat(tokenizer, template(name), **{"variables": SPECIAL} | options)
    return marked_text(sample, tokenizer)


def test_every_mask_by_hand_has_its_chat():
    assert sorted(path.stem for path in FOLDER.glob("*.txt")) == sorted(CHATS)


@pytest.mark.parametrize("tokenizer", [TOKENIZER, CHARACTERS])
@pytest.mark.parametrize("name", CHATS)
def test_what_counts_is_what_the_assistant_says_with_its_marker(name, tokenizer):
    expected = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    found = marked(name.partition("-with")[0], CHATS[name], tokenizer)
    assert found == expected.removesuffix("\n")
