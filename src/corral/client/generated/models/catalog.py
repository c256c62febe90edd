"""Structures of `catalog`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from msgspec import Struct

from corral.client.generated.models.shared import Category, ConfigFormat


class CatalogPage(Struct, frozen=True, kw_only=True):
    """Some items of a list; `next` leads to the following ones and is null at the end."""

    items: tuple[Catalog, ...]
    """The items of this page."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""


class Catalog(Struct, frozen=True, kw_only=True):
    """A program. `url` is empty for one that was uploaded; callers that may not manage the catalog see
    no more of it than host and path. `size` is 0 while it is unknown."""

    platform: str
    """Name of the program, such as `paper`."""
    version: str
    """Version of the program."""
    file: str
    """File name that it gets in working directories."""
    url: str
    """Where nodes download it; empty: it was uploaded, and they get it from the controller."""
    sha256: str
    """SHA-256 of the content, 64 hexadecimal digits."""
    size: int
    """Size in bytes; 0: not known yet."""
    category: Category
    """`server`, `proxy` or empty; groups that name none take it over."""
    config_format: ConfigFormat
    """Label for the family of configuration files the program reads; a group that names none inherits it."""
    description: str
    """A word on the program, for people."""
    used_by: tuple[str, ...]
    """Groups that name it."""
    created_at: str
    """When it was made, in UTC."""
    updated_at: str
    """When it was last changed, in UTC."""
    revision: int
    """Number of the last change of this document. It is the `ETag` that `If-Match` takes."""
