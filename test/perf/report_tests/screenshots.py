# SPDX-License-Identifier: BSD-3-Clause
"""screenshots.py CHROMIUM PAGE FOLDER: pictures of a page as a phone, a desktop and a dark desktop show it, and as it
is printed; fails where one is blank or dark and light are the wrong way round."""
import os
import subprocess
import sys

from PIL import Image, ImageStat

WIDTH, HEIGHT = 1280, 2600
PHONE = 390  # browsers have no narrower window, so a frame is


def shot(browser, url, name, *options):
    path = os.path.join(sys.argv[3], name)
    subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                    f"--user-data-dir={os.path.join(sys.argv[3], 'browser')}", f"--window-size={WIDTH},{HEIGHT}", *options,
                    f"--print-to-pdf={path}" if name.endswith(".pdf") else f"--screenshot={path}", url],
                   check=True, timeout=120, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return path


def look(path, least_colours=200):
    """Mean brightness, 0 to 255; a page with pictures has many colours."""
    picture = Image.open(path).convert("RGB")
    colours = picture.getcolors(1 << 24)
    if len(colours) < least_colours:
        sys.exit(f"{path}: {len(colours)} colours: it is blank")
    return ImageStat.Stat(picture.convert("L")).mean[0]


def phone_page(page):
    path = os.path.join(sys.argv[3], "phone.html")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'<body style="margin:0"><iframe src="file://{page}" style="width:{PHONE}px;height:{HEIGHT}px;border:0">'
                   "</iframe></body>")
    return f"file://{path}"


def main():
    browser, page = sys.argv[1], os.path.abspath(sys.argv[2])
    light = look(shot(browser, f"file://{page}", "desktop.png", "--blink-settings=preferredColorScheme=1"))
    dark = look(shot(browser, f"file://{page}", "dark.png", "--blink-settings=preferredColorScheme=0"))
    if not dark < 100 < 180 < light:
        sys.exit(f"mean brightness {light:.0f} in light and {dark:.0f} in dark")
    look(shot(browser, phone_page(page), "phone.png", "--allow-file-access-from-files"))
    printed = shot(browser, f"file://{page}", "printed.pdf")
    with open(printed, "rb") as file:
        content = file.read()
    if not content.startswith(b"%PDF") or len(content) < 20000:
        sys.exit(f"{printed} is empty")


main()
