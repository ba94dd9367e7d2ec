"""The command line: parse, call, show. One file per command; `app` holds the list."""

from __future__ import annotations

from octavo.cli.app import main as main
