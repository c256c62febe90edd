"""Documents that people write into files: JSON, or YAML, from a file or from stdin."""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

from corral.cli.failure import WrongUsage


def read_documents(path: str) -> list[dict[str, Any]]:
    """Every document of a file ('-': stdin); WrongUsage has what is wrong with it."""
    text = _text(path)
    try:
        found: Any = json.loads(text)
    except ValueError:
        found = _yaml(path, text)
    documents = found if isinstance(found, list) else [found]
    for document in documents:
        if not isinstance(document, Mapping) or not all(isinstance(key, str) for key in document):
            raise WrongUsage(
                f"{path} holds something that is no document", hint="write 'name: lobby' and so on"
            )
    if not documents:
        raise WrongUsage(f"{path} is empty")
    return [dict(document) for document in documents]


def _text(path: str) -> str:
    if path == "-":
        return sys.stdin.read()
    try:
        return pathlib.Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise WrongUsage(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise WrongUsage(f"{path} is not text in UTF-8") from None


def _yaml(path: str, text: str) -> Any:
    import yaml  # half of our start-up budget, and JSON needs none of it

    class Loader(yaml.SafeLoader):
        """With names as they are written: `on` is a field of ours, and no other word for `true`."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            for key, _ in node.value:
                if key.tag == "tag:yaml.org,2002:bool":
                    key.tag = "tag:yaml.org,2002:str"
            return super().construct_mapping(node, deep)

    try:
        found = [document for document in yaml.load_all(text, Loader=Loader) if document is not None]
    except (yaml.YAMLError, RecursionError) as error:
        raise WrongUsage(f"{path} is neither JSON nor YAML: {str(error)[:300]}") from None
    return found[0] if len(found) == 1 else found
