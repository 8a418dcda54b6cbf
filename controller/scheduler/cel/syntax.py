"""CEL tokens to a tree. Pure. Source: CEL language definition, grammar; macros are calls here, which `programs` knows."""

from typing import Final

import msgspec

from controller.scheduler.cel.tokens import CompileError, Token, tokens_of

LONGEST: Final = 10 * 1024
"""Kubernetes' own bound for a selector (resource.k8s.io, CELSelectorExpressionMaxLength)."""
DEEPEST: Final = 100
_LEVELS: Final = {
    "||": 1, "&&": 2, "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3, "in": 3,
    "+": 4, "-": 4, "*": 5, "/": 5, "%": 5,
}  # fmt: skip
_RESERVED: Final = frozenset(
    {
        *(
            "as",
            "break",
            "const",
            "continue",
            "else",
            "for",
            "function",
            "if",
            "import",
            "let",
            "loop",
            "package",
        ),
        *("in", "namespace", "return", "var", "void", "while", "true", "false", "null"),
    }
)
_SMALLEST_INT: Final = -(2**63)


class Node(msgspec.Struct, frozen=True):
    """One node of the tree.

    `kind` and `value`: literal (the value, of type `name`), name, select and optional_select (of the first part), index and
    optional_index, call (the first part is the target where `has_target`), list, map (keys and values in turn; `optional`:
    which of the entries are), not, negate, if, and the binary operators by their sign.
    """

    kind: str
    name: str = ""
    parts: tuple["Node", ...] = ()
    value: object = None
    has_target: bool = False
    optional: tuple[int, ...] = ()


def parse(text: str) -> Node:
    """Raises CompileError."""
    if len(text.encode()) > LONGEST:
        raise CompileError(f"is longer than {LONGEST} bytes")
    parser = _Parser(tokens_of(text))
    tree = parser.expression()
    parser.take("")
    return tree


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def take(self, kind: str) -> Token:
        token = self._next
        if token.kind != kind:
            raise CompileError(
                f"character {token.at + 1}: {token.text} where {kind or 'the end'} is expected"
            )
        self._at += 1
        return token

    def _try(self, *kinds: str) -> Token | None:
        token = self._next
        if token.kind not in kinds:
            return None
        self._at += 1
        return token

    def expression(self) -> Node:
        self._depth += 1
        if self._depth > DEEPEST:
            raise CompileError(f"is nested more than {DEEPEST} deep")
        found = self._binary(1)
        if self._try("?"):
            yes = self._binary(1)
            self.take(":")
            found = Node("if", parts=(found, yes, self.expression()))
        self._depth -= 1
        return found

    def _binary(self, level: int) -> Node:
        left = self._unary()
        while True:
            token = self._next
            sign = token.text if token.kind == "name" else token.kind
            if _LEVELS.get(sign, 0) < level:
                return left
            self._at += 1
            left = Node(sign, parts=(left, self._binary(_LEVELS[sign] + 1)))

    def _unary(self) -> Node:
        signs: list[str] = []
        while token := self._try("!", "-"):
            signs.append(token.kind)
        found = self._member(is_negative=signs[-1:] == ["-"])
        if signs[-1:] == ["-"] and found.kind == "negative":
            signs.pop()
            found = Node("literal", found.name, value=found.value)
        for sign in reversed(signs):
            found = Node("not" if sign == "!" else "negate", parts=(found,))
        return found

    def _member(self, *, is_negative: bool) -> Node:
        """`is_negative`: a minus stands before it, so that a number directly behind takes it in, and may be -2^63."""
        token = self._next
        if is_negative and token.kind in ("int", "double"):
            self._at += 1
            value = -token.value  # type: ignore[operator]
            _check_number(token, value)
            found = Node("negative", token.kind, value=value)
            return (
                found
                if self._next.kind not in (".", "[", ".?", "[?")
                else self._suffixes(Node("literal", token.kind, value=value))
            )
        return self._suffixes(self._primary())

    def _suffixes(self, found: Node) -> Node:
        while True:
            if self._try("."):
                found = self._selected(found, self._field())
            elif self._try(".?"):
                found = Node("optional_select", self._field(), (found,))
            elif token := self._try("[", "[?"):
                found = Node(
                    "index" if token.kind == "[" else "optional_index", parts=(found, self.expression())
                )
                self.take("]")
            else:
                return found

    def _field(self) -> str:
        token = self._try("name", "escaped")
        if token is None or (token.kind == "name" and token.text in ("true", "false", "null", "in")):
            raise CompileError(
                f"character {self._next.at + 1}: {self._next.text} where a field's name is expected"
            )
        return token.text

    def _selected(self, target: Node, name: str) -> Node:
        if self._try("("):
            return Node("call", name, (target, *self._list(")")), has_target=True)
        return Node("select", name, (target,))

    def _list(self, end: str) -> tuple[Node, ...]:
        found: list[Node] = []
        while not self._try(end):
            found.append(self.expression())
            if not self._try(","):
                self.take(end)
                break
        return tuple(found)

    def _primary(self) -> Node:
        token = self._next
        self._at += 1
        if token.kind == "(":
            found = self.expression()
            self.take(")")
            return found
        if token.kind in ("[", "[?"):
            return self._elements(is_optional=token.kind == "[?")
        if token.kind == "{":
            return self._entries()
        if token.kind in ("int", "uint", "double", "string", "bytes"):
            _check_number(token, token.value)
            return Node("literal", token.kind, value=token.value)
        if token.kind == ".":  # a name of the root scope, which is the only one
            token = self.take("name")
        if token.kind == "name":
            return self._named(token)
        raise CompileError(f"character {token.at + 1}: {token.text} where a value is expected")

    def _named(self, token: Token) -> Node:
        if token.text in ("true", "false"):
            return Node("literal", "bool", value=token.text == "true")
        if token.text == "null":
            return Node("literal", "null_type")
        if token.text in _RESERVED:
            raise CompileError(f"character {token.at + 1}: {token.text} is a reserved word")
        if self._try("("):
            return Node("call", token.text, self._list(")"))
        return Node("name", token.text)

    def _elements(self, *, is_optional: bool) -> Node:
        found: list[Node] = []
        optional: list[int] = []
        while not self._try("]"):
            if (is_optional and not found) or self._try("?"):
                optional.append(len(found))
            found.append(self.expression())
            if not self._try(","):
                self.take("]")
                break
        return Node("list", parts=tuple(found), optional=tuple(optional))

    def _entries(self) -> Node:
        found: list[Node] = []
        optional: list[int] = []
        while not self._try("}"):
            if self._try("?"):
                optional.append(len(found) // 2)
            found.append(self.expression())
            self.take(":")
            found.append(self.expression())
            if not self._try(","):
                self.take("}")
                break
        return Node("map", parts=tuple(found), optional=tuple(optional))


def _check_number(token: Token, value: object) -> None:
    most = 2**64 if token.kind == "uint" else 2**63
    if token.kind in ("int", "uint") and isinstance(value, int) and not _SMALLEST_INT <= value < most:
        raise CompileError(f"character {token.at + 1}: {token.text} is out of range")
