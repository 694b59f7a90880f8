"""The faults that are tried: in a file of Python, each place where one token is easily wrong."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

SEED = 22
COMPARISONS = {"Lt": "LtE", "Gt": "GtE", "Eq": "NotEq", "Is": "IsNot", "In": "NotIn"}
ARITHMETIC = {"Add": "Sub", "Mult": "Div", "LShift": "RShift", "BitAnd": "BitOr"}
EXTREMES = {"min": "max", "amin": "amax", "minimum": "maximum", "argmin": "argmax", "floor": "ceil", "any": "all"}
for names in (COMPARISONS, ARITHMETIC, EXTREMES):
    names.update({new: old for old, new in names.items()})
ARITHMETIC |= {"FloorDiv": "Mult", "Mod": "Mult", "Pow": "Mult"}
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
WHOLE_FILE = (1, 1 << 30)


@dataclass(frozen=True)
class Mutant:
    """A change of one place: what stands there, what would."""

    file: str  # below the root
    function: str  # its qualified name; "" outside of functions and classes
    kind: str
    old: str
    new: str
    line: int
    start: int  # the bytes that are replaced
    stop: int
    lines: tuple[int, int]  # of which a test has to run one to notice it
    source: str  # a digest of the function; outside of functions, of the statement
    number: int = 0  # among the changes like this one in the function

    @property
    def change(self) -> str:
        """What was, and what is."""
        return f"{' '.join(self.old.split())} → {' '.join(self.new.split())}"

    @property
    def key(self) -> tuple[str, str, str, int]:
        """The same wherever the function stands in its file."""
        return self.file, self.function, self.change, self.number

    def apply(self, content: bytes) -> bytes:
        """The file with the fault."""
        return content[: self.start] + self.new.encode() + content[self.stop :]


def sample(root: Path, room: str, count: int) -> list[Mutant]:
    """Mutants of regard/{room}: as many of each kind as of the others, where there are, and one in a line at most.

    They are drawn by a hash of their keys, so that a change of the code changes the sample only where it is.
    """
    kinds: dict[str, list[Mutant]] = defaultdict(list)
    for path in sorted((root / "regard" / room).rglob("*.py")):
        for mutant in mutants(path.relative_to(root).as_posix(), path.read_bytes()):
            kinds[mutant.kind].append(mutant)
    for candidates in kinds.values():
        candidates.sort(key=lambda mutant: _digest(f"{SEED} {mutant.key}"))
    chosen: dict[tuple[str, int], Mutant] = {}
    while len(chosen) < count and any(kinds.values()):
        for kind in sorted(kinds):
            fresh = (mutant for mutant in kinds[kind] if (mutant.file, mutant.line) not in chosen)
            mutant = next(fresh, None)
            if mutant is None:
                kinds[kind] = []
            elif len(chosen) < count:
                chosen[mutant.file, mutant.line] = mutant
    return sorted(chosen.values(), key=lambda mutant: (mutant.file, mutant.start))


def mutants(file: str, content: bytes) -> Iterator[Mutant]:
    """Every mutant of a file."""
    starts = [0]
    for line in content.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    numbers: Counter[tuple[str, str]] = Counter()
    for statement in ast.parse(content).body:
        for node, definitions in _places(statement, ()):
            for kind, part, new in _changes(node):
                start = starts[part.lineno - 1] + part.col_offset
                stop = starts[(part.end_lineno or part.lineno) - 1] + (part.end_col_offset or 0)
                function, old = ".".join(owner.name for owner in definitions), content[start:stop].decode()
                source = _digest(ast.unparse(definitions[-1] if definitions else statement))
                mutant = Mutant(
                    *(file, function, kind, old, new), part.lineno, start, stop, _lines(part, definitions), source
                )
                yield replace(mutant, number=numbers[function, mutant.change])
                numbers[function, mutant.change] += 1


def _places(node: ast.AST, definitions: tuple[Definition, ...]) -> Iterator[tuple[ast.AST, tuple[Definition, ...]]]:
    """The nodes that may be changed, with the classes and functions around them.

    Left out: types and decorators, formatted texts (the parser does not say where their parts are), what is raised or
    asserted.
    """
    if isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert):
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    yield node, definitions
    if isinstance(node, Definition):
        definitions = (*definitions, node)
    typed = isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass", "cast")
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list") or (typed and field == "args"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _places(child, definitions)


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Kind, part of the node, and what to put there."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if new := _swap(operator, COMPARISONS):
            yield "comparison", node, _text(ast.Compare(left, [new], [right]))
        case ast.BinOp(left=left, op=operator, right=right) if (new := _swap(operator, ARITHMETIC)) and not _is_text(
            node
        ):
            yield "arithmetic", node, _text(ast.BinOp(left, new, right))
        case ast.AugAssign(target=target, op=operator, value=value) if new := _swap(operator, ARITHMETIC):
            yield "arithmetic", node, ast.unparse(ast.AugAssign(target, new, value))
        case ast.BoolOp(op=operator, values=values):
            yield "logic", node, _text(ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "logic", node, _text(operand)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield "arithmetic", node, _text(operand)
        case ast.Constant(value=bool(value)):
            yield "constant", node, str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield "constant", node, repr(value + 1)
        case ast.Expr(value=ast.Call()):
            yield "call left out", node, "pass"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "return", node, "return None"
        case ast.Call(func=ast.Name(id=name) as function) if name in EXTREMES:
            yield "min and max", function, EXTREMES[name]
        case ast.Call(func=ast.Attribute(value=value, attr=name) as function) if name in EXTREMES:
            yield "min and max", function, f"{_text(value)}.{EXTREMES[name]}"
        case ast.Slice(lower=lower, upper=upper, step=None):
            for bound in (lower, upper):
                if bound is not None and not isinstance(bound, ast.Constant):
                    yield "slice", bound, _text(ast.BinOp(bound, ast.Add(), ast.Constant(1)))


def _swap(operator: ast.AST, swaps: dict[str, str]) -> Any:
    name = type(operator).__name__
    return getattr(ast, swaps[name])() if name in swaps else None


def _text(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"


def _is_text(node: ast.BinOp) -> bool:
    """Whether it joins or fills strings, or joins types: any change of that is noticed at once."""
    parts = (node.left, node.right)
    types = isinstance(node.op, ast.BitOr) and any(ast.unparse(part) in ("None", "int", "str") for part in parts)
    texts = any(isinstance(part, ast.JoinedStr) or isinstance(getattr(part, "value", None), str) for part in parts)
    return types or texts


def _lines(part: ast.expr | ast.stmt, definitions: tuple[Definition, ...]) -> tuple[int, int]:
    """Where a test that notices the change has to come by.

    A default, or what stands in a class or outside of all functions, is computed when the module is imported.
    """
    functions = [owner for owner in definitions if not isinstance(owner, ast.ClassDef)]
    if functions and part.lineno >= functions[-1].body[0].lineno:
        return part.lineno, part.end_lineno or part.lineno
    if functions:
        return functions[-1].body[0].lineno, functions[-1].end_lineno or part.lineno
    if definitions:
        return definitions[-1].lineno, definitions[-1].end_lineno or part.lineno
    return WHOLE_FILE


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
