"""Decodes the bytes of a page as browsers do: every sequence of bytes gives some text."""

import w3lib.encoding

# Python codecs that are not character sets of pages; some take quadratic time.
_NO_CHARACTER_SETS = frozenset(
    {"utf-7", "idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "mbcs"}
)


def decode(content: bytes, content_type: str = "", *, html: bool = False) -> str:
    """Returns the characters of a page.

    The character set is the first known one of these: the byte order mark, the `charset` of the
    content type, and for HTML the `<meta>` tag, of which UTF-16 and UTF-32 are read as UTF-8: a tag
    that was in them could not be found. If none is given, it is UTF-8 where the bytes are valid
    UTF-8, else Windows-1252, which decodes any Western page. Bytes that are invalid in the
    character set become U+FFFD.

    Args:
      content: the bytes.
      content_type: the server's header, such as `text/html; charset=utf-8`.
      html: whether a `<meta>` tag may give the character set that the header does not.
    """
    mark, bytes_of_mark = w3lib.encoding.read_bom(content)
    content = content[len(bytes_of_mark or b"") :]
    declared = [mark, w3lib.encoding.http_content_type_encoding(content_type)]
    if html:
        in_tag = w3lib.encoding.html_body_declared_encoding(content)
        is_wide = in_tag is not None and in_tag.lower().startswith(("utf-16", "utf-32"))
        declared.append("utf-8" if is_wide else in_tag)
    for name in declared:
        if name and name.lower().replace("_", "-") not in _NO_CHARACTER_SETS:
            try:
                return content.decode(name, errors="replace")
            except (LookupError, UnicodeError):  # a bytes-to-bytes codec, or one that can't replace
                continue
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("windows-1252", errors="replace")
