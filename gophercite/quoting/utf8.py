"""UTF-8 byte by byte, for automata that read tokens: a token may hold half a character."""

# The UTF-8 bytes of the white space that `str.strip` removes.
WHITE_SPACE = tuple(
    character.encode()
    for character in map(chr, range(0x3001))
    if character.isspace() and not 0xD800 <= ord(character) < 0xE000
)
# After these first bytes a character's second byte is limited (RFC 3629, section 4): no overlong
# forms, no surrogates, nothing past U+10FFFF.
_SECOND_BYTE = {0xE0: (0xA0, 0xBF), 0xED: (0x80, 0x9F), 0xF0: (0x90, 0xBF), 0xF4: (0x80, 0x8F)}


def goes_on(character: bytes, byte: int) -> bool:
    """Whether some character's bytes begin with `character` (already a valid prefix) and `byte`."""
    if not character:
        return byte < 0x80 or 0xC2 <= byte <= 0xF4
    low, high = (
        _SECOND_BYTE.get(character[0], (0x80, 0xBF)) if len(character) == 1 else (0x80, 0xBF)
    )
    return low <= byte <= high


def is_whole(character: bytes) -> bool:
    """Whether a character's first bytes are the complete character."""
    return len(character) == _length(character)


def may_be_white_space(character: bytes) -> bool:
    """Whether some white space begins with these bytes."""
    return any(space.startswith(character) for space in WHITE_SPACE)


def representative(character: bytes) -> bytes:
    """One representative of all prefixes with the same continuations; `character` is incomplete."""
    if len(character) == 1 and character[0] in _SECOND_BYTE:
        return character
    return {1: b"\xc3", 2: b"\xe1", 3: b"\xf1"}[_length(character) - len(character)]


def _length(character: bytes) -> int:
    lead = character[0]
    return 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
