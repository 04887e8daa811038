# SPDX-License-Identifier: BSD-3-Clause
"""page_check.py PAGE PICTURES SECTION...: whether a page is well-formed, needs nothing beside itself, and has that many
pictures at least and these sections. Says what is wrong."""
import re
import sys
import xml.etree.ElementTree as tree


def problems(path, least_pictures, sections):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        page = tree.fromstring(text.removeprefix("<!DOCTYPE html>"))
    except tree.ParseError as error:
        yield f"not well-formed: {error}"
        return
    ids = [element.get("id") for element in page.iter() if element.get("id")]
    yield from (f"id {name} twice" for name in set(ids) if ids.count(name) > 1)
    for element in page.iter():
        for name, value in element.attrib.items():
            if name.endswith(("src", "href")) and not value.startswith("#") or "//" in value:
                yield f"needs {value} ({element.tag} {name})"
            if value.startswith("#") and name.endswith("href") and value[1:] not in ids:
                yield f"nothing is at {value}"
            for used in re.findall(r"url\(#([^)]*)\)", value):
                if used not in ids:
                    yield f"nothing is at url(#{used})"
    for words in ("http:", "https:", "@import", "#0101", "#0102"):
        if words in text:
            yield f"{words} is in it"
    yield from (f"no section {name}" for name in sections if name not in ids)
    pictures = [element for element in page.iter("svg")]
    if len(pictures) < least_pictures:
        yield f"{len(pictures)} pictures"
    for picture in pictures:
        if not picture.get("viewBox") or not picture.get("aria-label"):
            yield "a picture without viewBox or description"
        if not any(element.tag in ("path", "use", "rect") for element in picture.iter()):
            yield f"an empty picture: {picture.get('aria-label')}"


found = list(problems(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
for problem in found:
    print(f"{sys.argv[1]}: {problem}")
sys.exit(1 if found else 0)
