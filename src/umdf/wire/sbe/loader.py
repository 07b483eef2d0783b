"""From the XML of an SBE schema to the checked model of `schema`.

Reads our own file and the exchange's (`--sbe-schema`). A file with faults is refused with all of them at once.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path

from umdf import xmltree
from umdf.errors import SchemaError
from umdf.wire.sbe.schema import CONSTANT, OPTIONAL, REQUIRED, SIZES, Data, Field, Group, Message, Part, Schema
from umdf.wire.sbe.type_declarations import MAX_LENGTH, TIME_UNITS, AttributeReader, ResolvedType, TypeRegistry
from umdf.xmltree import Node

PACKAGED_SCHEMA = "b3-umdf-2.2.0.xml"
MAX_GROUP_NESTING = 8  # levels of groups within groups
MAX_TAG = (1 << 31) - 1
TEXT_ENCODINGS = ("utf-8", "ascii", "iso8859-1", "cp1252")  # as Python calls them


def load(path: str | Path | None = None) -> Schema:
    """The schema of a file; without one, ours."""
    if path is None:
        return _packaged_schema()
    return loads(xmltree.content_of(path), str(path))


def loads(content: bytes, source: str = "<string>") -> Schema:
    """The schema that these bytes describe; `source` names them in faults."""
    return _build_schema(xmltree.parse(content, source), source)


@cache
def _packaged_schema() -> Schema:
    file = resources.files("umdf.schemas").joinpath("sbe", PACKAGED_SCHEMA)
    return loads(file.read_bytes(), PACKAGED_SCHEMA)


def _build_schema(root: Node, source: str) -> Schema:
    reader = AttributeReader(source)
    if root.tag != "messageSchema":
        reader.fault(root, "is not an SBE schema: the root element must be messageSchema")
        raise SchemaError(reader.faults)
    order = root.get("byteOrder", "littleEndian")
    if order != "littleEndian":
        reader.fault(root, f"byteOrder {order} is not supported: this feed is littleEndian")
    number = reader.required_integer(root, "id", 0, MAX_LENGTH)
    version = reader.required_integer(root, "version", 0, MAX_LENGTH)
    oldest = reader.optional_integer(root, "oldest", 0, version or 0)  # our own files only
    for child in root:
        if child.tag not in ("types", "message"):
            reader.fault(child, "does not belong in <messageSchema>")
    types = TypeRegistry(reader, [node for child in root if child.tag == "types" for node in child])
    types.resolve_all()
    if not any(child.tag == "message" for child in root):
        reader.fault(root, "has no messages")
    layouts = _BlockBuilder(reader, types)
    messages = {m.template_id: m for m in layouts.messages([child for child in root if child.tag == "message"])}
    if reader.faults:
        raise SchemaError(sorted(reader.faults, key=lambda fault: fault.line))
    assert number is not None and version is not None
    return Schema(
        id=number,
        version=version,
        oldest=version if oldest is None else oldest,
        semantic_version=root.get("semanticVersion") or "",
        package=root.get("package") or "",
        description=root.get("description") or "",
        messages=messages,
        source=source,
    )


@dataclass
class _BlockDraft:
    """A block while it is read."""

    fields: list[Field] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    data: list[Data] = field(default_factory=list)
    end: int = 0
    length: int = 0


class _BlockBuilder:
    """Puts fields at their offsets."""

    def __init__(self, reader: AttributeReader, types: TypeRegistry) -> None:
        self._reader = reader
        self._types = types

    def messages(self, nodes: list[Node]) -> list[Message]:
        reader = self._reader
        ids: dict[int, Node] = {}
        names: dict[str, Node] = {}
        messages = []
        for node in nodes:
            name, number = reader.required_text(node, "name"), reader.required_integer(node, "id", 0, MAX_LENGTH)
            if name is not None and names.setdefault(name, node) is not node:
                reader.fault(node, f"a message of that name is on line {names[name].line}")
            if number is not None and ids.setdefault(number, node) is not node:
                reader.fault(node, f"template id {number} is taken by the message on line {ids[number].line}")
            body = self._block(node, MAX_LENGTH)
            message = Message(
                name=name or "",
                block_length=body.length,
                fields=tuple(body.fields),
                groups=tuple(body.groups),
                data=tuple(body.data),
                template_id=number or 0,
                since=reader.optional_integer(node, "sinceVersion", 0, MAX_LENGTH) or 0,
                semantic=node.get("semanticType") or "",
                description=node.get("description") or "",
            )
            messages.append(message)
        return messages

    def _block(self, node: Node, max_length: int, depth: int = 0) -> _BlockDraft:
        """The members of a message or a group. `max_length` is the longest block that its header can announce."""
        reader, body = self._reader, _BlockDraft()
        stated_length = reader.optional_integer(node, "blockLength", 0, max_length)
        order, latest_kind = ("field", "group", "data"), 0
        names: set[str] = set()
        for child in node:
            if child.tag not in order:
                reader.fault(child, f"does not belong in <{node.tag}>")
                continue
            if order.index(child.tag) < latest_kind:
                reader.fault(child, f"comes after a <{order[latest_kind]}>: the order is fields, groups, data")
            latest_kind = max(latest_kind, order.index(child.tag))
            name = reader.required_text(child, "name") or ""
            if name in names:
                reader.fault(child, f"a second member of that name in {node.describe()}")
            names.add(name)
            if child.tag == "field":
                self._add_field(child, body, stated_length)
            elif child.tag == "group":
                self._add_group(child, body, depth + 1)
            else:
                self._add_data(child, body)
        body.length = body.end if stated_length is None else stated_length
        if stated_length is None and body.end > max_length:
            reader.fault(node, f"its fields need {body.end} bytes; a block has at most {max_length}")
        return body

    def _add_field(self, node: Node, body: _BlockDraft, stated_length: int | None) -> None:
        """Read a field and put it at its offset, or right after the previous one."""
        offset = self._reader.optional_integer(node, "offset", 0, MAX_LENGTH)
        new_field = self._field(node, body.end if offset is None else offset)
        is_sent = new_field is None or bool(new_field.parts)
        if is_sent and offset is not None and offset < body.end:
            self._reader.fault(node, f"offset {offset} is inside the field before it, which ends at {body.end}")
        if new_field is None:
            return
        body.fields.append(new_field)
        body.end = max(body.end, new_field.end)
        if stated_length is not None and new_field.end > stated_length:
            self._reader.fault(node, f"ends at {new_field.end}, past the blockLength of {stated_length}")

    def _field(self, node: Node, start: int) -> Field | None:
        reader = self._reader
        tag = reader.required_integer(node, "id", 0, MAX_TAG)
        declared = self._types.resolve(reader.required_text(node, "type"), node)
        presence = reader.presence(node)
        since = reader.optional_integer(node, "sinceVersion", 0, MAX_LENGTH) or 0
        until = reader.optional_integer(node, "until", since, MAX_LENGTH)
        if declared is None or tag is None:
            return None
        constant: int | str | None = None
        parts: tuple[Part, ...] = ()
        if presence == CONSTANT or declared.constant is not None:
            presence, constant = CONSTANT, self._constant(node, declared)
        else:
            parts = self._parts(node, declared, start, presence == OPTIONAL)
            # A field marked required whose type has a null value may still carry it: UTCTimestampNanos 0 is no time.
            optional = presence == OPTIONAL or all(slot.optional for slot in declared.slots)
            presence = OPTIONAL if optional else REQUIRED
        return Field(
            name=node.get("name") or "",
            tag=tag,
            type=declared.name,
            presence=presence,
            parts=parts,
            constant=constant,
            exponent=self._exponent(declared),
            time_unit=self._time_unit(node, declared),
            semantic=node.get("semanticType") or declared.semantic,
            codes=self._codes(node, declared),
            bits=dict(declared.bits),
            since=since,
            until=until,
            description=node.get("description") or declared.description,
        )

    def _parts(self, node: Node, declared: ResolvedType, start: int, optional: bool) -> tuple[Part, ...]:
        parts = []
        for slot in declared.slots:
            if slot.length == 0 or (slot.length > 1 and slot.primitive != "char"):
                self._reader.fault(node, f"type {declared.name} has length {slot.length}; only char may, from 1")
            name = slot.name if len(declared.slots) > 1 else ""
            null, before = (slot.null, None) if optional or slot.optional else (None, slot.null)
            parts.append(Part(name, slot.primitive, start + slot.offset, slot.length, null, before))
        return tuple(parts)

    def _codes(self, node: Node, declared: ResolvedType) -> dict[int | str, str]:
        """The names of a field's codes: of its own enum, or of the one that our attribute `codes` names."""
        enum_name = node.get("codes")
        if enum_name is None:
            return dict(declared.codes)
        enum = self._types.resolve(enum_name, node)
        if enum is None:
            return {}
        kinds = [[slot.primitive == "char" for slot in used.slots] for used in (declared, enum)]
        if not enum.codes or kinds[0] != kinds[1]:
            self._reader.fault(node, f"codes names {enum_name}, which is not an enum of the type {declared.name}")
        return dict(enum.codes)

    def _constant(self, node: Node, declared: ResolvedType) -> int | str | None:
        """The value of a field that is not sent."""
        reference = node.get("valueRef")
        if declared.constant is not None:
            return declared.constant
        if reference is None:
            self._reader.fault(node, "is constant but has neither a valueRef nor a constant type")
            return None
        found = self._types.enum_value(reference, node)
        if found is None:
            return None
        if len(declared.slots) != 1 or declared.bits:
            self._reader.fault(node, f"type {declared.name} cannot be the constant {reference}")
            return None
        return self._types.checked_constant(node, found, declared.slots[0].primitive)

    def _exponent(self, declared: ResolvedType) -> int | None:
        exponent = declared.constants.get("exponent")
        is_decimal = [slot.name for slot in declared.slots] == ["mantissa"]
        return exponent if is_decimal and isinstance(exponent, int) else None

    def _time_unit(self, node: Node, declared: ResolvedType) -> int | None:
        unit = declared.constants.get("unit")
        if [slot.name for slot in declared.slots] != ["time"] or unit is None:
            return None
        if unit not in TIME_UNITS:
            self._reader.fault(node, f"type {declared.name} has the time unit {unit}; known are {TIME_UNITS}")
            return None
        return int(unit)

    def _add_group(self, node: Node, body: _BlockDraft, depth: int) -> None:
        reader = self._reader
        if depth > MAX_GROUP_NESTING:
            reader.fault(node, f"groups nested deeper than {MAX_GROUP_NESTING}")
            return
        kind = node.get("dimensionType", "groupSizeEncoding")
        header = self._types.resolve(kind, node)
        sizes = None if header is None else self._header_sizes(header, ("blockLength", "numInGroup"))
        if header is not None and sizes is None:
            reader.fault(node, f"dimensionType {kind} must be blockLength and numInGroup, unsigned, up to 4 bytes each")
        length_size, count_size = sizes or (2, 1)
        inner = self._block(node, min(MAX_LENGTH, (1 << 8 * length_size) - 1), depth)
        group = Group(
            name=node.get("name") or "",
            block_length=inner.length,
            fields=tuple(inner.fields),
            groups=tuple(inner.groups),
            data=tuple(inner.data),
            tag=reader.required_integer(node, "id", 0, MAX_TAG) or 0,
            length_size=length_size,
            count_size=count_size,
            since=reader.optional_integer(node, "sinceVersion", 0, MAX_LENGTH) or 0,
            description=node.get("description") or "",
        )
        body.groups.append(group)

    def _header_sizes(self, declared: ResolvedType, names: tuple[str, str]) -> tuple[int, int] | None:
        """The sizes of two adjacent unsigned members of these names, or None."""
        slots = declared.slots
        if tuple(slot.name for slot in slots) != names or declared.constants or slots[0].offset != 0:
            return None
        sizes = tuple(SIZES[slot.primitive] for slot in slots)
        unsigned = all(slot.primitive in ("uint8", "uint16", "uint32") and slot.length == 1 for slot in slots)
        return (sizes[0], sizes[1]) if unsigned and slots[1].offset == sizes[0] else None

    def _add_data(self, node: Node, body: _BlockDraft) -> None:
        reader = self._reader
        tag = reader.required_integer(node, "id", 0, MAX_TAG)
        since = reader.optional_integer(node, "sinceVersion", 0, MAX_LENGTH) or 0
        declared = self._types.resolve(reader.required_text(node, "type"), node)
        if declared is None or tag is None:
            return
        slots = declared.slots
        is_text = [slot.name for slot in slots] == ["length", "varData"] and not declared.constants
        if not is_text or slots[0].primitive not in ("uint8", "uint16", "uint32") or slots[0].length != 1:
            reader.fault(node, f"type {declared.name} must be length (uint8, uint16 or uint32) and varData")
            return
        if slots[1].primitive not in ("char", "uint8") or (slots[0].offset, slots[1].offset) != (0, slots[0].end):
            reader.fault(node, f"type {declared.name}: varData must be char or uint8, right after length")
            return
        encoding = declared.encoding or "UTF-8"
        if not _is_text_encoding(encoding):
            reader.fault(node, f'type {declared.name} has the unknown characterEncoding "{encoding[:40]}"')
            return
        size = SIZES[slots[0].primitive]
        text = node.get("description") or declared.description
        body.data.append(Data(node.get("name") or "", tag, declared.name, size, encoding, since, text))


def _is_text_encoding(name: str) -> bool:
    try:
        return codecs.lookup(name).name in TEXT_ENCODINGS
    except LookupError:
        return False
