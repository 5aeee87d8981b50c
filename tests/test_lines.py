"""Bytes to lines: cut at 0x0A and nowhere else, whatever the blocks; oversize lines cost only themselves."""

import random

import captures
import pytest

from claude_cli_client._lines import HEAD_BYTES, LineCutter, Odd, Oversize

BIG = 1 << 28


def cut(blocks, limit=BIG):
    """The lines of these blocks; of an oversize one its size and head."""
    cutter = LineCutter(limit)
    found = [line for block in blocks for line in cutter.feed(block)] + cutter.end()
    return [(line.size, line.head) if isinstance(line, Oversize) else line for line in found]


def expected(stream, limit=BIG):
    """The same by the simplest means there are."""
    parts = stream.split(b"\n")
    if not parts[-1]:
        parts.pop()
    return [part if len(part) <= limit else (len(part), part[:HEAD_BYTES]) for part in parts]


def pieces(stream, size):
    return [stream[at : at + size] for at in range(0, len(stream), size)]


# --- where a line ends


@pytest.mark.parametrize("name", ["two_text_blocks", "output_nonascii", "prompt_u2028"])
def test_every_cut_in_two(name):
    """A recording cut in two at any byte, inside of characters too, gives the same lines."""
    stream = captures.stdout(name)
    lines = expected(stream)
    for at in range(1, len(stream)):
        assert cut([stream[:at], stream[at:]]) == lines, at


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 199, 200, 201, 4096, 65536])
def test_blocks_of_one_size(size):
    """Blocks of any size, a single byte included, give the same lines."""
    stream = captures.stdout("task_background")
    assert cut(pieces(stream, size)) == expected(stream)


def test_random_blocks():
    """Blocks of random sizes give the same lines, for every recording."""
    chance = random.Random(20)
    for name in captures.NAMES:
        stream = captures.stdout(name)
        cuts = sorted(chance.sample(range(1, len(stream)), min(40, len(stream) - 1))) if len(stream) > 1 else []
        blocks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True) if a < b]
        assert cut(blocks) == expected(stream), name


def test_random_blocks_with_random_limits():
    """The same with limits that some lines break: each line stays whole or becomes its head and size."""
    chance = random.Random(21)
    for _ in range(2000):
        stream = bytes(chance.choices(b"ab\n", [200, 200, 1], k=chance.randrange(1, 2000)))
        limit = chance.choice([200, 201, 250, 300])
        blocks, rest = [], stream
        while rest:
            size = chance.choice([1, 2, 3, 50, 400])
            blocks.append(rest[:size])
            rest = rest[size:]
        assert cut(blocks, limit) == expected(stream, limit), (stream, limit, blocks)


@pytest.mark.parametrize(
    "stream",
    [
        "a\u2028b\u2029c\n".encode(),
        "a\u0085b\n".encode(),
        b"a\rb\r\n",
        b"a\x0bb\x0cc\x1cd\x1de\x1ef\n",
        b"\r\n",
        b" \t leading and trailing \t \n",
        b"\xff\xfe\x00\n",
    ],
)
def test_other_line_ends_are_content(stream):
    """What other splitters cut or strip at stays in the line, at its ends too."""
    assert cut([stream]) == [stream[:-1]]


@pytest.mark.parametrize(
    ("stream", "lines"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"\n\n", [b"", b""]),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\n\nb", [b"a", b"", b"b"]),
        (b"\na", [b"", b"a"]),
    ],
)
def test_empty_and_unfinished_lines(stream, lines):
    """Empty lines are lines; what stands behind the last newline is one; behind it nothing is not."""
    for size in (1, 2, 100):
        assert cut(pieces(stream, size)) == lines


def test_end_twice():
    """The unfinished line is given out once."""
    cutter = LineCutter(BIG)
    cutter.feed(b"abc")
    assert [cutter.end(), cutter.end()] == [[b"abc"], []]


def test_a_line_of_many_small_blocks_is_linear():
    """5 MB in blocks of 50 bytes are kept as parts and joined once (quadratic, this would take minutes)."""
    block = b"x" * 50
    cutter = LineCutter(BIG)
    for _ in range(100_000):
        assert cutter.feed(block) == []
    assert cutter.feed(b"\n") == [block * 100_000]


# --- oversize


@pytest.mark.parametrize("size", [1, 10, 64, 65536])
@pytest.mark.parametrize("over", [-1, 0, 1, 2, 1000])
def test_the_exact_limit(size, over):
    """A line of exactly `max_line_bytes` is whole; one byte more is too much; the next line is intact."""
    limit = 500
    long = bytes(random.Random(over).choices(b"abcdef", k=limit + over))
    stream = b"first\n" + long + b"\nnext\n"
    whole = long if over <= 0 else (limit + over, long[:HEAD_BYTES])
    assert cut(pieces(stream, size), limit) == [b"first", whole, b"next"]


@pytest.mark.parametrize("size", [1, 150, 65536])
def test_oversize_without_a_newline(size):
    """An oversize line that the end of the stream cuts off is reported too."""
    assert cut(pieces(b"x" * 900, size), 500) == [(900, b"x" * HEAD_BYTES)]


def test_several_oversize_lines_in_one_block():
    """Each counts for itself, and short lines between them are kept."""
    stream = b"x" * 600 + b"\nshort\n" + b"y" * 700 + b"\n" + b"z" * 501 + b"\nend\n"
    assert cut([stream], 500) == expected(stream, 500)


def test_an_oversize_line_is_not_held():
    """Of a line without end only the head is kept, however much of it comes."""
    cutter = LineCutter(1000)
    for _ in range(2000):
        cutter.feed(b"x" * 1000)
    assert sum(map(len, cutter._pending)) == HEAD_BYTES
    (line,) = cutter.feed(b"\n")
    assert line.size == 2_000_000


def test_an_oversize_event():
    """It says the size and the beginning, and its `raw` is the head."""
    head = b'{"type":"result","result":"\xc3'
    event = Oversize(head, 12345).event()
    assert event.type == "oversize"
    assert "12345 bytes" in event.text
    assert event.raw in event.text
    assert event.raw == head.decode("utf-8", "replace")
    assert event.data == {}


# --- odd lines


def test_odd_lines_keep_the_last_few():
    """All are counted, the last five kept, each cut to 200 bytes and decoded with replacement."""
    odd = Odd()
    for number in range(9):
        odd.add(b"%d\xff" % number + b"x" * 1000)
    assert odd.count == 9
    assert [text[:2] for text in odd.last] == [f"{number}\ufffd" for number in range(4, 9)]
    assert {len(text) for text in odd.last} == {HEAD_BYTES}
