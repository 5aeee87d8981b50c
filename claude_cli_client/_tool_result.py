"""What a tool gives back, and what of it goes over the wire. Pure.

What the CLI does with a result decides the shape of it here:

* `structuredContent` takes the place of the text (images stay), and must be an object: a list makes
  the whole result malformed. So a list goes as text.
* Of an error only the text reaches the model, and only the first 10,000 characters of it.
* Text is counted in UTF-16 units, all blocks together; structured content as its JSON. Above 50,000,
  or what the tool's `_meta` asks for (500,000 at most), the CLI writes the result into a file and the
  model sees 2,000 characters. So a tool tells the CLI its limit, and what exceeds it is cut here,
  where it can be said.
* NaN is no JSON: a line that holds it ends the CLI's process. Nothing here lets one through.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence, Set
from typing import Any, Final

from ._checks import repaired
from ._log import bad_type, bad_value

MAX_CHARS: Final = 500_000  # the CLI passes no more than this to the model, whatever is asked for
DEFAULT_MAX_CHARS: Final = 200_000
MIN_CHARS: Final = 1_000  # the mark of a cut must fit
_MAX_ERROR_CHARS: Final = 10_000
# All that is not text, in base64. The API takes images of some 5 MB; the CLI makes larger ones
# smaller, and takes a line of any length, but each byte stands in memory several times.
_MAX_BINARY: Final = 32 * 1024 * 1024

_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)

Block = dict[str, Any]


class Unsendable(Exception):
    """A value that a tool must not return. The text says what to return instead."""


class ToolResult:
    """What a tool returns when a plain value does not say it all. Results can be added: `text + image`.

        return ToolResult("The chart:") + ToolResult.image(png)
        return ToolResult("no such customer", is_error=True)

    `structured` (a dict or dataclass) is what the model reads in place of the text. Of an error it reads the text only.
    `content` takes MCP content blocks as they are, for what has no method here.
    """

    def __init__(
        self,
        text: str | None = None,
        *,
        structured: Any = None,
        is_error: bool = False,
        content: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        if text is not None and not isinstance(text, str):
            raise bad_type(f"the text of a ToolResult must be a str, not a {type(text).__name__}")
        first = [{"type": "text", "text": text}] if text is not None else []
        for block in content:
            if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
                raise bad_type("content must be a list of MCP content blocks, dicts with a 'type'")
        self.content: tuple[Mapping[str, Any], ...] = (*first, *content)
        self.structured = structured
        self.is_error = is_error

    @classmethod
    def image(cls, data: bytes | bytearray | memoryview, mime: str | None = None) -> ToolResult:
        """An image that the model sees: PNG, JPEG, GIF or WebP. `mime` is found in the data if not given."""
        encoded = _base64(data)
        mime = mime or _mime_of(bytes(data[:12]))
        if mime is None or not mime.startswith("image/"):
            wrong, remedy = "not an image type that is known", "give mime='image/...'"
            raise bad_value(f"{wrong}: {mime!r}; {remedy}", f"{wrong}; {remedy}")
        return cls(content=[{"type": "image", "data": encoded, "mimeType": mime}])

    @classmethod
    def audio(cls, data: bytes | bytearray | memoryview, mime: str) -> ToolResult:
        """A sound. The CLI saves it and tells the model where."""
        return cls(content=[{"type": "audio", "data": _base64(data), "mimeType": mime}])

    @classmethod
    def link(
        cls, uri: str, name: str | None = None, *, description: str | None = None, mime: str | None = None
    ) -> ToolResult:
        """A link to a resource; the model reads its name, address and description."""
        block = {"type": "resource_link", "uri": uri, "name": name or uri, "description": description, "mimeType": mime}
        return cls(content=[{key: value for key, value in block.items() if value is not None}])

    @classmethod
    def resource(
        cls, uri: str, text: str | None = None, *, data: bytes | None = None, mime: str | None = None
    ) -> ToolResult:
        """An embedded resource: its `text`, or `data`, which the CLI saves and tells the model where."""
        return cls(content=[{"type": "resource", "resource": resource_contents(uri, text, data, mime)}])

    @classmethod
    def error(cls, text: str) -> ToolResult:
        """A failure, in words from which the model can go on."""
        return cls(text, is_error=True)

    def __add__(self, other: ToolResult) -> ToolResult:
        if not isinstance(other, ToolResult):
            return NotImplemented
        return ToolResult(
            structured=self.structured if other.structured is None else other.structured,
            is_error=self.is_error or other.is_error,
            content=[*self.content, *other.content],
        )

    def __repr__(self) -> str:
        kinds = ", ".join(str(block["type"]) for block in self.content)
        more = (", structured" if self.structured is not None else "") + (", is_error" if self.is_error else "")
        return f"<ToolResult {kinds or 'empty'}{more}>"


def resource_contents(uri: str, text: str | None, data: bytes | None, mime: str | None) -> Block:
    """The contents of a resource, as MCP has them in results and in `resources/read`."""
    if (text is None) == (data is None):
        raise bad_value("a resource has either a text or data")
    contents: Block = {"uri": uri}
    if mime is not None:
        contents["mimeType"] = mime
    if text is None:
        return {**contents, "blob": _base64(data)}
    if not isinstance(text, str):
        raise bad_type(f"the text of a resource must be a str, not a {type(text).__name__}")
    return {**contents, "text": text}


def _base64(data: Any) -> str:
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise bad_type(f"the data must be bytes, not a {type(data).__name__} (of a file: Path(...).read_bytes())")
    import binascii  # rarely needed

    return binascii.b2a_base64(data, newline=False).decode()


def _mime_of(start: bytes) -> str | None:
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for magic, mime in _MAGIC if start.startswith(magic)), None)


# --- to the wire


def wire(value: Any, limit: int = MAX_CHARS) -> Block:
    """The MCP result for what a tool returned, cut to `limit`. Raises Unsendable."""
    result = value if isinstance(value, ToolResult) else _result_of(value)
    blocks = [plain(block) for block in result.content]
    structured = None if result.structured is None else plain(result.structured)
    if structured is not None and not isinstance(structured, dict):
        raise Unsendable("structured content must be a dict or a dataclass; wrap it: {'items': [...]}")
    as_text = None if structured is None else to_json(structured)
    if as_text is not None and (not blocks or (result.is_error and not _texts(blocks))):
        blocks.append({"type": "text", "text": as_text})
    sent: Block = {}
    if result.is_error:
        sent["isError"] = True
        limit = min(limit, _MAX_ERROR_CHARS)
    elif as_text is not None:
        if units(as_text) <= limit:
            sent["structuredContent"] = structured
        else:  # cut it is no object any more
            blocks = [block for block in blocks if block["type"] != "text"] + [{"type": "text", "text": as_text}]
    if sum(_binary_size(block) for block in blocks) > _MAX_BINARY:
        raise Unsendable(f"images and other data together must not have more than {_MAX_BINARY // 4 * 3:,} bytes")
    _fit(blocks, limit)
    if len(blocks) > 1:  # the API refuses empty texts; alone, the CLI says for it that there is no output
        blocks = [block for block in blocks if block["type"] != "text" or block.get("text")]
    return {"content": blocks, **sent}


def failure(text: str) -> Block:
    """The MCP result that tells the model of an error."""
    return wire(ToolResult(repaired(text), is_error=True))


def _result_of(value: Any) -> ToolResult:
    if value is None:
        return ToolResult("")
    if isinstance(value, str):
        return ToolResult(value)
    made = plain(value, is_text=True)
    if isinstance(made, dict):
        return ToolResult(structured=made)
    return ToolResult(made if isinstance(made, str) else to_json(made))


def plain(value: Any, *, is_text: bool = False) -> Any:
    """`value` as JSON knows it: dataclasses and mappings as dicts, sequences and sets as lists, enum members as
    their values. Raises Unsendable for anything else. `is_text`: a number that JSON has no word for becomes one."""
    try:
        return _plain(value, is_text)
    except RecursionError:
        raise Unsendable("what was returned holds itself, or is nested too deeply") from None


def _plain(value: Any, is_text: bool = False) -> Any:
    if hasattr(type(value), "__members__"):
        value = value.value
    if isinstance(value, str):
        return repaired(str.__str__(value))
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if value - value == 0:  # neither NaN nor infinite
            return float(value)
        if is_text:
            return str(float(value))
        raise Unsendable(f"JSON has no {value}; return None or a text in its place")
    if isinstance(value, Mapping):
        return {_key(key): _plain(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, (Sequence, Set)) and not isinstance(value, (bytes, bytearray, memoryview)):
        return [_plain(item) for item in value]
    raise Unsendable(_refusal(value))


def _key(key: Any) -> str:
    if hasattr(type(key), "__members__"):
        key = key.value
    if isinstance(key, str):
        return repaired(str.__str__(key))
    if isinstance(key, int) and not isinstance(key, bool):
        return str(int(key))
    raise Unsendable(f"the keys of a dict must be texts, not a {type(key).__name__}")


def _refusal(value: Any) -> str:
    name = type(value).__name__
    if hasattr(value, "__await__") or hasattr(value, "__aiter__"):
        if hasattr(value, "close"):
            value.close()  # else Python warns, somewhere and later, that it was never awaited
        return f"a tool must not return something to await ({name}); run it to its end and return what comes out"
    if hasattr(value, "__fspath__"):
        return f"a path ({name}) could be its name or its content; return str(path), or what is in the file"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"{name} could be anything; return ToolResult.image(data, mime), or a text"
    if isinstance(value, ToolResult):
        return "a ToolResult must be returned by itself; to join several, add them"
    if hasattr(value, "__next__"):
        return f"{name} is an iterator; return list(...) of it"
    return (
        f"cannot send a {name}; a tool may return a str, None, a number, a dict, list or dataclass of these, "
        "or a ToolResult. Of a pydantic model return model.model_dump(mode='json'), of all else str(value)"
    )


def to_json(value: Any) -> str:
    """As the CLI will write it for the model. `value` must be plain."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:  # a number of too many digits
        raise Unsendable(f"cannot be written as JSON: {error}") from error


