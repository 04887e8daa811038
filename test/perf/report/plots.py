# SPDX-License-Identifier: BSD-3-Clause
"""Pictures by matplotlib, as SVG that stands in a page of HTML: in the page's colours, light or dark, and
with names that no other picture has."""
import io
import math
import re

from sides import size_text

from .errors import ReportError

WIDTH = 4.6  # inches: what a phone shows without making text small
LEAST_WIDTH = 70  # pixels an inch, below which text cannot be read
SERIES = 8

# Colours that no picture uses for themselves stand for those of the page.
INK, FAINT, PAPER = "#010101", "#010102", "#010103"
COLOURS = [f"#0102{i:02x}" for i in range(1, SERIES + 1)]
OF_PAGE = {INK: "var(--ink)", FAINT: "var(--line)", PAPER: "var(--paper)",
           **{colour: f"var(--series-{i})" for i, colour in enumerate(COLOURS, 1)}}
NAMES = 9  # of sizes that have room on an axis
MARKERS = "os^Dv*PX"
ALWAYS = {"gpushm": 0, "peer": 1, "raw": 2, "standby": 3}  # the colours of these in all pictures


def matplotlib_figure():
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as missing:
        import sys
        raise ReportError(f"{missing.name} is missing for {sys.executable}, which draws the pictures: install the "
                          "Debian or Ubuntu package python3-matplotlib, or matplotlib of the Python package index") \
            from missing
    matplotlib.rcParams.update({
        "svg.fonttype": "none", "svg.hashsalt": "gpushm",
        "font.family": "sans-serif", "font.size": 9, "axes.edgecolor": FAINT,
        "axes.labelcolor": INK, "text.color": INK, "xtick.color": INK, "ytick.color": INK,
        "xtick.labelcolor": INK, "ytick.labelcolor": INK, "grid.color": FAINT, "axes.spines.top": False,
        "axes.spines.right": False, "legend.frameon": False, "legend.fontsize": 8,
        "lines.linewidth": 1.6,
        "lines.markersize": 4})
    return Figure


def need_matplotlib():
    """Says in one line what to install, before minutes of measuring."""
    matplotlib_figure()


def new_axes(height=2.8, width=WIDTH):
    figure = matplotlib_figure()(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    figure.patch.set_alpha(0)
    axes.patch.set_alpha(0)
    return figure, axes


def as_svg(figure, name, description):
    """`name`: of no other picture of the page."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    least = int(LEAST_WIDTH * figure.get_figwidth()) if is_wide(figure) else None
    return embedded(file.getvalue(), name, description, least)


def is_wide(figure):
    """Too wide to stand beside another one."""
    return figure.get_figwidth() > 1.4 * WIDTH


def embedded(text, name, description, least_width=None):
    """SVG of a file as an element of HTML, which is not made narrower than `least_width` pixels."""
    text = text[text.index("<svg"):]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r'(\s)xlink:href="', r'\1href="', text)
    text = re.sub(r'\sid="([^"]*)"', rf' id="{name}-\1"', text)
    text = re.sub(r'(href=")#', rf"\1#{name}-", text)
    text = re.sub(r"url\(#", f"url(#{name}-", text)
    for colour, of_page in OF_PAGE.items():
        text = text.replace(colour, of_page)
    # The size is that of the place where it stands.
    start = re.sub(r'\s(width|height|version)="[^"]*"', "", text[:text.index(">") + 1])
    style = f' style="min-width: {least_width}px"' if least_width else ""
    start = start[:-1] + f'{style} role="img" aria-label="{escape(description)}">'
    return start + text[text.index(">") + 1:].strip()


def escape(text):
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def bytes_axis(axes, sizes):
    """Sizes on a logarithmic scale, named where there is room."""
    axes.set_xscale("log", base=2)
    shown = []
    for size in sorted(set(sizes), reverse=True):
        if not shown or math.log2(shown[-1] / size) >= math.log2(max(sizes) / min(sizes)) / NAMES:
            shown.append(size)
    axes.set_xticks(shown, [size_text(size) for size in shown])
    axes.minorticks_off()
    axes.grid(True, linewidth=0.6)
    axes.set_axisbelow(True)


def number_label(value, _):
    return f"{value:g}"


def time_axis(axes, label):
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(number_label)
    axes.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if is_round(value) else "")
    axes.tick_params(axis="y", which="minor", labelsize=7)
    axes.set_ylabel(label)


def is_round(value):
    """2 and 5, between the powers of ten."""
    first = value / 10 ** math.floor(math.log10(value)) if value > 0 else 0
    return min(abs(first - 2), abs(first - 5)) < 1e-6


def curves(named, label, rate=False):
    """`named`: {name: [(size, median, least, most)]}. The spread is a band."""
    figure, axes = new_axes()
    sizes = []
    for position, (name, points) in enumerate(named.items()):
        i = ALWAYS.get(name, position + (len(ALWAYS) if "gpushm" in named else 0))
        x, middle, low, high = zip(*sorted(points))
        colour = COLOURS[i % SERIES]
        axes.fill_between(x, low, high, color=colour, alpha=0.22, linewidth=0)
        axes.plot(x, middle, color=colour, marker=MARKERS[i % SERIES], label=name)
        sizes += x
    bytes_axis(axes, sizes)
    if rate:
        axes.set_ylim(bottom=0)
        axes.set_ylabel(label)
    else:
        time_axis(axes, label)
    axes.set_xlabel("bytes")
    axes.legend()
    return figure


def heat_map(rows, sizes, ratios, worse):
    """`ratios`: {(row, size): (ratio, mark)}. Blue is below 1, the colour of number `worse` above. The numbers, and frames
    where there is a mark "!", say it without colour."""
    figure, axes = new_axes(height=0.5 + 0.34 * len(rows), width=1.9 + 0.46 * max(len(sizes), 4))
    from matplotlib.patches import Rectangle
    for (row, size), (value, mark) in ratios.items():
        x, y = sizes.index(size), rows.index(row)
        strength = min(abs(math.log2(value)) / 3, 1) if value > 0 else 1
        axes.add_patch(Rectangle((x - 0.47, y - 0.45), 0.94, 0.9, alpha=0.12 + 0.6 * strength, linewidth=0,
                                 facecolor=COLOURS[0] if value <= 1 else COLOURS[worse]))
        if mark == "!":
            axes.add_patch(Rectangle((x - 0.45, y - 0.43), 0.9, 0.86, fill=False, edgecolor=INK, linewidth=1.2))
        axes.text(x, y, f"{value:.2f}" if value < 9.95 else f"{value:.0f}", ha="center", va="center", fontsize=7.5,
                  fontweight="bold" if mark else "normal")
    axes.set_xlim(-0.5, len(sizes) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xticks(range(len(sizes)), [size_text(size) for size in sizes], fontsize=7.5)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return figure


def stacked(sizes, parts, whole):
    """Bars of the parts (name: values) beside points of the whole."""
    figure, axes = new_axes()
    bottom = [0.0] * len(sizes)
    for i, (name, values) in enumerate(parts.items()):
        axes.bar(range(len(sizes)), values, bottom=bottom, color=COLOURS[i], alpha=0.75, label=name, width=0.6)
        bottom = [one + other for one, other in zip(bottom, values)]
    axes.plot(range(len(sizes)), whole, linestyle="none", marker="_", markersize=18, markeredgewidth=2.2, color=INK,
              label="measured")
    axes.set_xticks(range(len(sizes)), [size_text(size) for size in sizes])
    axes.grid(True, axis="y", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel("bytes")
    axes.set_ylabel("us")
    axes.legend(fontsize=7)
    return figure
