"""Chats: messages rendered by a template and tokenized, with a mask of the assistant's tokens.

- `tracked_text.py`: strings that know which message each character comes from.
- `templates.py`: renders chat templates into these strings; needs the extra `chat` (Jinja).
- `masks.py`: finds what the assistant says, and where a reply ends.
- `tokenized_chats.py`: the op, and a view of its tokens with their mask.
"""

from jreader.chats.tokenized_chats import chat, decoder_of, marked_text

__all__ = ["chat", "decoder_of", "marked_text"]
