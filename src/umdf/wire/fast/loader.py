"""A FAST 1.1 template file becomes the checked model of `templates`.

Every fault of a file is reported at once with line, element and the specification's code (S1 to S5, D8); a file
with any fault is refused. The XML is walked once for each use of a template, because the dictionary "type" depends
on where it is used (6.3.1). Only this module knows XML.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path

from umdf import xmltree
from umdf.errors import Fault, SchemaError
from umdf.wire.fast import conversion
from umdf.wire.fast.templates import (
    ANY,
    ASCII,
    BYTES,
    CONSTANT,
    COPY,
    DECIMAL,
    DEFAULT,
    DELTA,
    INCREMENT,
    INT32,
    INT64,
    RANGES,
    TAIL,
    UINT32,
    UINT64,
    UNICODE,
    DynamicRef,
    Field,
    Group,
    Instruction,
    Operator,
    Segment,
    Sequence,
    Slot,
    Template,
    TemplateSet,
)
from umdf.xmltree import Node

PACKAGED = "umdf-fast.xml"
MAX_NESTING = 16  # of nested groups and sequences
MAX_PRESENCE_BITS = 7 * 256 - 1  # of one presence map, the template id's not counted: what readers accept
MAX_INSTRUCTIONS = 1 << 16  # of a whole set: nested static references multiply

_OPERATORS = (CONSTANT, DEFAULT, COPY, INCREMENT, DELTA, TAIL)
# The messaging specification writes uint32 and uint64 (3.1.3); the exchange's file uInt32 and uInt64.
_OTHERS = {"uint32": UINT32, "uint64": UINT64, "decimal": DECIMAL, "string": ASCII, "byteVector": BYTES}
_FIELDS = {type: type for type in RANGES} | _OTHERS
_packaged_templates = cache(lambda: loads((resources.files("umdf.schemas") / "fast" / PACKAGED).read_bytes(), PACKAGED))
_TEMPLATE_NAMESPACE = "http://www.fixprotocol.org/ns/"  # …fast/td/1.1, and template-definition of older files


def load(path: str | Path | None = None) -> TemplateSet:
    """The templates of a file; by default of the packaged file."""
    return _packaged_templates() if path is None else loads(xmltree.content_of(path), str(path))


def loads(content: bytes, source: str = "<string>") -> TemplateSet:
    """As `load`, from bytes."""
    try:
        root = xmltree.parse(content, source)
    except SchemaError as error:
        raise SchemaError([replace(fault, reason=f"S1: {fault.reason}") for fault in error.faults]) from None
    return _build(root, source)


def _build(root: Node, source: str) -> TemplateSet:
    builder = _TemplateBuilder(root, source)
    templates = builder.templates()
    by_type = builder.templates_by_type(templates)
    if builder.faults:
        raise SchemaError(sorted(builder.faults, key=lambda fault: fault.line))
    found = templates, tuple(builder.slots), by_type
    return TemplateSet(source, hashlib.sha256(repr(found).encode()).hexdigest(), *found)


@dataclass(frozen=True)
class _Context:
    """What an instruction inherits from its context."""

    template: str  # the current template (6.1)
    dictionary: str
    application_type: str
    level: int = 0
    reference_path: tuple[str, ...] = ()  # the static references that led here

    def with_dictionary_of(self, node: Node) -> _Context:
        return replace(self, dictionary=_attribute(node, "dictionary") or self.dictionary)


def _attribute(node: Node, name: str) -> str | None:
    """An attribute of the template definition; one with a prefix is foreign (9)."""
    return None if name in node.prefixed_attributes else node.get(name)


def _normalized_id(node: Node) -> str | None:
    """An id such that 7, 07 and " 7" are the same."""
    text = _attribute(node, "id")
    return None if text is None else text.strip().lstrip("0") or "0"


class _TemplateBuilder:
    def __init__(self, root: Node, source: str) -> None:
        self.source = source
        self.faults: dict[Fault, None] = {}  # faults of a template that is used twice are reported once
        self.slots: list[Slot] = []
        self.slot_numbers: dict[tuple[str, str, str, str], int] = {}
        self.dynamic_types: set[str] = set()
        self.instructions = 0
        self.namespaces = {root.namespace, ""}
        self.dictionary = _attribute(root, "dictionary") or "global"
        self.nodes = self.template_nodes(root)
        self.by_name = {node.get("name"): node for node in reversed(self.nodes)}
        self.by_id = {_normalized_id(node): node for node in reversed(self.nodes)}
        self.referenced_names: set[str] = set()

    def fault(self, node: Node, reason: str) -> None:
        self.faults[Fault(self.source, node.line, node.describe(), reason)] = None

    def children(self, node: Node) -> list[Node]:
        """The elements of the template definition; foreign ones may be anywhere (9)."""
        for child in (child for child in node if child.namespace == xmltree.UNDECLARED):
            self.fault(child, "S1: its prefix is not declared")
        own = {child.namespace for child in node if child.namespace.startswith(_TEMPLATE_NAMESPACE)} | self.namespaces
        return [child for child in node if child.namespace in own]

    def in_front(self, node: Node, *tags: str) -> list[Node | None]:
        """The first of each of these children. They occur once, in this order, before instructions (Appendix 1)."""
        children = self.children(node)
        ranks = [tags.index(child.tag) if child.tag in tags else len(tags) for child in children]
        for number, (child, rank) in enumerate(zip(children, ranks, strict=True)):
            if rank in ranks[:number] and child.tag in tags:
                self.fault(child, f"S1: a second {child.tag}, the first is in line {children[ranks.index(rank)].line}")
            elif rank < max(ranks[:number], default=0):
                self.fault(child, f"S1: {child.tag} must be before the instructions")
        return [next((child for child in children if child.tag == tag), None) for tag in tags]

    def template_nodes(self, root: Node) -> list[Node]:
        if root.tag == "template":
            return [root]
        if root.tag != "templates":
            self.fault(root, "S1: the file's outermost element must be templates or template")
            return []
        nodes = []
        for node in self.children(root):
            if node.tag == "template":
                nodes.append(node)
            else:
                self.fault(node, "S1: unknown element, only template is allowed here")
        if not nodes and not self.faults:
            self.fault(root, "S1: holds no template")
        return nodes

    def templates(self) -> tuple[Template, ...]:
        for kind in ("name", "id"):
            seen: dict[str, int] = {}
            for node in self.nodes:
                value = _attribute(node, kind) if kind == "name" else _normalized_id(node)
                if value is not None and value in seen:
                    self.fault(node, f"S1: template {kind} {value} is taken by the template of line {seen[value]}")
                elif value is not None:
                    seen[value] = node.line
        templates = tuple(self.template(node, ANY) for node in self.nodes)
        for node, template in zip(self.nodes, templates, strict=True):
            if template.id is None and _attribute(node, "id") is None and template.name not in self.referenced_names:
                self.fault(node, "S1: has no id and no reference to it: nothing can ever use it")
        return templates

    def templates_by_type(self, templates: tuple[Template, ...]) -> dict[str, dict[int, Template]]:
        if self.faults:
            return {}
        by_type: dict[str, dict[int, Template]] = {}
        for application_type in sorted(self.dynamic_types - {ANY}):
            variants = by_type[application_type] = {}
            for node, plain in zip(self.nodes, templates, strict=True):
                if plain.id is not None:
                    # One with its own type reads the same everywhere.
                    variant = plain if plain.application_type != ANY else self.template(node, application_type)
                    variants[plain.id] = plain if variant.body == plain.body else variant
        return by_type

    def template(self, node: Node, application_type: str) -> Template:
        name = self.name(node)
        application_type = self.type_ref(node) or application_type
        context = _Context(name, self.dictionary, application_type, reference_path=(name,))
        body = self.segment(node, context.with_dictionary_of(node))
        return Template(name, self.identifier(node, RANGES[UINT32][1]), application_type, body)

    def segment(self, node: Node, context: _Context, skip: tuple[str, ...] = ()) -> Segment:
        """The instructions inside a template, group or sequence (the context already has its attributes)."""
        found = [
            (instruction, line)
            for child in self.children(node)
            if child.tag not in ("typeRef", *skip)
            for instruction, line in self.instruction(child, context)
        ]
        instructions: list[Instruction] = []
        origins: dict[str, Node] = {}
        for instruction, origin in found:
            if isinstance(instruction, DynamicRef):
                count = sum(isinstance(other, DynamicRef) for other in instructions) + 1
                instruction = replace(instruction, name="templateRef" + (str(count) if count > 1 else ""))
            if instruction.name and instruction.name in origins:
                self.fault(origin, f"S1: the name is taken by the field of line {origins[instruction.name].line}")
            origins[instruction.name] = origin
            instructions.append(instruction)
        segment = Segment(tuple(instructions))
        if segment.bits > MAX_PRESENCE_BITS:
            self.fault(node, f"S1: needs {segment.bits} presence-map bits, at most {MAX_PRESENCE_BITS} are supported")
        return segment

    def instruction(self, node: Node, context: _Context) -> list[tuple[Instruction, Node]]:
        self.instructions += 1
        if self.instructions >= MAX_INSTRUCTIONS:
            if self.instructions == MAX_INSTRUCTIONS:
                self.fault(node, f"S1: more than {MAX_INSTRUCTIONS} instructions, references counted in full")
            return []
        if node.tag == "templateRef":
            return self.template_ref(node, context)
        context = context.with_dictionary_of(node)
        if node.tag in _FIELDS:
            return [(self.field(node, context), node)]
        if node.tag in ("group", "sequence"):
            if context.level == MAX_NESTING:
                self.fault(node, f"S1: more than {MAX_NESTING} groups and sequences inside each other")
                return []
            type_ref = self.type_ref(node) or context.application_type
            context = replace(context, level=context.level + 1, application_type=type_ref)
            return [((self.group if node.tag == "group" else self.sequence)(node, context), node)]
        self.fault(node, "S1: unknown element")
        return []

    def template_ref(self, node: Node, context: _Context) -> list[tuple[Instruction, Node]]:
        name, identifier = _attribute(node, "name"), _attribute(node, "id")
        if name is None and identifier is None:
            self.dynamic_types.add(context.application_type)
            return [(DynamicRef("templateRef", context.application_type), node)]
        target = self.by_name.get(name) if name is not None else self.by_id.get(_normalized_id(node))
        if target is None:
            self.fault(node, f"D8: unknown template {name if name is not None else identifier}")
            return []
        name = target.get("name") or ""
        self.referenced_names.add(name)
        path = (*context.reference_path, name)
        if name in context.reference_path:
            self.fault(node, f"S1: a template that contains itself: {' > '.join(path)}")
            return []
        # The referred template is the current one from here (6.4); its dictionary is its own, the type may be ours.
        dictionary = _attribute(target, "dictionary") or self.dictionary
        type_ref = self.type_ref(target) or context.application_type
        inner = replace(context, template=name, dictionary=dictionary, application_type=type_ref, reference_path=path)
        # A duplicate name is reported at the reference, where it can be fixed.
        return [(instruction, node) for instruction in self.segment(target, inner).instructions]

    def field(self, node: Node, context: _Context) -> Field:
        type = _FIELDS[node.tag]
        if node.tag == "string":
            charset = _attribute(node, "charset") or ASCII
            if charset not in (ASCII, UNICODE):
                self.fault(node, f'S1: charset must be ascii or unicode, not "{charset}"')
            type = UNICODE if charset == UNICODE else ASCII
        name, optional = self.name(node), self.optional(node)
        allowed = ["exponent", "mantissa"] if type == DECIMAL else ["length"] if type in (UNICODE, BYTES) else []
        elements = self.child_elements(node, allowed)
        field = Field(name, self.identifier(node), type, optional)
        if "length" in elements:
            length = elements["length"]
            self.reject_children(length)
            field = replace(field, length_name=self.name(length), length_id=self.identifier(length))
        if "exponent" not in elements and "mantissa" not in elements:
            return replace(field, operator=self.operator(node, type, optional, context, name))
        if self.operator_nodes(node):
            self.fault(node, "S1: an operator for the whole decimal and operators for its parts")
        exponent = self.part(node, elements.get("exponent"), "exponent", INT32, optional, context)
        mantissa = self.part(node, elements.get("mantissa"), "mantissa", INT64, False, context)
        return replace(field, exponent=exponent, mantissa=mantissa)

    def part(self, decimal: Node, node: Node | None, part: str, type: str, optional: bool, context: _Context) -> Field:
        tag = self.identifier(decimal)
        if node is None:
            return Field(part, tag, type, optional)
        self.child_elements(node, [])
        key = decimal.get("name") or ""
        operator = self.operator(node, type, optional, context.with_dictionary_of(node), key, part)
        return Field(part, tag, type, optional, operator)

    def group(self, node: Node, context: _Context) -> Group:
        return Group(self.name(node), self.identifier(node), self.optional(node), self.segment(node, context))

    def sequence(self, node: Node, context: _Context) -> Sequence:
        name, optional = self.name(node), self.optional(node)
        _, first = self.in_front(node, "typeRef", "length")
        length = Field("", None, UINT32, optional)
        if first is not None:
            self.child_elements(first, [])
            explicit = _attribute(first, "name")
            key, part = (explicit, "") if explicit is not None else (name, "length")
            operator = self.operator(first, UINT32, optional, context.with_dictionary_of(first), key, part)
            length = Field(explicit or "", self.identifier(first), UINT32, optional, operator)
        return Sequence(name, self.identifier(node), optional, length, self.segment(node, context, ("length",)))

    def operator(self, field: Node, type: str, optional: bool, context: _Context, key: str, part: str = "") -> Operator:
        nodes = self.operator_nodes(field)
        if not nodes:
            return Operator()
        node, *others = nodes
        for extra in others:
            self.fault(extra, f"S1: a second operator, the first is in line {node.line}")
        kind, text = node.tag, _attribute(node, "value")
        self.reject_children(node)
        applies = {INCREMENT: tuple(RANGES), TAIL: (ASCII, UNICODE, BYTES)}
        if type not in applies.get(kind, (type,)):
            self.fault(field, f"S2: {kind} cannot be used on {type}")
            return Operator()
        initial = None
        if text is not None:
            try:
                initial = conversion.from_string(text, type)
            except conversion.ConversionError as error:
                self.fault(field, f'S3: the value "{text}" of {kind} is not {type}: {error.reason} ({error.code})')
                return Operator(kind)
            if part == "exponent" and isinstance(initial, int) and abs(initial) > conversion.MAX_EXPONENT:
                self.fault(field, f"S3: the exponent {initial} is outside -63 to 63 (R1)")
        elif kind == CONSTANT:
            self.fault(field, "S4: constant without a value")
        elif kind == DEFAULT and not optional:
            self.fault(field, "S5: default without a value on a mandatory field")
        operator = Operator(kind, initial)
        if not operator.uses_dictionary:
            return operator
        explicit = _attribute(node, "key")
        if explicit is not None:
            key, part = explicit, ""
        return replace(operator, slot=self.slot(context.with_dictionary_of(node), key, part, type))

    def slot(self, context: _Context, key: str, part: str, type: str) -> int:
        scopes = {"global": "", "template": context.template, "type": context.application_type}
        name = context.dictionary
        where = (name, scopes[name], key, part) if name in scopes else ("user", name, key, part)
        number = self.slot_numbers.setdefault(where, len(self.slots))
        if number == len(self.slots):
            self.slots.append(Slot(*where, types=(type,)))
        elif type not in self.slots[number].types:
            self.slots[number] = replace(self.slots[number], types=(*self.slots[number].types, type))
        return number

    def operator_nodes(self, node: Node) -> list[Node]:
        return [child for child in self.children(node) if child.tag in _OPERATORS]

    def child_elements(self, node: Node, allowed: list[str]) -> dict[str, Node]:
        """The children of a field beside its operator, by tag; any other child is a fault."""
        inner: dict[str, Node] = {}
        for child in self.children(node):
            if child.tag in allowed and child.tag not in inner:
                if child.tag == "exponent" and "mantissa" in inner:
                    self.fault(child, "S1: exponent must be before the mantissa")
                inner[child.tag] = child
            elif child.tag in allowed:
                self.fault(child, f"S1: a second {child.tag}, the first is in line {inner[child.tag].line}")
            elif child.tag not in _OPERATORS:
                self.fault(child, f"S1: unknown element inside {node.tag}")
        return inner

    def reject_children(self, node: Node) -> None:
        for child in self.children(node):
            self.fault(child, f"S1: unknown element inside {node.tag}")

    def name(self, node: Node) -> str:
        name = _attribute(node, "name")
        if not name:
            self.fault(node, "S1: has no name")
        return name or ""

    def identifier(self, node: Node, most: int = RANGES[INT32][1]) -> int | None:
        text = _attribute(node, "id")
        if text is None:
            return None
        if not (text.isascii() and text.strip().isdigit() and int(text) <= most):
            self.fault(node, f'S1: id must be a number up to {most}, not "{text}"')
            return None
        return int(text)

    def optional(self, node: Node) -> bool:
        presence = _attribute(node, "presence") or "mandatory"
        if presence not in ("mandatory", "optional"):
            self.fault(node, f'S1: presence must be mandatory or optional, not "{presence}"')
        return presence == "optional"

    def type_ref(self, node: Node) -> str | None:
        (found,) = self.in_front(node, "typeRef")
        return self.name(found) if found is not None else None
