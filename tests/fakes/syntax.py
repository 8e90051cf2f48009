"""The fake shell's grammar: text to an immutable tree, one complete command line at a time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
META = set(" \t\n;&|<>()")
CLOSERS = {"then", "elif", "else", "fi", "do", "done", "esac", "}"}


class ShellSyntaxError(Exception):
    """The text is no command; the message is what bash would name."""


@dataclass(frozen=True, slots=True)
class Literal:
    text: str
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    quoted: bool
    operator: str = ""
    argument: Word | None = None


@dataclass(frozen=True, slots=True)
class CommandSubstitution:
    source: str
    quoted: bool


@dataclass(frozen=True, slots=True)
class Arithmetic:
    expression: Word
    quoted: bool


Part = Literal | Parameter | CommandSubstitution | Arithmetic


@dataclass(frozen=True, slots=True)
class Word:
    parts: tuple[Part, ...]

    @property
    def plain(self) -> str | None:
        """The text of an unquoted literal word, else None."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Literal) and not self.parts[0].quoted:
            return self.parts[0].text
        return None


class HereDocument:
    """A here-document whose body is read once the line that names it has ended."""

    __slots__ = ("body", "delimiter", "quoted", "strip")

    def __init__(self, delimiter: str, quoted: bool, strip: bool) -> None:
        self.delimiter = delimiter
        self.quoted = quoted
        self.strip = strip
        self.body: Word = Word(())


@dataclass(frozen=True, slots=True)
class Redirect:
    descriptor: int
    operator: str
    target: Word | HereDocument


@dataclass(frozen=True, slots=True)
class Simple:
    assignments: tuple[tuple[str, bool, Word], ...]
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]


