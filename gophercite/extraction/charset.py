"""Decodes the bytes of a page as browsers do: every sequence of bytes gives some text."""

import codecs

import w3lib.encoding

# Python codecs that are not character sets of pages; some take quadratic time.
_NO_CHARACTER_SETS = frozenset(
    {"utf-7", "idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "mbcs"}
)

# The labels of https://encoding.spec.whatwg.org that Python does not know, by Python's names.
# Labels are written as Python compares them: in lower case, with `_` for every `-`.
_LABELS = {
    label: name
    for name, labels in {
        "big5hkscs": "cn_big5 x_x_big5",
        "cp1250": "x_cp1250",
        "cp1251": "x_cp1251",
        "cp1252": "iso88591 x_cp1252",
        "cp1253": "x_cp1253",
        "cp1254": "iso88599 x_cp1254",
        "cp1255": "x_cp1255",
        "cp1256": "x_cp1256",
        "cp1257": "x_cp1257",
        "cp1258": "x_cp1258",
        "cp874": "dos_874 iso885911",
        "cp949": "cseuckr csksc56011987 iso_ir_149 ks_c_5601_1989 ksc_5601 windows_949",
        "euc_jp": "cseucpkdfmtjapanese x_euc_jp",
        "gb18030": "csgb2312 gb_2312 x_gbk",
        "iso8859_2": "iso88592",
        "iso8859_3": "iso88593",
        "iso8859_4": "iso88594",
        "iso8859_5": "iso88595",
        "iso8859_6": "csiso88596e csiso88596i iso_8859_6_e iso_8859_6_i iso88596",
        "iso8859_7": "iso88597 sun_eu_greek",
        "iso8859_8": ("csiso88598e csiso88598i iso_8859_8_e iso_8859_8_i iso88598 logical visual"),
        "iso8859_10": "iso885910",
        "iso8859_13": "iso885913",
        "iso8859_14": "iso885914",
        "iso8859_15": "csisolatin9 iso885915",
        "koi8_r": "koi koi8",
        "koi8_u": "koi8_ru",
        "mac_cyrillic": "x_mac_cyrillic x_mac_ukrainian",
        "mac_roman": "csmacintosh mac x_mac_roman",
        "utf_8": "unicode_1_1_utf_8 unicode11utf8 unicode20utf8 x_unicode20utf8",
        "utf_16_be": "unicodefffe",
        "utf_16_le": "csunicode iso_10646_ucs_2 ucs_2 unicode unicodefeff",
    }.items()
    for label in labels.split()
}


def _by_label(label: str) -> codecs.CodecInfo | None:
    return codecs.lookup(_LABELS[label]) if label in _LABELS else None


codecs.register(_by_label)  # w3lib asks Python for the labels of headers and tags


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