# --- size


def units(text: str) -> int:
    """The length of a text in UTF-16 units, as the CLI counts."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _texts(blocks: list[Block]) -> list[tuple[Block, str]]:
    """Where the texts of a result stand: (the dict, its key)."""
    found = []
    for block in blocks:
        holder = block.get("resource") if block["type"] == "resource" else block
        if isinstance(holder, dict) and isinstance(holder.get("text"), str):
            found.append((holder, "text"))
    return found


def _binary_size(block: Block) -> int:
    holder = block.get("resource") if block["type"] == "resource" else block
    data = (holder.get("blob") or holder.get("data")) if isinstance(holder, dict) else None
    return len(data) if isinstance(data, str) else 0


def _fit(blocks: list[Block], limit: int) -> None:
    """Cuts the texts, from the end, until all together have no more than `limit` units."""
    texts = _texts(blocks)
    sizes = [units(holder[key]) for holder, key in texts]
    total = sum(sizes)
    if total <= limit:
        return
    left = limit - len(_mark(total, total, limit))  # no less is missing than all: no mark is longer
    for at, ((holder, key), size) in enumerate(zip(texts, sizes, strict=True)):
        if size > left:
            kept = _head(holder[key], left)
            missing = size - units(kept) + sum(sizes[at + 1 :])
            holder[key] = kept + _mark(missing, total, limit)
            for rest, name in texts[at + 1 :]:
                rest[name] = ""
            return
        left -= size


def _head(text: str, count: int) -> str:
    """The first `count` UTF-16 units; half a character at the end is dropped."""
    if text.isascii():
        return text[:count]
    return text[:count].encode("utf-16-le", "surrogatepass")[: 2 * count].decode("utf-16-le", "ignore")


def _mark(missing: int, total: int, limit: int) -> str:
    return f"\n[cut here: {missing:,} of {total:,} characters are missing, the limit is {limit:,}]"
