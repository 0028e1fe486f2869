"""Chats: messages rendered by a template and tokenized, with a mask of what the assistant says.

- `tracked_text.py` has texts that know which message each of their characters comes from.
- `templates.py` renders chat templates into them; it needs the extra `chat` (Jinja).
- `masks.py` finds what the assistant says, and where a reply ends.
- `tokenized_chats.py` is the op, and shows its tokens with their mask.
"""

from jreader.chats.tokenized_chats import chat, decoder_of, marked_text

__all__ = ["chat", "decoder_of", "marked_text"]
