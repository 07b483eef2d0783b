"""Parses XML files safely into nodes with line numbers.

Both codecs are driven by XML that a user may pass; defusedxml rejects entities and external references. The exchange's
own file has an (empty) DOCTYPE, so a document type alone is accepted.
"""

from __future__ import annotations

import io
import xml.sax
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from defusedxml import DefusedXmlException
from defusedxml.expatreader import DefusedExpatParser

from umdf.errors import Fault, SchemaError

MAX_BYTES = 64 << 20
MAX_DEPTH = 64
UNDECLARED = "?"  # namespace of an element with an undeclared prefix


@dataclass
class Node:
    """An element: its local name (no namespace), attributes, text, children and line."""

    tag: str
    attributes: dict[str, str]
    line: int
    text: str = ""
    children: list[Node] = field(default_factory=list)
    namespace: str = ""
    prefixed_attributes: frozenset[str] = frozenset()  # attributes with a prefix, of another namespace

    def __iter__(self) -> Iterator[Node]:
        return iter(self.children)

    def get(self, name: str, default: str | None = None) -> str | None:
        return self.attributes.get(name, default)

    def describe(self) -> str:
        """How a fault names this element: `<field name="price">`."""
        for key in ("name", "id"):
            if key in self.attributes:
                return f'<{self.tag} {key}="{self.attributes[key]}">'
        return f"<{self.tag}>"


class _NodeBuilder:
    """A SAX content handler that records line numbers."""

    def __init__(self) -> None:
        self.root: Node | None = None
        self._open_nodes: list[Node] = []
        self._namespaces: list[dict[str, str]] = [{"": ""}]  # prefix → namespace, for each open element
        self._locator: Any = None

    def setDocumentLocator(self, locator: Any) -> None:  # noqa: N802 (SAX's names)
        self._locator = locator

    def startElement(self, name: str, attrs: Any) -> None:  # noqa: N802
        keys = [key for key in attrs.getNames() if not key.startswith("xmlns")]
        keys.sort(key=lambda key: ":" not in key)  # an attribute without a prefix wins over one with a prefix
        attributes = {_local_name(key): attrs[key] for key in keys}
        declared = {
            _local_name(key) if ":" in key else "": attrs[key] for key in attrs.getNames() if key.startswith("xmlns")
        }
        self._namespaces.append(self._namespaces[-1] | declared)
        node = Node(_local_name(name), attributes, self._locator.getLineNumber())
        node.namespace = self._namespaces[-1].get(name.rpartition(":")[0], UNDECLARED)
        node.prefixed_attributes = frozenset(_local_name(key) for key in keys if ":" in key) - set(keys)
        if len(self._open_nodes) == MAX_DEPTH:
            raise xml.sax.SAXParseException(f"elements nested deeper than {MAX_DEPTH}", None, self._locator)
        if self._open_nodes:
            self._open_nodes[-1].children.append(node)
        else:
            self.root = node
        self._open_nodes.append(node)

    def endElement(self, name: str) -> None:  # noqa: N802
        node = self._open_nodes.pop()
        self._namespaces.pop()
        node.text = node.text.strip()

    def characters(self, content: str) -> None:
        if self._open_nodes:
            self._open_nodes[-1].text += content

    def __getattr__(self, name: str) -> Any:  # every other SAX event
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *arguments: None


def _local_name(name: str) -> str:
    return name.rpartition(":")[2]


def content_of(path: str | Path) -> bytes:
    """The bytes of a file; an error if it is too large for a schema."""
    file = str(path)
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise SchemaError([Fault(file, 0, "", f"cannot be read: {error.strerror}")]) from None
    if len(content) > MAX_BYTES:
        raise SchemaError([Fault(file, 0, "", f"{len(content)} bytes; at most {MAX_BYTES} are accepted")])
    return content


def parse(content: bytes, file: str = "<string>") -> Node:
    """The root element of a file; invalid or dangerous XML is an error with its line."""
    builder = _NodeBuilder()
    parser = DefusedExpatParser()
    parser.setContentHandler(builder)  # type: ignore[arg-type]
    try:
        parser.parse(io.BytesIO(content))
    except xml.sax.SAXParseException as error:
        raise SchemaError([Fault(file, error.getLineNumber() or 0, "", f"not XML: {error.getMessage()}")]) from None
    except DefusedXmlException as error:
        raise SchemaError([Fault(file, 0, "", f"rejected: {type(error).__name__}: {error}")]) from None
    except (LookupError, ValueError) as error:  # a declared encoding that expat does not support
        raise SchemaError([Fault(file, 1, "", f"not XML: {error}")]) from None
    assert builder.root is not None
    return builder.root