@dataclass(frozen=True, slots=True)
class Pipeline:
    commands: tuple[Node, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class AndOr:
    first: Node
    rest: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class Item:
    node: Node
    background: bool
    text: str


@dataclass(frozen=True, slots=True)
class Sequence:
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Group:
    body: Sequence
    subshell: bool
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class If:
    branches: tuple[tuple[Sequence, Sequence], ...]
    otherwise: Sequence | None
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class Loop:
    condition: Sequence
    body: Sequence
    until: bool
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class For:
    name: str
    words: tuple[Word, ...] | None
    body: Sequence
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    subject: Word
    branches: tuple[tuple[tuple[Word, ...], Sequence], ...]
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    body: Node
    text: str


@dataclass(frozen=True, slots=True)
class ArithmeticCommand:
    expression: Word
    redirects: tuple[Redirect, ...] = ()


Node = Simple | Pipeline | AndOr | Sequence | Group | If | Loop | For | Case | Function | ArithmeticCommand


class Parser:
    """Reads command lines off a text, expanding aliases as it goes."""

    def __init__(self, source: str, aliases: Mapping[str, str] | None = None) -> None:
        self.source = source
        self.position = 0
        self.aliases: Mapping[str, str] = {} if aliases is None else aliases
        self.expanding: set[str] = set()
        self.expanded_until = 0
        self.pending: list[HereDocument] = []

    def next_line(self) -> Sequence | None:
        """Returns the next complete command line, None at the end of the text."""
        self.skip_newlines()
        if self.position >= len(self.source):
            return None
        sequence = self.sequence(toplevel=True)
        self.skip_blanks()
        if self.position < len(self.source) and self.source[self.position] != "\n":
            raise self.unexpected()
        self.read_newline()
        return sequence

    # Characters

    def peek(self, text: str) -> bool:
        return self.source.startswith(text, self.position)

    def skip_blanks(self) -> None:
        source = self.source
        while self.position < len(source):
            character = source[self.position]
            if character in " \t":
                self.position += 1
            elif character == "\\" and self.peek("\\\n"):
                self.position += 2
            elif character == "#":
                end = source.find("\n", self.position)
                self.position = len(source) if end < 0 else end
            else:
                return

    def read_newline(self) -> None:
        if self.peek("\n"):
            self.position += 1
            for document in self.pending:
                self.read_document(document)
            self.pending.clear()

    def skip_newlines(self) -> None:
        self.skip_blanks()
        while self.peek("\n"):
            self.read_newline()
            self.skip_blanks()

    def read_document(self, document: HereDocument) -> None:
        lines = []
        while self.position < len(self.source):
            end = self.source.find("\n", self.position)
            end = len(self.source) if end < 0 else end
            line = self.source[self.position : end]
            self.position = min(end + 1, len(self.source))
            if document.strip:
                line = line.lstrip("\t")
            if line == document.delimiter:
                break
            lines.append(line + "\n")
        text = "".join(lines)
        if document.quoted:
            document.body = Word((Literal(text, True),))
        else:
            document.body = Parser(text).document_word()

    def unexpected(self) -> ShellSyntaxError:
        self.skip_blanks()
        if self.position >= len(self.source):
            return ShellSyntaxError("syntax error: unexpected end of file")
        token = self.word_text() or self.source[self.position : self.position + 1]
        for pair in ("&&", "||", ";;", "<<", ">>"):
            if self.peek(pair):
                token = pair
        return ShellSyntaxError(f"syntax error near unexpected token `{'newline' if token == chr(10) else token}'")

    def word_text(self) -> str:
        """Returns the unquoted word at the position, without moving."""
        match = re.compile(r"[^ \t\n;&|<>()'\"\\$`]+").match(self.source, self.position)
        return match.group() if match else ""

    def at_keyword(self, *words: str) -> bool:
        self.skip_blanks()
        text = self.word_text()
        return text in words

    def expect(self, word: str) -> None:
        self.skip_newlines()
        if self.word_text() == word:
            self.position += len(word)
            return
        raise self.unexpected()

    # Commands

    def sequence(self, toplevel: bool = False) -> Sequence:
        items: list[Item] = []
        while True:
            if toplevel:
                self.skip_blanks()
            else:
                self.skip_newlines()
            if self.position >= len(self.source) or self.peek(")") or self.peek(";;"):
                break
            if self.peek("\n"):
                break
            if self.at_keyword(*CLOSERS):
                if toplevel:
                    raise self.unexpected()
                break
            start = self.position
            node = self.and_or()
            text = self.source[start : self.position].strip()
            self.skip_blanks()
            background = False
            if self.peek("&") and not self.peek("&&"):
                background = True
                self.position += 1
            elif self.peek(";") and not self.peek(";;"):
                self.position += 1
            elif not self.peek("\n") and self.position < len(self.source):
                items.append(Item(node, False, text))
                break
            items.append(Item(node, background, text))
        if not items:
            raise self.unexpected()
        return Sequence(tuple(items))

    def and_or(self) -> Node:
        first = self.pipeline()
        rest: list[tuple[str, Node]] = []
        while True:
            self.skip_blanks()
            operator = "&&" if self.peek("&&") else "||" if self.peek("||") else ""
            if not operator:
                break
            self.position += 2
            self.skip_newlines()
            rest.append((operator, self.pipeline()))
        return AndOr(first, tuple(rest)) if rest else first

    def pipeline(self) -> Node:
        negated = False
        while self.at_keyword("!"):
            self.position += 1
            negated = not negated
        commands = [self.command()]
        while True:
            self.skip_blanks()
            if not self.peek("|") or self.peek("||"):
                break
            self.position += 1
            self.skip_newlines()
            commands.append(self.command())
        if len(commands) == 1 and not negated:
            return commands[0]
        return Pipeline(tuple(commands), negated)

    def command(self) -> Node:
        self.skip_blanks()
        if self.peek("((") and (end := self.matching_arithmetic(self.position + 2)) is not None:
            expression = Parser(self.source[self.position + 2 : end]).document_word()
            self.position = end + 2
            return ArithmeticCommand(expression, self.redirects())
        if self.peek("("):
            self.position += 1
            body = self.sequence()
            self.skip_newlines()
            if not self.peek(")"):
                raise self.unexpected()
            self.position += 1
            return Group(body, True, self.redirects())
        keyword = self.word_text()
        if keyword == "{":
            self.position += 1
            body = self.sequence()
            self.expect("}")
            return Group(body, False, self.redirects())
        if keyword == "if":
            return self.conditional()
        if keyword in ("while", "until"):
            self.position += len(keyword)
            condition = self.sequence()
            return Loop(condition, self.do_group(), keyword == "until", self.redirects())
        if keyword == "for":
            return self.for_loop()
        if keyword == "case":
            return self.case()
        if keyword in CLOSERS:
            raise self.unexpected()
        if keyword == "function" or (NAME.fullmatch(keyword) and self.function_ahead(keyword)):
            return self.function(keyword)
        return self.simple()

    def matching_arithmetic(self, start: int) -> int | None:
        depth = 0
        for index in range(start, len(self.source)):
            character = self.source[index]
            if character == "(":
                depth += 1
            elif character == ")":
                if depth == 0:
                    return index if self.source.startswith("))", index) else None
                depth -= 1
        return None

    def do_group(self) -> Sequence:
        self.skip_newlines()
        if self.peek(";"):
            self.position += 1
        self.expect("do")
        body = self.sequence()
        self.expect("done")
        return body

    def conditional(self) -> Node:
        branches: list[tuple[Sequence, Sequence]] = []
        otherwise: Sequence | None = None
        self.position += 2
        while True:
            condition = self.sequence()
            self.expect("then")
            branches.append((condition, self.sequence()))
            self.skip_newlines()
            if self.at_keyword("elif"):
                self.position += 4
                continue
            if self.at_keyword("else"):
                self.position += 4
                otherwise = self.sequence()
            self.expect("fi")
            return If(tuple(branches), otherwise, self.redirects())

    def for_loop(self) -> Node:
        self.position += 3
        self.skip_blanks()
        name = self.word_text()
        if not NAME.fullmatch(name):
            raise self.unexpected()
        self.position += len(name)
        self.skip_newlines()
        words: tuple[Word, ...] | None = None
        if self.at_keyword("in"):
            self.position += 2
            found = []
            while True:
                self.skip_blanks()
                if self.position >= len(self.source) or self.source[self.position] in ";\n":
                    break
                found.append(self.word())
            words = tuple(found)
        return For(name, words, self.do_group(), self.redirects())

    def case(self) -> Node:
        self.position += 4
        self.skip_blanks()
        subject = self.word()
        self.expect("in")
        branches: list[tuple[tuple[Word, ...], Sequence]] = []
        while True:
            self.skip_newlines()
            if self.at_keyword("esac"):
                self.position += 4
                return Case(subject, tuple(branches), self.redirects())
            if self.peek("("):
                self.position += 1
            patterns = []
            while True:
                self.skip_blanks()
                patterns.append(self.word())
                self.skip_blanks()
                if self.peek("|"):
                    self.position += 1
                    continue
                break
            if not self.peek(")"):
                raise self.unexpected()
            self.position += 1
            self.skip_newlines()
            empty = self.peek(";;") or self.at_keyword("esac")
            branches.append((tuple(patterns), Sequence(()) if empty else self.sequence()))
            self.skip_newlines()
            if self.peek(";;"):
                self.position += 2

    def function_ahead(self, keyword: str) -> bool:
        return bool(re.compile(r"[ \t]*\([ \t]*\)").match(self.source, self.position + len(keyword)))

    def function(self, keyword: str) -> Node:
        start = self.position
        self.position += len(keyword)
        name = keyword
        if keyword == "function":
            self.skip_blanks()
            name = self.word_text()
            self.position += len(name)
        self.skip_blanks()
        if self.peek("("):
            self.position = self.source.index(")", self.position) + 1
        self.skip_newlines()
        body = self.command()
        if isinstance(body, Simple):
            raise self.unexpected()
        return Function(name, body, self.source[start : self.position])

    def expand_alias(self) -> None:
        while True:
            self.skip_blanks()
            if self.position >= self.expanded_until:
                self.expanding.clear()
            name = self.word_text()
            if not name or name not in self.aliases or name in self.expanding:
                return
            value = self.aliases[name]
            end = self.position + len(name)
            if end < len(self.source) and self.source[end] not in META:
                return
            self.expanding.add(name)
            self.source = self.source[: self.position] + value + self.source[end:]
            self.expanded_until = self.position + len(value)

    def simple(self) -> Node:
        self.expand_alias()
        assignments: list[tuple[str, bool, Word]] = []
        words: list[Word] = []
        redirects: list[Redirect] = []
        while True:
            self.skip_blanks()
            redirect = self.redirect()
            if redirect is not None:
                redirects.append(redirect)
                continue
            if self.position >= len(self.source) or self.source[self.position] in META:
                break
            if not words:
                match = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=").match(self.source, self.position)
                if match:
                    self.position = match.end()
                    at_end = self.position >= len(self.source) or self.source[self.position] in META
                    value = Word(()) if at_end else self.word()
                    assignments.append((match.group(1), bool(match.group(2)), value))
                    self.expand_alias()
                    continue
            words.append(self.word())
        if not (assignments or words or redirects):
            raise self.unexpected()
        return Simple(tuple(assignments), tuple(words), tuple(redirects))

    def redirects(self) -> tuple[Redirect, ...]:
        found: list[Redirect] = []
        while True:
            self.skip_blanks()
            redirect = self.redirect()
            if redirect is None:
                return tuple(found)
            found.append(redirect)

    def redirect(self) -> Redirect | None:
        match = re.compile(r"(\d*)(&>>|&>|<<<|<<-|<<|>>|>&|<&|>\||>|<)").match(self.source, self.position)
        if match is None:
            return None
        operator = match.group(2)
        descriptor = int(match.group(1)) if match.group(1) else (0 if operator.startswith("<") else 1)
        self.position = match.end()
        self.skip_blanks()
        if self.position >= len(self.source) or self.source[self.position] in META:
            raise self.unexpected()
        if operator in ("<<", "<<-"):
            start = self.position
            word = self.word()
            raw = self.source[start : self.position]
            text = "".join(part.text for part in word.parts if isinstance(part, Literal))
            document = HereDocument(text, any(mark in raw for mark in "'\"\\"), operator == "<<-")
            self.pending.append(document)
            return Redirect(descriptor, "<<", document)
        return Redirect(descriptor, operator, self.word())

    # Words

    def word(self) -> Word:
        start = self.position
        parts = self.parts(stop=META)
        if self.position == start:
            raise self.unexpected()
        return Word(tuple(parts))

    def document_word(self) -> Word:
        """Returns the whole text as a word with the expansions that double quotes allow."""
        parts: list[Part] = []
        self.double_quoted(parts, end="")
        return Word(tuple(parts))

    def parts(self, stop: set[str]) -> list[Part]:
        parts: list[Part] = []
        text: list[str] = []

        def flush() -> None:
            if text:
                parts.append(Literal("".join(text)))
                text.clear()

        source = self.source
        while self.position < len(source):
            character = source[self.position]
            if character in stop:
                break
            if character == "\\":
                if self.peek("\\\n"):
                    self.position += 2
                    continue
                flush()
                parts.append(Literal(source[self.position + 1 : self.position + 2], True))
                self.position += 2
            elif character == "'":
                flush()
                end = source.find("'", self.position + 1)
                if end < 0:
                    raise ShellSyntaxError("unexpected EOF while looking for matching `''")
                parts.append(Literal(source[self.position + 1 : end], True))
                self.position = end + 1
            elif character == '"':
                flush()
                self.position += 1
                before = len(parts)
                self.double_quoted(parts, end='"')
                if len(parts) == before:
                    parts.append(Literal("", True))
            elif self.peek("$'"):
                flush()
                match = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL).match(source, self.position)
                if match is None:
                    raise ShellSyntaxError("unexpected EOF while looking for matching `''")
                parts.append(Literal(unescape(match.group(1)), True))
                self.position = match.end()
            elif character in "$`":
                flush()
                self.dollar(parts, quoted=False)
            else:
                text.append(character)
                self.position += 1
        flush()
        return parts

    def double_quoted(self, parts: list[Part], end: str) -> None:
        text: list[str] = []
        while True:
            if self.position >= len(self.source):
                if end:
                    raise ShellSyntaxError(f"unexpected EOF while looking for matching `{end}'")
                break
            character = self.source[self.position]
            if end and character == end:
                self.position += 1
                break
            following = self.source[self.position + 1 : self.position + 2]
            if character == "\\" and following and following in '$`"\\\n':
                if following == '"' and not end:
                    text.append("\\")
                if following != "\n":
                    text.append(following)
                self.position += 2
            elif character in "$`":
                if text:
                    parts.append(Literal("".join(text), True))
                    text.clear()
                self.dollar(parts, quoted=True)
            else:
                text.append(character)
                self.position += 1
        if text:
            parts.append(Literal("".join(text), True))

    def dollar(self, parts: list[Part], quoted: bool) -> None:
        source = self.source
        if self.peek("`"):
            match = re.compile(r"`((?:[^`\\]|\\.)*)`", re.DOTALL).match(source, self.position)
            if match is None:
                raise ShellSyntaxError("unexpected EOF while looking for matching ``'")
            self.position = match.end()
            parts.append(CommandSubstitution(re.sub(r"\\([`\\$])", r"\1", match.group(1)), quoted))
            return
        if self.peek("$((") and (end := self.matching_arithmetic(self.position + 3)) is not None:
            expression = Parser(source[self.position + 3 : end]).document_word()
            self.position = end + 2
            parts.append(Arithmetic(expression, quoted))
            return
        if self.peek("$("):
            start = self.position + 2
            inner = Parser(source)
            inner.position = start
            inner.skip_newlines()
            if not inner.peek(")"):
                inner.sequence()
                inner.skip_newlines()
            if not inner.peek(")"):
                raise inner.unexpected()
            self.position = inner.position + 1
            parts.append(CommandSubstitution(source[start : inner.position], quoted))
            return
        if self.peek("${"):
            self.position += 2
            self.braced(parts, quoted)
            return
        match = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*|[0-9?$!#@*\-])").match(source, self.position)
        if match is None:
            parts.append(Literal("$", quoted))
            self.position += 1
            return
        self.position = match.end()
        parts.append(Parameter(match.group(1), quoted))

    def braced(self, parts: list[Part], quoted: bool) -> None:
        match = re.compile(r"(#?)([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[?$!#@*\-])").match(self.source, self.position)
        if match is None:
            raise ShellSyntaxError("bad substitution")
        self.position = match.end()
        name = match.group(2)
        if match.group(1):
            self.close_brace()
            parts.append(Parameter(name, quoted, "length"))
            return
        operator = re.compile(r":?[-=+?]|%%|%|##|#|").match(self.source, self.position)
        assert operator is not None
        if not operator.group():
            self.close_brace()
            parts.append(Parameter(name, quoted))
            return
        self.position = operator.end()
        argument = Word(tuple(self.parts(stop={"}"})))
        self.close_brace()
        parts.append(Parameter(name, quoted, operator.group(), argument))

    def close_brace(self) -> None:
        if not self.peek("}"):
            raise ShellSyntaxError("bad substitution: no closing `}'")
        self.position += 1


ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b", "\\": "\\"}


def unescape(text: str) -> str:
    """Returns `text` with backslash escapes replaced; bytes beyond ASCII become surrogate escapes."""

    def replace(match: re.Match[str]) -> str:
        body = match.group(1)
        if body[0] == "x":
            return bytes([int(body[1:], 16)]).decode("utf-8", "surrogateescape")
        if body[0] in "01234567":
            return bytes([int(body, 8) & 255]).decode("utf-8", "surrogateescape")
        return ESCAPES.get(body, body if body in "'\"" else "\\" + body)

    return re.sub(r"\\(x[0-9A-Fa-f]{1,2}|[0-7]{1,4}|.)", replace, text, flags=re.DOTALL)
