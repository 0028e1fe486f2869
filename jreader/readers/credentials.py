"""Secrets in the path of a remote file: users, passwords and signatures.

A path may hold a user and a password (`https://me:secret@host/a.jsonl`), and the query of a URL may
hold a token or a signature (`?sig=...`). Only the file system that reads the file gets these: what
is printed, raised or stored in a cursor gets the path without them.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from pathlib import Path

_USER = re.compile(r"(?<=://)[^/?#\s'\"]*@")
_QUERY = re.compile(r"(https?://[^\s'\"?]*)\?(?!\*\*\*)([^\s'\"]*)")
_OLD_NAME = re.compile(r"'([^'?]*)\?((?!\*\*\*)[^']*)' of 0 bytes")  # cursors of 0.2.0.dev
_SIGNED = re.compile(  # AWS, CloudFront, Google, Azure, and other names of tokens
    r"(x-amz-|x-goog-|x-ms-|aws|google|.*(token|password|secret|signature|auth)=)|"
    r"(api|access|account|private|subscription)[-_]?key=|"
    r"(se|si|sig|skoid|sktid|skt|ske|sks|skv|sp|spr|sr|st|sv)=|"
    r"(expires|policy|key-pair-id|hmac|authorization)=",
    re.IGNORECASE,
)


def masked(text: str) -> str:
    """Return a text with the users, passwords and queries of its URLs masked.

    A query becomes a hash of what it holds besides credentials, if it holds anything.

    >>> masked("https://me:secret@host/a.jsonl?sig=5"), masked("s3://bucket/part-?.jsonl")
    ('https://***@host/a.jsonl?***', 's3://bucket/part-?.jsonl')
    """
    if "://" not in text:
        return text
    return _QUERY.sub(lambda found: f"{found[1]}?***{_asked(found[2])}", _USER.sub("***@", text))


def lasting(path: str) -> str:
    """Return the path of a file without credentials: the same for any signature.

    >>> lasting("https://me:secret@host/get?file=a&sig=5"), lasting("https://host/a.jsonl?sig=5")
    ('https://host/get?file=a', 'https://host/a.jsonl')
    """
    if "://" not in path:
        return path
    before, _, query = _USER.sub("", path).partition("?")
    if not query or not path.startswith("http"):
        return path if not query else f"{before}?{query}"
    kept = "&".join(_unsigned(query))
    return f"{before}?{kept}" if kept else before


def name_in_cursor(path: str) -> str:
    """Return the name of a file as cursors show it: without its folders and credentials.

    >>> name_in_cursor("data/a.jsonl"), name_in_cursor("https://host/a.jsonl?sig=5")
    ('a.jsonl', 'a.jsonl')
    """
    return Path(masked(path)).name.removesuffix("?***")


def as_shown_now(line: str) -> str:
    """Return a line of a cursor, perhaps of an earlier version, with `name_in_cursor` applied."""
    return _OLD_NAME.sub(
        lambda found: f"'{found[1]}?***{_asked(found[2])}".removesuffix("?***") + "' of 0 bytes",
        line,
    )


def _unsigned(query: str) -> list[str]:
    return [part for part in query.split("&") if not _SIGNED.match(part)]


def _asked(query: str) -> str:
    rest = "&".join(_unsigned(query))
    return blake2b(rest.encode(errors="surrogateescape"), digest_size=4).hexdigest() if rest else ""
