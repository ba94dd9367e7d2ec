"""What the site needs beyond mkdocs: pages written for the plain repository become pages of a site.

* A link that leaves `docs/` leads to a copy: the file, or the folder's list of files, becomes a page below
  `repository/`. No address of a repository has to be known.
* Headings have GitHub's anchors, so that one link works in both places.
* `api.md` is written out for readers of the plain repository; here mkdocstrings makes its entries.

tests/test_docs.py imports this file and has no mkdocs, so that mkdocs is imported where it is used.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# code first: what looks like a link in it is none
_CODE_OR_LINK = re.compile(
    r"^ *```.*?^ *```[^\n]*$|`[^`\n]+`|\]\((?P<target>[^)\s]+)\)", flags=re.MULTILINE | re.DOTALL
)
_HEADING = re.compile(r"^ *```.*?^ *```[^\n]*$|^#+ +(?P<text>.+?) *$", flags=re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"^<!--.*?-->$", flags=re.MULTILINE | re.DOTALL)
_ENTRY = re.compile(
    r"^### `(?P<name>octavo\.\w+)`(?:, (?P<variant>`[^`]+` in [^\n]+))?\n.*?(?=^##|\Z)",
    flags=re.MULTILINE | re.DOTALL,
)
_LANGUAGES = {".py": "python", ".json": "json", ".yaml": "yaml", ".toml": "toml"}


def slug(heading: str, separator: str = "-") -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", separator)


def anchors(markdown: str) -> set[str]:
    """Return the anchors of a page's headings."""
    return {slug(found["text"]) for found in _HEADING.finditer(markdown) if found["text"]}


def links(markdown: str) -> Iterator[str]:
    """Yield where the links and images of a page lead, addresses of other sites aside."""
    for found in _CODE_OR_LINK.finditer(markdown):
        if found["target"] and not re.match(r"[a-z]+:", found["target"]):
            yield found["target"]


def site_path(path: str) -> str:
    """Return the page, below `docs/`, that shows a file or folder of the repository."""
    if path == "docs" or path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (ROOT / path).is_dir():
        return f"repository/{path}/index.md"
    return f"repository/{path}" if path.endswith(".md") else f"repository/{path}.md"


def repository_path(page: str) -> str:
    """Return the file of the repository that a page of the site was written as."""
    return page.removeprefix("repository/") if page.startswith("repository/") else f"docs/{page}"


def named(nav: Any) -> Iterator[str]:
    """Yield the pages that a navigation names."""
    if isinstance(nav, str):
        yield nav
    for entry in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from named(entry)


def relinked(markdown: str, page: str) -> str:
    """Return a page whose links lead to where the site has what they name."""
    here, folder = repository_path(page), posixpath.dirname(page)
    if page.endswith("/index.md") and page.startswith("repository/"):
        here = posixpath.dirname(here)

    def moved(found: re.Match[str]) -> str:
        target = found["target"]
        if not target or target.startswith("#") or re.match(r"[a-z]+:", target):
            return found[0]
        name, _, anchor = target.partition("#")
        path = _resolved(here, name)
        if path.startswith("docs/") and not page.startswith("repository/"):
            return found[0]
        if not (ROOT / path).exists():
            return found[0]  # mkdocs tells of it, and in the page's own words
        shown = posixpath.relpath(site_path(path), folder or ".")
        return f"]({shown}{'#' if anchor else ''}{anchor})"

    return _CODE_OR_LINK.sub(moved, markdown)


def on_config(config: Any) -> Any:
    """Give headings GitHub's anchors."""
    config.mdx_configs["toc"]["slugify"] = slug
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add what pages and the navigation link to outside `docs/`, and what that links to."""
    from mkdocs.structure.files import File

    waiting = [repository_path(page) for page in named(config.nav) if page.startswith("repository/")]
    for file in files.documentation_pages():
        waiting += _linked(repository_path(file.src_uri), file.content_string)
    added: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in added or path.startswith("docs/") or not (ROOT / path).exists():
            continue  # what does not exist is told by mkdocs, with page and link
        added.add(path)
        content = _content(path)
        files.append(File.generated(config, site_path(path), content=content))
        waiting += _linked(path, content)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn what was written for the plain repository into what the site shows."""
    if page.file.src_uri == "api.md":
        markdown = _ENTRY.sub(_entry, markdown)
    # a comment beside a table would be taken for one of its rows
    return relinked(_COMMENT.sub("\n", markdown), page.file.src_uri)


def _linked(path: str, markdown: str) -> list[str]:
    """Return the files and folders of the repository that a file links to."""
    targets = [target.partition("#")[0] for target in links(markdown)]
    return [_resolved(path, target) for target in targets if target]


def _resolved(path: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target))


def _content(path: str) -> str:
    """Return a file or folder of the repository as a page."""
    file = ROOT / path
    if file.is_dir():
        entries = sorted(entry.name for entry in file.iterdir() if not entry.name.startswith("."))
        listed = "".join(f"* [{name}]({file.name}/{name})\n" for name in entries)
        # links are read as from the folder's own place, one level up
        return f"---\nsearch: {{exclude: true}}\n---\n# `{path}/`\n\n{listed}"
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        return text
    language = _LANGUAGES.get(file.suffix, "text")
    return f"---\nsearch: {{exclude: true}}\n---\n# `{path}`\n\n````{language}\n{text.rstrip()}\n````\n"


def _entry(found: re.Match[str]) -> str:
    """Return an entry of the API as mkdocstrings reads it."""
    named = f"\nNamed {found['variant']}.\n" if found["variant"] else ""
    return f"::: {found['name']}\n{named}\n"
