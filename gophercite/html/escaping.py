"""HTML from untrusted texts: nothing in them acts as markup, and a page runs and loads nothing."""

import base64
import hashlib
import html
import re

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

# Characters that mislead readers or are invisible: control characters, directional embeddings and
# overrides, invisible characters, and lone surrogates. Directional marks and joiners are left
# alone: Persian, Arabic, Hebrew and Indic texts are spelled with them, and they hide nothing.
_SHOWN_BY_CODE = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f\xad\u180e\u200b\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
    "\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f\ud800-\udfff]"
)
_LINE_END = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")


def escape_html(text: str) -> str:
    """Escapes a text for HTML, including attributes.

    Misleading and invisible characters are shown by their codes; line ends become line feeds.
    """
    return html.escape(_SHOWN_BY_CODE.sub(_code, _LINE_END.sub("\n", text)))


def whole_page(title: str, style: str, body: str, script: str = "") -> str:
    """Returns a self-contained page that, by its own policy, runs and loads nothing else.

    Args:
      title: any text.
      style: CSS.
      body: HTML.
      script: our own script, which the policy allows by its hash; it follows the body.
    """
    policy = _POLICY
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy += f"; script-src 'sha256-{digest}'"
        body += f"<script>{script}</script>\n"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{escape_html(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"{body}</body>\n</html>\n"
    )


def _code(match: re.Match[str]) -> str:
    return f"\\u{ord(match.group()):04x}"
