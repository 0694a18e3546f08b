"""Pages that need no other file and no network: their head, their style, their colors."""

from __future__ import annotations

import html

#: Colors of lines, for white ground and for black, and for eyes that take red for green.
COLORS = ("#3b7dd8", "#e07b1a", "#2e9e5b", "#d6456a", "#8d62c9", "#1b9aaa", "#a5734a", "#7f8790")

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --paper: #ffffff; --line: #d5d9df; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e3e6ea; --paper: #15181c; --line: #3a4048; }
}
body { color: var(--ink); background: var(--paper); font: 15px/1.5 system-ui, sans-serif;
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); padding-bottom: .3rem; }
figure { margin: 1.2rem 0; }
svg { max-width: 100%; height: auto; }
figcaption { font-size: .87rem; opacity: .8; }
.wide { overflow-x: auto; margin: 1.2rem 0; }
table { border-collapse: collapse; font-size: .87rem; }
caption { text-align: left; font-weight: 600; padding-bottom: .4rem; white-space: nowrap; }
th, td { text-align: left; padding: .3rem .7rem; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
dt { font-weight: 600; }
"""


def page(title: str, body: str, *, style: str = "", reload: int | None = None) -> str:
    """An HTML page; ``body`` is markup, ``title`` a text.

    Args:
        title: shown by the browser.
        body: content.
        style: rules of CSS besides those of every page.
        reload: seconds after which a browser loads it anew; None for never.

    >>> page("a < b", "<p>c</p>", reload=5).count('http-equiv="refresh" content="5"')
    1
    """
    again = "" if reload is None else f'<meta http-equiv="refresh" content="{reload}">\n'
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n{again}'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}{style}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )
