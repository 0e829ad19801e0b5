"""From the bytes of a page to its characters, as browsers do it: some text, whatever the bytes."""

import w3lib.encoding

# Python's codecs that are no character sets of pages; some take quadratic time.
_NO_CHARACTER_SETS = frozenset(
    {"utf-7", "idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "mbcs"}
)


def decode(content: bytes, content_type: str = "", *, html: bool = False) -> str:
    """Returns the characters of a page.

    The first of these that names a known character set decides: a byte order mark, the `charset` of
    the content type, for HTML the `<meta>` tag. Without any, it is UTF-8 where the bytes are that,
    else Windows-1252, which has a character for every Western page. Bytes that mean nothing in the
    character set become U+FFFD.

    Args:
      content: the bytes.
      content_type: the server's header, such as `text/html; charset=utf-8`.
      html: whether a `<meta>` tag may say what the server didn't.
    """
    mark, bytes_of_mark = w3lib.encoding.read_bom(content)
    content = content[len(bytes_of_mark or b"") :]
    declared = [mark, w3lib.encoding.http_content_type_encoding(content_type)]
    if html:
        declared.append(w3lib.encoding.html_body_declared_encoding(content))
    for name in declared:
        if name and name.lower().replace("_", "-") not in _NO_CHARACTER_SETS:
            try:
                return content.decode(name, errors="replace")
            except (LookupError, UnicodeError):  # a codec of bytes, or one that can't replace
                continue
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("windows-1252", errors="replace")
