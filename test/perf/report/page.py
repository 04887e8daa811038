# SPDX-License-Identifier: BSD-3-Clause
"""Pages of HTML that need nothing beside themselves. They are well-formed XML, too."""
import os
import re

from . import comparison, exploration, sections
from .plots import as_svg, embedded, escape, is_wide
from .text import head_lines, node_lines, reservations, verdict

HERE = os.path.dirname(os.path.abspath(__file__))
RATIO = re.compile(r"^\d+(\.\d+)?[!~]?$")
NUMBER = re.compile(r"^[-+]?\d")
NOT_JUDGED = ("gpushm/raw", "GB/s")
LONG = 40  # letters, from which a column may break lines

# A closed part is not printed otherwise.
OPEN_FOR_PRINT = ("addEventListener('beforeprint', function () { document.querySelectorAll('details').forEach("
                  "function (part) { part.open = true; }); });")


class Page:
    def __init__(self, title):
        self.title = title
        self.parts = []
        self.links = []
        self.pictures = 0

    def section(self, anchor, title):
        self.links.append((anchor, title))
        self.add(f'<h2 id="{anchor}">{escape(title)}</h2>')

    def add(self, html):
        self.parts.append(html)

    def text(self, words, kind=None):
        self.add(f'<p class="{kind}">{escape(words)}</p>' if kind else f"<p>{escape(words)}</p>")

    def figures(self, figures, wide=False):
        """`figures`: (figure of matplotlib, description)."""
        shown = []
        for figure, description in figures:
            self.pictures += 1
            across = ' class="across"' if is_wide(figure) else ""
            shown.append(f"<figure{across}><figcaption>{escape(description)}</figcaption>"
                         f"{as_svg(figure, f'p{self.pictures}', description)}</figure>")
        if shown:
            self.add(f'<div class="pictures{" wide" if wide else ""}">{"".join(shown)}</div>')

    def table(self, table):
        if table.caption:
            self.add(f"<h3>{escape(table.caption)}</h3>")
        if not table.rows:
            self.text("none", "soft")
        else:
            self.add('<div class="scroll">' + table_html(table) + "</div>")
        if table.note:
            self.text(table.note, "note")

    def hidden(self, summary, tables):
        tables = [table for table in tables if table.rows]
        if tables:
            self.add(f"<details><summary>{escape(summary)}</summary>")
            for table in tables:
                self.table(table)
            self.add("</details>")

    def drawing(self, svg):
        self.pictures += 1
        self.add(f'<div class="drawing">{embedded(svg, f"p{self.pictures}", "drawing of the node by hwloc")}</div>')

    def html(self, head):
        with open(os.path.join(HERE, "page.css"), encoding="ascii") as file:
            style = file.read()
        links = "".join(f'<a href="#{anchor}">{escape(title)}</a>' for anchor, title in self.links)
        return "\n".join([
            "<!DOCTYPE html>", '<html lang="en"><head><meta charset="utf-8"/>',
            '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
            f"<title>{escape(self.title)}</title>", f"<style>{style}</style>", f"<script>{OPEN_FOR_PRINT}</script>",
            "</head><body>", f"<h1>{escape(self.title)}</h1>", *head, f"<nav>{links}</nav>", *self.parts,
            "</body></html>", ""])


def is_number(word):
    return bool(NUMBER.match(word))


def is_word_column(table, column):
    return column < table.words or not any(is_number(row[column]) for row in table.rows)


def judged(header, word):
    """A class for ratios in which more is worse."""
    if ("ratio" in header or "/" in header) and header not in NOT_JUDGED and RATIO.match(word):
        return "slower" if float(word.rstrip("!~")) > 1 else "faster"
    return ""


def table_html(table):
    are_words = [is_word_column(table, column) for column in range(len(table.header))]
    lines = ["<table><thead><tr>"]
    lines += [f'<th class="word">{escape(name)}</th>' if is_word else f"<th>{escape(name)}</th>"
              for name, is_word in zip(table.header, are_words)]
    lines.append("</tr></thead><tbody>")
    for row in table.rows:
        cells = zip(table.header, are_words, row)
        lines.append("<tr>" + "".join(cell_html(*cell) for cell in cells) + "</tr>")
    return "".join(lines + ["</tbody></table>"])


def cell_html(header, is_word, word):
    kinds = [kind for kind in ("word" if is_word else "", judged(header, word),
                               "command" if header == "command" else "long" if len(word) > LONG else "") if kind]
    shown = f"<code>{escape(word)}</code>" if header == "command" else escape(word)
    return f'<td class="{" ".join(kinds)}">{shown}</td>' if kinds else f"<td>{shown}</td>"


def head_of(results):
    head = ['<p class="soft">' + "<br/>".join(map(escape, head_lines(results))) + "</p>"]
    warnings = list(reservations(results))
    warnings += [f"{error['task']}: {error['text']}" for error in results.errors if "WRONG DATA" in error["text"]]
    return head + [f'<p class="warn">{escape(words)}</p>' for words in warnings]


def report_page(results):
    page = Page(f"gpushm on {results.node['host']}")
    for section in sections.ALL:
        section(page, results)
    return page.html(head_of(results) + [f"<p><strong>{escape(verdict(results))}</strong></p>"])


def comparison_page(change):
    page = Page("What a change did to gpushm")
    comparison.fill_page(page, change)
    return page.html([f'<p class="soft">{name}:<br/>' + "<br/>".join(map(escape, node_lines(results.node))) + "</p>"
                      for name, results in (("old", change.old), ("new", change.new))])


def exploration_page(results):
    page = Page(f"Settings of gpushm on {results.node['host']}")
    exploration.fill_page(page, results)
    return page.html(head_of(results))
