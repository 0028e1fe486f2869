"""Chats: messages rendered by a template and tokenized, with a mask of what the assistant says.

- `tracked_text.py` has texts that know which message each of their characters comes from.
- `templates.py` renders chat templates into them; it needs the extra `chat` (Jinja).
- `masks.py` finds what the assistant says, and where a reply ends.
- `tokenizers.py` makes two functions of a tokenizer, and shows tokens with their mask.
- `tokenized_chats.py` is the op.
"""

from jreader.chats.tokenized_chats import chat, decoder_of
from jreader.chats.tokenizers import marked_text

__all__ = ["chat", "decoder_of", "marked_text"]
