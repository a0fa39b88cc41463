"""Write the HTML of an email from its text. It loads nothing but the picture of a listing, if it names one."""

import re
from html import escape

_STYLE = """
body { margin: 0; background: #f6f5f0; color: #1b211f; font: 16px/1.5 system-ui, sans-serif; }
main { display: block; max-width: 552px; margin: 0 auto; padding: 24px; background: #fff; }
a { color: #0b6a55; overflow-wrap: anywhere; }
blockquote { margin: 16px 0; padding: 4px 16px; border-left: 3px solid #0b6a55; overflow-wrap: anywhere; }
img { display: block; max-width: 100%; height: auto; border-radius: 8px; }
@media (prefers-color-scheme: dark) {
  body { background: #0f1413; color: #eef2f0; }
  main { background: #1a201e; }
  a { color: #6fd3b5; }
}
"""


def write_html(subject: str, text: str, base_url: str, picture: str = "") -> str:
    """Return the HTML of a text. URLs that begin with `base_url` become links; `picture` is a URL or empty."""
    blocks = [_write_block(block, base_url) for block in re.split(r"\n\s*\n", text.strip())]
    image = f'<p><img src="{escape(picture)}" alt="" width="240"></p>\n' if picture else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>{escape(subject)}</title>
<style>{_STYLE}</style>
</head>
<body><main>
{image}{"".join(blocks)}</main></body>
</html>
"""


def _write_block(block: str, base_url: str) -> str:
    lines = block.split("\n")
    if all(line.startswith(">") for line in lines):
        quoted = "<br>\n".join(escape(line.removeprefix(">").strip()) for line in lines)
        return f"<blockquote>{quoted}</blockquote>\n"
    url = re.compile(rf"{re.escape(escape(base_url))}(?:/[\w./?=&;%+-]*)?(?![\w.:@-])")
    linked = (url.sub(lambda found: f'<a href="{found[0]}">{found[0]}</a>', escape(line)) for line in lines)
    return f"<p>{'<br>'.join(linked)}</p>\n"
